//! The masks of a model as values, with the reason of every masked cell; proofs on the model itself that
//! nothing leaks past them; and the usual mistakes beside the right mask.

mod align;
mod finite;
mod inconclusive;
mod noise;
mod padding;
mod perturbation_rig;
mod place;
mod proof;
mod reach;
mod scores;
mod window;
mod wrong;

use attnscope_graph::{Architecture, AttentionKind, AttentionPlace, Dim, MaskKind, Model, Side, Stack};
use attnscope_run::{CheckedInput, Input, RunError};
pub use attnscope_run::{MaskReason, masked_by};

pub use finite::NotFinite;
pub(crate) use padding::shapes;
pub use perturbation_rig::{Padding, PerturbationRig};
pub use proof::{Claim, Leak, Proof, Verdict};
pub use wrong::{Compared, Mistake, RowDifference};

/// Which of the three attentions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attention {
    /// The encoder's self-attention.
    Encoder,
    /// The decoder's self-attention.
    Decoder,
    /// From the decoder to the encoder.
    Cross,
}

impl Attention {
    /// Those that a model has, in the order in which data flows.
    pub fn of(architecture: &Architecture) -> Vec<Self> {
        let has = |attention: &Self| match attention {
            Self::Encoder => architecture.has(Stack::Encoder),
            Self::Decoder => architecture.has(Stack::Decoder),
            Self::Cross => architecture.has_cross_attention(),
        };
        [Self::Encoder, Self::Decoder, Self::Cross].into_iter().filter(has).collect()
    }

    /// The mask's name.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Encoder => "M_e",
            Self::Decoder => "M_d",
            Self::Cross => "M_x",
        }
    }

    /// Its name to a reader.
    pub fn title(self) -> &'static str {
        match self {
            Self::Encoder => "encoder self-attention",
            Self::Decoder => "decoder self-attention",
            Self::Cross => "cross-attention",
        }
    }

    /// The stack whose layers hold it.
    pub fn stack(self) -> Stack {
        match self {
            Self::Encoder => Stack::Encoder,
            Self::Decoder | Self::Cross => Stack::Decoder,
        }
    }

    /// The side of the queries.
    pub fn queries(self) -> Side {
        self.stack().side()
    }

    /// The side of the keys.
    pub fn keys(self) -> Side {
        match self {
            Self::Encoder | Self::Cross => Side::Source,
            Self::Decoder => Side::Target,
        }
    }

    /// Which attention of a layer it is.
    pub fn kind(self) -> AttentionKind {
        match self {
            Self::Encoder | Self::Decoder => AttentionKind::SelfAttention,
            Self::Cross => AttentionKind::CrossAttention,
        }
    }

    /// The path of one of its nodes, or, with `*` for a layer, of all.
    pub fn path(self, layer: &str, leaf: &str) -> String {
        format!("{}.{layer}.{}.{leaf}", self.stack().name(), self.kind().name())
    }

    /// What it must mask: padding, and in the decoder's self-attention the future.
    pub fn right(self) -> MaskKind {
        let causal = self == Self::Decoder;
        MaskKind { queries: self.queries(), keys: self.keys(), causal, padding: true, reach: None }
    }
}

/// One mask for one input.
#[derive(Debug, Clone, PartialEq)]
pub struct Mask {
    /// Whose it is.
    pub attention: Attention,
    /// What it masks by the model's wiring; `None` where the attention has no mask.
    pub kind: Option<MaskKind>,
    /// The layers that use it.
    pub layers: Vec<usize>,
    /// Whether those are all layers of the stack.
    pub in_all_layers: bool,
    /// How many heads share it.
    pub heads: usize,
    /// [batch, 1, query, key]
    pub shape: [usize; 4],
    /// [batch, query, key]: why a cell is masked; nothing where it is visible.
    pub cells: Vec<Option<MaskReason>>,
    /// A sentence for every rule, whether it applies or not.
    pub reasons: Vec<String>,
}

impl Mask {
    /// The cells of one row of the batch, [query, key].
    pub fn of_row(&self, row: usize) -> &[Option<MaskReason>] {
        let size = self.shape[2] * self.shape[3];
        self.cells.get(row * size..(row + 1) * size).unwrap_or_default()
    }

    /// Queries of a row of the batch with no visible key, but for padding whose window holds no token: nobody reads that.
    pub fn fully_masked_queries(&self, row: usize) -> Vec<usize> {
        let rows = self.of_row(row).chunks(self.shape[3].max(1)).enumerate();
        let has_window = self.kind.is_some_and(|kind| kind.reach.is_some());
        // Self-attention: a query that is padding is hidden from itself as a key.
        let is_padding = |query: usize, keys: &[Option<MaskReason>]| {
            has_window && keys.get(query).copied().flatten() == Some(MaskReason::Padding)
        };
        let fully_masked =
            rows.filter(|(query, keys)| keys.iter().all(Option::is_some) && !is_padding(*query, keys));
        fully_masked.map(|(query, _)| query).collect()
    }
}

/// The masks of a model for an input.
///
/// # Errors
/// When the input does not fit the model.
pub fn masks(model: &Model, input: &Input) -> Result<Vec<Mask>, RunError> {
    let checked = CheckedInput::new(model, input.clone())?;
    let sizes = checked.sizes();
    let size = |dim| sizes.get(dim).unwrap_or(0);
    let mask = |(attention, kind, layers): (Attention, Option<MaskKind>, Vec<usize>)| {
        let (queries, keys) = (size(attention.queries().length()), size(attention.keys().length()));
        let batch = size(Dim::Batch);
        let cell = |at: usize| {
            let (row, query, key) =
                (at / (queries * keys).max(1), at / keys.max(1) % queries.max(1), at % keys);
            kind.and_then(|kind| masked_by(kind, query, key, || is_token(input, attention.keys(), row, key)))
        };
        Mask {
            attention,
            kind,
            in_all_layers: layers.len() == model.graph.layers(attention.stack()),
            layers,
            heads: size(Dim::Heads(attention.stack())),
            shape: [batch, 1, queries, keys],
            cells: (0..batch * queries * keys).map(cell).collect(),
            reasons: reasons(model, input, attention, kind),
        }
    };
    let attentions = Attention::of(&model.architecture).into_iter();
    Ok(attentions.flat_map(|attention| kinds_of(model, attention)).map(mask).collect())
}

/// What the graph masks in an attention, and in which layers: most models mask the same in all.
fn kinds_of(model: &Model, attention: Attention) -> Vec<(Attention, Option<MaskKind>, Vec<usize>)> {
    let mut kinds: Vec<(Attention, Option<MaskKind>, Vec<usize>)> = Vec::new();
    for layer in 0..model.graph.layers(attention.stack()) {
        let place = AttentionPlace { stack: attention.stack(), layer, kind: attention.kind() };
        let kind = model.graph.mask_of(place);
        match kinds.iter_mut().find(|(_, known, _)| *known == kind) {
            Some((.., layers)) => layers.push(layer),
            None => kinds.push((attention, kind, vec![layer])),
        }
    }
    kinds
}

/// Whether a position of an input is a token. Audio has no padding.
pub(crate) fn is_token(input: &Input, side: Side, row: usize, position: usize) -> bool {
    let Some(rows) = input.rows(side) else { return true };
    rows.open().get(row * rows.length() + position).copied().unwrap_or(false)
}

fn reasons(model: &Model, input: &Input, attention: Attention, kind: Option<MaskKind>) -> Vec<String> {
    let (causal, padding) = kind.map_or((false, false), |kind| (kind.causal, kind.padding));
    let keys = attention.keys().word();
    let window = kind.and_then(|kind| kind.reach).map(|reach| match causal {
        true => format!(
            "window: a token sees {reach} before it and itself; further ones reach it through other layers"
        ),
        false => {
            format!("window: a token sees {reach} on each side; further ones reach it through other layers")
        }
    });
    let position = match (attention, causal) {
        (Attention::Encoder, false) => "position: the whole source is known, so every token sees every other",
        (Attention::Encoder, true) => "position: masked by mistake: the whole source is known from the start",
        (Attention::Decoder, true) => {
            "position: a token sees itself and those before it: it must predict the later ones"
        }
        (Attention::Decoder, false) => {
            "position: nothing is masked: every token sees those after it, which in training include the answer"
        }
        (Attention::Cross, false) => {
            "position: the whole source is known before the first target token is generated"
        }
        (Attention::Cross, true) => {
            "position: masked by mistake: the whole source is known, and the first target tokens cannot see its end"
        }
    };
    let audio = attention.keys() == Side::Source && model.graph.reads_audio();
    let padded = || input.rows(attention.keys()).is_some_and(|rows| rows.open().contains(&false));
    let padding = match (padding, padded()) {
        _ if audio => "padding: no mask: a recording always fills its window, silence included".to_owned(),
        (true, true) => {
            format!("padding: {keys} padding fills a row and means nothing, so its columns are masked")
        }
        (true, false) => format!("padding: its columns would be masked; no {keys} row of this input has any"),
        (false, _) if attention == Attention::Decoder && causal => {
            "padding: no mask: padding on the right comes after every token, so the rule of position hides it"
                .into()
        }
        (false, _) => format!("padding: no mask: {keys} padding is read as if it were tokens"),
    };
    [Some(position.to_owned()), window, Some(padding)].into_iter().flatten().collect()
}

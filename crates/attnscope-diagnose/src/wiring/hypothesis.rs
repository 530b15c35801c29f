//! Which other wirings the same weights could have been trained with.

use attnscope_graph::{
    Activation, CrossMask, Dim, EmbeddingScale, EntryStep, Front, GainAt, LogitScale, Model, NormKind,
    NormPlace, Normaliser, Positions, Role, ScoreScale, Side, Stack, Switch,
};
use attnscope_run::{Shift, Weights};

use super::edit::WiringEdit;
use super::language_model;
use super::setup::Setup;
use crate::score::Padding;

/// The layouts of computed positions.
const LAYOUTS: [Positions; 3] =
    [Positions::SinusoidHalves, Positions::SinusoidInterleaved, Positions::SinusoidFairseq];
/// Stacks that an edit is about: each alone, and both.
const STACKS: [Option<Stack>; 3] = [Some(Stack::Encoder), Some(Stack::Decoder), None];

/// Every single edit of a setup that makes sense for a model and changes something. `longest` is how many tokens the decoder reads
/// at the most.
pub(crate) fn edits(model: &Model, weights: &Weights, setup: &Setup, longest: usize) -> Vec<WiringEdit> {
    let mut edits = attention_edits(setup);
    edits.extend(layer_edits(setup));
    edits.extend(token_edits(model, setup));
    edits.extend(language_model::edits(model, setup, longest));
    edits.extend(relative_edits(setup));
    edits.extend(layouts(model, weights, setup));
    edits.extend(head_counts(model, setup));
    edits.extend(start_tokens(model, setup).into_iter().map(WiringEdit::StartToken));
    edits.retain(|edit| {
        let edited = setup.with(*edit);
        edit.differs(&edited, setup) && edited.is_another(model, setup)
    });
    edits
}

fn attention_edits(setup: &Setup) -> Vec<WiringEdit> {
    let mut edits = Vec::new();
    edits.extend([ScoreScale::DHead, ScoreScale::DModel, ScoreScale::None].map(WiringEdit::ScoreScale));
    edits.extend([Normaliser::Softmax, Normaliser::Sigmoid].map(WiringEdit::Normaliser));
    let gains = [(1.0, setup.wiring.residual_gain_at), (2.0, GainAt::EveryAttention), (2.0, GainAt::Encoder)];
    edits.extend(gains.map(|(gain, at)| WiringEdit::ResidualGain(gain, at)));
    edits.extend([Switch::On, Switch::Off].map(WiringEdit::CausalMask));
    edits.extend([CrossMask::Padding, CrossMask::Causal].map(WiringEdit::CrossMask));
    edits
}

fn layer_edits(setup: &Setup) -> Vec<WiringEdit> {
    use Activation::{Gelu, GeluTanh, QuickGelu, Relu, Swish};
    let mut edits = Vec::new();
    edits.extend([Relu, Gelu, GeluTanh, Swish, QuickGelu].map(WiringEdit::Activation));
    edits.extend([NormKind::Layer, NormKind::Rms].map(WiringEdit::Norm));
    edits.extend([NormPlace::Pre, NormPlace::Post].map(WiringEdit::NormPlace));
    edits.extend([1e-5, 1e-6, 1e-12].map(WiringEdit::NormEps));
    edits.extend([Switch::On, Switch::Off].map(WiringEdit::DecoderShift));
    if setup.wiring.tied_output {
        edits.extend([LogitScale::None, LogitScale::RsqrtDModel].map(WiringEdit::LogitScale));
    }
    edits
}

/// Edits of the embeddings and positions.
fn token_edits(model: &Model, setup: &Setup) -> Vec<WiringEdit> {
    let w = &setup.wiring;
    let mut edits = Vec::new();
    if w.front != Front::Tokens {
        return edits;
    }
    edits.extend([EmbeddingScale::SqrtDModel, EmbeddingScale::None].map(WiringEdit::EmbeddingScale));
    // Only sources are padded to see what padding does.
    let paddings = [Padding::Twice, Padding::Longest];
    for padding in paddings.into_iter().filter(|_| model.architecture.reads(Side::Source)) {
        edits.extend([Switch::On, Switch::Off].map(|switch| WiringEdit::PaddingMask(switch, padding)));
    }
    if [w.source_positions, w.target_positions].iter().any(|p| *p != Positions::None) {
        edits.extend([0, 1, 2].map(WiringEdit::PositionOffset));
    }
    edits
}

/// Whether the file has a table of biases is seen when the edited model is bound to it.
fn relative_edits(setup: &Setup) -> Vec<WiringEdit> {
    let w = &setup.wiring;
    let mut edits = vec![WiringEdit::RelativeBias(!w.relative_bias)];
    if w.relative_bias {
        // At most as many rows as the table has, and more than those of exact distances.
        let buckets = [8, 16, 32, 64];
        let buckets = buckets.iter().filter(|&&n| n < w.relative_buckets && n / 2 < w.relative_max_distance);
        edits.extend(buckets.map(|&n| WiringEdit::RelativeBuckets(n)));
        let distances = [16, 32, 64, 128, 256];
        let distances = distances.iter().filter(|&&n| n > w.relative_buckets / 2);
        edits.extend(distances.map(|&n| WiringEdit::RelativeMaxDistance(n)));
    }
    edits
}

/// Other layouts of positions, where they are computed or a table holds nothing but what could have been.
fn layouts(model: &Model, weights: &Weights, setup: &Setup) -> Vec<WiringEdit> {
    let w = &setup.wiring;
    let is_computed = |stack: Stack| {
        let side = if stack == Stack::Encoder { Side::Source } else { Side::Target };
        let reads_tokens = w.front == Front::Tokens || side == Side::Target;
        reads_tokens
            && match w.positions(side) {
                Positions::Table => holds_sinusoids(model, weights, side),
                positions => positions.is_sinusoid(),
            }
    };
    let computed: Vec<Stack> = Stack::ALL.into_iter().filter(|stack| is_computed(*stack)).collect();
    let applies = |stack: &Option<Stack>| match stack {
        Some(stack) => computed.contains(stack),
        None => computed.len() == Stack::ALL.len(),
    };
    let stacks = STACKS.into_iter().filter(applies);
    let mut edits: Vec<WiringEdit> =
        stacks.flat_map(|stack| LAYOUTS.map(|layout| WiringEdit::PositionLayout(stack, layout))).collect();
    // Both stacks together only where both change: else it is the edit of one.
    edits.retain(|edit| match edit {
        WiringEdit::PositionLayout(None, layout) => {
            w.source_positions != *layout && w.target_positions != *layout
        }
        _ => true,
    });
    edits
}

/// Whether a stored position table is one of sines and cosines: every position has the same norm, √(width / 2).
fn holds_sinusoids(model: &Model, weights: &Weights, side: Side) -> bool {
    let table = model.graph.weight_at(Role::Entry(side, EntryStep::Positions).weight());
    let (Some(id), Some(width)) = (table, model.sizes.get(Dim::Model)) else {
        return false;
    };
    let norm = |row: &[f32]| row.iter().map(|x| f64::from(x * x)).sum::<f64>() / (width as f64 / 2.0);
    let Ok(table) = weights.get(id) else { return false };
    let rows = table.chunks(width.max(1)).skip(2);
    rows.map(norm).all(|norm| (norm - 1.0).abs() < 0.02)
}

/// Divisors of the projections' width: a stack at a time, and both together where both change.
fn head_counts(model: &Model, setup: &Setup) -> Vec<WiringEdit> {
    let [a, b] = Stack::ALL.map(|stack| model.sizes.get(Dim::Inner(stack)).unwrap_or(0));
    let [encoder, decoder] = setup.heads;
    let mut edits = Vec::new();
    for heads in 1..=a.max(b) {
        let (in_a, in_b) = (a.is_multiple_of(heads) && a > 0, b.is_multiple_of(heads) && b > 0);
        if in_a && in_b && heads != encoder && heads != decoder {
            edits.push(WiringEdit::Heads(None, heads));
        }
        if in_a {
            edits.push(WiringEdit::Heads(Some(Stack::Encoder), heads));
        }
        if in_b {
            edits.push(WiringEdit::Heads(Some(Stack::Decoder), heads));
        }
    }
    edits
}

/// The ids that a config gives a meaning, and 0, where the decoder begins with another.
fn start_tokens(model: &Model, setup: &Setup) -> Vec<u32> {
    let Shift::Start(now) = setup.shift else { return Vec::new() };
    let rows = model.sizes.get(Dim::Vocab(Side::Target)).unwrap_or(0);
    let named = ["pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"].map(|name| {
        let fact = model.facts.iter().find(|fact| fact.name == name)?;
        fact.value.as_u64().and_then(|id| u32::try_from(id).ok())
    });
    let mut ids: Vec<u32> =
        named.into_iter().flatten().chain([0]).filter(|&id| id != now && (id as usize) < rows).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

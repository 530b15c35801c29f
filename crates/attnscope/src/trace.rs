//! One run of a model with its tensors kept.

use std::collections::BTreeMap;

use attnscope_graph::{Selector, Side};
use attnscope_run::{Keep, Native};

use crate::failure::Failure;
use crate::given::Input;
use crate::model::Model;
use crate::note::{Note, Notes, notes_of_input};
use crate::ready::Token;

/// The tensors of one run.
///
/// ```
/// use attnscope::Input;
///
/// let trace = attnscope::open("demo")?.trace(&Input::text("Two dogs play."), "cross_attn")?;
/// let weights = trace.tensor("decoder.1.cross_attn.weights")?;
/// assert_eq!(weights.dims, ["B", "H", "T", "S"]);
/// let first_query: f64 = weights.values[..weights.shape[3]].iter().sum();
/// assert!((first_query - 1.0).abs() < 1e-6); // A softmax.
/// # Ok::<(), attnscope::Failure>(())
/// ```
#[derive(Debug, Clone)]
pub struct Trace {
    /// The source's tokens, a row each; nothing for audio and for a model without an encoder.
    pub source: Option<Vec<Vec<Token>>>,
    /// What the decoder read; nothing for a model without one.
    pub target: Option<Vec<Vec<Token>>>,
    /// Whether the model wrote the target itself because none was given.
    pub generated: bool,
    /// What a user may not expect.
    pub notes: Vec<Note>,
    model: Model,
    tensors: BTreeMap<String, Tensor>,
}

/// A tensor of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Its dimensions by their letters: `B`, `H`, `T`, `S`.
    pub dims: Vec<String>,
    /// Their sizes.
    pub shape: Vec<usize>,
    /// Its values, row-major.
    pub values: Vec<f64>,
}

impl Trace {
    /// The model that ran.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The kept tensors by their nodes' paths.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.tensors.iter().map(|(path, tensor)| (path.as_str(), tensor))
    }

    /// A tensor by its node's path.
    ///
    /// # Errors
    /// Where the model has no such node, or it was not kept.
    pub fn tensor(&self, path: &str) -> Result<&Tensor, Failure> {
        self.tensors.get(path).ok_or_else(|| {
            let known = self.model.opened().model().is_ok_and(|model| model.graph.find(path).is_some());
            let name = &self.model.opened().name;
            match known {
                true => Failure::new(
                    format!("{name}: {path} was not kept"),
                    "trace again with a selector that picks it",
                ),
                false => Failure::new(
                    format!("{name}: there is no node {path}"),
                    "the nodes of the model's graph have the names that a flow shows",
                ),
            }
        })
    }
}

/// Runs a model and keeps the nodes that a selector picks.
pub(crate) fn trace(
    model: &Model,
    input: &Input,
    selector: &str,
    mut notes: Notes,
) -> Result<Trace, Failure> {
    let selector = Selector::new(selector);
    let ready = model.ready(input)?;
    let graph = &ready.model.graph;
    let (given, generated) = input.read(&ready)?.input(&ready)?;
    notes.add(notes_of_input(&ready, &given, generated));
    let mut keep = Keep::new(|id| selector.matches(&graph.node(id).path));
    Native::new().run(ready.model, &ready.weights, &given, &mut keep)?;
    let tensor = |(id, kept): (attnscope_graph::NodeId, attnscope_run::Kept)| {
        let node = graph.node(id);
        let dims = node.dims.iter().map(|dim| dim.symbol(&ready.model.sizes)).collect();
        (node.path.as_str().to_owned(), Tensor { dims, shape: kept.shape, values: kept.values })
    };
    let tokens = |side: Side| given.rows(side).map(|rows| ready.tokens(side, rows));
    Ok(Trace {
        source: tokens(Side::Source),
        target: tokens(Side::Target),
        generated,
        notes: notes.all,
        tensors: keep.tensors.into_iter().map(tensor).collect(),
        model: model.clone(),
    })
}

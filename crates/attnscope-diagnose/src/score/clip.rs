//! A clip of audio, and what the encoder made of it. Encoding a clip is nearly all the work of running an audio model on it, and
//! most candidates leave the encoder as it is: each clip is encoded once for all of them.

use std::sync::OnceLock;

use attnscope_graph::{Model, NodeId, Op, Role, Stack};
use attnscope_run::{Features, Tensor};

use super::Candidate;
use super::shared::same_tensors;

/// The features of one clip, and the first encoder's output for them.
#[derive(Debug)]
pub struct Clip {
    pub(crate) features: Features,
    encoding: OnceLock<Encoding>,
}

/// An encoder's output, and the candidate whose encoder it was.
#[derive(Debug)]
struct Encoding {
    by: Candidate,
    output: Tensor,
}

impl From<Features> for Clip {
    fn from(features: Features) -> Self {
        Self { features, encoding: OnceLock::new() }
    }
}

impl PartialEq for Clip {
    fn eq(&self, other: &Self) -> bool {
        self.features == other.features
    }
}

impl Clip {
    /// What a candidate's encoder makes of the clip, if it is known: it is that of an encoder with the same operations and weights.
    pub(super) fn encoded(&self, candidate: &Candidate) -> Option<(NodeId, Tensor)> {
        let encoding = self.encoding.get()?;
        let node = encoder_output(candidate.model())?;
        let is_same = *same_tensors(&encoding.by, candidate).get(node.index())?;
        is_same.then(|| (node, encoding.output.clone()))
    }

    /// Keeps what a candidate's encoder made of the clip, unless another's is kept already.
    pub(super) fn keep(&self, candidate: &Candidate, output: &Tensor) {
        self.encoding.get_or_init(|| Encoding { by: candidate.clone(), output: output.clone() });
    }
}

/// The node whose tensor the decoder reads: the encoder's output, or what that is only a name of.
pub fn encoder_output(model: &Model) -> Option<NodeId> {
    let mut id = model.graph.at(Role::StackOut(Stack::Encoder))?;
    while let (Op::Same, Some(&input)) = (&model.graph.node(id).op, model.graph.node(id).inputs.first()) {
        id = input;
    }
    model.graph.node(id).op.facets().can_be_given.then_some(id)
}

//! How products, look-ups and loops use the weights, which decides their memory layout.

use attnscope_graph::{Model, Op, WeightUse};

use crate::error::RunError;
use crate::weights::Use;

/// The use of every weight of a model.
pub(super) fn uses(model: &Model) -> Result<Vec<Use>, RunError> {
    let graph = &model.graph;
    let mut uses: Vec<Option<Use>> = vec![None; graph.weights().len()];
    for node in graph.nodes() {
        for (i, id) in node.weights.iter().enumerate() {
            let weight = graph.weight(*id);
            let Some(shape) = model.sizes.shape(&weight.dims) else {
                return Err(RunError::NoShape { of: weight.path.clone() });
            };
            let wanted = use_of(&node.op, i, shape.last().copied().unwrap_or(1));
            let known = &mut uses[id.index()];
            *known = match (*known, wanted) {
                (None, wanted) | (Some(Use::Table), wanted) => Some(wanted),
                (Some(known), Use::Table) => Some(known),
                (Some(known), wanted) if known == wanted => Some(known),
                (Some(_), _) => {
                    let what = "it is both multiplied with and read otherwise";
                    return Err(RunError::Defect { place: weight.path.clone(), what });
                }
            };
        }
    }
    Ok(uses.into_iter().map(|wanted| wanted.unwrap_or(Use::Table)).collect())
}

/// What an operation does with one of its weights.
pub(super) fn use_of(op: &Op, i: usize, depth: usize) -> Use {
    match (op.facets().first_weight, i) {
        (WeightUse::Product, 0) => Use::Product { depth },
        (WeightUse::Table, 0) => Use::Table,
        _ => Use::Values,
    }
}

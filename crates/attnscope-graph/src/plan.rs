//! The tensors of a model that no file holds yet: names and shapes as its family's files have them.

use crate::architecture::Architecture;
use crate::build::build;
use crate::dim::{Dim, Sizes};
use crate::family::Family;
use crate::names::{TensorSpec, tensor_name};
use crate::role::Role;
use crate::wiring::Wiring;

/// What a family's file of a model holds, each tensor once, in the order of the graph. `prefix` stands before every name but those
/// of the output. `None` where a size is not known, or the family's files have no name for a weight.
pub fn plan_tensors(
    family: &Family,
    architecture: &Architecture,
    wiring: &Wiring,
    sizes: &Sizes,
    prefix: &str,
) -> Option<Vec<TensorSpec>> {
    let scheme = family.schemes.first()?;
    let graph = build(architecture, wiring);
    let mut planned: Vec<TensorSpec> = Vec::new();
    for weight in graph.weights() {
        let candidate = name(family, wiring, &weight.path)?;
        let mut shape = sizes.shape(&weight.dims)?;
        if let (Some(parts), Some(rows)) = (parts(&candidate), shape.first_mut()) {
            *rows = rows.checked_mul(parts)?;
        } else if let (true, Some(rows)) = (candidate.contains('|'), shape.first_mut()) {
            let (stack, _) = weight.role.owner.layer()?;
            let kv = sizes.get(Dim::KvInner(stack))?.checked_mul(2)?;
            *rows = sizes.get(Dim::Inner(stack))?.checked_add(kv)?;
        }
        if candidate.contains("^T") {
            shape.reverse();
        }
        let own = tensor_name(&candidate);
        if scheme.is_buffer(own) && shape.len() == 1 {
            // Hugging Face keeps the output's bias as a row.
            shape.insert(0, 1);
        }
        let beside = weight.path.starts_with(&format!("{}.", Role::Logits));
        let name = if beside { own.to_owned() } else { format!("{prefix}{own}") };
        if planned.iter().all(|known| known.name != name) {
            let elements = shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d as u64))?;
            let storage = planned.len();
            planned.push(TensorSpec { name, shape, dtype: "f32", bytes: elements.checked_mul(4)?, storage });
        }
    }
    Some(planned)
}

/// What the family's files call a weight. A table that serves both sides has a name that both go by.
fn name(family: &Family, wiring: &Wiring, path: &str) -> Option<String> {
    let scheme = family.schemes.first()?;
    let names = scheme.candidates(path);
    let [source, target] = ["src.embed.weight", "tgt.embed.weight"];
    if path == source && wiring.shared_embeddings {
        let others = scheme.candidates(target);
        if let Some(both) = names.iter().find(|name| others.contains(name)) {
            return Some(both.clone());
        }
    }
    names.into_iter().next()
}

/// The n of `[i/n]` and of `[i/n by head]`.
fn parts(candidate: &str) -> Option<usize> {
    candidate.split_once('[')?.1.split(['/', ']', ' ']).nth(1)?.parse().ok()
}

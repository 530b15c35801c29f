//! The control of a repair: weights that it names in a random order. A weight that is wrong in some other way does less harm
//! when it is muted, and many edits mute it. A repair must do better than chance with the weights that it changes, and each of
//! them must matter in the repaired model.

use attnscope_graph::{Model, WeightRole};
use attnscope_run::{SplitMix, Weights};

use super::edit::{WeightEdit, matrix};

/// Random orders of all weights together.
const ORDERS: u64 = 3;

/// The models that a repair must outdo: everything that it changes in a random order, and, after the repair, each of its
/// matrices alone. What is exchanged is one mistake, and judged as a whole.
pub(super) fn controls(edit: &WeightEdit, model: &Model, weights: &Weights) -> Vec<Weights> {
    let roles = edit.weights(model);
    let together = (0..ORDERS).filter_map(|seed| shuffled(model, weights, &roles, seed));
    let is_matrix = |role: &WeightRole| matrix(model, *role).is_some_and(|(_, shape)| shape.len() > 1);
    let matrices: Vec<WeightRole> = roles.iter().copied().filter(is_matrix).collect();
    let is_exchange = matches!(edit, WeightEdit::SwapLayers { .. } | WeightEdit::Exchange { .. });
    let repaired = edit.apply(model, weights).filter(|_| !is_exchange);
    let alone = matrices.iter().filter_map(|&role| shuffled(model, repaired.as_ref()?, &[role], 0));
    together.chain(alone).collect()
}

/// Some weights with the values of each in a random order.
fn shuffled(model: &Model, weights: &Weights, roles: &[WeightRole], seed: u64) -> Option<Weights> {
    let mut random = SplitMix::new(seed);
    let mut edited = weights.clone();
    for &role in roles {
        let (id, _) = matrix(model, role)?;
        let values = weights.get(id).ok()?;
        let order = order(values.len(), &mut random);
        edited = edited.with(id, order.iter().map(|&from| values[from]).collect());
    }
    Some(edited)
}

/// The numbers below n, each once, in a random order.
fn order(n: usize, random: &mut SplitMix) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    for last in (1..n).rev() {
        order.swap(last, random.below(last + 1));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_every_number_once_and_is_not_the_first() {
        let found = order(50, &mut SplitMix::new(0));
        let mut sorted = found.clone();
        sorted.sort_unstable();
        let plain: Vec<usize> = (0..50).collect();
        assert_eq!(sorted, plain);
        assert_ne!(found, plain);
        assert_eq!(found, order(50, &mut SplitMix::new(0)));
        assert_ne!(found, order(50, &mut SplitMix::new(1)));
        assert!(order(0, &mut SplitMix::new(0)).is_empty());
    }
}

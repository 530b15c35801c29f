//! Two matrices of layers that hold the same values.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};

use attnscope_graph::WeightId;

use crate::finding::Severity;
use crate::measure::Outcome;
use crate::rule::{Checked, NotChecked, Rule};
use crate::rule_context::RuleContext;
use crate::rules::is_matrix;

pub(super) const RULE: Rule = Rule {
    id: "repeated-weight",
    severity: Severity::Error,
    what: "Two matrices of layers that hold the same values although they are not tied.",
    why: "Training never makes two matrices equal to the last bit: one was copied over the other, whose values are lost.",
    how: "The values of every matrix of the layers are compared; tensors that the file itself stores once under two names, tables of embeddings and positions are left out.",
    threshold: "None: every value is the same, and the matrix is not constant.",
    try_next: "Compare both with the file they were converted from; a loop that does not advance its index writes one layer twice.",
    check,
};

fn check(context: &RuleContext<'_>) -> Checked {
    let (model, weights) = (context.model(), context.weights()?);
    let mut seen: HashMap<u64, usize> = HashMap::new();
    let (mut findings, mut compared) = (Vec::new(), 0);
    let layers = model.graph.nodes().iter().filter(|node| node.role.layer().is_some());
    let of_layers: HashSet<WeightId> = layers.flat_map(|node| node.weights.iter().copied()).collect();
    let read = |id| weights.get(id).map_err(|e| NotChecked::from(&e));
    for (id, _) in model.binding.iter() {
        let weight = model.graph.weight(id);
        let in_layer = of_layers.contains(&id);
        let values = read(id)?;
        let varied = values.iter().any(|x| Some(x) != values.first());
        if !in_layer || !is_matrix(&model.graph, id) || !varied {
            continue;
        }
        compared += 1;
        let digest = digest(&values);
        let Some(&before) = seen.get(&digest) else {
            seen.insert(digest, id.index());
            continue;
        };
        let Some((other, _)) = model.binding.iter().nth(before) else { continue };
        let (Some(a), Some(b)) = (context.tensor(other), context.tensor(id)) else { continue };
        let tied = a == b || model.tensors[a].storage == model.tensors[b].storage;
        if !tied && read(other)? == values {
            let other = &model.graph.weight(other).path;
            let evidence = format!("{} holds the same {} values as {other}", context.name(b), values.len());
            findings.push(RULE.finding(evidence).at(&weight.path).with("same_as", other.as_str()));
        }
    }
    let measure = RULE.measure("matrices", findings.len() as f64).threshold(0.0);
    Ok(Outcome::from(findings).measured([measure.words(format!("none of {compared} matrices of layers"))]))
}

fn digest(values: &[f32]) -> u64 {
    let mut hasher = DefaultHasher::new();
    values.iter().for_each(|x| x.to_bits().hash(&mut hasher));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_have_equal_digests_and_others_do_not() {
        assert_eq!(digest(&[1.0, 2.0]), digest(&[1.0, 2.0]));
        assert_ne!(digest(&[1.0, 2.0]), digest(&[2.0, 1.0]));
    }
}

//! What a classifier answers.

use attnscope_graph::Role;

use crate::answer::{ClassScore, Trace};
use crate::gradients::class_names;
use crate::ready::Ready;

/// The classes of one row of the batch, the most probable first.
pub(super) fn classes(ready: &Ready<'_>, trace: &Trace, row: usize) -> Option<Vec<ClassScore>> {
    let count = ready.model.architecture.text_classifier()?.classes;
    let logits = trace.kept.get(&ready.model.graph.at(Role::Logits)?)?.values().as_f32();
    let scores = logits.get(row * count..(row + 1) * count)?;
    let names = class_names(ready);
    let name = |class: usize| names.iter().find(|(number, _)| *number as usize == class);
    let scored = |(class, (&score, probability)): (usize, (&f32, Option<f64>))| ClassScore {
        class,
        name: name(class).map(|(_, name)| name.clone()),
        score,
        probability,
    };
    let mut all: Vec<ClassScore> = scores.iter().zip(softmax(scores)).enumerate().map(scored).collect();
    all.sort_by(|a, b| b.score.total_cmp(&a.score));
    Some(all)
}

fn softmax(scores: &[f32]) -> Vec<Option<f64>> {
    let is_known = scores.len() > 1 && scores.iter().all(|score| score.is_finite());
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f64> = scores.iter().map(|score| f64::from(score - largest).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|power| is_known.then_some(power / sum)).collect()
}

#[cfg(test)]
mod tests {
    use super::softmax;

    #[test]
    fn probabilities_are_those_of_torch() {
        // torch.softmax(torch.tensor([1., 2., 4.], dtype=torch.float64), 0)
        let expected = [0.042_010_066_134_066_05, 0.114_195_199_384_594_49, 0.843_794_734_481_339_5];
        for (found, expected) in softmax(&[1.0, 2.0, 4.0]).into_iter().zip(expected) {
            assert!((found.unwrap() - expected).abs() < 1e-12);
        }
        assert_eq!(softmax(&[3.0]), [None]);
        assert_eq!(softmax(&[3.0, f32::NAN]), [None, None]);
    }
}

//! What is worth a warning, and since when.

use std::collections::BTreeMap;

use super::{Fault, MonitorMemory, MonitorMetric, Streak, Warning};

/// Nats a target that a foreign source must cost, as the doctor's rule has it.
const SOURCE_COST: f64 = 0.05;

/// The mean entropy of an attention's heads below which it has collapsed, as the doctor's rule has it.
const COLLAPSED_ENTROPY: f64 = 0.05;

/// A block whose gradient is below this share of the largest block's learns nothing beside it.
const VANISHING: f64 = 1e-6;

/// A gradient this many times the median of the block's earlier ones explodes.
const EXPLODING: f64 = 100.0;

/// Looks that a gradient is compared with, at the least and at the most.
const COMPARED: std::ops::RangeInclusive<usize> = 3..=64;

/// One look can be chance.
const LEAST_LOOKS: u64 = 2;

/// What is the case at a look.
struct Case {
    fault: Fault,
    place: Option<String>,
    /// What is said of it; the step at which it began is added.
    says: String,
    /// Said only after the run's first steps, in which every model is like that.
    patient: bool,
}

/// The warnings that a look gives rise to. Each is said once for as long as it is the case.
pub(crate) fn judge(memory: &mut MonitorMemory, look: &MonitorMetric, patience: u64) -> Vec<Warning> {
    let cases = cases(memory, look);
    let mut streaks = BTreeMap::new();
    let mut warnings = Vec::new();
    for case in cases {
        let key = format!("{} {}", case.fault.name(), case.place.as_deref().unwrap_or_default());
        let before = memory.streaks.get(&key).copied();
        let mut streak = before.unwrap_or(Streak { began: look.step, looks: 0, told: false });
        streak.looks += 1;
        if !streak.told && streak.looks >= LEAST_LOOKS && (!case.patient || look.step >= patience) {
            streak.told = true;
            let says = format!("{} (since step {})", case.says, streak.began);
            let Case { fault, place, .. } = case;
            warnings.push(Warning { step: look.step, began: streak.began, fault, place, says });
        }
        streaks.insert(key, streak);
    }
    memory.streaks = streaks;
    for (block, &norm) in &look.gradient_norms {
        let norms = memory.norms.entry(block.clone()).or_default();
        norms.push(norm);
        if norms.len() > *COMPARED.end() {
            norms.remove(0);
        }
    }
    warnings
}

fn cases(memory: &MonitorMemory, look: &MonitorMetric) -> Vec<Case> {
    let mut cases = Vec::new();
    if let Some(cost) = look.source_cost.filter(|&cost| cost < SOURCE_COST) {
        let says = format!(
            "the decoder ignores the source: another pair's source costs {cost:.3} nats a token, and a decoder that reads its source \
             pays more than {SOURCE_COST}"
        );
        cases.push(Case { fault: Fault::SourceIgnored, place: None, says, patient: true });
    }
    for attention in &look.attentions {
        let entropies: Vec<f64> = attention.entropy.iter().flatten().copied().collect();
        let mean = entropies.iter().sum::<f64>() / entropies.len().max(1) as f64;
        let place = Some(attention.path.clone());
        if !entropies.is_empty() && mean < COLLAPSED_ENTROPY {
            let says = format!(
                "{}: the mean entropy of its heads is {mean:.3} of what is possible: each looks at one key",
                attention.path
            );
            cases.push(Case { fault: Fault::EntropyCollapse, place: place.clone(), says, patient: false });
        }
        if !attention.dead_heads.is_empty() {
            let heads: Vec<String> = attention.dead_heads.iter().map(usize::to_string).collect();
            let says = format!("{}: next to nothing comes from head {}", attention.path, heads.join(", "));
            cases.push(Case { fault: Fault::DeadHead, place, says, patient: true });
        }
    }
    cases.extend(gradients(memory, look));
    cases
}

fn gradients<'a>(memory: &'a MonitorMemory, look: &'a MonitorMetric) -> impl Iterator<Item = Case> + 'a {
    let largest = look.gradient_norms.values().copied().fold(0.0, f64::max);
    look.gradient_norms.iter().filter_map(move |(block, &norm)| {
        let place = Some(block.clone());
        if norm <= VANISHING * largest {
            let says = format!("{block}: its gradient vanishes: its norm is {norm:.1e}, that of the largest block {largest:.1e}");
            return Some(Case { fault: Fault::VanishingGradient, place, says, patient: false });
        }
        let usual = median(memory.norms.get(block)?)?;
        (norm > EXPLODING * usual).then(|| {
            let says = format!("{block}: its gradient explodes: its norm is {norm:.1e}, and was {usual:.1e} before");
            Case { fault: Fault::ExplodingGradient, place, says, patient: false }
        })
    })
}

/// `None` where there are too few to compare with.
fn median(norms: &[f64]) -> Option<f64> {
    let mut sorted = norms.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().filter(|_| sorted.len() >= *COMPARED.start())
}

#[cfg(test)]
mod tests {
    use super::super::AttentionMetric;
    use super::*;

    fn look(step: u64, cost: f64) -> MonitorMetric {
        MonitorMetric { step, source_cost: Some(cost), ..MonitorMetric::default() }
    }

    #[test]
    fn a_source_that_is_ignored_is_told_once_with_the_step_at_which_it_began() {
        let mut memory = MonitorMemory::default();
        let costs =
            [(10, 0.0), (20, 0.6), (30, 0.01), (40, 0.0), (50, -0.01), (60, 0.0), (70, 0.4), (80, 0.0)];
        let told: Vec<(u64, u64)> = costs
            .iter()
            .flat_map(|&(step, cost)| judge(&mut memory, &look(step, cost), 45))
            .map(|warning| (warning.step, warning.began))
            .collect();
        assert_eq!(told, [(50, 30)]);
    }

    #[test]
    fn an_attention_that_collapses_is_named() {
        let attention = |entropy: f64| AttentionMetric {
            path: "decoder.0.cross_attn".into(),
            entropy: vec![Some(entropy), None, Some(0.02)],
            head_norms: vec![1.0; 3],
            output_ratio: Some(0.5),
            dead_heads: vec![],
        };
        let mut memory = MonitorMemory::default();
        let mut warnings = Vec::new();
        for (step, entropy) in [(1, 0.5), (2, 0.03), (3, 0.03)] {
            let look =
                MonitorMetric { step, attentions: vec![attention(entropy)], ..MonitorMetric::default() };
            warnings.extend(judge(&mut memory, &look, 1000));
        }
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        assert_eq!((warning.fault, warning.began), (Fault::EntropyCollapse, 2));
        assert!(
            warning.says.starts_with("decoder.0.cross_attn: the mean entropy of its heads is 0.025"),
            "{warning:?}"
        );
    }

    #[test]
    fn gradients_that_vanish_or_explode_are_told() {
        let mut memory = MonitorMemory::default();
        let mut faults = Vec::new();
        for step in 1..=8 {
            let explodes = if step > 6 { 900.0 } else { 1.0 };
            let norms = [("a", explodes), ("b", 0.0), ("c", 1.0)];
            let gradient_norms = norms.map(|(block, norm)| (block.to_owned(), norm)).into();
            let look = MonitorMetric { step, gradient_norms, ..MonitorMetric::default() };
            faults.extend(judge(&mut memory, &look, 0).into_iter().map(|w| (w.fault, w.place, w.began)));
        }
        assert_eq!(
            faults,
            [
                (Fault::VanishingGradient, Some("b".into()), 1),
                (Fault::ExplodingGradient, Some("a".into()), 7),
            ]
        );
    }
}

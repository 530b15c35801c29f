//! What is remarkable about heads, by the doctor's findings and measures.

use attnscope_diagnose::{Diagnosis, Finding, Measure, Thresholds};

use crate::answer::{Badge, HeadBadge};

/// The badges of all heads.
pub(super) fn badges(diagnosis: &Diagnosis, thresholds: &Thresholds) -> Vec<HeadBadge> {
    let measured = diagnosis.measures.iter().filter_map(|measure| of_measure(measure, thresholds));
    let found = diagnosis.findings.iter().flat_map(of_finding);
    measured.chain(found).collect()
}

/// A head whose measure is past a threshold.
fn of_measure(measure: &Measure, thresholds: &Thresholds) -> Option<HeadBadge> {
    let (badge, threshold) = match measure.name {
        "sink_weight" => (Badge::Sink, measure.threshold?),
        "entropy" => (Badge::NearUniform, thresholds.uniform_entropy),
        _ => return None,
    };
    let [head] = heads(measure.slice.as_deref()?)[..] else { return None };
    let attention = measure.node.clone()?;
    let is_past = measure.number > threshold;
    is_past.then_some(HeadBadge { attention, head, badge, number: measure.number, threshold, other: None })
}

/// The heads of a finding about them: both of duplicates.
fn of_finding(finding: &Finding) -> Vec<HeadBadge> {
    let badge = match finding.rule {
        "dead-head" => Badge::Dead,
        "duplicate-heads" => Badge::Duplicate,
        _ => return Vec::new(),
    };
    let (Some(attention), Some(slice), Some(number), Some(threshold)) =
        (&finding.node, &finding.slice, finding.number, finding.threshold)
    else {
        return Vec::new();
    };
    let heads = heads(slice);
    let of_head = |&head: &usize| HeadBadge {
        attention: attention.clone(),
        head,
        badge,
        number,
        threshold,
        other: heads.iter().copied().find(|&other| other != head),
    };
    heads.iter().map(of_head).collect()
}

/// The numbers in `head 2` and `heads 0 and 3`.
fn heads(slice: &str) -> Vec<usize> {
    match slice.strip_prefix("head") {
        Some(rest) => rest.split(' ').filter_map(|word| word.parse().ok()).collect(),
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::heads;

    #[test]
    fn slices_name_heads() {
        assert_eq!(heads("head 2"), [2]);
        assert_eq!(heads("heads 0 and 13"), [0, 13]);
        assert!(heads("[0, 3, 7]").is_empty());
    }
}

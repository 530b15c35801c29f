//! The registry: one line per rule. Causes come before their effects.

mod attention_sink;
mod causal_leak;
mod config_contradicts_tensors;
mod constant_weight;
mod cross_mask_fault;
mod dead_head;
mod drowned_branch;
mod drowning_branch;
mod duplicate_heads;
mod entropy_collapse;
mod first_nan;
mod ill_fitting_pairs;
mod leak;
mod misconverted_weight;
mod mismatched_weight;
mod missing_weight;
mod nonfinite_weight;
mod padding_leak;
mod past_positions;
mod position_ignored;
mod repeated_weight;
mod source_ignored;
mod special_token_mismatch;
mod uniform_attention;
mod unused_weight;
mod vocabulary_mismatch;
mod wiring_mismatch;
mod zero_weight;

use attnscope_graph::{Graph, WeightId};

use crate::measure::Measure;
use crate::rule::Rule;

/// Every rule, in the order in which they are checked.
static RULES: &[&Rule] = &[
    &config_contradicts_tensors::RULE,
    &missing_weight::RULE,
    &mismatched_weight::RULE,
    &nonfinite_weight::RULE,
    &zero_weight::RULE,
    &constant_weight::RULE,
    &repeated_weight::RULE,
    &unused_weight::RULE,
    &vocabulary_mismatch::RULE,
    &special_token_mismatch::RULE,
    &past_positions::RULE,
    &first_nan::RULE,
    &causal_leak::RULE,
    &padding_leak::RULE,
    &cross_mask_fault::RULE,
    &misconverted_weight::RULE,
    &wiring_mismatch::RULE,
    &ill_fitting_pairs::RULE,
    &source_ignored::RULE,
    &position_ignored::RULE,
    &dead_head::RULE,
    &duplicate_heads::RULE,
    &entropy_collapse::RULE,
    &drowned_branch::RULE,
    &drowning_branch::RULE,
    &uniform_attention::RULE,
    &attention_sink::RULE,
];

/// Whether a weight has two dimensions or more: everything but biases and norms.
fn is_matrix(graph: &Graph, id: WeightId) -> bool {
    graph.weight(id).dims.len() > 1
}

/// Puts the measure with the least number into words; the report prints only this one.
fn least(measures: &mut [Measure], words: impl FnOnce(f64) -> String) {
    if let Some(least) = measures.iter_mut().min_by(|a, b| a.number.total_cmp(&b.number)) {
        least.words = Some(words(least.number));
    }
}

/// The same with the largest.
fn most(measures: &mut [Measure], words: impl FnOnce(f64) -> String) {
    if let Some(most) = measures.iter_mut().max_by(|a, b| a.number.total_cmp(&b.number)) {
        most.words = Some(words(most.number));
    }
}

/// Every rule.
pub fn rules() -> &'static [&'static Rule] {
    RULES
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::corpus::LEAST_PAIRS;
    use crate::thresholds::Thresholds;

    /// "dead_norm = 0.1" in a rule's text is the threshold that the rule uses, and so is "20 pairs".
    #[test]
    fn the_numbers_in_words_are_those_in_use() {
        let defaults = serde_json::to_value(Thresholds::default()).unwrap();
        for rule in rules() {
            for (key, value) in defaults.as_object().unwrap() {
                let Some((_, said)) = rule.threshold.split_once(&format!("{key} = ")) else { continue };
                let digits = |c: char| !(c.is_ascii_digit() || c == '.' || c == 'e' || c == '-');
                let said = said.split(digits).next().unwrap_or_default().trim_end_matches('.');
                assert_eq!(said.parse().ok(), value.as_f64(), "{}: {key}", rule.id);
            }
        }
        for id in
            ["misconverted-weight", "wiring-mismatch", "ill-fitting-pairs", "source-ignored", "dead-head"]
        {
            let rule = rules().iter().find(|rule| rule.id == id).unwrap();
            assert!(rule.threshold.contains(&format!("{LEAST_PAIRS} pairs or more")), "{id}");
        }
    }

    #[test]
    fn every_rule_is_named_and_explained() {
        let mut seen = HashSet::new();
        for rule in rules() {
            let kebab = |c: char| c.is_ascii_lowercase() || c == '-';
            assert!(!rule.id.is_empty() && rule.id.chars().all(kebab), "{}", rule.id);
            assert!(
                !rule.id.starts_with('-') && !rule.id.ends_with('-') && !rule.id.contains("--"),
                "{}",
                rule.id
            );
            assert!(seen.insert(rule.id), "{} is there twice", rule.id);
            for text in [rule.what, rule.why, rule.how, rule.threshold, rule.try_next] {
                assert!(text.len() > 20 && text.ends_with('.'), "{}: {text:?}", rule.id);
                assert!(!text.contains('\n') && !text.contains("  "), "{}: {text:?}", rule.id);
            }
        }
    }
}

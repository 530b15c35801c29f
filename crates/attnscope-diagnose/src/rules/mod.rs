//! The registry: one line a rule. Causes stand before what follows from them.

mod attention_sink;
mod causal_leak;
mod constant_weight;
mod cross_mask_fault;
mod dead_head;
mod drowned_branch;
mod drowning_branch;
mod duplicate_heads;
mod entropy_collapse;
mod first_nan;
mod leak;
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

use crate::rule::Rule;

/// Every rule, in the order in which they are checked.
static RULES: &[&Rule] = &[
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
    &wiring_mismatch::RULE,
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
fn is_matrix(weight: &attnscope_graph::Weight) -> bool {
    weight.dims.len() > 1
}

/// Every rule.
pub fn rules() -> &'static [&'static Rule] {
    RULES
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

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

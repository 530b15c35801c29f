//! The usual mistakes of attention, once: which command finds each, and by which name. Doctor judges a mistake by what the
//! model predicts, `diff` by the values of another run, `check` by numbers on paper, and `masks` shows what it does to the
//! model's own scores; each needs its own evidence, but a mistake is the same for all.

/// A usual mistake, and the names that commands give it; none where a command cannot see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsualMistake {
    /// What is done.
    pub what: &'static str,
    /// Fields of the wiring that `doctor` finds in its place, or kinds of repairs of the weights.
    pub doctor: &'static [&'static str],
    /// Relations of `diff`.
    pub diff: &'static [&'static str],
    /// Mistakes that `masks` shows.
    pub masks: &'static [&'static str],
    /// Explanations of `check`.
    pub check: &'static [&'static str],
}

macro_rules! catalogue {
    ($($what:literal { doctor: [$($doctor:literal)*], diff: [$($diff:literal)*], masks: [$($masks:literal)*], check: [$($check:literal)*] })*) => {
        /// Every usual mistake, in the order of an attention's steps.
        pub const CATALOGUE: &[UsualMistake] = &[$(UsualMistake {
            what: $what,
            doctor: &[$($doctor),*],
            diff: &[$($diff),*],
            masks: &[$($masks),*],
            check: &[$($check),*],
        }),*];
    };
}

catalogue! {
    "a weight is transposed"
        { doctor: ["transpose"], diff: ["transpose"], masks: [], check: ["transposed_weight"] }
    "the weight, or the result, of another projection is used"
        { doctor: ["exchange"], diff: ["other_weights" "swapped_inputs"], masks: [], check: ["swapped_weight" "swapped_factors" "swapped_values"] }
    "a projection reads the other sequence, or another tensor"
        { doctor: [], diff: ["other_input"], masks: [], check: ["swapped_source"] }
    "two layers are exchanged"
        { doctor: ["swap_layers"], diff: ["other_layer" "swapped_layers"], masks: [], check: [] }
    "a projection is negated, or multiplied by a number"
        { doctor: ["negate" "scale"], diff: ["scale"], masks: [], check: [] }
    "a bias is left out"
        { doctor: ["dropped_bias"], diff: ["missing_bias"], masks: [], check: ["bias_left_out"] }
    "heads are in another order"
        { doctor: ["permute_heads"], diff: ["permuted_heads"], masks: [], check: ["heads_reordered"] }
    "features of different heads, or halves of a head, are interleaved"
        { doctor: ["interleave"], diff: ["interleaved_heads" "interleaved"], masks: [], check: ["heads_interleaved"] }
    "the number of heads is another"
        { doctor: ["heads"], diff: [], masks: [], check: [] }
    "scores are divided by another number, or twice"
        { doctor: ["score_scale" "score_width"], diff: ["scale"], masks: [], check: ["scale" "scaled_early"] }
    "the relative bias takes other rows, or is not added"
        { doctor: ["relative_bias" "relative_buckets" "relative_max_distance"], diff: ["other_bucket" "bias_not_added"], masks: [], check: [] }
    "the mask, or a part of it, is left out"
        { doctor: ["causal_mask" "padding_mask"], diff: ["mask_not_applied"], masks: ["no-causal" "no-padding"], check: ["mask_ignored"] }
    "the mask hides what should be seen"
        { doctor: ["cross_mask"], diff: ["mask_too_wide"], masks: ["causal-cross"], check: ["mask_transposed"] }
    "the causal mask is off by one position"
        { doctor: [], diff: ["causal_offset"], masks: [], check: [] }
    "a mask is wrong for tokens that are decoded with a cache"
        { doctor: [], diff: ["cached_mask"], masks: [], check: [] }
    "a window is another, or left out"
        { doctor: ["window"], diff: ["mask_not_applied" "mask_too_wide"], masks: [], check: [] }
    "masked scores are multiplied by 0 before the softmax"
        { doctor: [], diff: ["mask_multiplied"], masks: ["multiply-before"], check: ["mask_multiplied_before"] }
    "masked weights are multiplied by 0 after the softmax"
        { doctor: [], diff: ["mask_after_softmax"], masks: ["multiply-after"], check: ["mask_multiplied_after"] }
    "a sigmoid stands in place of the softmax"
        { doctor: ["squash"], diff: ["other_squash"], masks: [], check: ["sigmoid"] }
    "the softmax runs along another axis, or is not one"
        { doctor: [], diff: ["softmax_axis" "not_applied"], masks: [], check: ["softmax_over_columns" "softmax_over_everything" "no_exponentials" "no_division" "no_softmax"] }
    "positions, or rows of an embedding table, are shifted"
        { doctor: ["position_offset" "roll"], diff: ["off_by_one_position" "rolled_rows"], masks: [], check: [] }
    "positions are computed in another way"
        { doctor: ["source_positions"], diff: ["other_positions"], masks: [], check: [] }
    "queries and keys are rotated in another way: pairs of features, theta, scaling, a position off by one"
        { doctor: ["rotary_layout" "rotary_theta" "rotary_scaling" "rotary_share" "interleave"], diff: ["other_rotary"], masks: [], check: [] }
    "positions are off for tokens that are decoded with a cache"
        { doctor: [], diff: ["cached_positions"], masks: [], check: [] }
    "heads of queries read other heads of keys and values"
        { doctor: ["kv_sharing"], diff: ["other_kv_sharing"], masks: [], check: [] }
    "scores or logits are capped, or not"
        { doctor: ["score_cap" "logit_cap"], diff: [], masks: [], check: [] }
    "the output projection is not the embedding table, or another"
        { doctor: ["tied_output"], diff: ["other_weights"], masks: [], check: [] }
    "attention and feed-forward read the same stream, or one after the other"
        { doctor: ["parallel_residual"], diff: ["other_input"], masks: [], check: [] }
    "embeddings are multiplied by another number"
        { doctor: ["embedding_scale"], diff: ["scale"], masks: [], check: [] }
    "the activation is another"
        { doctor: ["activation"], diff: ["other_activation"], masks: [], check: [] }
    "the norm is another: its kind, its gain or its epsilon"
        { doctor: ["norm" "norm_gain" "norm_eps"], diff: ["other_norm" "other_norm_gain" "other_eps" "unbiased_std" "eps_outside_root"], masks: [], check: [] }
    "the residual stream is another, or has another scale"
        { doctor: ["residual_gain"], diff: ["other_residual" "other_residual_gain" "residual_scale"], masks: [], check: [] }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use attnscope_graph::Wiring;

    use super::*;
    use crate::diff::Relation;
    use crate::masks::Mistake;
    use crate::misconversion::{Loss, WeightEdit};
    use crate::worked::Explanation;

    fn names(of: fn(&UsualMistake) -> &'static [&'static str]) -> BTreeSet<&'static str> {
        CATALOGUE.iter().flat_map(of).copied().collect()
    }

    /// A name that no command gives would lead nowhere.
    #[test]
    fn every_name_is_one_that_the_command_gives() {
        let relations: BTreeSet<&str> = Relation::KINDS.iter().map(|(name, _)| *name).collect();
        assert!(names(|m| m.diff).is_subset(&relations));
        let shown: BTreeSet<&str> = Mistake::ALL.iter().map(|mistake| mistake.id()).collect();
        assert_eq!(names(|m| m.masks), shown, "masks shows mistakes that are not in the catalogue");
        let fields = Wiring::fields();
        let repairs: BTreeSet<&str> = WeightEdit::KINDS.iter().chain(Loss::KINDS).copied().collect();
        for name in names(|m| m.doctor) {
            let is_field = name == "heads" || fields.iter().any(|field| field == name);
            assert!(is_field || repairs.contains(name), "{name}");
        }
        let explained: BTreeSet<&str> = Explanation::KINDS.iter().copied().collect();
        assert!(names(|m| m.check).is_subset(&explained));
    }
}

//! The mistakes that people make in a worked attention, each as something that can be tried.

use attnscope_graph::figures::trimmed;

use std::fmt;

use super::example::{Example, Operand, Step};
use super::recipe::{Masking, Mixed, Recipe, WorkedNormaliser, divisor};
use crate::kinds::kinds;

/// Another number to divide the products by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is its formula")]
pub enum Divisor {
    SqrtHead,
    SqrtModel,
    SqrtKeys,
    One,
    Head,
    Twice,
}

impl fmt::Display for Divisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SqrtHead => "√d_head",
            Self::SqrtModel => "√d_model",
            Self::SqrtKeys => "√n, the root of the number of keys",
            Self::One => "nothing",
            Self::Head => "d_head, not its root",
            Self::Twice => "it twice",
        })
    }
}

/// What may have gone wrong in a step.
#[derive(Debug, Clone, PartialEq)]
pub enum Explanation {
    /// The products were divided by something else.
    Scale {
        /// By what.
        by: Divisor,
        /// That as a number.
        value: f64,
    },
    /// The products are scaled already.
    ScaledEarly,
    /// The mask was not added.
    Masking(Masking),
    /// Not a softmax of each row.
    Normaliser(WorkedNormaliser),
    /// A weight's transpose was used.
    TransposedWeight(Operand),
    /// Another projection's weight was used.
    SwappedWeight {
        /// The one that is meant.
        meant: Operand,
        /// The one that fits.
        used: Operand,
    },
    /// The projection of the wrong input.
    SwappedSource {
        /// Of which step.
        step: Step,
        /// The input that fits.
        used: Operand,
    },
    /// A bias was forgotten.
    BiasLeftOut(Operand),
    /// Products of other matrices than Q and K.
    SwappedFactors(Step, Step),
    /// Q·K, the keys not transposed.
    KeysNotTransposed,
    /// The transpose of the weights was used.
    WeightsTransposed,
    /// The weights were multiplied with something else than V.
    SwappedValues(Mixed),
    /// V's rows in another order, by their numbers from 0.
    ValuesReordered(Vec<usize>),
    /// The heads in another order beside each other.
    HeadsReordered(Vec<usize>),
    /// Columns of heads in turn.
    HeadsInterleaved,
    /// The result is the transpose of the right one.
    Transposed,
    /// Cells have the wrong sign.
    Sign {
        /// How many.
        cells: usize,
    },
    /// Rows of another matrix, or other rows of this one.
    Copied {
        /// Whose.
        from: String,
        /// From 0: the row here, the row there.
        rows: Vec<(usize, usize)>,
    },
    /// Right to the last digit or so, and written with too few digits.
    TooCoarse {
        /// How many after the point.
        digits: u32,
        /// What was done to them.
        how: Coarse,
    },
}

/// How a number came to have few digits.
#[derive(Debug, Clone, PartialEq)]
pub enum Coarse {
    /// It is the nearest with so many.
    Rounded,
    /// The others were left off.
    Cut,
    /// Neither: one off in the last digit.
    Astray {
        /// A row where it is, from 0.
        row: usize,
        /// That row, rounded to as many digits.
        rounded: Vec<f64>,
    },
}

kinds! {
    Explanation {
        Self::Scale { .. } => "scale",
        Self::ScaledEarly => "scaled_early",
        Self::Masking(Masking::MultipliedBefore) => "mask_multiplied_before",
        Self::Masking(Masking::MultipliedAfter) => "mask_multiplied_after",
        Self::Masking(Masking::Transposed) => "mask_transposed",
        Self::Masking(_) => "mask_ignored",
        Self::Normaliser(WorkedNormaliser::Sigmoid) => "sigmoid",
        Self::Normaliser(WorkedNormaliser::Columns) => "softmax_over_columns",
        Self::Normaliser(WorkedNormaliser::Everything) => "softmax_over_everything",
        Self::Normaliser(WorkedNormaliser::Shares) => "no_exponentials",
        Self::Normaliser(WorkedNormaliser::Exponentials) => "no_division",
        Self::Normaliser(_) => "no_softmax",
        Self::TransposedWeight(_) => "transposed_weight",
        Self::SwappedWeight { .. } => "swapped_weight",
        Self::SwappedSource { .. } => "swapped_source",
        Self::BiasLeftOut(_) => "bias_left_out",
        Self::SwappedFactors(..) => "swapped_factors",
        Self::KeysNotTransposed => "keys_not_transposed",
        Self::WeightsTransposed => "weights_transposed",
        Self::SwappedValues(_) => "swapped_values",
        Self::ValuesReordered(_) => "values_reordered",
        Self::HeadsReordered(_) => "heads_reordered",
        Self::HeadsInterleaved => "heads_interleaved",
        Self::Transposed => "transposed",
        Self::Sign { .. } => "sign",
        Self::Copied { .. } => "copied",
        Self::TooCoarse { .. } => "too_coarse",
    }
}

impl Explanation {
    /// What happened, in words and numbers.
    pub fn sentence(&self, example: &Example) -> String {
        let right = divisor(example, example.scale).map(|x| format!(" = {}", short(x))).unwrap_or_default();
        match self {
            Self::Scale { by: Divisor::Twice, value } => {
                format!("divided by {}{right} twice: by {}", example.scale, short(*value))
            }
            Self::Scale { by, value } => {
                let number =
                    if *by == Divisor::One { String::new() } else { format!(" ({})", short(*value)) };
                format!("divided by {by}{number}, where {}{right} is meant", example.scale)
            }
            Self::ScaledEarly => {
                format!("divided by {}{right} already: these are scores, not products", example.scale)
            }
            Self::Masking(masking) => match masking {
                Masking::MultipliedBefore => {
                    "the mask multiplied with the scores before the softmax: 0 is not −∞"
                }
                Masking::MultipliedAfter => {
                    "the mask multiplied with the weights: rows no longer add up to 1"
                }
                Masking::Transposed => "the mask's transpose: it hides the past and shows the future",
                Masking::Ignored | Masking::Added => "the mask left out",
            }
            .into(),
            Self::Normaliser(normaliser) => match normaliser {
                WorkedNormaliser::Sigmoid => "a sigmoid of each score instead of a softmax of each row",
                WorkedNormaliser::Columns => "the softmax over columns instead of rows",
                WorkedNormaliser::Everything => "one softmax over all cells instead of one for each row",
                WorkedNormaliser::Shares => "scores divided by the sum of their row, without exponentials",
                WorkedNormaliser::Exponentials => "exponentials that are not divided by the sum of their row",
                WorkedNormaliser::Skipped | WorkedNormaliser::Softmax => {
                    "the scores themselves: no softmax was taken"
                }
            }
            .into(),
            Self::TransposedWeight(weight) => format!("multiplied with {0}ᵀ instead of {0}", weight.name()),
            Self::SwappedWeight { meant, used } => {
                format!("multiplied with {} instead of {}", used.name(), meant.name())
            }
            Self::SwappedSource { step, used } => {
                format!("{} made from {}, the other sequence", step.name(), used.name())
            }
            Self::BiasLeftOut(bias) => format!("{} left out", bias.name()),
            Self::SwappedFactors(left, right) => format!("{}·{}ᵀ instead of Q·Kᵀ", left.name(), right.name()),
            Self::KeysNotTransposed => "Q·K instead of Q·Kᵀ".into(),
            Self::WeightsTransposed => "weightsᵀ·V instead of weights·V".into(),
            Self::SwappedValues(mixed) => format!("weights·{0} instead of weights·V", mixed.name()),
            Self::ValuesReordered(order) => {
                let rows = order.iter().map(|row| (row + 1).to_string()).collect::<Vec<_>>();
                format!("V's rows in another order: {}", rows.join(", "))
            }
            Self::HeadsReordered(order) => {
                let heads = order.iter().map(usize::to_string).collect::<Vec<_>>();
                format!("the heads beside each other in another order: {}", heads.join(", "))
            }
            Self::HeadsInterleaved => "the heads' columns taken in turn instead of head after head".into(),
            Self::Transposed => "the transpose of the right matrix".into(),
            Self::Sign { cells: 1 } => "the wrong sign in 1 cell".into(),
            Self::Sign { cells } => format!("the wrong sign in {cells} cells"),
            Self::Copied { from, rows } => {
                let row = |(here, there): &(usize, usize)| {
                    format!("row {} is row {} of {from}", here + 1, there + 1)
                };
                format!("copied: {}", rows.iter().map(row).collect::<Vec<_>>().join(", "))
            }
            Self::TooCoarse { digits, how } => coarse_sentence(*digits, how, example),
        }
    }

    /// Whether it can be seen in a step at all.
    pub(super) fn is_about(&self, step: Step) -> bool {
        match self {
            Self::ScaledEarly => step == Step::Products,
            _ => true,
        }
    }

    /// The recipe with this mistake in it; nothing for what is no mistake of computation.
    pub(super) fn edit(&self, mut recipe: Recipe) -> Option<Recipe> {
        match *self {
            Self::Scale { value, .. } => recipe.divisor = value,
            // Once is enough.
            Self::ScaledEarly => (recipe.early_divisor, recipe.divisor) = (recipe.divisor, 1.0),
            Self::Masking(masking) => recipe.masking = masking,
            Self::Normaliser(normaliser) => recipe.normaliser = normaliser,
            Self::TransposedWeight(weight) => recipe.projection(user_of(weight)?)?.transposed = true,
            Self::SwappedWeight { meant, used } => recipe.projection(user_of(meant)?)?.weight = used,
            Self::SwappedSource { step, used } => recipe.projection(step)?.source = used,
            Self::BiasLeftOut(bias) => recipe.projection(user_of(bias)?)?.bias = false,
            Self::SwappedFactors(left, right) => (recipe.left, recipe.right) = (left, right),
            Self::KeysNotTransposed => recipe.right_as_it_is = true,
            Self::WeightsTransposed => recipe.weights_transposed = true,
            Self::SwappedValues(mixed) => recipe.mixed = mixed,
            Self::ValuesReordered(ref order) => recipe.value_order = Some(order.clone()),
            Self::HeadsReordered(ref order) => recipe.head_order = Some(order.clone()),
            Self::HeadsInterleaved => recipe.interleaved = true,
            Self::Transposed | Self::Sign { .. } | Self::Copied { .. } | Self::TooCoarse { .. } => {
                return None;
            }
        }
        Some(recipe)
    }
}

/// The step that a weight or bias belongs to.
fn user_of(operand: Operand) -> Option<Step> {
    match operand {
        Operand::WQ | Operand::BQ => Some(Step::Q),
        Operand::WK | Operand::BK => Some(Step::K),
        Operand::WV | Operand::BV => Some(Step::V),
        Operand::WO | Operand::BO => Some(Step::Output),
        Operand::X | Operand::C => None,
    }
}

fn coarse_sentence(digits: u32, how: &Coarse, example: &Example) -> String {
    let digits_text = match digits {
        0 => "whole numbers".to_owned(),
        1 => "1 digit after the point".to_owned(),
        n => format!("{n} digits after the point"),
    };
    match how {
        Coarse::Rounded => {
            format!("rounded to {digits_text}, too coarse for claims {}", example.tolerance.text())
        }
        Coarse::Cut => format!("cut off after {digits_text} instead of rounded"),
        Coarse::Astray { row, rounded } => {
            let numbers: Vec<String> = rounded.iter().map(|x| format!("{x:.*}", digits as usize)).collect();
            let (row, numbers) = (row + 1, numbers.join(" "));
            format!("written too coarsely and not even rounded: with {digits_text}, row {row} is {numbers}")
        }
    }
}

/// Four digits, without zeros at the end.
pub(super) fn short(x: f64) -> String {
    trimmed(x, 4)
}

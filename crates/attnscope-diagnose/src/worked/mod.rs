//! Worked examples: attention by hand, with claimed numbers. An example is worked out from what it gives; every claim gets
//! a verdict, and a wrong one the mistakes that would explain it.

mod derive;
mod error;
mod example;
mod explain;
mod formula;
mod hypotheses;
mod judge;
mod matrix;
mod normaliser;
mod number;
mod parse;
mod pattern;
mod recipe;
mod rounded;
mod rounding;
mod shapes;
#[cfg(test)]
mod tests;
mod word;

pub use derive::Derived;
pub use error::{ExampleError, UnknownName};
pub use example::{
    Claim, Example, Mask, NormaliserWord, Operand, Part, Scale, Stated, Step, Tolerance, WordClaim,
};
pub use explain::{Coarse, Divisor, Explanation};
pub use formula::{formula, parts};
pub use judge::{Basis, Cell, Diagnosis, Fit, Judged, Judgement, Mistake, Verdict, judge};
pub use matrix::Matrix;
pub use parse::{MOST_BYTES, parse};
pub use recipe::{Masking, Mixed, WorkedNormaliser, divisor, head_size, model_size};
pub use word::JudgedWord;

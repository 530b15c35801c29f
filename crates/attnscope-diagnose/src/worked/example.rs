//! A worked example as a value: what is given, what is claimed, and by which rules.

use std::collections::BTreeMap;
use std::fmt;

use super::matrix::Matrix;

/// What an example is computed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names of the formulas")]
pub enum Operand {
    X,
    C,
    WQ,
    WK,
    WV,
    WO,
    BQ,
    BK,
    BV,
    BO,
}

impl Operand {
    pub(super) const ALL: [Self; 10] = {
        use Operand::*;
        [X, C, WQ, WK, WV, WO, BQ, BK, BV, BO]
    };

    /// Its name in the file and in formulas.
    pub fn name(self) -> &'static str {
        match self {
            Self::X => "X",
            Self::C => "C",
            Self::WQ => "W_Q",
            Self::WK => "W_K",
            Self::WV => "W_V",
            Self::WO => "W_O",
            Self::BQ => "b_Q",
            Self::BK => "b_K",
            Self::BV => "b_V",
            Self::BO => "b_O",
        }
    }
}

/// The steps of an attention, in the order of computation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Queries, all heads side by side.
    Q,
    /// Keys.
    K,
    /// Values.
    V,
    /// Q·Kᵀ, before the scale; a head each.
    Products,
    /// The products, scaled.
    Scores,
    /// The scores with the mask.
    MaskedScores,
    /// After the softmax.
    Weights,
    /// weights·V, all heads side by side.
    Context,
    /// After the output projection.
    Output,
}

impl Step {
    /// In the order of computation.
    pub const ALL: [Self; 9] = {
        use Step::*;
        [Q, K, V, Products, Scores, MaskedScores, Weights, Context, Output]
    };

    /// Its name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Q => "Q",
            Self::K => "K",
            Self::V => "V",
            Self::Products => "products",
            Self::Scores => "scores",
            Self::MaskedScores => "masked_scores",
            Self::Weights => "weights",
            Self::Context => "context",
            Self::Output => "output",
        }
    }

    /// Whether every head has a matrix of its own.
    pub fn per_head(self) -> bool {
        matches!(self, Self::Products | Self::Scores | Self::MaskedScores | Self::Weights)
    }

    /// What it is computed from.
    pub(super) fn inputs(self) -> &'static [Self] {
        match self {
            Self::Q | Self::K | Self::V => &[],
            Self::Products => &[Self::Q, Self::K],
            Self::Scores => &[Self::Products],
            Self::MaskedScores => &[Self::Scores],
            Self::Weights => &[Self::MaskedScores],
            Self::Context => &[Self::Weights, Self::V],
            Self::Output => &[Self::Context],
        }
    }

    /// Whether a change of `other` can be seen here.
    pub(super) fn depends_on(self, other: Self) -> bool {
        self.inputs().iter().any(|&input| input == other || input.depends_on(other))
    }
}

/// A step, or one head of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    /// The step.
    pub step: Step,
    /// The head that is meant, where it is one of several.
    pub head: Option<usize>,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.head {
            Some(head) => write!(f, "{}.{head}", self.step.name()),
            None => f.write_str(self.step.name()),
        }
    }
}

/// A matrix as it stands in the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Stated {
    /// Its numbers.
    pub matrix: Matrix,
    /// Where it begins.
    pub line: usize,
    /// The most digits that any of its numbers has after the point.
    pub digits: u32,
}

/// Something the example says of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// Of what.
    pub part: Part,
    /// The numbers.
    pub stated: Stated,
}

/// What the products are divided by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale {
    /// √ of a head's size.
    SqrtHead,
    /// √ of the model's size.
    SqrtModel,
    /// Nothing.
    None,
    /// A number.
    By(f64),
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SqrtHead => f.write_str("√d_head"),
            Self::SqrtModel => f.write_str("√d_model"),
            Self::None => f.write_str("1"),
            Self::By(x) => write!(f, "{x}"),
        }
    }
}

/// Which keys a query may see.
#[derive(Debug, Clone, PartialEq)]
pub enum Mask {
    /// All.
    None,
    /// Those up to its own position.
    Causal,
    /// Those with a 0; the others have −∞.
    Given(Stated),
}

/// How scores become weights, as a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormaliserWord {
    /// Right.
    Softmax,
    /// A common slip.
    Sigmoid,
}

/// A statement in words, with its line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum WordClaim {
    /// What the products are divided by.
    Scale(Scale, usize),
    /// What makes weights of scores.
    Normaliser(NormaliserWord, usize),
}

/// How far a claim may be from the truth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Tolerance {
    /// This far.
    Absolute(f64),
    /// Half a unit of this digit after the point.
    Decimals(u32),
    /// Half a unit of the last digit that the claim is written with.
    AsWritten,
}

impl Tolerance {
    /// In numbers, for one claim.
    pub fn of(self, stated: &Stated) -> f64 {
        match self {
            Self::Absolute(tolerance) => tolerance,
            Self::Decimals(digits) => unit(digits) / 2.0,
            Self::AsWritten => unit(stated.digits) / 2.0,
        }
    }
}

/// One of the last of so many digits after the point.
pub(super) fn unit(digits: u32) -> f64 {
    10f64.powi(-i32::try_from(digits).unwrap_or(i32::MAX))
}

/// A worked example whose shapes fit and whose claims can be judged.
#[derive(Debug, Clone, PartialEq)]
pub struct Example {
    /// What it is.
    pub title: String,
    /// How many heads.
    pub heads: usize,
    /// What the products are divided by.
    pub scale: Scale,
    /// Which keys a query may see.
    pub mask: Mask,
    /// How far a claim may be off.
    pub tolerance: Tolerance,
    /// Inputs and weights.
    pub operands: BTreeMap<Operand, Stated>,
    /// Steps that are given instead of computed.
    pub given: Vec<Claim>,
    /// Steps with their claimed numbers, in the order of computation.
    pub claims: Vec<Claim>,
    /// Statements in words.
    pub words: Vec<WordClaim>,
}

impl Example {
    /// An input or a weight, if it is given.
    pub fn operand(&self, operand: Operand) -> Option<&Matrix> {
        self.operands.get(&operand).map(|stated| &stated.matrix)
    }

    /// Whether a step is given instead of computed.
    pub fn is_given(&self, step: Step) -> bool {
        self.given.iter().any(|given| given.part.step == step)
    }

    /// Whether Q, K and V are the inputs themselves, since no projection is given.
    pub fn unprojected(&self) -> bool {
        [Operand::WQ, Operand::WK, Operand::WV].iter().all(|w| !self.operands.contains_key(w))
            && [Step::Q, Step::K, Step::V].iter().all(|&step| !self.is_given(step))
    }

    /// Where queries come from.
    pub fn query_source(&self) -> Operand {
        if self.operands.contains_key(&Operand::C) { Operand::C } else { Operand::X }
    }
}

//! Claims, proofs and their results.

/// What is proved: the perturbation, and its required effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Claim {
    /// The decoder does not see later tokens.
    Causal,
    /// An attention with a window does not see keys outside of it.
    Window,
    /// A row alone equals the same row with padding.
    PaddingAlone,
    /// The embedding of padding does not matter.
    PaddingEmbeddings,
    /// The encoder's output at padding does not matter.
    PaddingStates,
    /// The target does not influence the source's side.
    CrossFuture,
    /// Every encoder state reaches every target position.
    CrossReach,
    /// Every source token reaches every target position.
    SourceReach,
    /// A row that is all padding is well defined.
    AllPadding,
}

impl Claim {
    /// Every claim, in the order in which they are proved.
    pub const ALL: [Self; 9] = [
        Self::Causal,
        Self::Window,
        Self::PaddingAlone,
        Self::PaddingEmbeddings,
        Self::PaddingStates,
        Self::CrossFuture,
        Self::CrossReach,
        Self::SourceReach,
        Self::AllPadding,
    ];

    /// Its name in JSON.
    pub fn id(self) -> &'static str {
        match self {
            Self::Causal => "causal",
            Self::Window => "window",
            Self::PaddingAlone => "padding-alone",
            Self::PaddingEmbeddings => "padding-embeddings",
            Self::PaddingStates => "padding-states",
            Self::CrossFuture => "cross-future",
            Self::CrossReach => "cross-reach",
            Self::SourceReach => "source-reach",
            Self::AllPadding => "all-padding",
        }
    }

    /// What is perturbed.
    pub fn perturbed(self) -> &'static str {
        match self {
            Self::Causal => "a target token",
            Self::Window => "a key and its value",
            Self::PaddingAlone => "padding, taken away",
            Self::PaddingEmbeddings => "padding's embeddings",
            Self::PaddingStates => "encoder.out at padding",
            Self::CrossFuture => "all target tokens",
            Self::CrossReach => "encoder.out at a token",
            Self::SourceReach => "a source token",
            Self::AllPadding => "a source of padding",
        }
    }

    /// What must follow, or must not.
    pub fn expected(self) -> &'static str {
        match self {
            Self::Causal => "earlier logits stay",
            Self::Window => "contexts further off stay",
            Self::PaddingAlone | Self::PaddingEmbeddings => "rows of tokens stay",
            Self::PaddingStates => "logits stay",
            Self::CrossFuture => "the source's side stays",
            Self::CrossReach | Self::SourceReach => "all logits move",
            Self::AllPadding => "weights 0, others stay",
        }
    }

    /// Whether it needs padding, which is added to an input without any.
    pub fn needs_padding(self) -> bool {
        matches!(self, Self::PaddingAlone | Self::PaddingEmbeddings | Self::PaddingStates)
    }

    /// Whether it is about cross-attention, which a model of one stack does not have.
    pub fn is_about_cross_attention(self) -> bool {
        match self {
            Self::Causal | Self::Window | Self::PaddingAlone | Self::PaddingEmbeddings => false,
            Self::PaddingStates
            | Self::CrossFuture
            | Self::CrossReach
            | Self::SourceReach
            | Self::AllPadding => true,
        }
    }

    /// Whether something must move, not stay.
    pub fn must_move(self) -> bool {
        matches!(self, Self::CrossReach | Self::SourceReach)
    }
}

/// The result of a proof. Movements are shares of the largest value of the tensor that moved.
#[derive(Debug, Clone, PartialEq)]
pub struct Proof {
    /// What was to be proved.
    pub claim: Claim,
    /// How many runs of the model it took.
    pub runs: usize,
    /// How many cells of the masks were tried: pairs of a query and a key.
    pub cells: usize,
    /// How many of them there are. Of a long input, only some positions are tried.
    pub cells_in_all: usize,
    /// The largest movement where all must stay; the smallest where all must move.
    pub movement: f64,
    /// The largest movement where something may move: it shows that the perturbation had an effect.
    pub felt: Option<f64>,
    /// The threshold of a movement. 0 means that values must be equal to the bit.
    pub threshold: f64,
    /// Whether the claim holds.
    pub verdict: Verdict,
}

/// Whether a claim holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It does, in every cell that was tried.
    Holds,
    /// It does not.
    Fails(Leak),
    /// There was nothing to try, and why.
    NotRun(String),
    /// It was tried, but the result says nothing about a mask, and why.
    Inconclusive(String),
}

/// Where a claim breaks.
#[derive(Debug, Clone, PartialEq)]
pub struct Leak {
    /// The first tensor, in the order of computation, that moves and must not, or stays and must move.
    pub node: String,
    /// The cell of it that moves most; where all must move: row of the batch, target and source position.
    pub at: Vec<usize>,
    /// How far it moves there, as a share of the tensor's largest value.
    pub movement: f64,
    /// The cause, in words.
    pub cause: String,
}

impl Proof {
    pub(super) fn not_run(claim: Claim, why: impl Into<String>) -> Self {
        let verdict = Verdict::NotRun(why.into());
        Self { claim, runs: 0, cells: 0, cells_in_all: 0, movement: 0.0, felt: None, threshold: 0.0, verdict }
    }

    /// Whether it was tried without a conclusion.
    pub fn is_inconclusive(&self) -> bool {
        matches!(self.verdict, Verdict::Inconclusive(_))
    }

    /// Whether it was tried and failed.
    pub fn fails(&self) -> bool {
        matches!(self.verdict, Verdict::Fails(_))
    }
}

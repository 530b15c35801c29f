//! What can be done about an error.

use std::fmt;

/// What a user can do next. A variant says what to give, leave out or look at. Only the front end knows which flag, argument or
/// command that is, and words it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// In words that hold for every front end.
    Advice(String),
    /// The first in words, or the second.
    Or(&'static str, Box<Remedy>),
    /// The first, with a remark.
    Noting(Box<Remedy>, &'static str),
    /// Allow more memory.
    AllowMemory,
    /// Say how much memory there is.
    SayMemory,

    /// Give the number of attention heads.
    HeadCount,
    /// Write an edit of the wiring as a field and a value.
    WiringForm,
    /// Look at the fields of this model's wiring.
    WiringFields(String),
    /// Look at what is missing, and at the source of each fact.
    Inspect,
    /// Fix what is missing first; look at the source of each fact.
    MendFirst,
    /// Look at the tensors of this file.
    InspectTensors(String),
    /// Look at what is not finite in the weights.
    InspectValues,
    /// Give smaller sizes of an input.
    SmallerSizes,

    /// Give another name for the output, or say that the file may be replaced.
    OtherOutput,
    /// Name the format of the output, by its ending or otherwise.
    OutputFormat,
    /// Accept these losses of a conversion.
    AcceptLosses(Vec<&'static str>),
    /// Write the file again in a type that is read; look at the types of its tensors.
    TypeThatIsRead,

    /// Give token ids that were made elsewhere.
    TokenIds,
    /// Fetch the tokenizer's file again, or give token ids.
    TokenizerAgain,
    /// Give token ids, or a tokenizer.
    Tokenizer,
    /// Name the target's language, or give its token ids.
    TargetLanguage,
    /// Give the decoder's input itself.
    DecoderInput,
    /// Write a token's id into the document, or give the decoder's input itself.
    StartToken,
    /// Give the decoder's first tokens.
    DecoderStart,
    /// Give a tokenizer, or the decoder's first tokens.
    TokenizerOrStart,
    /// Give at least one word per side.
    WordsOfBothSides,
    /// Give a recording or features, and nothing else.
    AudioOnly,
    /// Give a recording, or features of another front end.
    Recording,
    /// Give a text or token ids, and no recording.
    TextOnly,
    /// Give a text, a file of texts, or token ids.
    SourceText,
    /// Give a prompt, a file of texts, or token ids.
    PromptText,
    /// The same, where something else was given.
    PromptInstead,
    /// Give a source, where something else was given.
    SourceInstead,
    /// Leave the source's language out, or take a multilingual model.
    NoSourceLanguage,
    /// Leave the target's language out, or make it English.
    EnglishOrNone,
    /// Leave times out, or give a tokenizer.
    NoTimes,
    /// Leave the alignment out.
    NoAlignment,
    /// Draw what each head looks at.
    DrawHeads,
    /// Trace this model: it generates nothing.
    TraceInstead(String),
    /// Pick the weights of an attention.
    PickAttention,
    /// Leave the mistakes out.
    NoMistakes,

    /// Give a folder that holds a saved trace.
    SavedTrace,
    /// Save a whole run.
    SaveWholeRun,
    /// Free space on the disk, or save less.
    SaveLess,
    /// Give the model that was traced, with the trace's folder where it is known.
    TracedModel(Option<String>),
    /// Give two traces, or a trace and a dump.
    TwoRuns,
    /// Say which names belong together.
    NameMap,
    /// Compare runs of one model, or weights.
    SameModel,
    /// Give a smaller example, or check a trace.
    SmallerExample,

    /// See all snapshots.
    Walk,
    /// See which snapshots this model has.
    WalkOfModel,
    /// Ask for this topic.
    Topic(String),
    /// These topics are the nearest; all are listed.
    NearTopics(Vec<String>),
    /// Give an input: a cell has a value only in a run.
    InputForCell,

    /// Give something to run the model on.
    Sample,
    /// Give sentence pairs.
    SentencePairs,
    /// Give clips with their transcripts.
    ClipPairs,
    /// Give texts, one a line.
    Texts,
    /// Give pairs of different sentences.
    DifferentPairs,
    /// Give real sentences.
    RealSentences,
    /// Give a real text.
    RealText,
    /// Fix what is named; look at every proof about masks.
    EveryProof,
    /// Look at what there is to prove about masks.
    ProofsAtAll,
    /// Look at the reasons in the answer; let the doctor look for causes in this model.
    CausesByDoctor(String),

    /// Train this recipe, and give what was trained.
    TrainFirst(String),
    /// Take a device that computes gradients.
    OtherDevice,
    /// Give a target whose NLL gradients are of.
    GradientTarget,
    /// Give the class of each row.
    GradientClass,
    /// Give data to learn from.
    TrainingData,
    /// Mend the row, or pass over bad rows.
    SkipBadRows,
    /// Give another folder for the run, or go on with the run that is there.
    OtherRunFolder,
    /// Begin anew, without the run that is there.
    BeginAnew,
    /// Go on with the recipe of the run itself, or begin a new run with its weights.
    OwnRecipe,
    /// Give the folder of a run.
    RunFolder,

    /// Say which columns of the corpus hold what.
    NameColumns,
    /// Go on with the audit that is there, or give another folder.
    ResumeAudit,
    /// Finish the shards that are not complete, then merge all of them.
    FinishShards,
    /// Give texts: the model reads one text a row.
    CorpusTexts,
    /// Give pairs of a source and a target.
    CorpusPairs,
    /// Give recordings with their transcripts.
    CorpusClips,
}

impl From<&str> for Remedy {
    fn from(advice: &str) -> Self {
        Self::Advice(advice.into())
    }
}

impl From<String> for Remedy {
    fn from(advice: String) -> Self {
        Self::Advice(advice)
    }
}

/// Advice as text; for every other variant its name.
impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Advice(advice) => f.write_str(advice),
            Self::Or(first, second) => write!(f, "{first}, or {second}"),
            Self::Noting(first, beside) => write!(f, "{first}; {beside}"),
            named => write!(f, "{named:?}"),
        }
    }
}

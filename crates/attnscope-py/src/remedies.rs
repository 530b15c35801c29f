//! What a user can do about an error, and which argument it is about, in Python's words.

use attnscope::{Argument, Remedy};

/// What stands before the error.
pub(crate) fn argument_words(argument: &Argument) -> String {
    match argument {
        Argument::Row(row) => format!("row={row}:"),
        Argument::Head(head) => format!("head={head}:"),
        Argument::LayerIndex(index) => format!("layer_index={index}:"),
        Argument::Selector(pattern) => format!("select={}", quoted(pattern)),
        Argument::Stops => "stops:".into(),
        Argument::Cell => "at:".into(),
        Argument::Wiring(None) => "wiring:".into(),
        Argument::Wiring(Some(edit)) => format!("wiring={}:", quoted(edit)),
        Argument::SourceLanguage(code) => format!("source_language={}:", quoted(code)),
        Argument::TargetLanguage(code) => format!("target_language={}:", quoted(code)),
        Argument::Times => "timestamps".into(),
        Argument::AlignmentHeads => "align_heads".into(),
        Argument::Audio => "audio".into(),
        Argument::Features => "features".into(),
        Argument::Pairs => "pairs".into(),
        Argument::AllPairs => "pairs:".into(),
        Argument::Rule(None) => "rules:".into(),
        Argument::Rule(Some(rule)) => format!("rules=[{}]:", quoted(rule)),
        Argument::Tolerance(tolerance) => format!("tolerance={tolerance}:"),
        Argument::Beams(beams) => format!("beams={beams}:"),
        Argument::MaxLength(length) => format!("max_length={length}:"),
        Argument::Gradients => "gradients:".into(),
        Argument::Classes => "classes:".into(),
    }
}

/// A text as Python writes it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', r"\\").replace('\'', r"\'"))
}

/// What to do next.
pub(crate) fn words(remedy: &Remedy) -> String {
    match remedy {
        Remedy::Advice(advice) => advice.clone(),
        Remedy::Or(first, second) => format!("{first}, or {}", words(second)),
        Remedy::Noting(first, beside) => format!("{}; {beside}", words(first)),
        Remedy::WiringFields(_) => "model.inspect() lists the fields of its wiring and their values".into(),
        Remedy::InspectTensors(_) => "model.inspect(tensors=True) lists what it holds".into(),
        Remedy::TraceInstead(_) => "model.trace(text) shows what it makes of a text".into(),
        Remedy::TracedModel(_) => "pass the model that was traced: model=".into(),
        Remedy::AcceptLosses(losses) => format!("accept it: allow={losses:?}"),
        Remedy::CausesByDoctor(_) => "the reasons are in the answer; model.doctor() looks for causes".into(),
        Remedy::TrainFirst(recipe) => {
            format!(
                "train it with attnscope.train({}, data=PATH, out=DIR), then open DIR/best",
                quoted(recipe)
            )
        }
        Remedy::Topic(topic) => format!("say which: explain({})", quoted(topic)),
        Remedy::NearTopics(near) => {
            format!("the nearest are {}; attnscope.topics() lists what can be asked", near.join(", "))
        }
        fixed => fixed_words(fixed).to_owned(),
    }
}

fn fixed_words(remedy: &Remedy) -> &'static str {
    match remedy {
        Remedy::Advice(_)
        | Remedy::Or(..)
        | Remedy::Noting(..)
        | Remedy::WiringFields(_)
        | Remedy::InspectTensors(_)
        | Remedy::TraceInstead(_)
        | Remedy::TracedModel(_)
        | Remedy::AcceptLosses(_)
        | Remedy::CausesByDoctor(_)
        | Remedy::TrainFirst(_)
        | Remedy::Topic(_)
        | Remedy::NearTopics(_) => "",
        Remedy::AllowMemory => "allow more: open(..., memory=BYTES), or give smaller input",
        Remedy::SayMemory => "say how much memory there is: open(..., memory=BYTES)",
        Remedy::HeadCount => "pass heads=N: shapes and costs of attention depend on the number of heads",
        Remedy::WiringForm => "write it as wiring={'norm_place': 'pre', 'activation': 'gelu'}",
        Remedy::Inspect => "model.inspect() lists what is missing, with the source of each fact",
        Remedy::MendFirst => "fix that first; model.inspect() shows the source of each fact",
        Remedy::InspectValues => "model.inspect(values=True) counts what is not finite in the weights",
        Remedy::SmallerSizes => "pass a smaller batch=, source_length= or target_length=",
        Remedy::OtherOutput => "give another name for the file, or remove the one that is there",
        Remedy::OutputFormat => "end the name in .safetensors, .apr or .npz",
        Remedy::TypeThatIsRead => {
            "write the file again with a type that is read: model.inspect(tensors=True) shows the types"
        }
        Remedy::TokenIds => "pass ids made elsewhere: ids= and target_ids=",
        Remedy::TokenizerAgain => {
            "fetch the file again from where the model came from, or pass ids= and target_ids="
        }
        Remedy::Tokenizer => {
            "pass ids= and target_ids=, or give the tokenizer: from_transformers(model, tokenizer), or tokenizer.json beside the \
             weights"
        }
        Remedy::TargetLanguage => "name the target's language: target_language=, or pass target_ids=",
        Remedy::DecoderInput => "pass the decoder's input itself: target_ids=, its first token included",
        Remedy::StartToken => {
            "write the id of one token there, or pass the decoder's input itself: target_ids="
        }
        Remedy::DecoderStart => "pass the decoder's first tokens: target_ids=, or start_ids= to generate",
        Remedy::TokenizerOrStart => "give the tokenizer, or pass the decoder's first tokens: target_ids=",
        Remedy::OtherDevice => "leave device= out: gradients are computed on the CPU",
        Remedy::GradientTarget => "pass the target: target= or target_ids=",
        Remedy::GradientClass => "pass the class of each row: classes=, by its name or its number from 0",
        Remedy::WordsOfBothSides => "give at least one word per side",
        Remedy::AudioOnly => "pass audio=FILE or features=",
        Remedy::Recording => "pass a recording: audio=FILE, or features=",
        Remedy::TextOnly => "pass a text or ids=",
        Remedy::SourceText | Remedy::PromptText | Remedy::PromptInstead | Remedy::SourceInstead => {
            "pass a text or a list of texts, or token ids: ids="
        }
        Remedy::NoSourceLanguage => "leave source_language= out, or take a multilingual model",
        Remedy::EnglishOrNone => "leave target_language= out, or pass target_language='en'",
        Remedy::NoTimes => "leave timestamps= out, or give the model's tokenizer",
        Remedy::NoAlignment => "leave align= out",
        Remedy::DrawHeads => "trace(..., head='all') draws what each head of the cross-attention looks at",
        Remedy::PickAttention => "pick the weights of one: select='encoder.0.self_attn.weights'",
        Remedy::NoMistakes => "leave wrong= out: the proofs name the first tensor that is not finite",
        Remedy::SavedTrace => "give a folder that Trace.save or `attnscope trace --save` has written",
        Remedy::SaveWholeRun => "save a whole run: model.trace(text).save(DIR), without select=",
        Remedy::SaveLess => "free some space on the disk, or save less: select=; nothing was left behind",
        Remedy::TwoRuns => {
            "give two runs: traces, captures of your own model, or the folders and files of other programs' dumps"
        }
        Remedy::NameMap => {
            "say which names belong together: names={'one of theirs': 'one of ours, or a node'}"
        }
        Remedy::SameModel => "compare two runs of the same model on the same input",
        Remedy::SmallerExample => "give a smaller example",
        Remedy::Walk => "model.explain() walks through all of them",
        Remedy::WalkOfModel => "model.explain() shows which this model has",
        Remedy::InputForCell => "pass an input: text=, ids= or audio=",
        Remedy::Sample => "pass a text, token ids (ids=) or a recording (audio=)",
        Remedy::SentencePairs => {
            "pass pairs=: tuples of a source and its target, or a file of them with a tab between; 50 or more of the kind that it \
             was trained on"
        }
        Remedy::ClipPairs => {
            "pass pairs=FILE: one file of a clip, a tab and its transcript per line, 50 lines or more"
        }
        Remedy::Texts => "pass text=: a list of 50 texts or more of the kind that it was trained on",
        Remedy::DifferentPairs => "pass pairs of different sentences: pairs=",
        Remedy::RealSentences => "pass sentences: text=, audio= or pairs=",
        Remedy::RealText => "pass a text",
        Remedy::EveryProof => "fix what is named there first; model.masks(text) shows every proof",
        Remedy::ProofsAtAll => "model.masks(text) shows what there is to prove",
        Remedy::TrainingData => {
            "pass data=: JSON lines, CSV, tab-separated pairs, the aclImdb folder, or a folder with the recipe's files"
        }
        Remedy::SkipBadRows => "mend the row, or pass over bad rows with skip_bad=True, which counts them",
        Remedy::OtherRunFolder => "pass another folder: out=, or go on with that run: resume=True",
        Remedy::BeginAnew => "leave resume= out, and pass a new folder: out=",
        Remedy::OwnRecipe => {
            "to go on, give the run's own recipe.toml and neither steps= nor seed=; to learn for longer or otherwise, begin a new run \
             with init= and its folder"
        }
        Remedy::RunFolder => "give a folder that attnscope.train has written",
        Remedy::NameColumns => {
            "name its columns: columns={'source': NAME, 'target': NAME} (or 'text'); 'a.b' is b within a"
        }
        Remedy::ResumeAudit => "go on with that audit: resume=True, or give another folder: out=",
        Remedy::FinishShards => {
            "run each shard to its end (resume=True goes on with it), then merge all of them"
        }
        Remedy::CorpusTexts => "give texts, a line each: text=FILE",
        Remedy::CorpusPairs => "give a source, a tab and its target a line: pairs=FILE",
        Remedy::CorpusClips => "give a recording, a tab and its transcript a line: audio=FILE",
    }
}

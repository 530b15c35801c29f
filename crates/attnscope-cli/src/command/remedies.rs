//! What a user can do about an error, and which argument it is about, in flags and commands.

use attnscope::{Argument, Failure, Remedy};

/// The `error:` line.
pub(super) fn error_line(failure: &Failure) -> String {
    let place = failure.place.as_ref().map(|place| format!("{place}: ")).unwrap_or_default();
    let argument = failure.argument.as_ref().map(|argument| argument_words(argument) + " ");
    format!("{place}{}{}", argument.unwrap_or_default(), failure.error)
}

fn argument_words(argument: &Argument) -> String {
    match argument {
        Argument::Row(row) => format!("--row {row}:"),
        Argument::Head(head) => format!("--head {head}:"),
        Argument::LayerIndex(index) => format!("--layer-index {index}:"),
        Argument::Selector(pattern) => format!("--layer {pattern:?}"),
        Argument::Stops => "--snapshots:".into(),
        Argument::Cell => "--at:".into(),
        Argument::Wiring(None) => "--wiring:".into(),
        Argument::Wiring(Some(edit)) => format!("--wiring {edit}:"),
        Argument::SourceLanguage(code) => format!("--src-lang {code}:"),
        Argument::TargetLanguage(code) => format!("--tgt-lang {code}:"),
        Argument::Times => "--timestamps".into(),
        Argument::AlignmentHeads => "--align-heads".into(),
        Argument::Audio => "--audio".into(),
        Argument::Features => "--features".into(),
        Argument::Pairs => "--pairs".into(),
        Argument::AllPairs => "--pairs:".into(),
        Argument::Rule(None) => "--rules:".into(),
        Argument::Rule(Some(rule)) => format!("--rules {rule}:"),
        Argument::Tolerance(tolerance) => format!("--tolerance {tolerance}:"),
        Argument::Beams(beams) => format!("--beams {beams}:"),
        Argument::MaxLength(length) => format!("--max-length {length}:"),
        Argument::Gradients => "--gradients:".into(),
        Argument::Classes => "--class:".into(),
    }
}

/// The `help:` line.
pub(super) fn words(remedy: &Remedy) -> String {
    match remedy {
        Remedy::Advice(advice) => advice.clone(),
        Remedy::Or(first, second) => format!("{first}, or {}", words(second)),
        Remedy::Noting(first, beside) => format!("{}; {beside}", words(first)),
        Remedy::WiringFields(model) => {
            format!("`attnscope inspect {model}` lists the fields of its wiring and their values")
        }
        Remedy::InspectTensors(model) => format!("`attnscope inspect {model} --tensors` lists what it holds"),
        Remedy::TraceInstead(model) => {
            format!("`attnscope trace {model} --src TEXT` shows what it makes of a text")
        }
        Remedy::TracedModel(folder) => {
            let folder = folder.as_deref().unwrap_or("DIR");
            format!("give the model that was traced: check --trace {folder} MODEL")
        }
        Remedy::AcceptLosses(losses) => {
            let flags: Vec<String> = losses.iter().map(|loss| format!("--allow {loss}")).collect();
            format!("accept it with {}", flags.join(" "))
        }
        Remedy::CausesByDoctor(model) => {
            format!("the reasons are in the report; `attnscope doctor {model}` looks for causes")
        }
        Remedy::TrainFirst(recipe) => {
            format!("train it with `attnscope train {recipe} --data PATH --out DIR`, then give DIR/best")
        }
        Remedy::Topic(topic) => format!("say which: attnscope explain {topic}"),
        Remedy::NearTopics(near) => {
            format!("the nearest are {}; `attnscope explain` lists what can be asked", near.join(", "))
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
        Remedy::AllowMemory => "allow more with --memory",
        Remedy::SayMemory => "give the available memory with --memory",
        Remedy::HeadCount => {
            "give the number of heads with --heads: shapes and costs of attention depend on it"
        }
        Remedy::WiringForm => "write it as in --wiring norm_place=pre,activation=gelu",
        Remedy::Inspect => "`attnscope inspect` lists what is missing, with the source of each fact",
        Remedy::MendFirst => "fix that first; `attnscope inspect` shows the source of each fact",
        Remedy::InspectValues => "`attnscope inspect MODEL --stats` counts what is not finite in the weights",
        Remedy::SmallerSizes => "give smaller --batch, --src-len or --tgt-len",
        Remedy::OtherOutput => "give another name for the output, or replace that file with --force",
        Remedy::OutputFormat => "end the name in .safetensors, .apr or .npz, or give --to",
        Remedy::TypeThatIsRead => {
            "write the file again with a type that is read: see `attnscope inspect --tensors`"
        }
        Remedy::TokenIds => "give ids made elsewhere with --src-ids and --tgt-ids",
        Remedy::TokenizerAgain => {
            "fetch the file again from where the model came from, or give ids with --src-ids and --tgt-ids"
        }
        Remedy::Tokenizer => {
            "give token ids with --src-ids and --tgt-ids, or put tokenizer.json beside the weights"
        }
        Remedy::TargetLanguage => "name the target's language, or give ids with --tgt-ids",
        Remedy::DecoderInput => "give the decoder's input itself with --tgt-ids, its first token included",
        Remedy::StartToken => {
            "write the id of one token there, or give the decoder's input itself with --tgt-ids"
        }
        Remedy::DecoderStart => "give the decoder's first tokens with --tgt-ids",
        Remedy::TokenizerOrStart => {
            "put tokenizer.json beside the weights, or give the decoder's first tokens with --tgt-ids"
        }
        Remedy::OtherDevice => "leave --reference and --device out: gradients are computed on the CPU",
        Remedy::GradientTarget => {
            "give the target with --tgt TEXT, --tgt-file FILE, --tgt-ids or --pairs FILE"
        }
        Remedy::GradientClass => "give the class of each row with --class, by its name or its number from 0",
        Remedy::WordsOfBothSides => "give at least one word per side with --src and --tgt",
        Remedy::AudioOnly => "give --audio FILE or --features FILE",
        Remedy::Recording => "give a recording with --audio FILE, or features with --features FILE",
        Remedy::TextOnly => "give --src TEXT or --src-ids",
        Remedy::SourceText => "give a text with --src TEXT or --src-file FILE, or token ids with --src-ids",
        Remedy::PromptText => "give a text with --prompt TEXT or --text FILE, or token ids with --tgt-ids",
        Remedy::PromptInstead => "give it with --prompt TEXT, --text FILE or --tgt-ids",
        Remedy::SourceInstead => "give it with --src TEXT, --src-file FILE or --src-ids",
        Remedy::NoSourceLanguage => "leave --src-lang out, or take a multilingual model",
        Remedy::EnglishOrNone => "leave --tgt-lang out, or give --tgt-lang en",
        Remedy::NoTimes => "leave --timestamps out, or put the model's tokenizer.json beside the weights",
        Remedy::NoAlignment => "leave --align out",
        Remedy::DrawHeads => {
            "`attnscope trace --head all` draws what each head of the cross-attention looks at"
        }
        Remedy::PickAttention => "pick the weights of one: --layer encoder.0.self_attn.weights",
        Remedy::NoMistakes => "leave --wrong out: the proofs name the first tensor that is not finite",
        Remedy::SavedTrace => "give a folder that `attnscope trace --save` has written",
        Remedy::SaveWholeRun => {
            "save the whole run: `attnscope trace MODEL --save DIR`, without --layer and --snapshots"
        }
        Remedy::SaveLess => "free some space on the disk, or save less with --layer; nothing was left behind",
        Remedy::TwoRuns => {
            "give two traces, or a trace and a dump; `attnscope trace --save DIR` makes a trace"
        }
        Remedy::NameMap => {
            "say which names belong together with --map FILE: one name of A and one of B (or a node) per line"
        }
        Remedy::SameModel => {
            "compare two runs of the same model on the same input; sizes of weights are compared with --checkpoint"
        }
        Remedy::SmallerExample => "give a smaller example; for a model's tensors there is check --trace",
        Remedy::Walk => "see them all with --walk",
        Remedy::WalkOfModel => "see which exist with `attnscope explain --walk`",
        Remedy::InputForCell => "give an input with --src or --audio",
        Remedy::Sample => "give a text with --src, token ids with --src-ids, or a recording with --audio",
        Remedy::SentencePairs => {
            "give --pairs FILE: one source, a tab and its target per line, 50 lines or more of the kind that it was trained on"
        }
        Remedy::ClipPairs => {
            "give --pairs FILE: one file of a clip, a tab and its transcript per line, 50 lines or more"
        }
        Remedy::Texts => {
            "give --text FILE: one text per line, 50 lines or more of the kind that it was trained on"
        }
        Remedy::DifferentPairs => "give pairs of different sentences with --pairs",
        Remedy::RealSentences => "give sentences: --src TEXT, --audio FILE or --pairs FILE",
        Remedy::RealText => "give a text: --prompt TEXT or --text FILE",
        Remedy::EveryProof => "fix what is named there first; `attnscope masks` shows every proof",
        Remedy::ProofsAtAll => "`attnscope masks` shows what there is to prove",
        Remedy::TrainingData => {
            "give it with --data: JSON lines, CSV, tab-separated pairs, the aclImdb folder, or a folder with the recipe's files"
        }
        Remedy::SkipBadRows => "mend the row, or pass over bad rows with --skip-bad, which counts them",
        Remedy::OtherRunFolder => "give another folder with --out, or go on with that run with --resume",
        Remedy::BeginAnew => "leave --resume out, and give a new folder with --out",
        Remedy::OwnRecipe => {
            "to go on, give the run's own recipe.toml as RECIPE and neither --steps nor --seed; to learn for longer or otherwise, begin a new run with --init and its folder"
        }
        Remedy::RunFolder => "give a folder that `attnscope train --out` has written",
        Remedy::NameColumns => {
            "name its columns: --columns source=NAME,target=NAME (or text=NAME); a.b is b within a"
        }
        Remedy::ResumeAudit => "go on with that audit with --resume, or give another folder with --out",
        Remedy::FinishShards => {
            "run each shard to its end (--resume goes on with it), then merge all of them"
        }
        Remedy::CorpusTexts => "give texts, a line each: --text FILE",
        Remedy::CorpusPairs => "give a source, a tab and its target a line: --pairs FILE",
        Remedy::CorpusClips => "give a recording, a tab and its transcript a line: --audio FILE",
    }
}

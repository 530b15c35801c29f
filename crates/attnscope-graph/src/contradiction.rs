//! Contradictions: facts that a config states and that cannot be true of the tensors beside it.

use serde_json::{Value, json};

use crate::facts::{Configs, Fact, Topic};
use crate::family::{Family, Meant};
use crate::identify::is_known_type;
use crate::recognise::Model;

/// Sources that are the tensors' own.
const TENSORS: [&str; 4] = ["tensor shapes", "tensor names", "tensors", "width of q ÷ heads"];

/// The fact that the output projection is the embedding.
const TIED: &str = "tied_output";

/// Hugging Face's config: what its code does with a contradiction is known.
const CONFIG: &str = "config.json";

/// A key of a config that cannot be true of the tensors beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct Contradiction {
    /// Its source: `config.json: num_heads`, or the key that is absent and therefore has its default.
    pub source: String,
    /// What it says.
    pub said: Value,
    /// What the tensors show. That is what attnscope runs.
    pub shown: Value,
    /// The facts in question: `encoder heads`.
    pub facts: Vec<String>,
    /// What Hugging Face does about it, where the config is one of its own.
    pub hugging_face: Option<Outcome>,
}

/// What Hugging Face does with a file that does not fit its config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It builds a model of the family that the config names, whose weights are not those of the file.
    OtherFamily,
    /// Tensors that the model does not use are left out, with a warning.
    IgnoresTensors,
    /// Weights that are not in the file are filled at random, with a warning.
    RandomWeights,
    /// It raises an error.
    Refuses,
}

impl Outcome {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::OtherFamily => "other family",
            Self::IgnoresTensors => "ignores tensors",
            Self::RandomWeights => "random weights",
            Self::Refuses => "refuses",
        }
    }

    fn of(fact: &str, said: &Value, shown: &Value) -> Self {
        match fact {
            "family" => Self::OtherFamily,
            "tied_output" => Self::RandomWeights,
            "encoder layers" | "decoder layers" if said.as_u64() < shown.as_u64() => Self::IgnoresTensors,
            "encoder layers" | "decoder layers" | "gated" => Self::RandomWeights,
            _ => Self::Refuses,
        }
    }
}

impl Contradiction {
    /// The contradiction in a sentence: what the config says, what the tensors show, what other code does, what attnscope runs.
    pub fn sentence(&self) -> String {
        let Self { source, said, shown, facts, hugging_face } = self;
        let is = if source.starts_with("no ") { ", which means" } else { " is" };
        let is_tied = facts.iter().any(|fact| fact == TIED);
        let (shows, runs) = match is_tied {
            true => (
                "the file has no output projection of its own".to_owned(),
                "uses the embedding for it".to_owned(),
            ),
            false => (format!("the tensors show {shown}"), format!("goes by the tensors and runs {shown}")),
        };
        let others = match hugging_face {
            Some(Outcome::OtherFamily) => {
                format!(
                    "Hugging Face builds a model of the family {said}, whose weights are not those of the file"
                )
            }
            Some(Outcome::Refuses) => "Hugging Face refuses the file, because shapes do not fit".to_owned(),
            Some(Outcome::IgnoresTensors) => {
                format!("Hugging Face runs the first {said} and ignores the others, with a warning")
            }
            Some(Outcome::RandomWeights) => {
                "Hugging Face fills missing weights with random numbers, with a warning".to_owned()
            }
            None => "code that builds the model from that value does not fit the file".to_owned(),
        };
        format!("{source}{is} {said}, and {shows} ({}): {others}; attnscope {runs}", facts.join(", "))
    }
}

impl Model {
    /// Every contradiction between configs and tensors, each key once.
    pub fn contradictions(&self) -> Vec<Contradiction> {
        let mut found: Vec<Contradiction> = Vec::new();
        let given = self.facts.iter().any(|fact| fact.source == "--heads");
        let of_tensors = |fact: &&Fact| {
            let judged = fact.topic == Topic::Shape || fact.name == "gated";
            // The width of a head follows from the number of heads that the user gave.
            judged && TENSORS.contains(&fact.source.as_str()) && !(given && fact.name == "d_head")
        };
        let all = |fact: &&Fact| of_tensors(fact) || fact.name == TIED || fact.name == "family";
        for fact in self.facts.iter().filter(all) {
            let is_about_tensors = |(source, said): &&(String, Value)| match fact.name.as_str() {
                TIED => self.lacks_output(said),
                "family" => source.ends_with(": model_type") && said.as_str().is_some_and(is_known_type),
                _ => true,
            };
            for (source, said) in fact.disagree.iter().filter(is_about_tensors) {
                let same = |c: &&mut Contradiction| c.source == *source && c.shown == fact.value;
                if let Some(known) = found.iter_mut().find(same) {
                    known.facts.push(fact.name.clone());
                    continue;
                }
                let own = source.starts_with(CONFIG) || source.starts_with("no ");
                found.push(Contradiction {
                    source: source.clone(),
                    said: said.clone(),
                    shown: fact.value.clone(),
                    facts: vec![fact.name.clone()],
                    hugging_face: own.then(|| Outcome::of(&fact.name, said, &fact.value)),
                });
            }
        }
        found
    }

    /// Whether a config that says so of a tied output asks for a projection that the file does not have. T5's key of that name
    /// is
    /// about the scale of the logits.
    fn lacks_output(&self, tied: &Value) -> bool {
        let has_other_meaning =
            self.family.settings.iter().any(|setting| setting.keys.contains(&"tie_word_embeddings"));
        tied == &json!(false) && self.wiring.tied_output && !has_other_meaning
    }
}

/// Adds sizes that a config leaves out and whose default differs from what the tensors show.
pub(crate) fn note_absent(family: &Family, configs: &Configs<'_>, facts: &mut [Fact]) {
    for &(key, name, meant) in family.absent_sizes {
        if configs.of_model(&[key]).is_some() {
            continue;
        }
        let means = match meant {
            Meant::Size(size) => json!(size),
            Meant::As(other) => match configs.of_model(&[other]) {
                Some(said) => said.value.clone(),
                None => continue,
            },
            Meant::Times(factor, other) => {
                let size =
                    configs.of_model(&[other]).and_then(|said| said.value.as_u64()?.checked_mul(factor));
                match size {
                    Some(size) => json!(size),
                    None => continue,
                }
            }
        };
        if let Some(fact) = facts.iter_mut().find(|fact| fact.name == name && fact.value != means) {
            fact.disagree.push((format!("no {key} in {CONFIG}"), means));
        }
    }
}

/// T5's config says whether a feed-forward layer is gated in a separate key, or in the name of the activation.
pub(crate) fn note_gate(family: &Family, configs: &Configs<'_>, facts: &mut [Fact]) {
    if !family.settings.iter().any(|setting| setting.keys.contains(&"feed_forward_proj")) {
        return;
    }
    let said = configs.of_model(&["is_gated_act", "feed_forward_proj"]);
    let Some((said, gated)) = said.and_then(|said| {
        let gated = said.value.as_bool().or_else(|| Some(said.value.as_str()?.starts_with("gated-")))?;
        Some((said, gated))
    }) else {
        return;
    };
    if let Some(fact) = facts.iter_mut().find(|fact| fact.name == "gated" && fact.value != json!(gated)) {
        fact.disagree.push((said.source, json!(gated)));
    }
}

//! What a config says and the tensors beside it cannot have: where both are of one fact and differ.

use serde_json::{Value, json};

use crate::facts::{Configs, Fact, Topic};
use crate::family::{Family, Meant};
use crate::recognise::Model;

/// Sources that are the tensors' own.
const TENSORS: [&str; 4] = ["tensor shapes", "tensor names", "tensors", "width of q ÷ heads"];

/// Hugging Face's document, whose contradictions have a known outcome there.
const CONFIG: &str = "config.json";

/// A key of a config that cannot be true of the tensors beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct Contradiction {
    /// Who says it: `config.json: num_heads`, or which key is absent, and so means its default.
    pub source: String,
    /// What it says.
    pub said: Value,
    /// What the tensors show, which is what is run here.
    pub shown: Value,
    /// The facts that it is about: `encoder heads`.
    pub facts: Vec<String>,
    /// What Hugging Face does about it, where the config is one of its own.
    pub hugging_face: Option<Outcome>,
}

/// What Hugging Face does with a file that does not fit its config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Tensors without a place are left out, with a warning.
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
            Self::IgnoresTensors => "ignores tensors",
            Self::RandomWeights => "random weights",
            Self::Refuses => "refuses",
        }
    }

    fn of(fact: &str, said: &Value, shown: &Value) -> Self {
        match fact {
            "encoder layers" | "decoder layers" if said.as_u64() < shown.as_u64() => Self::IgnoresTensors,
            "encoder layers" | "decoder layers" | "gated" => Self::RandomWeights,
            _ => Self::Refuses,
        }
    }
}

impl Contradiction {
    /// The whole of it in a sentence: who says what, what the tensors show, what others do, what is run here.
    pub fn sentence(&self) -> String {
        let Self { source, said, shown, facts, hugging_face } = self;
        let is = if source.starts_with("no ") { ", which means" } else { " is" };
        let others = match hugging_face {
            Some(Outcome::Refuses) => "Hugging Face refuses the file, since shapes do not fit".to_owned(),
            Some(Outcome::IgnoresTensors) => {
                format!("Hugging Face runs the first {said} and ignores the others, with a warning")
            }
            Some(Outcome::RandomWeights) => {
                "Hugging Face fills what it does not find with random numbers, with a warning".to_owned()
            }
            None => "code that builds the model from that does not fit the file".to_owned(),
        };
        format!(
            "{source}{is} {said}, and the tensors show {shown} ({}): {others}; attnscope goes by the tensors and runs \
             {shown}",
            facts.join(", ")
        )
    }
}

impl Model {
    /// Every contradiction between configs and tensors, each key once.
    pub fn contradictions(&self) -> Vec<Contradiction> {
        let mut found: Vec<Contradiction> = Vec::new();
        let given = self.facts.iter().any(|fact| fact.source == "--heads");
        let of_tensors = |fact: &&Fact| {
            let judged = fact.topic == Topic::Shape || fact.name == "gated";
            // The width of a head follows from the user's word for their number.
            judged && TENSORS.contains(&fact.source.as_str()) && !(given && fact.name == "d_head")
        };
        for fact in self.facts.iter().filter(of_tensors) {
            for (source, said) in &fact.disagree {
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
}

/// Adds what a config means by leaving a size out, where the tensors show another.
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
        };
        if let Some(fact) = facts.iter_mut().find(|fact| fact.name == name && fact.value != means) {
            fact.disagree.push((format!("no {key} in {CONFIG}"), means));
        }
    }
}

/// T5's config says whether a feed-forward layer is gated in a key of its own, or by the name of the activation.
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

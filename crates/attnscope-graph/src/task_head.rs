//! Heads for other tasks than predicting tokens, which are known by name but not run.

use crate::architecture::Head;
use crate::recognise::Model;

/// What is on top of a model that was fine-tuned for another task than predicting tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskHead {
    /// What it is and what it reads.
    pub what: String,
    /// Its tensors.
    pub tensors: Vec<usize>,
    /// The number of its outputs: classes, or a start and an end; none where no bias or matrix shows it.
    pub outputs: Option<usize>,
    /// Whether the model also has logits, from its embedding table.
    has_logits: bool,
}

/// A module's name, what the head is, and the tensor whose rows are its outputs, where it has some.
const HEADS: &[(&str, &str, Option<&str>)] = &[
    (
        "classification_head",
        "a classification head: dense, tanh and out_proj of the decoder's state at the last end token",
        Some("out_proj.weight"),
    ),
    (
        "qa_outputs",
        "a question-answering head: the start and the end of an answer, from every state of the last stack",
        Some("weight"),
    ),
    ("pooler", "a pooler: dense and tanh of the first token's state", None),
    ("classifier", "a classification head: a linear map to the classes", Some("weight")),
    ("score", "a classification head: a linear map of the last token's state to the classes", Some("weight")),
    (
        "cls.seq_relationship",
        "a next-sentence head: whether the second text follows the first",
        Some("weight"),
    ),
];

/// The part of a tensor's name after a module, whatever its prefix.
fn within<'n>(name: &'n str, module: &str) -> Option<&'n str> {
    let at = if name.starts_with(module) { 0 } else { name.find(&format!(".{module}."))? + 1 };
    name[at + module.len()..].strip_prefix('.')
}

impl Model {
    /// The heads for other tasks in the file: that of BartForSequenceClassification, a pooler.
    pub fn task_head(&self) -> Option<TaskHead> {
        let (mut what, mut tensors, mut outputs) = (Vec::new(), Vec::new(), None);
        for &(module, words, output) in HEADS {
            let name = |i: usize| self.tensors[i].name.as_str();
            let own = |&&i: &&usize| within(name(i), module).is_some();
            let of_head: Vec<usize> = self.binding.unused.iter().filter(own).copied().collect();
            let last = of_head.iter().find(|&&i| output.is_some() && within(name(i), module) == output);
            outputs = outputs.or(last.and_then(|&i| self.tensors[i].shape.first().copied()));
            if !of_head.is_empty() {
                what.push(words);
                tensors.extend(of_head);
            }
        }
        let has_logits = self.architecture.head != Head::None;
        (!tensors.is_empty()).then(|| TaskHead { what: what.join(", and "), tensors, outputs, has_logits })
    }
}

impl TaskHead {
    /// A sentence for the reader of a drawing or a run.
    pub fn sentence(&self) -> String {
        let outputs = self.outputs.map(|n| format!(" ({n} outputs)")).unwrap_or_default();
        let logits = match self.has_logits && self.outputs.is_some() {
            true => {
                ", and the logits are those of the embedding table, which may not have been trained to predict tokens here"
            }
            false => "",
        };
        format!(
            "the file has {}{outputs}; the model before the head is drawn and run, the head is not{logits}",
            self.what
        )
    }
}

#[cfg(test)]
mod tests {
    use super::within;

    #[test]
    fn a_module_is_found_behind_any_prefix() {
        assert_eq!(within("classifier.weight", "classifier"), Some("weight"));
        assert_eq!(within("bert.pooler.dense.bias", "pooler"), Some("dense.bias"));
        assert_eq!(within("cls.seq_relationship.bias", "cls.seq_relationship"), Some("bias"));
        assert_eq!(within("scores.weight", "score"), None);
        assert_eq!(within("decoder.0.rescore.weight", "score"), None);
    }
}

//! Heads for other tasks than generation, which are known by name and not run.

use crate::recognise::Model;

/// What is on top of a model that was fine-tuned for another task than generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskHead {
    /// What it is and what it reads.
    pub what: &'static str,
    /// Its tensors.
    pub tensors: Vec<usize>,
    /// Its outputs: classes, or a start and an end; none where no bias or matrix tells.
    pub outputs: Option<usize>,
}

/// The beginning of the tensors' names, what the head is, and the tensor whose rows are its outputs.
const HEADS: &[(&str, &str, &str)] = &[
    (
        "classification_head.",
        "a classification head: dense, tanh and out_proj of the decoder's state at the last end token",
        "classification_head.out_proj.weight",
    ),
    (
        "qa_outputs.",
        "a question-answering head: the start and the end of an answer, from every state of the decoder",
        "qa_outputs.weight",
    ),
];

impl Model {
    /// The head for another task that the file holds, if it does: BartForSequenceClassification's.
    pub fn task_head(&self) -> Option<TaskHead> {
        HEADS.iter().find_map(|&(start, what, output)| {
            let own = |&&i: &&usize| self.tensors[i].name.starts_with(start);
            let tensors: Vec<usize> = self.binding.unused.iter().filter(own).copied().collect();
            let last = tensors.iter().find(|&&i| self.tensors[i].name == output);
            let outputs = last.and_then(|&i| self.tensors[i].shape.first().copied());
            (!tensors.is_empty()).then_some(TaskHead { what, tensors, outputs })
        })
    }
}

impl TaskHead {
    /// What a reader of a drawing or a run must know.
    pub fn sentence(&self) -> String {
        let outputs = self.outputs.map(|n| format!(" ({n} outputs)")).unwrap_or_default();
        format!(
            "the file has {}{outputs}; encoder and decoder are drawn and run, this head is not, and the logits are those of \
             the embedding table, which was not trained to predict tokens here",
            self.what
        )
    }
}

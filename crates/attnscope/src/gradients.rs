//! The gradients of a run's tensors: the slope of the target's NLL.

use std::collections::{BTreeMap, HashMap};

use attnscope_checkpoint::{Remedy, Stats};
use attnscope_graph::{NodeId, Role, Side};
use attnscope_run::trace::TraceWriter;
use attnscope_run::{
    BatchLoss, CheckedInput, Learner, LearningBatch, LearningSink, RunError, Shift, Sink, Targets, Tensor,
    Values,
};
use serde_json::Value;

use crate::answer::TargetLoss;
use crate::collect::TensorUse;
use crate::failure::{Argument, Failure};
use crate::input::{Input, ResolvedInput, TargetInput};
use crate::model::Model;
use crate::ready::Ready;
use crate::toy;

/// Whether the gradients of tensors are computed, and of what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Gradients {
    /// They are not.
    #[default]
    None,
    /// Of the mean NLL of the target's tokens: what the input's target says, or of a decoder alone each next token.
    OfTarget,
    /// Of a classifier: of the mean NLL of a class for each row, by its name or its number from 0.
    OfClasses(Vec<String>),
}

/// What makes gradients: a model that could learn, and what its output should say.
pub(crate) struct GradientRun {
    learner: Box<dyn Learner>,
    targets: Targets,
}

impl GradientRun {
    /// Makes a model ready; whatever is missing is said before anything runs. `None` where no gradients are asked for.
    pub(crate) fn prepare(
        model: &Model,
        ready: &Ready<'_>,
        input: &Input,
        given: &ResolvedInput,
        wanted: &Gradients,
    ) -> Result<Option<Self>, Failure> {
        let classes = match wanted {
            Gradients::None => return Ok(None),
            Gradients::OfTarget => {
                let refuse = |error: &str, remedy: Remedy| {
                    Failure::new(error, remedy).about(Argument::Gradients).of(&ready.opened.name)
                };
                if ready.model.architecture.classifier().is_some() {
                    let error = "gradients of a classifier are those of a class, and none is given";
                    return Err(refuse(error, Remedy::GradientClass));
                }
                if ready.model.graph.at(Role::Logits).is_none() {
                    let error = "the model has no logits, so there is no NLL of a target";
                    return Err(refuse(error, "give a model with its output".into()));
                }
                if !ready.model.architecture.reads(Side::Target) {
                    let error = "the model reads one text, and nothing says which tokens it should give";
                    return Err(refuse(error, "give a model with a decoder, or a classifier".into()));
                }
                let ResolvedInput::Whole(read) = given else {
                    let error = "gradients are those of a target's NLL, and no target is given";
                    return Err(refuse(error, Remedy::GradientTarget));
                };
                let classes = next_tokens(ready, input, read)?;
                if classes.iter().all(Option::is_none) {
                    let error = "the target has one token, and nothing before it that predicts it";
                    return Err(refuse(error, Remedy::GradientTarget));
                }
                classes
            }
            Gradients::OfClasses(names) => class_numbers(ready, names, given.batch())?,
        };
        let learner = model.device().executor().learner(
            ready.prepared.model().clone(),
            ready.weights().clone(),
            model.limits(),
        )?;
        Ok(Some(Self { learner, targets: Targets { classes, smoothing: 0.0 } }))
    }

    /// Runs forward and backward, and collects gradients of the mean NLL.
    pub(crate) fn run(
        mut self,
        input: &CheckedInput,
        collected: &mut CollectedGradients,
    ) -> Result<TargetLoss, Failure> {
        let count = self.targets.classes.iter().flatten().count();
        collected.scale = 1.0 / count.max(1) as f32;
        let batch = LearningBatch { input, targets: &self.targets, dropout_seed: None };
        let BatchLoss { nll, count, .. } = self.learner.step(&batch, collected)?;
        Ok(TargetLoss { nll: nll / count.max(1) as f64, targets: count })
    }
}

/// What each position of the decoder should give, [batch, position]: the token that comes next. After the last of given ids nothing
/// is known to come; a sentence ends as the tokenizer ends it.
fn next_tokens(
    ready: &Ready<'_>,
    input: &Input,
    read: &attnscope_run::Input,
) -> Result<Vec<Option<u32>>, Failure> {
    let Some((_, rows)) = read.tokens().find(|(side, _)| *side == Side::Target) else {
        return Ok(Vec::new());
    };
    let sentences = match &input.target {
        Some(TargetInput::Texts(texts)) => texts.as_slice(),
        None if ready.opened.name == "toy" => &[toy::TARGET.to_owned()],
        Some(TargetInput::Ids(_)) | None => &[],
    };
    let length = rows.length().max(1);
    let mut classes = vec![None; rows.ids().len()];
    for (row, tokens) in rows.tokens().iter().enumerate() {
        let next = match sentences.get(row) {
            Some(text) => ready.shift()?.labels(&ready.tokenizer()?.encode_target(text)?),
            None => Shift::AsIs.labels(tokens),
        };
        let places = (row * length..(row + 1) * length).filter(|&at| rows.open()[at]);
        places.zip(next).for_each(|(at, next)| classes[at] = next);
    }
    Ok(classes)
}

/// The number of each row's class.
fn class_numbers(ready: &Ready<'_>, names: &[String], batch: usize) -> Result<Vec<Option<u32>>, Failure> {
    let refuse = |error: String, remedy: &str| {
        Failure::new(error, remedy).about(Argument::Classes).of(&ready.opened.name)
    };
    let Some(classifier) = ready.model.architecture.text_classifier() else {
        return Err(refuse("the model is not a classifier of texts".into(), "leave the class out"));
    };
    if names.len() != batch {
        let error = format!("expected {batch}, found {}", names.len());
        return Err(refuse(error, "give a class for every row of the batch"));
    }
    let own = class_names(ready);
    let number = |name: &String| {
        let named = own.iter().find(|(_, own)| own == name).map(|(number, _)| *number);
        let number = named.or_else(|| name.parse().ok()).filter(|&n| (n as usize) < classifier.classes);
        number.map(Some).ok_or_else(|| {
            let names: Vec<&str> = own.iter().map(|(_, name)| name.as_str()).collect();
            let expected = match names.is_empty() {
                true => format!("a number below {}", classifier.classes),
                false => format!("{}, or a number below {}", names.join(", "), classifier.classes),
            };
            refuse(format!("expected {expected}, found {name:?}"), "give a class that the model knows")
        })
    };
    names.iter().map(number).collect()
}

/// The names that the model's documents give its classes.
pub(crate) fn class_names(ready: &Ready<'_>) -> Vec<(u32, String)> {
    let configs = ready.opened.checkpoint.configs().iter();
    let labels = configs.filter_map(|config| config.facts.get("id2label")?.as_object()).flatten();
    let class = |(number, name): (&String, &Value)| Some((number.parse().ok()?, name.as_str()?.to_owned()));
    labels.filter_map(class).collect()
}

/// Measures, keeps and writes gradients as they are made.
#[derive(Debug)]
pub(crate) struct CollectedGradients {
    uses: HashMap<NodeId, TensorUse>,
    pub(crate) stats: BTreeMap<NodeId, Stats>,
    pub(crate) kept: BTreeMap<NodeId, Tensor>,
    pub(crate) writer: Option<TraceWriter>,
    /// The learner sums over the targets; this makes it the mean.
    scale: f32,
}

impl CollectedGradients {
    pub(crate) fn new(uses: HashMap<NodeId, TensorUse>, writer: Option<TraceWriter>) -> Self {
        Self { uses, stats: BTreeMap::new(), kept: BTreeMap::new(), writer, scale: 1.0 }
    }
}

impl Sink for CollectedGradients {
    fn wants(&self, _: NodeId) -> bool {
        false
    }

    fn held(&self, _: NodeId, _: u64) -> u64 {
        0
    }

    fn put(&mut self, _: NodeId, _: &Tensor) -> Result<(), RunError> {
        Ok(())
    }
}

impl LearningSink for CollectedGradients {
    fn wants_gradient(&self, node: NodeId) -> bool {
        self.uses.contains_key(&node) || self.writer.as_ref().is_some_and(|w| w.wants_gradient(node))
    }

    fn put_gradient(&mut self, node: NodeId, gradient: &Tensor) -> Result<(), RunError> {
        let values: Vec<f32> = gradient.values().as_f32().iter().map(|g| g * self.scale).collect();
        let mean = Tensor::new(gradient.shape().to_vec(), values);
        if let Values::F32(values) = mean.values() {
            self.stats.insert(node, Stats::of_f32(values));
        }
        if let Some(writer) = &mut self.writer {
            writer.put_gradient(node, &mean)?;
        }
        if self.uses.get(&node) == Some(&TensorUse::Keep) {
            self.kept.insert(node, mean);
        }
        Ok(())
    }
}

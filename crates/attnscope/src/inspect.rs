//! What a checkpoint is, the source of each fact, and what is missing.

use attnscope_checkpoint::{Check as FileCheck, CheckState as FileCheckState, ErrorKind, Stats, TensorInfo};
use attnscope_graph::{Fact, Model, Recognised, Slot, TaskHead, WeightId};
use serde_json::{Map, Value};

use crate::answer::{
    Alias, Binding, BoundWeight, Check, CheckState, Disagreement, FactSaid, FileSize, Head, Inspection,
    NamedShape, OtherModel, PickledObject, RecognisedModel, Recognition, SCHEMA, TensorEntry, TensorStats,
    TypeCount, WeightState, finite,
};
use crate::failure::Failure;
use crate::open::Opened;

/// How much of a checkpoint is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Headers and configs.
    Headers,
    /// Every tensor by its name, type and shape, too.
    Tensors,
    /// Every value is read as well: statistics and checksums.
    Values,
}

/// Inspects a checkpoint.
pub(crate) fn inspect(opened: &Opened, detail: Detail) -> Result<Inspection, Failure> {
    let c = &opened.checkpoint;
    let checks = match detail {
        Detail::Values => c.verify()?,
        Detail::Headers | Detail::Tensors => c.checks().to_vec(),
    };
    let tensors = match detail {
        Detail::Headers => None,
        Detail::Tensors => Some(c.tensors().iter().map(|tensor| entry(tensor, None)).collect()),
        Detail::Values => Some(values(opened)?),
    };
    let object = |p: &attnscope_checkpoint::Placeholder| PickledObject {
        global: p.global.clone(),
        place: p.place.clone(),
        called: p.called,
    };
    Ok(Inspection {
        schema: SCHEMA,
        model: opened.name.clone(),
        format: c.format().name().to_owned(),
        files: c.files().map(|(name, bytes)| FileSize { name: name.display().to_string(), bytes }).collect(),
        tensor_count: c.tensors().len(),
        checks: checks.iter().map(check).collect(),
        placeholders: c.placeholders().iter().map(object).collect(),
        tokenizer: c.tokenizer().iter().map(|file| file.name().into_owned()).collect(),
        shared: c.shared().iter().map(|group| group.iter().map(|t| t.name.clone()).collect()).collect(),
        recognition: recognition(&opened.recognised),
        tensors,
        types: types(c.tensors()),
        ignored: c.ignored().to_vec(),
    })
}

fn check(check: &FileCheck) -> Check {
    let state = match check.state {
        FileCheckState::Verified => CheckState::Verified,
        FileCheckState::Absent => CheckState::Absent,
        FileCheckState::NotComputed => CheckState::NotComputed,
    };
    Check { what: check.what.to_string(), state }
}

/// Every tensor with what it holds. A damaged file is an error, an unread type is not.
fn values(opened: &Opened) -> Result<Vec<TensorEntry>, Failure> {
    let all = opened.checkpoint.stats().into_iter().zip(opened.checkpoint.tensors());
    all.map(|(result, tensor)| match result {
        Ok(stats) => Ok(entry(tensor, Some(Some(statistics(&stats))))),
        Err(e) if matches!(e.kind, ErrorKind::Unsupported { .. }) => Ok(entry(tensor, Some(None))),
        Err(e) => Err(e.into()),
    })
    .collect()
}

fn entry(tensor: &TensorInfo, stats: Option<Option<TensorStats>>) -> TensorEntry {
    TensorEntry {
        name: tensor.name.clone(),
        dtype: tensor.dtype.name().to_owned(),
        shape: tensor.shape.clone(),
        bytes: tensor.bytes(),
        stats,
    }
}

fn statistics(stats: &Stats) -> TensorStats {
    TensorStats {
        min: finite(stats.min),
        max: finite(stats.max),
        mean: finite(stats.mean),
        std: finite(stats.std),
        zeros: stats.zeros,
        nan: stats.nan,
        inf: stats.inf,
    }
}

/// The types of the tensors, the most frequent first.
fn types(tensors: &[TensorInfo]) -> Vec<TypeCount> {
    let mut types: Vec<TypeCount> = Vec::new();
    for tensor in tensors {
        match types.iter_mut().find(|of| of.dtype == tensor.dtype.name()) {
            Some(of) => of.count += 1,
            None => types.push(TypeCount { dtype: tensor.dtype.name().to_owned(), count: 1 }),
        }
    }
    types.sort_by_key(|of| std::cmp::Reverse(of.count));
    types
}

fn recognition(recognised: &Recognised) -> Recognition {
    match recognised {
        Recognised::Model(model) => Recognition::Model(Box::new(recognised_model(model))),
        Recognised::Other(other) => Recognition::Other(OtherModel {
            kind: other.kind.name().to_owned(),
            family: other.family.map(str::to_owned),
            because: other.because.clone(),
        }),
    }
}

fn recognised_model(model: &Model) -> RecognisedModel {
    let (parameters, buffers) = model.parameters();
    let head = model.task_head();
    RecognisedModel {
        kind: model.architecture.kind().to_owned(),
        family: model.family.id.to_owned(),
        title: model.title(),
        names: model.scheme.id.to_owned(),
        prefix: model.prefix.clone(),
        parameters,
        buffers,
        wiring: wiring(model),
        facts: model.facts.iter().map(fact).collect(),
        binding: binding(model, head.as_ref()),
        obstacles: model.obstacles.clone(),
        head: head.map(|head| Head {
            tensors: head.tensors.iter().map(|&i| named_shape(model, i)).collect(),
            sentence: head.sentence(),
        }),
    }
}

/// The wiring's fields by their names.
pub(crate) fn wiring(model: &Model) -> Map<String, Value> {
    match serde_json::to_value(model.wiring) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

fn fact(fact: &Fact) -> FactSaid {
    let disagree =
        |(source, value): &(String, Value)| Disagreement { source: source.clone(), value: value.clone() };
    FactSaid {
        topic: fact.topic.name().to_owned(),
        name: fact.name.clone(),
        value: fact.value.clone(),
        source: fact.source.clone(),
        disagree: fact.disagree.iter().map(disagree).collect(),
    }
}

fn named_shape(model: &Model, tensor: usize) -> NamedShape {
    let tensor = &model.tensors[tensor];
    NamedShape { name: tensor.name.clone(), shape: tensor.shape.clone() }
}

fn binding(model: &Model, head: Option<&TaskHead>) -> Binding {
    let binding = &model.binding;
    let name = |i: &usize| model.tensors[*i].name.clone();
    let in_head = |i: &usize| head.is_some_and(|head| head.tensors.contains(i));
    let alias = |(tensor, id): &(usize, WeightId)| Alias {
        tensor: name(tensor),
        weight: model.graph.weight(*id).path.clone(),
    };
    Binding {
        bound: binding.bound(),
        weights: model.graph.weights().len(),
        missing: binding.missing().map(|(id, _)| bound_weight(model, id)).collect(),
        mismatched: binding.mismatched().map(|(id, ..)| bound_weight(model, id)).collect(),
        aliases: binding.aliases.iter().map(alias).collect(),
        unused: binding.unused.iter().map(name).collect(),
        unused_shapes: binding
            .unused
            .iter()
            .filter(|i| !in_head(i))
            .map(|&i| named_shape(model, i))
            .collect(),
    }
}

/// A weight of the graph with the tensor that it is.
pub(crate) fn bound_weight(model: &Model, id: WeightId) -> BoundWeight {
    let tensor = |i: usize| model.tensors[i].name.clone();
    let state = match model.binding.slot(id) {
        Slot::Bound(found) => WeightState::Bound {
            tensor: tensor(found.tensor),
            rows: found.rows.as_ref().map(|rows| [rows.start, rows.end]),
            dtype: model.tensors[found.tensor].dtype.to_owned(),
            shape: found.shape(&model.tensors),
        },
        Slot::Missing { name } => WeightState::Missing { tensor: name.clone() },
        Slot::Mismatched { found, expected, shape } => WeightState::Mismatched {
            tensor: tensor(found.tensor),
            expected: expected.clone(),
            shape: shape.clone(),
        },
    };
    BoundWeight { path: model.graph.weight(id).path.clone(), state }
}

//! The same weights with another wiring: a hypothesis about a model.

use serde_json::Value;

use crate::bind::bind;
use crate::build::build;
use crate::dim::{Dim, Stack};
use crate::facts::{Fact, Topic};
use crate::names::Lookup;
use crate::recognise::{Model, obstacles_of, settle_kv_heads};
use crate::wiring::Wiring;

/// Why a field of the wiring cannot be set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WiringError {
    /// There is no such field.
    #[error("the wiring has no field {field:?}")]
    Field {
        /// The name that was given.
        field: String,
    },
    /// The field has no such value.
    #[error("{field}: {why}")]
    Value {
        /// The field.
        field: String,
        /// What it can be, and what was found.
        why: String,
    },
}

/// Fields that had another name, which is still accepted.
fn present_name(field: &str) -> &str {
    match field {
        "rotary_base" => "rotary_theta",
        "rotary_pairs" => "rotary_layout",
        _ => field,
    }
}

impl Model {
    /// The model with some fields of its wiring set by the user, who outranks every document.
    pub fn with_wiring(&self, edits: &[(String, Value)]) -> Result<Self, WiringError> {
        let (mut wiring, known) = (self.wiring, Wiring::fields());
        let renamed: Vec<(String, Value)> =
            edits.iter().map(|(field, value)| (present_name(field).to_owned(), value.clone())).collect();
        let edits = &renamed[..];
        for (field, value) in edits {
            let mut fields = serde_json::to_value(wiring).unwrap_or_default();
            let Some(object) = fields.as_object_mut().filter(|_| known.contains(field)) else {
                return Err(WiringError::Field { field: field.clone() });
            };
            object.insert(field.clone(), value.clone());
            wiring = serde_json::from_value(fields)
                .map_err(|e| WiringError::Value { field: field.clone(), why: e.to_string() })?;
            if !(wiring.norm_eps > 0.0 && wiring.norm_eps < 1.0) {
                let why = format!("expected a small positive number, found {value}");
                return Err(WiringError::Value { field: field.clone(), why });
            }
        }
        let mut model = self.rewired(&wiring, None);
        if let Some((field, value)) = edits.iter().find(|(field, _)| field == "kv_heads")
            && model.wiring.kv_heads != wiring.kv_heads
        {
            let shown = model.wiring.kv_heads.map_or("none".to_owned(), |n| n.to_string());
            let why = format!("the width of the k projection shows {shown}, found {value}");
            return Err(WiringError::Value { field: field.clone(), why });
        }
        for (field, value) in edits {
            let source = "--wiring".to_owned();
            match model.facts.iter_mut().find(|fact| fact.topic == Topic::Wiring && fact.name == *field) {
                Some(fact) => (fact.source, fact.disagree) = (source, Vec::new()),
                None => model.facts.push(Fact {
                    topic: Topic::Wiring,
                    name: field.clone(),
                    value: value.clone(),
                    source,
                    disagree: Vec::new(),
                }),
            }
        }
        Ok(model)
    }

    /// The model with another wiring and, where one is given, another head count in both stacks. The graph is built again and
    /// bound to the same tensors; weights that it needs and the file lacks are listed as obstacles.
    pub fn rewired(&self, wiring: &Wiring, heads: Option<usize>) -> Self {
        self.rewired_by_stack(wiring, |_| heads)
    }

    /// The same with one head count per stack.
    pub fn rewired_by_stack(&self, wiring: &Wiring, heads: impl Fn(Stack) -> Option<usize>) -> Self {
        let graph = build(&self.architecture, wiring);
        let mut sizes = self.sizes.clone();
        for stack in self.architecture.stacks() {
            if let Some(heads) = heads(stack) {
                sizes.set(Dim::Heads(stack), heads);
            }
        }
        let mut wiring = *wiring;
        settle_kv_heads(&self.architecture, &sizes, &mut wiring);
        let lookup = Lookup::new(self.scheme, self.prefix.clone(), &self.tensors);
        let binding = bind(&graph, &sizes, &lookup);
        let mut facts = self.facts.clone();
        if let Ok(Value::Object(fields)) = serde_json::to_value(wiring) {
            for fact in facts.iter_mut().filter(|fact| fact.topic == Topic::Wiring) {
                if let Some(value) = fields.get(&fact.name) {
                    fact.value = value.clone();
                }
            }
        }
        let mut obstacles = self.obstacles.clone();
        for obstacle in obstacles_of(&self.architecture, &graph, &sizes, &binding, &facts) {
            if !obstacles.contains(&obstacle) {
                obstacles.push(obstacle);
            }
        }
        Self {
            family: self.family,
            unknown_type: self.unknown_type.clone(),
            scheme: self.scheme,
            prefix: self.prefix.clone(),
            architecture: self.architecture.clone(),
            wiring,
            sizes,
            graph,
            binding,
            tensors: self.tensors.clone(),
            facts,
            obstacles,
        }
    }
}

//! The same weights joined in another way: what a hypothesis about a model is made of.

use serde_json::Value;

use crate::bind::bind;
use crate::build::{Layers, build};
use crate::dim::{Dim, Stack};
use crate::facts::Topic;
use crate::names::Lookup;
use crate::recognise::{Model, obstacles_of};
use crate::wiring::Wiring;

impl Model {
    /// The model with another wiring and, where one is given, another head count. The graph is built anew and bound to
    /// the same tensors; what the new graph asks for and the file does not have is among the obstacles.
    pub fn rewired(&self, wiring: &Wiring, heads: Option<usize>) -> Self {
        let layers =
            Layers { encoder: self.graph.layers(Stack::Encoder), decoder: self.graph.layers(Stack::Decoder) };
        let graph = build(layers, wiring);
        let mut sizes = self.sizes.clone();
        if let Some(heads) = heads {
            Stack::ALL.into_iter().for_each(|stack| sizes.set(Dim::Heads(stack), heads));
        }
        let lookup = Lookup::new(self.scheme, self.prefix.clone(), &self.tensors);
        let binding = bind(&graph, &sizes, &lookup, wiring.tied_output);
        let mut facts = self.facts.clone();
        if let Ok(Value::Object(fields)) = serde_json::to_value(wiring) {
            for fact in facts.iter_mut().filter(|fact| fact.topic == Topic::Wiring) {
                if let Some(value) = fields.get(&fact.name) {
                    fact.value = value.clone();
                }
            }
        }
        let mut obstacles = self.obstacles.clone();
        for obstacle in obstacles_of(&graph, &sizes, &binding, &facts) {
            if !obstacles.contains(&obstacle) {
                obstacles.push(obstacle);
            }
        }
        Self {
            family: self.family,
            unknown_type: self.unknown_type.clone(),
            scheme: self.scheme,
            prefix: self.prefix.clone(),
            wiring: *wiring,
            sizes,
            graph,
            binding,
            tensors: self.tensors.clone(),
            facts,
            obstacles,
        }
    }
}

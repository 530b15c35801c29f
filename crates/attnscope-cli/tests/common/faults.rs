//! A fault injector: a checkpoint in memory, broken in one way, written as a folder that any command can open.

use std::path::Path;

use attnscope::checkpoint::{DType, Entry, Target, write};
use attnscope::graph::{Dim, Model, Slot, Stack};
use serde_json::{Map, Value, json};

use super::open;

/// A tensor in memory.
#[derive(Clone)]
pub struct Tensor {
    pub name: String,
    pub shape: Vec<usize>,
    pub values: Vec<f32>,
}

/// A model's tensors, config and tokenizer, ready to be broken.
pub struct FaultyModel {
    pub tensors: Vec<Tensor>,
    pub config: Map<String, Value>,
    companions: Vec<(String, Vec<u8>)>,
    model: attnscope::Opened,
}

impl FaultyModel {
    /// Reads `demo`, a fixture's folder, or a file.
    pub fn of(model: &str) -> Self {
        let opened = open(model, None);
        let checkpoint = &opened.checkpoint;
        let tensor = |t: &attnscope::checkpoint::TensorInfo| Tensor {
            name: t.name.clone(),
            shape: t.shape.clone(),
            values: checkpoint.read_f32(t).unwrap(),
        };
        let tensors = checkpoint.tensors().iter().map(tensor).collect();
        let config = checkpoint.configs().first().map(|c| c.facts.clone()).unwrap_or_default();
        let companions = checkpoint
            .tokenizer()
            .iter()
            .map(|file| (file.name().into_owned(), file.read().unwrap().into_owned()))
            .collect();
        Self { tensors, config, companions, model: opened }
    }

    pub fn model(&self) -> &Model {
        self.model.model().unwrap()
    }

    /// Writes the folder and gives back its path.
    pub fn save(&self, folder: &Path) -> String {
        let entry = |t: &Tensor| {
            let bytes: Vec<u8> = t.values.iter().flat_map(|x| x.to_le_bytes()).collect();
            Entry {
                name: t.name.clone(),
                dtype: DType::F32,
                shape: t.shape.clone(),
                bytes: Box::new(move |sink| sink(&bytes)),
            }
        };
        let entries: Vec<Entry<'_>> = self.tensors.iter().map(entry).collect();
        std::fs::create_dir_all(folder).unwrap();
        write(Target::Safetensors, &folder.join("model.safetensors"), entries, &Map::new()).unwrap();
        std::fs::write(folder.join("config.json"), Value::Object(self.config.clone()).to_string()).unwrap();
        for (name, bytes) in &self.companions {
            std::fs::write(folder.join(name), bytes).unwrap();
        }
        folder.display().to_string()
    }

    /// The tensor of a weight of the graph: its place among the tensors, and the elements of it that are meant.
    fn place(&self, weight: &str) -> (usize, std::ops::Range<usize>) {
        let model = self.model();
        let id = model.graph.find_weight(weight).unwrap_or_else(|| panic!("{weight} is no weight"));
        let Slot::Bound(found) = model.binding.slot(id) else { panic!("{weight} is not bound") };
        let tensor = &self.tensors[found.tensor];
        let row = tensor.values.len() / tensor.shape[0].max(1);
        let rows = found.rows.clone().map_or(0..tensor.values.len(), |r| r.start * row..r.end * row);
        (found.tensor, rows)
    }

    /// The whole tensor of a weight.
    pub fn tensor(&mut self, weight: &str) -> &mut Tensor {
        let (tensor, _) = self.place(weight);
        &mut self.tensors[tensor]
    }

    pub fn get(&self, weight: &str) -> Vec<f32> {
        let (tensor, range) = self.place(weight);
        self.tensors[tensor].values[range].to_vec()
    }

    pub fn set(&mut self, weight: &str, values: &[f32]) {
        let (tensor, range) = self.place(weight);
        self.tensors[tensor].values[range].copy_from_slice(values);
    }

    pub fn edit(&mut self, weight: &str, edit: impl FnOnce(&mut [f32])) {
        let mut values = self.get(weight);
        edit(&mut values);
        self.set(weight, &values);
    }

    pub fn swap(&mut self, a: &str, b: &str) {
        let (x, y) = (self.get(a), self.get(b));
        self.set(a, &y);
        self.set(b, &x);
    }

    /// Takes the tensor of a weight out of the file.
    pub fn remove(&mut self, weight: &str) {
        let (tensor, _) = self.place(weight);
        self.tensors.remove(tensor);
    }

    /// The weights of a layer, or of a part of one.
    pub fn weights_under(&self, path: &str) -> Vec<String> {
        let weights = self.model().graph.weights().iter().map(|w| w.path.clone());
        weights.filter(|w| w.starts_with(&format!("{path}."))).collect()
    }
}

/// A way to break a model's tensors.
pub struct Fault {
    /// What is done, and where.
    pub what: &'static str,
    pub apply: fn(&mut FaultyModel),
}

/// Faults of the weights that any layer of any family can have.
pub const FAULTS: &[Fault] = &[
    Fault { what: "nan", apply: |p| p.edit("decoder.1.ffn.out.weight", |w| w[5] = f32::NAN) },
    Fault {
        what: "swapped q and k",
        apply: |p| p.swap("encoder.1.self_attn.q.weight", "encoder.1.self_attn.k.weight"),
    },
    Fault { what: "permuted heads", apply: |p| permute_heads(p, "decoder.0.self_attn") },
    Fault { what: "transposed", apply: |p| transpose(p, "encoder.0.self_attn.v.weight") },
    Fault { what: "another layer's weights", apply: |p| copy_layer(p, "encoder.0", "encoder.1") },
    Fault { what: "corrupted row", apply: |p| p.edit("decoder.0.ffn.hidden.weight", |w| w[..8].fill(30.0)) },
    Fault { what: "zeros", apply: |p| p.edit("decoder.0.cross_attn.v.weight", |w| w.fill(0.0)) },
    Fault { what: "constant", apply: |p| p.edit("encoder.0.ffn.hidden.weight", |w| w.fill(0.25)) },
    Fault { what: "missing", apply: |p| p.remove("decoder.0.cross_attn.k.weight") },
];

/// Turns the rows of v by one head and leaves the output projection as it is.
pub fn permute_heads(faulty: &mut FaultyModel, attention: &str) {
    let model = faulty.model();
    let stack = if attention.starts_with("encoder") { Stack::Encoder } else { Stack::Decoder };
    let heads = model.sizes.get(Dim::Heads(stack)).unwrap();
    faulty.edit(&format!("{attention}.v.weight"), |w| {
        let head = w.len() / heads;
        w.rotate_right(head);
    });
}

/// Exchanges rows and columns of a square matrix.
pub fn transpose(faulty: &mut FaultyModel, weight: &str) {
    faulty.edit(weight, |w| {
        let n = w.len().isqrt();
        assert_eq!(n * n, w.len(), "{weight} is not square");
        for i in 0..n {
            for j in 0..i {
                w.swap(i * n + j, j * n + i);
            }
        }
    });
}

/// Writes one layer's weights over another's.
pub fn copy_layer(faulty: &mut FaultyModel, from: &str, to: &str) {
    for weight in faulty.weights_under(from) {
        let there = weight.replacen(from, to, 1);
        if faulty.model().graph.find_weight(&there).is_some() {
            let values = faulty.get(&weight);
            faulty.set(&there, &values);
        }
    }
}

/// Sets a key of the config.
pub fn config(faulty: &mut FaultyModel, key: &str, value: Value) {
    faulty.config.insert(key.to_owned(), json!(value));
}

//! A model with weights and an input, and its loss by the reference executor.

use std::collections::BTreeMap;
use std::sync::Arc;

use attnscope_checkpoint::Checkpoint;
use attnscope_graph::{Config, Model, NodeId, Recognised, Side, WeightId, recognise};
use attnscope_run::{
    BatchLoss, Capture, CheckedInput, Executor, Features, Input, Intervention, Kept, Learner, LearningBatch,
    LearningSink, Limits, Native, Reference, Request, Rows, Sequence, SplitMix, Targets, Weights,
    tensor_specs,
};

use crate::common::fixture;

/// How far values are moved, as a part of what they are: so little that next to no ReLU changes its side.
pub const STEP: f64 = 1e-5;
/// How far a slope may be from the gradient's, as a share of the gradient's norm times the direction's.
pub const TOLERANCE: f64 = 2e-5;

/// A model, an input, and what its output should say.
pub struct Case {
    pub path: &'static str,
    pub model: Model,
    pub weights: Weights,
    pub input: Input,
    pub targets: Targets,
    /// What a gradient that is zero by its formula may be in f32: a part of the largest.
    pub floor: f64,
}

impl Case {
    pub fn open(path: &'static str, heads: Option<usize>) -> Self {
        let (model, weights) = load(path, heads);
        let input = traced_input(path);
        let checked = CheckedInput::new(&model, input.clone()).unwrap();
        let (_, last) = model.graph.iter().last().unwrap();
        let shape = checked.sizes().shape(&last.dims).unwrap();
        let classes = *shape.last().unwrap();
        let rows = shape.iter().product::<usize>() / classes;
        let mut random = SplitMix::new(7);
        // Every fifth row is not counted.
        let class = |row: usize| (row % 5 != 3).then(|| random.below(classes) as u32);
        let targets = Targets { classes: (0..rows).map(class).collect(), smoothing: 0.1 };
        Self { path, model, weights, input, targets, floor: 0.0 }
    }

    pub fn learner(&self, executor: &Native) -> Box<dyn Learner> {
        executor.learner(Arc::new(self.model.clone()), self.weights.clone(), &Limits::default()).unwrap()
    }

    pub fn checked(&self) -> CheckedInput {
        CheckedInput::new(&self.model, self.input.clone()).unwrap()
    }

    pub fn step(&mut self, learner: &mut dyn Learner, sink: &mut dyn LearningSink) -> BatchLoss {
        let input = self.checked();
        let batch = LearningBatch { input: &input, targets: &self.targets, dropout_seed: None };
        let loss = learner.step(&batch, sink).unwrap();
        self.floor = 1e-2 * learner.gradient_norms().into_iter().fold(0.0, f64::max);
        loss
    }

    /// The loss by the reference executor, as the formula says.
    pub fn loss(&self, weights: &Weights, interventions: &[Intervention]) -> f64 {
        let (last, _) = self.model.graph.iter().last().unwrap();
        let logits = self.run(weights, interventions, |id| id == last).remove(&last).unwrap();
        let width = *logits.shape.last().unwrap();
        let smoothing = f64::from(self.targets.smoothing);
        let rows = logits.values.chunks(width).zip(&self.targets.classes);
        let row = |(row, class): (&[f64], &Option<u32>)| {
            let class = (*class)? as usize;
            let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let log_sum = most + row.iter().map(|x| (x - most).exp()).sum::<f64>().ln();
            let even = log_sum - row.iter().sum::<f64>() / width as f64;
            Some((1.0 - smoothing) * (log_sum - row[class]) + smoothing * even)
        };
        rows.filter_map(row).sum()
    }

    /// Tensors by the reference executor.
    pub fn run(
        &self,
        weights: &Weights,
        interventions: &[Intervention],
        wanted: impl Fn(NodeId) -> bool,
    ) -> BTreeMap<NodeId, Kept> {
        let prepared = Reference.prepare(Arc::new(self.model.clone()), weights.clone()).unwrap();
        let (input, mut capture) = (self.checked(), Capture::new(wanted));
        let request = Request::new(&input).with_interventions(interventions);
        prepared.session(&Limits::default()).run(&request, &mut capture).unwrap();
        capture.tensors.into_iter().map(|(id, tensor)| (id, tensor.to_f64())).collect()
    }

    /// The loss with a weight moved along a direction and back, against what its gradient says.
    pub fn assert_weight(&self, id: WeightId, gradient: &[f32], direction: &[f32]) {
        let there: Vec<f64> = self.weights.get(id).unwrap().iter().map(|&w| f64::from(w)).collect();
        let loss = |values: &[f32]| self.loss(&self.weights.with(id, values.to_vec()), &[]);
        let what = &self.model.graph.weight(id).path;
        self.assert_slope(what, &there, gradient, direction, loss);
    }

    /// The same for a tensor.
    pub fn assert_tensor(&self, node: NodeId, value: &Kept, gradient: &[f32], direction: &[f32]) {
        let loss = |values: &[f32]| {
            self.loss(&self.weights, &[Intervention { node, first: 0, values: values.to_vec() }])
        };
        let what = self.model.graph.node(node).path.as_str();
        // The zeros that a ReLU leaves are ties for the largest value, which has no slope there.
        let cells = value.values.iter().zip(direction);
        let direction: Vec<f32> = cells.map(|(&x, &d)| if x == 0.0 { 0.0 } else { d }).collect();
        self.assert_slope(what, &value.values, gradient, &direction, loss);
    }

    fn assert_slope(
        &self,
        what: &str,
        there: &[f64],
        gradient: &[f32],
        direction: &[f32],
        loss: impl Fn(&[f32]) -> f64,
    ) {
        let squares: Vec<f64> = there.iter().filter(|x| x.is_finite()).map(|x| x * x).collect();
        let rms = (squares.iter().sum::<f64>() / squares.len().max(1) as f64).sqrt();
        let h = (STEP * rms).max(1e-7);
        let [up, down] = [h, -h].map(|h| -> Vec<f32> {
            there.iter().zip(direction).map(|(x, d)| (x + h * f64::from(*d)) as f32).collect()
        });
        let slope = (loss(&up) - loss(&down)) / (2.0 * h);
        // Values are f32: the way that was really gone. What is masked stays −∞.
        let ways = up.iter().zip(&down).map(|(up, down)| f64::from(*up) - f64::from(*down));
        let way: f64 = gradient
            .iter()
            .zip(ways)
            .filter(|(_, way)| way.is_finite())
            .map(|(g, way)| f64::from(*g) * way / (2.0 * h))
            .sum();
        let bound = TOLERANCE * (norm(gradient) + self.floor) * norm(direction);
        let path = self.path;
        assert!(
            (slope - way).abs() <= bound,
            "{path}: {what}: the slope is {slope}, the gradient says {way}: {} of the bound",
            (slope - way).abs() / bound
        );
    }
}

fn norm(x: &[f32]) -> f64 {
    x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt()
}

/// A fixture's model.
pub fn load(path: &str, heads: Option<usize>) -> (Model, Weights) {
    let checkpoint = Checkpoint::open(&fixture(path)).unwrap();
    let configs: Vec<Config<'_>> =
        checkpoint.configs().iter().map(|c| Config { source: &c.source, facts: &c.facts }).collect();
    let found = recognise(tensor_specs(&checkpoint), &configs, heads).unwrap();
    let Recognised::Model(model) = found else { panic!("{path} is no model") };
    let weights = Weights::load(&model, &checkpoint).unwrap();
    (*model, weights)
}

/// The input that a fixture's maker gave, without its padding, which is on the right.
fn traced_input(path: &str) -> Input {
    let is_classifier = path.starts_with("classifiers/");
    let trace = match path.split_once('/') {
        Some(_) if is_classifier => format!("{path}/expected.safetensors"),
        Some((folder, _)) => format!("{folder}/trace.safetensors"),
        None => format!("{path}/trace.safetensors"),
    };
    let trace = Checkpoint::open(&fixture(&trace)).unwrap();
    let get = |name: &str| {
        let tensor = trace.tensor(name)?;
        Some((tensor.shape.clone(), trace.read_f32(tensor).unwrap()))
    };
    let tokens = |side: Side| {
        let (shape, ids) = get(&format!("{}.ids", side.name()))?;
        // A classifier's padding has id 0, and only that.
        let open = match get(&format!("{}.open", side.name())) {
            Some((_, open)) => open,
            None => ids.iter().map(|&id| if is_classifier { id } else { 1.0 }).collect(),
        };
        let row = |b: usize| {
            let row = b * shape[1]..(b + 1) * shape[1];
            row.filter(|&i| open[i] != 0.0).map(|i| ids[i] as u32).collect::<Vec<_>>()
        };
        let pad = if is_classifier { 0 } else { 1 };
        Some(Sequence::Tokens(Rows::new(&(0..shape[0]).map(row).collect::<Vec<_>>(), pad)))
    };
    let audio = get("audio.mel")
        .map(|(s, values)| Sequence::Features(Features { values, batch: s[0], mels: s[1], frames: s[2] }));
    let source = audio.or_else(|| tokens(Side::Source)).map(|sequence| (Side::Source, sequence));
    let target = tokens(Side::Target).map(|sequence| (Side::Target, sequence));
    let mut sequences = source.into_iter().chain(target);
    let (side, first) = sequences.next().unwrap();
    sequences.fold(Input::of(side, first), |input, (side, sequence)| input.with(side, sequence))
}

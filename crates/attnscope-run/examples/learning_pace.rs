//! Times steps of learning, one a line, so that a script can take turns with other programs: `learning_pace MODEL ROWS LENGTH`
//! answers each line of its standard input with the milliseconds of forward, backward and update, and with the mean loss.

use std::error::Error;
use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use attnscope_checkpoint::Checkpoint;
use attnscope_graph::{Config, Dim, Model, Recognised, Side, recognise};
use attnscope_run::{
    AdamW, CheckedInput, Executor, Input, LearningBatch, Limits, Native, Nothing, Rows, Sequence, Targets,
    Weights, tensor_specs,
};

const RULE: AdamW = AdamW {
    learning_rate: 1e-3,
    beta1: 0.9,
    beta2: 0.999,
    epsilon: 1e-8,
    weight_decay: 0.01,
    clip_norm: Some(1.0),
    divide_by: 1.0,
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, name, rows, length] = &arguments[..] else {
        return Err("usage: learning_pace MODEL ROWS LENGTH".into());
    };
    let checkpoint = Checkpoint::open(Path::new(name))?;
    let configs: Vec<Config<'_>> =
        checkpoint.configs().iter().map(|c| Config { source: &c.source, facts: &c.facts }).collect();
    let Recognised::Model(model) = recognise(tensor_specs(&checkpoint), &configs, None)? else {
        return Err(format!("{name} is no model").into());
    };
    let weights = Weights::load(&model, &checkpoint)?;
    let (rows, length) = (rows.parse()?, length.parse()?);
    let input = input(&model, rows, length).ok_or("the model reads nothing")?;
    let input = CheckedInput::new(&model, input)?;
    let targets = targets(&model, &input);
    let mut learner = Native::new().learner(Arc::from(model), weights, &Limits::default())?;
    for line in std::io::stdin().lock().lines() {
        line?;
        let begin = Instant::now();
        let batch = LearningBatch { input: &input, targets: &targets, dropout_seed: Some(1) };
        let loss = learner.step(&batch, &mut Nothing)?;
        learner.update(&AdamW { divide_by: loss.count as f64, ..RULE })?;
        println!("{:.3} {}", begin.elapsed().as_secs_f64() * 1e3, loss.nats / loss.count as f64);
    }
    Ok(())
}

/// The same ids as the script gives to torch.
fn ids(rows: usize, length: usize, vocabulary: usize) -> Vec<Vec<u32>> {
    let id = |n: usize| ((n * 7919 + 13) % (vocabulary - 4) + 4) as u32;
    (0..rows).map(|row| (0..length).map(|at| id(row * length + at)).collect()).collect()
}

fn input(model: &Model, rows: usize, length: usize) -> Option<Input> {
    let tokens = |side: Side| {
        let vocabulary = model.sizes.get(Dim::Vocab(side)).or(model.sizes.get(Dim::Vocab(Side::Source)));
        (side, Sequence::Tokens(Rows::new(&ids(rows, length, vocabulary.unwrap_or(5)), 0)))
    };
    let mut sides = model.architecture.sides().map(tokens);
    let (side, first) = sides.next()?;
    Some(sides.fold(Input::of(side, first), |input, (side, rows)| input.with(side, rows)))
}

/// Row n of the output should say class n · 31.
fn targets(model: &Model, input: &CheckedInput) -> Targets {
    let shape =
        model.graph.nodes().last().and_then(|last| input.sizes().shape(&last.dims)).unwrap_or_default();
    let classes = shape.last().copied().unwrap_or(1).max(1);
    let rows = shape.iter().product::<usize>() / classes;
    Targets { classes: (0..rows).map(|row| Some((row * 31 % classes) as u32)).collect(), smoothing: 0.1 }
}

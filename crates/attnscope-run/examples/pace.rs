//! Times the native executor, one request a line, so that a script can take turns with other programs:
//! `pace MODEL` reads `all`, `none`, `stream` (what layers give) or `tokens N` from its standard input and answers each with
//! milliseconds. `pace MODEL file` leaves the weights in their file, as if they did not fit in memory.

use std::error::Error;
use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use attnscope_checkpoint::Checkpoint;
use attnscope_graph::{Config, Dim, Front, LayerStep, Model, Recognised, Side, recognise};
use attnscope_run::{
    Capture, CheckedInput, Executor, Features, Input, Limits, Native, Request, Rows, RunError, Sequence,
    Session, Weights, tensor_specs,
};

/// Source tokens of a text model.
const SOURCE: usize = 128;
/// Target tokens of a pass over a whole target.
const TARGET: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).ok_or("usage: pace MODEL [file]")?;
    let checkpoint = Checkpoint::open(Path::new(&name))?;
    let configs: Vec<Config<'_>> =
        checkpoint.configs().iter().map(|c| Config { source: &c.source, facts: &c.facts }).collect();
    let Recognised::Model(model) = recognise(tensor_specs(&checkpoint), &configs, None)? else {
        return Err(format!("{name} is no model").into());
    };
    let weights = match std::env::args().nth(2).as_deref() {
        None => Weights::load(&model, &checkpoint)?,
        Some("file") => Weights::in_file(&model, &checkpoint)?,
        Some(other) => return Err(format!("{other:?}: expected file or nothing").into()),
    };
    let model = Arc::from(model);
    let input = CheckedInput::new(&model, input(&model))?;
    let mut session = Native::new().prepare(Arc::clone(&model), weights)?.session(&Limits::default());
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let begin = Instant::now();
        let what = match words[..] {
            ["all"] => {
                let mut sink = Capture::new(|_| true);
                session.run(&Request::new(&input), &mut sink)?;
                let tensors = sink.tensors.values();
                format!("{} bytes", tensors.map(|tensor| 4 * tensor.len()).sum::<usize>())
            }
            ["none"] => {
                let mut sink = Capture::new(|_| false);
                session.run(&Request::new(&input), &mut sink)?;
                String::new()
            }
            ["stream"] => {
                let step = |id| model.graph.node(id).role.layer_step();
                let mut sink = Capture::new(|id| step(id) == Some(LayerStep::Out));
                session.run(&Request::new(&input), &mut sink)?;
                format!("{} tensors", sink.tensors.len())
            }
            ["tokens", n] => tokens(&mut *session, &model, input.input(), n.parse()?)?,
            _ => return Err(format!("{line:?}: expected all, none, stream or tokens N").into()),
        };
        println!("{:.3} {what}", begin.elapsed().as_secs_f64() * 1e3);
    }
    Ok(())
}

/// Greedy decoding of `n` tokens after the source has been read; the source is not timed.
fn tokens(session: &mut dyn Session, model: &Model, input: &Input, n: usize) -> Result<String, RunError> {
    let given = input.sequence(Side::Source).map_or(Input::empty(1), |s| Input::of(Side::Source, s.clone()));
    let given = CheckedInput::to_decode(model, given)?;
    let mut decoding = session.decode(&given)?;
    let begin = Instant::now();
    let mut token = 1;
    for _ in 0..n {
        let logits = decoding.advance(&[vec![token]])?;
        let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        token = best.map_or(0, |(id, _)| id as u32);
    }
    Ok(format!("{:.4} ms a token", begin.elapsed().as_secs_f64() * 1e3 / n as f64))
}

/// What every program in the comparison is given.
fn input(model: &Model) -> Input {
    let size = |dim| model.sizes.get(dim).unwrap_or(1);
    let ids = |side, n| {
        let vocabulary = size(Dim::Vocab(side)) as u32;
        Rows::new(&[(0..n).map(|i| (i * 7919 + 13) % vocabulary).collect()], 0)
    };
    if !model.architecture.reads(Side::Source) {
        return Input::of(Side::Target, Sequence::Tokens(ids(Side::Target, TARGET as u32)));
    }
    let source = match model.wiring.front {
        Front::Tokens => Sequence::Tokens(ids(Side::Source, SOURCE as u32)),
        Front::Audio => {
            let (mels, frames) = (size(Dim::Mels), 2 * size(Dim::Positions(Side::Source)));
            let values = (0..mels * frames).map(|i| (i as f32 * 0.37).sin()).collect();
            Sequence::Features(Features { values, batch: 1, mels, frames })
        }
    };
    Input::pair(source, ids(Side::Target, TARGET as u32))
}

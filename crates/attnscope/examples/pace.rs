//! Times the native executor, one request a line, so that a script can take turns with other programs:
//! `pace MODEL` reads `all`, `none` or `tokens N` from its standard input and answers each with milliseconds.

use std::error::Error;
use std::io::BufRead;
use std::time::Instant;

use attnscope::graph::{Dim, Front, Model, Side};
use attnscope::run::{Capture, CheckedInput, Features, Input, Request, Rows, Sequence, Session};
use attnscope::{Failure, Opened, Ready};

/// Source tokens of a text model.
const SOURCE: usize = 128;
/// Target tokens of a pass over a whole target.
const TARGET: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).ok_or("usage: pace MODEL")?;
    let opened = Opened::open(&name, None)?;
    let ready = Ready::new(&opened)?;
    let input = CheckedInput::new(ready.model, input(ready.model))?;
    let mut session = ready.session();
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
            ["tokens", n] => tokens(&mut *session, ready.model, input.input(), n.parse()?)?,
            _ => return Err(format!("{line:?}: expected all, none or tokens N").into()),
        };
        println!("{:.3} {what}", begin.elapsed().as_secs_f64() * 1e3);
    }
    Ok(())
}

/// Greedy decoding of `n` tokens after the source has been read; the source is not timed.
fn tokens(session: &mut dyn Session, model: &Model, input: &Input, n: usize) -> Result<String, Failure> {
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

//! A trace on disk together with the model and the input it was made from.

use std::path::Path;

use attnscope_diagnose::audit::{Audit, ROUNDOFF_F32, ROUNDOFF_F64, audit};
use attnscope_graph::{Dim, Front, Side};
use attnscope_run::trace::Trace;
use attnscope_run::{Features, Input, PadSide, Rows, Source, Weights};
use serde_json::Value;

use crate::failure::Failure;
use crate::open::Opened;

/// A trace whose model is at hand: the file's checksums are those that the trace names.
#[derive(Debug)]
pub(crate) struct Traced {
    trace: Trace,
    /// The model.
    pub(crate) opened: Opened,
    /// `f32` or `f64`.
    pub(crate) precision: &'static str,
}

impl Traced {
    /// Opens a trace and its model: the one given, or the one that the trace names.
    pub(crate) fn open(folder: &Path, model: Option<&str>) -> Result<Self, Failure> {
        let trace = Trace::open(folder)?;
        let about = &trace.about;
        let named = about["model"].as_str().unwrap_or_default();
        let precision = if about["precision"] == "f64" { "f64" } else { "f32" };
        // The user's word when it was traced; it may be in no file.
        let heads = about["heads"].as_array().and_then(|heads| heads.first()).and_then(Value::as_u64);
        let heads =
            heads.filter(|n| about["heads"].as_array().is_some_and(|all| all.iter().all(|x| x == *n)));
        let heads = heads.and_then(|n| usize::try_from(n).ok());
        let name = model.unwrap_or(named);
        let opened = Opened::open(name, heads).map_err(|e| {
            let help = format!("give the model that was traced: check --trace {} MODEL", folder.display());
            if model.is_none() { Failure::new(e.error, help) } else { e }
        })?;
        let opened = match (name, same_files(&opened, about)) {
            (_, Ok(())) => opened,
            // The toy's vocabularies are the words it was traced with.
            ("toy", Err(e)) => {
                let toy = Opened::toy(sentences(about, "source"), sentences(about, "target"))?;
                same_files(&toy, about).map_err(|_| e)?;
                toy
            }
            (_, Err(e)) => return Err(e),
        };
        Ok(Self { trace, opened, precision })
    }

    /// Every captured tensor, computed again.
    pub(crate) fn audit(&self) -> Result<Audit, Failure> {
        let model = self.opened.encoder_decoder()?;
        let weights = Weights::load(model, &self.opened.checkpoint)?;
        let input = self.input()?;
        let roundoff = if self.precision == "f64" { ROUNDOFF_F64 } else { ROUNDOFF_F32 };
        Ok(audit(model, &weights, &self.trace, &input, roundoff)?)
    }

    /// What the run was given.
    fn input(&self) -> Result<Input, Failure> {
        let source = match self.opened.encoder_decoder()?.wiring.front {
            Front::Tokens => Source::Tokens(self.rows(Side::Source)?),
            Front::Audio => Source::Features(self.features()?),
        };
        Ok(Input { source, target: self.rows(Side::Target)? })
    }

    fn damaged(&self, place: &str, expected: &str) -> Failure {
        Failure::new(
            format!("{}: {place}: expected {expected}", self.trace.folder().join("trace.json").display()),
            "give a folder that `attnscope trace --save` has written",
        )
    }

    /// The tokens of a side, with their padding where it was.
    fn rows(&self, side: Side) -> Result<Rows, Failure> {
        let name = match side {
            Side::Source => "source",
            Side::Target => "target",
        };
        let damaged = || self.damaged(&format!("tokens.{name}"), "rows of tokens, padded on one side");
        let token = |token: &Value| -> Option<(u32, bool)> {
            Some((u32::try_from(token["id"].as_u64()?).ok()?, !token["padding"].as_bool()?))
        };
        let row = |row: &Value| row.as_array()?.iter().map(token).collect::<Option<Vec<_>>>();
        let rows = self.trace.about["tokens"][name].as_array();
        let rows =
            rows.and_then(|rows| rows.iter().map(row).collect::<Option<Vec<_>>>()).ok_or_else(damaged)?;
        let all = || rows.iter().flatten().copied();
        let pad = all().find(|(_, open)| !open).map_or(0, |(id, _)| id);
        let left = rows.iter().any(|row| row.first().is_some_and(|(_, open)| !open));
        let side = if left { PadSide::Left } else { PadSide::Right };
        let length = rows.iter().map(Vec::len).max().unwrap_or(0);
        let tokens =
            |row: &Vec<(u32, bool)>| row.iter().filter(|(_, open)| *open).map(|&(id, _)| id).collect();
        let padded = Rows::padded(&rows.iter().map(tokens).collect::<Vec<_>>(), pad, side, length);
        let same = padded.ids().iter().copied().zip(padded.open().iter().copied()).eq(all());
        if same { Ok(padded) } else { Err(damaged()) }
    }

    /// The features that were captured. Where they were not, only their shape is needed, and their values are no numbers.
    fn features(&self) -> Result<Features, Failure> {
        let node = self.trace.nodes.iter().find(|node| node.op == "features");
        let node = node.ok_or_else(|| self.damaged("nodes", "one of features"))?;
        let [batch, mels, frames] = node.shape[..] else {
            return Err(self.damaged(&node.path, "three dimensions"));
        };
        let values = match self.trace.read(&node.path)? {
            Some(kept) => kept.values.iter().map(|&x| x as f32).collect(),
            // No more than the model could have heard, whatever the document says.
            None => {
                let sizes = &self.opened.encoder_decoder()?.sizes;
                let window = sizes.get(Dim::Positions(Side::Source)).map(|n| n.saturating_mul(2));
                let heard = sizes.get(Dim::Mels) == Some(mels) && window.is_some_and(|most| frames <= most);
                if !heard || batch != self.rows(Side::Target)?.batch() {
                    return Err(self.damaged(&node.path, "the shape of what the model hears"));
                }
                vec![f32::NAN; batch * mels * frames]
            }
        };
        Ok(Features { values, batch, mels, frames })
    }
}

/// Whether the weights are those that were traced.
fn same_files(opened: &Opened, about: &Value) -> Result<(), Failure> {
    let found = opened.checkpoint.sha256();
    let files = about["files"].as_array().map(Vec::as_slice).unwrap_or_default();
    let expected: Vec<&str> = files.iter().filter_map(|file| file["sha256"].as_str()).collect();
    if found == expected {
        return Ok(());
    }
    Err(Failure::new(
        format!(
            "{}: its weights are not those that were traced: SHA-256 {}, and the trace names {}",
            opened.name,
            found.join(", "),
            if expected.is_empty() { "none".into() } else { expected.join(", ") }
        ),
        "give the model that was traced: check --trace DIR MODEL",
    ))
}

/// The words of each row, as a toy reads them.
fn sentences(about: &Value, side: &str) -> Vec<String> {
    let row = |row: &Value| -> String {
        let words = row.as_array().into_iter().flatten().filter_map(|token| token["piece"].as_str());
        words.collect::<Vec<_>>().join(" ")
    };
    about["tokens"][side].as_array().into_iter().flatten().map(row).collect()
}

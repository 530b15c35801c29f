//! What is measured on the way: a line of metrics.jsonl each.

use std::io::Write;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::TrainError;
use crate::monitor::{MonitorMetric, Warning};

/// One line of metrics.jsonl.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Metric {
    /// Of the steps since the last such line.
    Train(TrainMetric),
    /// Of the examples that are held out.
    Validation(ValidationMetric),
    /// Of a batch of them.
    Monitor(MonitorMetric),
    /// What a monitor has to say.
    Warning(Warning),
}

impl Metric {
    /// The step after which it was measured.
    pub fn step(&self) -> u64 {
        match self {
            Self::Train(line) => line.step,
            Self::Validation(line) => line.step,
            Self::Monitor(line) => line.step,
            Self::Warning(line) => line.step,
        }
    }
}

/// What was learned in some steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrainMetric {
    /// The last of them.
    pub step: u64,
    /// Its epoch, from 0.
    pub epoch: u64,
    /// The mean loss that was learned from, smoothed, in nats a target.
    pub loss: f64,
    /// The mean negative log-likelihood in nats a target.
    pub nll: f64,
    /// The share of targets that were the model's first choice.
    pub accuracy: f64,
    /// The learning rate of the last step.
    pub learning_rate: f64,
    /// The norm of all gradients of the last step, before it was clipped.
    pub gradient_norm: f64,
    /// The share of positions that are padding.
    pub padding: f64,
    /// Tokens a second, padding left out.
    pub tokens_per_second: f64,
}

/// What the held-out examples cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ValidationMetric {
    /// The step after which it was measured.
    pub step: u64,
    /// Its epoch, from 0.
    pub epoch: u64,
    /// The mean negative log-likelihood in nats a target.
    pub nll: f64,
    /// The share of targets that were the model's first choice.
    pub accuracy: f64,
    /// BLEU of what the model generates from some of the sources, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bleu: Option<f64>,
    /// Whether it is the best until now.
    pub best: bool,
}

/// All lines of a run, in memory and in its file.
#[derive(Debug)]
pub(crate) struct MetricsFile {
    file: Option<PathBuf>,
    pub(crate) lines: Vec<Metric>,
}

impl MetricsFile {
    /// A new file.
    pub(crate) fn new(file: PathBuf) -> Self {
        Self { file: Some(file), lines: Vec::new() }
    }

    /// The lines that a run had written up to a step. What came after the last checkpoint is measured again, and a line that a
    /// killed process left half written is none.
    pub(crate) fn resume(file: PathBuf, step: u64) -> Result<Self, TrainError> {
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(why) => return Err(TrainError::Io { place: file, why }),
        };
        let read = |line: &str| serde_json::from_str::<Metric>(line).ok();
        let is_kept = |line: &Metric| line.step() <= step;
        let kept: Vec<(&str, Metric)> =
            text.lines().filter_map(|text| Some((text, read(text).filter(is_kept)?))).collect();
        // As they were written: to write a number again could change its last digit.
        let same: String = kept.iter().flat_map(|(text, _)| [text, "\n"]).collect();
        let lines = kept.into_iter().map(|(_, line)| line).collect();
        write_whole(&file, same.as_bytes())?;
        Ok(Self { file: Some(file), lines })
    }

    /// Adds a line.
    pub(crate) fn add(&mut self, line: Metric) -> Result<(), TrainError> {
        if let (Some(file), Ok(text)) = (&self.file, serde_json::to_string(&line)) {
            let opened = std::fs::OpenOptions::new().create(true).append(true).open(file);
            let written = opened.and_then(|mut opened| opened.write_all((text + "\n").as_bytes()));
            written.map_err(|why| TrainError::Io { place: file.clone(), why })?;
        }
        self.lines.push(line);
        Ok(())
    }
}

/// Writes a file whole or not at all.
pub(crate) fn write_whole(file: &Path, bytes: &[u8]) -> Result<(), TrainError> {
    Ok(attnscope_checkpoint::write_file(file, |mut open| {
        open.write_all(bytes)
            .map_err(|e| attnscope_checkpoint::Error::new(file, attnscope_checkpoint::ErrorKind::Write(e)))
    })?)
}

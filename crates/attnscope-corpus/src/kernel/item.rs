//! A row as the model reads it: tokens or a recording, cut to the model's positions, with its flags.

use attnscope_diagnose::{Decoded, decoded};
use attnscope_graph::Side;
use attnscope_run::{Features, audio, check_rows};

use super::KernelOptions;
use super::columns::Input;
use crate::model::{AuditModel, Task, recording};

/// What is unusual about a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Flags {
    /// Something was cut off.
    pub(super) truncated: bool,
    /// A word that the tokenizer does not know.
    pub(super) unknown: bool,
    /// A side has more tokens than the model has positions, or its documents say.
    pub(super) over_positions: bool,
}

/// What the encoder reads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Source {
    /// A sentence.
    Tokens(Vec<u32>),
    /// A recording, by its name.
    Recording(String),
}

/// A row as the model reads it.
#[derive(Debug, Default)]
pub(super) struct Item {
    pub(super) source: Option<Source>,
    /// Another row's source.
    pub(super) swap: Option<Source>,
    pub(super) target: Option<Decoded>,
    pub(super) flags: Flags,
    /// Why it cannot be measured.
    pub(super) rejected: Option<String>,
}

impl Item {
    pub(super) fn of(model: &AuditModel, options: &KernelOptions, input: &Input<'_>, row: usize) -> Self {
        let mut item = Self::default();
        if let Err(reason) = item.read(model, options, input, row) {
            item = Self { rejected: Some(reason), flags: item.flags, ..Self::default() };
        }
        item
    }

    fn read(
        &mut self,
        model: &AuditModel,
        options: &KernelOptions,
        input: &Input<'_>,
        row: usize,
    ) -> Result<(), String> {
        let target = input.target(row).filter(|text| !text.trim().is_empty());
        let target = target.ok_or("expected a target, found an empty one")?;
        if model.task() != Task::Text {
            let source = input.source(row).filter(|text| !text.trim().is_empty());
            let source = source.ok_or("expected a source, found an empty one")?;
            let (source, flags) = read_source(model, options, source)?;
            (self.source, self.flags) = (Some(source), flags);
            let swap = input.swap_source(row).filter(|text| !text.trim().is_empty());
            // Another row's source that cannot be read is that row's fault, and rejected there.
            self.swap = swap.and_then(|text| Some(read_source(model, options, text).ok()?.0));
        }
        self.read_target(model, options, target)
    }

    fn read_target(&mut self, model: &AuditModel, options: &KernelOptions, text: &str) -> Result<(), String> {
        let encode = |text: &str| match model.task() {
            // A space before the first word, as in Whisper's training.
            Task::Audio => model.tokenizer.encode_target(&format!(" {}", text.trim())),
            Task::Pairs => model.tokenizer.encode_target(text),
            Task::Text => model.tokenizer.encode_source(text),
        };
        let mut ids = encode(text).map_err(|e| e.to_string())?;
        // What the decoder begins with takes positions, too.
        let started = model.shift.apply(&ids).len().saturating_sub(ids.len());
        let room = model.room(Side::Target, options.max_tokens).saturating_sub(started).max(1);
        self.note(model, Side::Target, &ids, started);
        self.flags.truncated |= ids.len() > room;
        ids.truncate(room);
        let decoded = decoded(&ids, &model.shift, model.model().shifts_target());
        if decoded.labels.is_empty() || decoded.input.is_empty() {
            return Err("expected a target, found none with a token to predict".into());
        }
        for ids in [&decoded.labels, &decoded.input] {
            check_rows(model.model(), Side::Target, std::slice::from_ref(ids)).map_err(|e| e.to_string())?;
        }
        self.target = Some(decoded);
        Ok(())
    }

    /// Sets the flags that the tokens of a side say.
    fn note(&mut self, model: &AuditModel, side: Side, ids: &[u32], before: usize) {
        let unknown = model.tokenizer.unknown(side);
        self.flags.unknown |= unknown.is_some_and(|unknown| ids.contains(&unknown));
        self.flags.over_positions |= model.positions(side).is_some_and(|most| ids.len() + before > most);
    }

    /// The positions of its source.
    pub(super) fn source_positions(&self, model: &AuditModel) -> usize {
        self.source.as_ref().map_or(0, |source| positions(model, source))
    }
}

/// The positions that an encoder makes of a source.
pub(super) fn positions(model: &AuditModel, source: &Source) -> usize {
    match (source, model.window()) {
        (Source::Tokens(ids), _) => ids.len(),
        (Source::Recording(_), Some((_, frames))) => model.model().graph.positions_of(frames),
        (Source::Recording(_), None) => 0,
    }
}

fn read_source(model: &AuditModel, options: &KernelOptions, text: &str) -> Result<(Source, Flags), String> {
    if model.task() == Task::Audio {
        return Ok((Source::Recording(text.to_owned()), Flags::default()));
    }
    let mut item = Item::default();
    let mut ids = model.tokenizer.encode_source(text).map_err(|e| e.to_string())?;
    let room = model.room(Side::Source, options.max_tokens);
    item.note(model, Side::Source, &ids, 0);
    if ids.len() > room {
        // The token that ends the sentence stays, as when other programs cut a source.
        let end = ids.last().copied().filter(|last| model.ends.contains(last));
        ids.truncate(room - usize::from(end.is_some() && room > 1));
        if ids.len() < room {
            ids.extend(end);
        }
        item.flags.truncated = true;
    }
    if ids.is_empty() {
        return Err("expected a source, found one without tokens".into());
    }
    check_rows(model.model(), Side::Source, std::slice::from_ref(&ids)).map_err(|e| e.to_string())?;
    Ok((Source::Tokens(ids), item.flags))
}

/// The features of a recording, and whether it is longer than the model's window.
pub(super) fn features(
    model: &AuditModel,
    options: &KernelOptions,
    name: &str,
) -> Result<(Features, bool), String> {
    let (mels, frames) = model.window().ok_or("the model has no window for audio")?;
    let file = recording(&options.base, name);
    let (features, seconds) = audio::features_from_file(&file, mels, frames).map_err(|e| e.to_string())?;
    Ok((features, (seconds / audio::POSITION_SECONDS).ceil() as usize > frames / 2))
}

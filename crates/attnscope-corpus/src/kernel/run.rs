//! Runs the rows of a wave: every distinct source through the encoder once, then the decoder on each target with its own source
//! and with another row's. Rows of equal lengths are run together, on every core.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use attnscope_diagnose::{Decoded, encoder_output};
use attnscope_graph::{Dim, NodeId, Side};
use attnscope_run::{
    CheckedInput, Features, Input, Request, Rows, RunError, Sequence, Session, Tensor, on_all_cores,
};

use super::KernelOptions;
use super::item::{Flags, Item, Source, features};
use super::sink::{RowSeen, Watched, WaveSink};
use crate::error::AuditError;
use crate::model::AuditModel;

/// Positions of a batch: enough for the tiles of a product, few enough for the caches.
const POSITIONS: usize = 768;
/// Logits of a batch.
const LOGITS: usize = 1 << 21;

/// What was measured of a row.
#[derive(Debug, Clone, Default)]
pub(super) struct Measured {
    pub(super) source_tokens: Option<usize>,
    pub(super) target_tokens: Option<usize>,
    pub(super) nll: Option<f64>,
    pub(super) nll_swapped: Option<f64>,
    /// Of the encoder, then of the decoder.
    pub(super) seen: Vec<RowSeen>,
    pub(super) flags: Flags,
    pub(super) rejected: Option<String>,
}

/// A source of the wave.
struct Encoded {
    source: Source,
    /// Of a recording.
    features: Option<Features>,
    /// Why it cannot be read.
    unreadable: Option<String>,
    is_cut: bool,
    /// Whether it is some row's own, and so measured.
    is_own: bool,
    /// The encoder's output, [position, width].
    output: Vec<f32>,
    seen: Option<RowSeen>,
}

/// Some rows, and all sources that they need.
pub(super) struct Wave<'a> {
    model: &'a AuditModel,
    options: &'a KernelOptions,
    items: &'a [Item],
    sources: Vec<Encoded>,
    /// For each row its own source and the other one.
    places: Vec<[Option<usize>; 2]>,
    watched: Watched,
    encoder: Option<NodeId>,
}

/// A target with a source of the wave, or without one.
#[derive(Debug, Clone, Copy)]
struct Pass {
    item: usize,
    source: Option<usize>,
    is_own: bool,
}

impl<'a> Wave<'a> {
    pub(super) fn new(
        model: &'a AuditModel,
        options: &'a KernelOptions,
        items: &'a [Item],
    ) -> Result<Self, AuditError> {
        let mut wave = Self {
            model,
            options,
            items,
            sources: Vec::new(),
            places: Vec::new(),
            watched: Watched::of(model, options),
            encoder: encoder_output(model.model()),
        };
        let mut known: HashMap<&Source, usize> = HashMap::new();
        for item in items {
            let mut place = |source: Option<&'a Source>, is_own: bool| {
                let source = source?;
                let next = wave.sources.len();
                let at = *known.entry(source).or_insert(next);
                if at == next {
                    wave.sources.push(Encoded::new(source));
                }
                wave.sources[at].is_own |= is_own;
                Some(at)
            };
            let places = [place(item.source.as_ref(), true), place(item.swap.as_ref(), false)];
            wave.places.push(places);
        }
        wave.read_recordings()?;
        Ok(wave)
    }

    /// Recordings are decoded on every core.
    fn read_recordings(&mut self) -> Result<(), AuditError> {
        use rayon::prelude::*;
        let (model, options) = (self.model, self.options);
        self.sources.par_iter_mut().for_each(|encoded| {
            let Source::Recording(name) = &encoded.source else { return };
            if options.limits.cancel.is_cancelled() {
                return;
            }
            match features(model, options, name) {
                Ok((features, is_cut)) => {
                    (encoded.features, encoded.is_cut) = (Some(features), is_cut);
                }
                Err(why) => encoded.unreadable = Some(why),
            }
        });
        Ok(options.limits.cancel.check()?)
    }

    /// Measures every row.
    pub(super) fn run(mut self) -> Result<Vec<Measured>, AuditError> {
        self.encode()?;
        let mut measured: Vec<Measured> = (0..self.items.len()).map(|item| self.begin(item)).collect();
        let passes: Vec<Pass> = (0..self.items.len()).flat_map(|item| self.passes(item)).collect();
        let batches = batches(
            &passes,
            |pass| {
                (
                    self.source_length(pass.source),
                    self.decoded(pass.item).map_or(0, |d| d.input.len()),
                    pass.is_own,
                )
            },
            |(source, target, _)| self.most_rows(source.max(target), target),
        );
        let results =
            on_every_core(self.model, self.options, &batches, |session, batch| self.decode(session, batch))?;
        for (batch, seen) in batches.iter().zip(results) {
            for (pass, seen) in batch.iter().zip(seen) {
                let row = &mut measured[pass.item];
                match pass.is_own {
                    true => {
                        row.nll = seen.nll;
                        row.seen.push(seen);
                    }
                    false => row.nll_swapped = seen.nll,
                }
            }
        }
        Ok(measured)
    }

    /// What is known of a row before its decoder is run.
    fn begin(&self, item: usize) -> Measured {
        let (row, [own, _]) = (&self.items[item], self.places[item]);
        let encoded = own.and_then(|at| self.sources.get(at));
        let mut flags = row.flags;
        flags.truncated |= encoded.is_some_and(|encoded| encoded.is_cut);
        flags.over_positions |= encoded.is_some_and(|encoded| encoded.is_cut);
        let unreadable = encoded.and_then(|encoded| encoded.unreadable.clone());
        let rejected = row.rejected.clone().or(unreadable);
        if rejected.is_some() {
            return Measured { flags, rejected, ..Measured::default() };
        }
        Measured {
            source_tokens: own.map(|at| self.source_length(Some(at))),
            target_tokens: row.target.as_ref().map(|decoded| decoded.labels.len()),
            seen: encoded.and_then(|encoded| encoded.seen.clone()).into_iter().collect(),
            flags,
            ..Measured::default()
        }
    }

    /// The runs of a row's decoder.
    fn passes(&self, item: usize) -> impl Iterator<Item = Pass> + use<> {
        let [own, swap] = self.places[item];
        let readable = |at: &usize| self.sources[*at].unreadable.is_none();
        let has_target = self.items[item].target.is_some() && own.is_none_or(|at| readable(&at));
        let own = has_target.then_some(Pass { item, source: own, is_own: true });
        let swap = swap.filter(|at| has_target && readable(at));
        let swap = swap.map(|source| Pass { item, source: Some(source), is_own: false });
        own.into_iter().chain(swap)
    }

    fn decoded(&self, item: usize) -> Option<&'a Decoded> {
        self.items[item].target.as_ref()
    }

    fn source_length(&self, source: Option<usize>) -> usize {
        source.map_or(0, |at| super::item::positions(self.model, &self.sources[at].source))
    }

    /// How many rows of so many positions, and of a target so long, are run together.
    fn most_rows(&self, positions: usize, target: usize) -> usize {
        let vocabulary = self.model.model().sizes.get(Dim::Vocab(Side::Target)).unwrap_or(1);
        let of_logits = LOGITS / (target * vocabulary).max(1);
        (POSITIONS / positions.max(1)).min(of_logits).max(1)
    }

    /// Every source through the encoder.
    fn encode(&mut self) -> Result<(), AuditError> {
        let Some(encoder) = self.encoder else { return Ok(()) };
        let readable: Vec<usize> =
            (0..self.sources.len()).filter(|&at| self.sources[at].unreadable.is_none()).collect();
        let batches = batches(
            &readable,
            |&at| (self.source_length(Some(at)), self.sources[at].is_own),
            |(length, _)| (POSITIONS / length.max(1)).max(1),
        );
        let results = on_every_core(self.model, self.options, &batches, |session, batch| {
            self.encode_batch(session, encoder, batch)
        })?;
        for (batch, rows) in batches.iter().zip(results) {
            for (&at, (output, seen)) in batch.iter().zip(rows) {
                let encoded = &mut self.sources[at];
                (encoded.output, encoded.seen) = (output, encoded.is_own.then_some(seen));
            }
        }
        Ok(())
    }

    fn encode_batch(
        &self,
        session: &mut dyn Session,
        encoder: NodeId,
        batch: &[usize],
    ) -> Result<Vec<(Vec<f32>, RowSeen)>, RunError> {
        let model = self.model.model();
        // The decoder is not run: its input only has to be there.
        let target = Rows::new(&vec![vec![0]; batch.len()], self.model.pad);
        let input = CheckedInput::new(model, Input::pair(self.sequence(batch), target))?;
        let is_own = batch.iter().all(|&at| self.sources[at].is_own);
        let ends = batch.iter().map(|&at| self.ends(Some(at))).collect();
        let mut sink = WaveSink::new(model, &self.watched, batch.len(), is_own).of_encoder(encoder, ends);
        session.run(&Request::new(&input).known(&[]), &mut sink)?;
        Ok(sink.encoded())
    }

    /// The sources of a batch, which have one length.
    fn sequence(&self, batch: &[usize]) -> Sequence {
        let clips: Vec<&Features> =
            batch.iter().filter_map(|&at| self.sources[at].features.as_ref()).collect();
        if let Some(first) = clips.first() {
            let values = clips.iter().flat_map(|clip| &clip.values).copied().collect();
            return Sequence::Features(Features { values, batch: clips.len(), ..**first });
        }
        let tokens = |&at: &usize| match &self.sources[at].source {
            Source::Tokens(ids) => ids.clone(),
            Source::Recording(_) => Vec::new(),
        };
        Sequence::Tokens(Rows::new(&batch.iter().map(tokens).collect::<Vec<_>>(), self.model.pad))
    }

    /// Where a source has tokens that end a sentence.
    fn ends(&self, source: Option<usize>) -> Vec<usize> {
        match source.map(|at| &self.sources[at].source) {
            Some(Source::Tokens(ids)) => self.model.ends_in(ids),
            _ => Vec::new(),
        }
    }

    fn decode(&self, session: &mut dyn Session, batch: &[Pass]) -> Result<Vec<RowSeen>, RunError> {
        let model = self.model.model();
        let decoded: Vec<&Decoded> = batch.iter().filter_map(|pass| self.decoded(pass.item)).collect();
        let inputs: Vec<Vec<u32>> = decoded.iter().map(|decoded| decoded.input.clone()).collect();
        let target = Rows::new(&inputs, self.model.pad);
        let sources: Vec<usize> = batch.iter().filter_map(|pass| pass.source).collect();
        let (input, known) = match (sources.first(), self.encoder) {
            (Some(&first), Some(encoder)) => {
                let length = self.source_length(Some(first));
                let values: Vec<f32> =
                    sources.iter().flat_map(|&at| &self.sources[at].output).copied().collect();
                let width = values.len() / (sources.len() * length).max(1);
                let known = vec![(encoder, Tensor::new(vec![sources.len(), length, width], values))];
                (Input::pair(self.sequence(&sources), target), known)
            }
            _ => (Input::of(Side::Target, Sequence::Tokens(target)), Vec::new()),
        };
        let input = CheckedInput::new(model, input)?;
        let is_own = batch.iter().all(|pass| pass.is_own);
        let ends = batch.iter().map(|pass| self.ends(pass.source)).collect();
        let target_ends = inputs.iter().map(|ids| self.model.ends_in(ids)).collect();
        let mut sink =
            WaveSink::new(model, &self.watched, batch.len(), is_own).of_decoder(decoded, ends, target_ends);
        session.run(&Request::new(&input).known(&known), &mut sink)?;
        Ok(sink.seen())
    }
}

impl Encoded {
    fn new(source: &Source) -> Self {
        Self {
            source: source.clone(),
            features: None,
            unreadable: None,
            is_cut: false,
            is_own: false,
            output: Vec::new(),
            seen: None,
        }
    }
}

/// What has the same key together, at most so many at once, the largest keys first: what takes longest is begun first.
fn batches<T: Clone, K: Ord + Copy>(
    all: &[T],
    key: impl Fn(&T) -> K,
    most: impl Fn(K) -> usize,
) -> Vec<Vec<T>> {
    let mut sorted: Vec<(K, &T)> = all.iter().map(|one| (key(one), one)).collect();
    sorted.sort_by_key(|(key, _)| std::cmp::Reverse(*key));
    let mut batches: Vec<Vec<T>> = Vec::new();
    for same in sorted.chunk_by(|(a, _), (b, _)| a == b) {
        let Some((key, _)) = same.first() else { continue };
        // Pieces of about one size.
        let pieces = same.len().div_ceil(most(*key).max(1));
        let size = same.len().div_ceil(pieces.max(1));
        batches.extend(
            same.chunks(size.max(1)).map(|piece| piece.iter().map(|(_, one)| (*one).clone()).collect()),
        );
    }
    batches
}

/// Runs batches side by side, one on each core: many small runs are faster so than one after the other on all cores. The
/// results have the order of the batches.
fn on_every_core<B: Sync, T: Send>(
    model: &AuditModel,
    options: &KernelOptions,
    batches: &[B],
    run: impl Fn(&mut dyn Session, &B) -> Result<T, RunError> + Sync,
) -> Result<Vec<T>, AuditError> {
    let next = AtomicUsize::new(0);
    let worker = || -> Result<Vec<(usize, T)>, RunError> {
        let mut session = model.prepared.session(&options.limits.one_thread());
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(batch) = batches.get(at) else { return Ok(done) };
            options.limits.cancel.check()?;
            done.push((at, run(&mut *session, batch)?));
        }
    };
    let mut all = Vec::with_capacity(batches.len());
    for part in on_all_cores(&worker) {
        all.extend(part?);
    }
    all.sort_by_key(|(at, _)| *at);
    Ok(all.into_iter().map(|(_, result)| result).collect())
}

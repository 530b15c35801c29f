//! From a source to a sentence: greedy and beam search over a decoder, by the model's own settings.

mod ahead;
mod rules;
mod search;
mod settings;
mod speech;
mod watch;

use attnscope_graph::Side;

use crate::error::RunError;
use crate::executor::{Decode, Session};
use crate::input::{Features, Input, InputError, Rows, Sequence, check_rows};
use crate::limits::Counted;
use crate::source::SourceTensors;

pub use rules::{Ruled, Rules, Times, TokenRules};
pub use search::{EarlyStopping, Hypothesis, Search};
pub use settings::{Limit, MOST_BEAMS, Settings, SettingsError, USUAL_NEW};
pub use speech::{SILENCE, Segment, Speech, SpeechDetection, Task, Transcription, UNSURE};
pub use watch::Watched;
use watch::in_row;

/// Sentences that are decoded together.
const BATCH: usize = 32;

/// How sentences are generated.
#[derive(Debug, Clone, Copy)]
pub struct Generator<'a> {
    /// The tensors of the source, where it was run before.
    pub source: Option<&'a SourceTensors>,
    /// How it is decoded.
    pub settings: &'a Settings,
}

impl<'a> Generator<'a> {
    /// Generates by these settings.
    pub fn new(settings: &'a Settings) -> Self {
        Self { source: None, settings }
    }

    /// Generates from each sentence: the best beams, best first, or the one that greedy search finds; none where the limit
    /// allows no token.
    ///
    /// # Errors
    /// When a sentence does not fit the model, nothing says how the decoder begins, a logit is NaN or +∞, or the rules leave no
    /// token.
    pub fn from_tokens(
        &self,
        session: &mut dyn Session,
        sources: &[Vec<u32>],
    ) -> Result<Vec<Vec<Hypothesis>>, RunError> {
        let prepared = session.prepared();
        let model = prepared.model();
        check_rows(model, Side::Source, sources)?;
        if let Some(empty) = sources.iter().position(Vec::is_empty) {
            return Err(InputError::Empty { row: empty }.into());
        }
        let together = if self.settings.beams > 1 { 1 } else { BATCH };
        // Sentences of similar length, so that there is little padding.
        let mut order: Vec<usize> = (0..sources.len()).collect();
        order.sort_by_key(|&i| sources[i].len());
        let mut made = vec![Vec::new(); sources.len()];
        let mut done = 0;
        for batch in order.chunks(together) {
            let rows: Vec<Vec<u32>> = batch.iter().map(|&i| sources[i].clone()).collect();
            let source = Sequence::Tokens(Rows::new(&rows, self.settings.pad));
            let of_all = |row: usize| batch.get(row).copied().unwrap_or(row);
            let written = self.batch(session, source, &rows).map_err(|e| in_row(model, e, of_all))?;
            for (&i, hypotheses) in batch.iter().zip(written) {
                made[i] = hypotheses;
            }
            done += batch.len();
            prepared.limits().progress.tell(Counted::Decoded, done, sources.len());
        }
        Ok(made)
    }

    /// Generates from each recording of a batch.
    ///
    /// # Errors
    /// As [`Generator::from_tokens`].
    pub fn from_features(
        &self,
        session: &mut dyn Session,
        features: &Features,
    ) -> Result<Vec<Vec<Hypothesis>>, RunError> {
        let all = Sequence::Features(features.clone());
        if self.settings.beams == 1 {
            return self.batch(session, all, &[]);
        }
        let prepared = session.prepared();
        let mut made = Vec::new();
        for row in 0..features.batch {
            let one = self.batch(session, all.select(&[row]), &[]);
            made.extend(one.map_err(|e| in_row(prepared.model(), e, |_| row))?);
        }
        Ok(made)
    }

    fn batch(
        &self,
        session: &mut dyn Session,
        source: Sequence,
        rows: &[Vec<u32>],
    ) -> Result<Vec<Vec<Hypothesis>>, RunError> {
        if self.settings.start.is_empty() {
            return Err(RunError::NoStart { family: session.prepared().model().family.title });
        }
        let batch = source.batch();
        let given = Input::of(Side::Source, source);
        let mut decode = Watched::new(session, given, self.source)?;
        self.search(&mut decode, batch, rows)
    }

    /// Continues each prompt, for a decoder that reads nothing else.
    ///
    /// # Errors
    /// When a prompt does not fit the model, a logit is NaN or +∞, or the rules leave no token.
    pub fn from_prompts(
        &self,
        session: &mut dyn Session,
        prompts: &[Vec<u32>],
    ) -> Result<Vec<Vec<Hypothesis>>, RunError> {
        let prepared = session.prepared();
        let model = prepared.model();
        check_rows(model, Side::Target, prompts)?;
        if let Some(empty) = prompts.iter().position(Vec::is_empty) {
            return Err(InputError::Empty { row: empty }.into());
        }
        let together = if self.settings.beams > 1 { 1 } else { BATCH };
        // Prompts of the same length form a batch, so that nothing is padded.
        let mut order: Vec<usize> = (0..prompts.len()).collect();
        order.sort_by_key(|&i| prompts[i].len());
        let mut made = vec![Vec::new(); prompts.len()];
        let mut done = 0;
        for same in order.chunk_by(|&a, &b| prompts[a].len() == prompts[b].len()) {
            for batch in same.chunks(together) {
                let starts: Vec<Vec<u32>> = batch.iter().map(|&i| prompts[i].clone()).collect();
                let of_all = |row: usize| batch.get(row).copied().unwrap_or(row);
                let given = Input::empty(batch.len());
                let mut decode = Watched::new(session, given, self.source)?;
                let written = self.search_from(&mut decode, &starts, &[]);
                for (&i, hypotheses) in batch.iter().zip(written.map_err(|e| in_row(model, e, of_all))?) {
                    made[i] = hypotheses;
                }
                done += batch.len();
                prepared.limits().progress.tell(Counted::Decoded, done, prompts.len());
            }
        }
        Ok(made)
    }

    /// Searches with any decoder that has read nothing yet, for so many sources; with several beams, for one. `rows` are
    /// the sources' tokens, which a rule may need.
    ///
    /// # Errors
    /// As [`Generator::from_tokens`].
    pub fn search(
        &self,
        decode: &mut dyn Decode,
        batch: usize,
        rows: &[Vec<u32>],
    ) -> Result<Vec<Vec<Hypothesis>>, RunError> {
        self.search_from(decode, &vec![self.settings.start.clone(); batch], rows)
    }

    /// The same where rows begin with different tokens, equally many in each.
    fn search_from(
        &self,
        decode: &mut dyn Decode,
        starts: &[Vec<u32>],
        rows: &[Vec<u32>],
    ) -> Result<Vec<Vec<Hypothesis>>, RunError> {
        let settings = self.settings;
        let started = starts.first().map_or(0, Vec::len);
        let max_length = settings.max_length(started);
        if max_length <= started {
            return Ok(vec![Vec::new(); starts.len()]);
        }
        let rules =
            Ruled { rules: &settings.rules, ends: &settings.ends, started, max_length, sources: rows };
        let search = Search {
            beams: settings.beams,
            length_penalty: settings.length_penalty,
            early_stopping: settings.early_stopping,
            ends: &settings.ends,
            max_length,
            rules: &rules,
        };
        let mut made = if settings.beams > 1 {
            starts.iter().map(|start| search.beams(decode, start)).collect::<Result<Vec<_>, _>>()?
        } else {
            let made = search.greedy(decode, starts)?;
            made.into_iter().map(|one| vec![one]).collect()
        };
        if !settings.rules.forced_end.is_empty() {
            // An end that is forced at the last position comes from the limit.
            let forced = |one: &&mut Hypothesis| started + one.tokens.len() >= max_length;
            made.iter_mut().flatten().filter(forced).for_each(|one| one.ended = false);
        }
        Ok(made)
    }
}

//! Cross-attention weights of a run, with the tokens on both sides.

use std::collections::BTreeMap;

use attnscope_diagnose::{Weights, head_measures};
use attnscope_graph::{NodeId, Side};
use attnscope_render::trace::CrossAttention;
use attnscope_run::audio::POSITION_SECONDS;
use attnscope_run::{Input, Kept, Source};

use crate::ready::{Ready, Token};

/// One row of a batch that was run.
pub(crate) struct Batch<'a> {
    pub(crate) ready: &'a Ready<'a>,
    pub(crate) input: &'a Input,
    pub(crate) row: usize,
}

/// Audio has too many positions for a column each: this many columns are drawn, each the sum of its frames.
const AUDIO_COLUMNS: usize = 30;

/// Every cross-attention whose weights were kept.
pub(crate) fn cross_attentions(batch: &Batch<'_>, kept: &BTreeMap<NodeId, Kept>) -> Vec<CrossAttention> {
    let graph = &batch.ready.model.graph;
    let of_cross = |(id, _): &(&NodeId, &Kept)| {
        let path = &graph.node(**id).path;
        path.is_cross_weights()
    };
    kept.iter()
        .filter(of_cross)
        .filter_map(|(id, kept)| batch.cross_attention(graph.node(*id).path.as_str(), kept))
        .collect()
}

impl Batch<'_> {
    /// One of them: the mean over heads, padding left out, and what each head does.
    pub(crate) fn cross_attention(&self, path: &str, kept: &Kept) -> Option<CrossAttention> {
        let [_, heads, stride, keys] = kept.shape[..] else { return None };
        let cells = heads * stride * keys;
        let values = kept.values.get(self.row * cells..(self.row + 1) * cells)?;
        let targets = self.ready.tokens(Side::Target, &self.input.target);
        let rows = steps(targets.get(self.row)?);
        let Keys { open, columns, place } = self.keys(keys)?;
        let end = self.ends();
        let weights = Weights { values, heads, queries: rows.len(), stride, open: &open, end: &end };
        let measures = head_measures(&weights);
        let mean = |t: usize, s: usize| {
            let of_head = |h: usize| values[(h * stride + t) * keys + s];
            (0..heads).map(of_head).sum::<f64>() / heads.max(1) as f64
        };
        let mut cells = vec![0.0; rows.len() * columns.len()];
        for (t, row) in cells.chunks_mut(columns.len().max(1)).enumerate() {
            (0..keys).filter(|&s| open[s]).for_each(|s| row[place[s]] += mean(t, s));
        }
        Some(CrossAttention { path: path.to_owned(), rows, columns, mean: cells, heads: measures })
    }

    fn keys(&self, keys: usize) -> Option<Keys> {
        match &self.input.source {
            Source::Tokens(rows) => {
                let tokens = self.ready.tokens(Side::Source, rows);
                let row = tokens.get(self.row)?;
                let open: Vec<bool> = row.iter().map(|t| !t.padding).collect();
                let columns: Vec<String> = row.iter().filter(|t| !t.padding).map(|t| t.label()).collect();
                let before = |s: usize| open[..s].iter().filter(|&&o| o).count();
                let place = (0..keys.min(open.len())).map(before).collect();
                Some(Keys { open, columns, place })
            }
            Source::Features(_) => {
                let columns = keys.clamp(1, AUDIO_COLUMNS);
                // Whole seconds for a window of 30 s: a number that fits its column.
                let second = |c: usize| {
                    let seconds = (c * keys / columns) as f64 * POSITION_SECONDS;
                    format!("{:.1}", seconds).trim_end_matches(".0").to_owned()
                };
                let place = (0..keys).map(|s| s * columns / keys).collect();
                Some(Keys { open: vec![true; keys], columns: (0..columns).map(second).collect(), place })
            }
        }
    }

    /// The last tokens of a source, where the sentence's end stands.
    fn ends(&self) -> Vec<usize> {
        let Source::Tokens(rows) = &self.input.source else { return Vec::new() };
        let ends = self.ready.end_tokens();
        let length = rows.length();
        let ids = rows.ids().get(self.row * length..(self.row + 1) * length).unwrap_or_default();
        (0..length).filter(|&i| rows.open()[self.row * length + i] && ends.contains(&ids[i])).collect()
    }
}

/// The steps of a decoder: at each it reads a token and is to write the next. The weights of a row belong to the writing.
pub(crate) fn steps(row: &[Token]) -> Vec<String> {
    let read: Vec<String> = row.iter().filter(|t| !t.padding).map(Token::label).collect();
    let step = |t: usize| match read.get(t + 1) {
        Some(written) => format!("{} ⇒ {written}", read[t]),
        None => format!("{} ⇒ …", read[t]),
    };
    (0..read.len()).map(step).collect()
}

/// The keys of a row and where they are drawn.
struct Keys {
    /// What is a token and what is padding.
    open: Vec<bool>,
    /// What stands above each column.
    columns: Vec<String>,
    /// The column of each key: its own for a token, its neighbours' too for audio.
    place: Vec<usize>,
}

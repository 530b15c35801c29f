//! Proposes a map for a dump with unknown names: which tensor may be which node, by values, shapes and order. It is only shown:
//! the user decides. Where no values are equal, a line is a comment without effect.

use std::collections::HashSet;

use attnscope_checkpoint::Error;

use super::frame::Frame;
use super::generalise::{Named, generalised};
use super::grain::Grain;
use super::map::NameMap;
use super::measure::{FLOOR, Measure};
use super::pair::{Bindings, SAME, fitting};
use super::side::Side;

/// A map that the user may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// Lines of the map, each with a comment that gives the evidence.
    pub lines: Vec<String>,
    /// How many tensors the lines cover, and how many were unmatched by name.
    pub tensors: [usize; 2],
}

/// How many values of a tensor are compared.
const SAMPLE: usize = 2048;
/// Tensors with more values than this are not read for a proposal.
const MOST_VALUES: usize = 1 << 24;
/// With more tensors and nodes than this, no order is computed.
const MOST_PAIRS: usize = 4 << 20;
/// The least cosine that counts as evidence for a pair.
const ALIKE: f64 = 0.5;
/// The weight of a fitting shape, and of names with all words in common, relative to a cosine.
const FITS: f64 = 0.05;
const NAMED: f64 = 0.3;

/// The evidence for a pair.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Evidence {
    /// The values are the same up to a scale.
    Values,
    /// They are similar: their cosine.
    Alike(f64),
    /// Only shape, place and name.
    Order,
}

/// A tensor of the other side, and the node that it may be.
#[derive(Debug, Clone, Copy)]
struct Pair {
    tensor: usize,
    node: usize,
    evidence: Evidence,
}

/// A proposal, where fewer than half of the tensors of `other` are matched by their names.
pub(super) fn propose(
    frame: &Frame,
    own: (&Side, &Bindings),
    other: (&Side, &Bindings),
    ordered: bool,
) -> Result<Option<Proposal>, Error> {
    let (side, bindings) = other;
    let tensors = side.dump.tensors();
    let by_name = bindings.of.iter().flatten().filter(|bound| !bound.by_values).count();
    if 2 * by_name >= tensors.len() {
        return Ok(None);
    }
    let mut pairs: Vec<Pair> = Vec::new();
    for (node, bound) in bindings.of.iter().enumerate() {
        if let Some(bound) = bound.as_ref().filter(|bound| bound.by_values) {
            pairs.push(Pair { tensor: bound.tensor, node, evidence: Evidence::Values });
        }
    }
    let search = Search { frame, own, other };
    pairs.extend(search.by_equality(&pairs)?);
    // Patterns of the pairs found so far give more pairs, because layers repeat.
    let found = lines(frame, side, &pairs);
    pairs.extend(search.by_patterns(&found, &pairs));
    pairs.extend(search.by_order(&pairs, ordered)?);
    if pairs.is_empty() {
        return Ok(None);
    }
    let unmatched = tensors.len() - by_name;
    Ok(Some(Proposal { tensors: [pairs.len(), unmatched], lines: lines(frame, side, &pairs) }))
}

struct Search<'s> {
    frame: &'s Frame,
    own: (&'s Side, &'s Bindings),
    other: (&'s Side, &'s Bindings),
}

impl Search<'_> {
    /// Tensors without a node, and nodes without a tensor, that no pair is about.
    fn open(&self, pairs: &[Pair]) -> (Vec<usize>, Vec<usize>) {
        let (side, bindings) = self.other;
        let paired: HashSet<usize> = pairs.iter().map(|pair| pair.tensor).collect();
        let taken: HashSet<usize> = pairs.iter().map(|pair| pair.node).collect();
        let tensors = bindings.left(side).into_iter().filter(|tensor| !paired.contains(tensor));
        let is_open = |node: &usize| {
            let both = self.own.1.of[*node].is_some() && bindings.of[*node].is_none();
            both && !taken.contains(node)
        };
        (tensors.collect(), (0..self.frame.nodes.len()).filter(is_open).collect())
    }

    fn fits(&self, tensor: usize, node: usize) -> bool {
        !fitting(self.frame, node, &self.other.0.dump.tensors()[tensor]).is_empty()
    }

    /// Tensors with the values of a node that is already matched: a second name. A wrapper module, or dropout, returns its
    /// input.
    fn by_equality(&self, pairs: &[Pair]) -> Result<Vec<Pair>, Error> {
        let (tensors, _) = self.open(pairs);
        let all = self.other.0.dump.tensors();
        let counts: HashSet<usize> = tensors.iter().map(|&tensor| all[tensor].elements()).collect();
        let nodes: Vec<usize> = (0..self.frame.nodes.len())
            .filter(|&node| {
                let bound = self.own.1.of[node].as_ref();
                bound.is_some_and(|b| counts.contains(&self.own.0.dump.tensors()[b.tensor].elements()))
            })
            .collect();
        if tensors.len().saturating_mul(nodes.len()) > MOST_PAIRS {
            return Ok(Vec::new());
        }
        let samples: Vec<Option<Sample>> =
            nodes.iter().map(|&node| self.sample(node)).collect::<Result<_, _>>()?;
        let mut found = Vec::new();
        for tensor in tensors.into_iter().filter(|&tensor| all[tensor].elements() <= MOST_VALUES) {
            // A tensor of an unread type is no node.
            let Ok(values) = self.other.0.dump.read(&all[tensor]) else { continue };
            let near = Grain::of(&values, 1.0).map_or(SAME, |grain| SAME.max(FLOOR * grain.unit()));
            let mut nearest: Option<(f64, usize)> = None;
            for (&node, sample) in nodes.iter().zip(&samples) {
                let Some(sample) = sample else { continue };
                for layout in fitting(self.frame, node, &all[tensor]).into_iter().take(2) {
                    let place = layout.places();
                    let theirs: Vec<f64> = sample
                        .at
                        .iter()
                        .map(|&i| values.get(place(i)).copied().unwrap_or(f64::NAN))
                        .collect();
                    let measure = Measure::of(&sample.values, &theirs);
                    let relative = measure.relative();
                    let is_nearer = nearest.is_none_or(|(least, _)| relative < least);
                    if measure.apart == 0 && measure.scale > 0.0 && relative < near && is_nearer {
                        nearest = Some((relative, node));
                    }
                }
            }
            found.extend(nearest.map(|(_, node)| Pair { tensor, node, evidence: Evidence::Values }));
        }
        Ok(found)
    }

    /// Further tensors that the patterns of the pairs give a node.
    fn by_patterns(&self, lines: &[String], pairs: &[Pair]) -> Vec<Pair> {
        let Ok(map) = NameMap::parse(std::path::Path::new("proposal"), &lines.join("\n")) else {
            return Vec::new();
        };
        let (tensors, nodes) = self.open(pairs);
        let nodes: HashSet<usize> = nodes.into_iter().collect();
        let pair = |tensor: usize| {
            let name = &self.other.0.dump.tensors()[tensor].name;
            let mut all = map.partners(name).filter_map(|(_, node)| self.frame.find(&node));
            let node = all.find(|node| nodes.contains(node) && self.fits(tensor, *node))?;
            Some(Pair { tensor, node, evidence: Evidence::Order })
        };
        tensors.into_iter().filter_map(pair).collect()
    }

    /// Pairs the rest so that the total evidence is largest; in the same order on both sides, where both have one.
    fn by_order(&self, pairs: &[Pair], ordered: bool) -> Result<Vec<Pair>, Error> {
        let (tensors, nodes) = self.open(pairs);
        if tensors.is_empty() || tensors.len().saturating_mul(nodes.len()) > MOST_PAIRS {
            return Ok(Vec::new());
        }
        let samples: Vec<Option<Sample>> =
            nodes.iter().map(|&node| self.sample(node)).collect::<Result<_, _>>()?;
        let mut scores = vec![vec![(0.0, Evidence::Order); nodes.len()]; tensors.len()];
        for (row, &tensor) in scores.iter_mut().zip(&tensors) {
            let mut values: Option<Vec<f64>> = None;
            for (score, (&node, sample)) in row.iter_mut().zip(nodes.iter().zip(&samples)) {
                *score = self.score(tensor, node, sample.as_ref(), &mut values)?;
            }
        }
        let chosen = if ordered { aligned(&scores) } else { best_first(&scores) };
        let pair =
            |(t, n): (usize, usize)| Pair { tensor: tensors[t], node: nodes[n], evidence: scores[t][n].1 };
        Ok(chosen.into_iter().map(pair).collect())
    }

    /// The evidence for a pair and its weight; 0 where the shapes do not fit.
    fn score(
        &self,
        tensor: usize,
        node: usize,
        sample: Option<&Sample>,
        values: &mut Option<Vec<f64>>,
    ) -> Result<(f64, Evidence), Error> {
        let (side, dumped) = (self.other.0, &self.other.0.dump.tensors()[tensor]);
        let layouts = fitting(self.frame, node, dumped);
        let named = NAMED * words_in_common(&dumped.name, &self.frame.nodes[node].path);
        let mut best = (if layouts.is_empty() { 0.0 } else { FITS + named }, Evidence::Order);
        let Some(sample) = sample.filter(|_| !layouts.is_empty()) else { return Ok(best) };
        let values = match values {
            Some(values) => values,
            None => values.insert(side.dump.read(dumped)?),
        };
        for layout in layouts.iter().take(2) {
            let place = layout.places();
            let theirs = sample.at.iter().map(|&i| values.get(place(i)).copied().unwrap_or(0.0));
            let cosine = cosine(&sample.values, theirs);
            if cosine > ALIKE && cosine + FITS + named > best.0 {
                best = (cosine + FITS + named, Evidence::Alike(cosine));
            }
        }
        Ok(best)
    }

    /// Some values of a node on our side, if a tensor of the other could be it.
    fn sample(&self, node: usize) -> Result<Option<Sample>, Error> {
        let Some(bound) = &self.own.1.of[node] else { return Ok(None) };
        let dumped = &self.own.0.dump.tensors()[bound.tensor];
        let count = dumped.elements();
        let wanted = self.other.0.dump.tensors().iter().any(|t| t.elements() == count);
        if !wanted || !(2..=MOST_VALUES).contains(&count) {
            return Ok(None);
        }
        let values = super::pair::load(self.own.0, bound)?;
        // An odd step, so that different features are sampled.
        let step = (values.len() / SAMPLE).max(1) | 1;
        let at: Vec<usize> = (0..values.len()).step_by(step).collect();
        Ok(Some(Sample { values: at.iter().map(|&i| values[i]).collect(), at }))
    }
}

struct Sample {
    at: Vec<usize>,
    values: Vec<f64>,
}

fn cosine(a: &[f64], b: impl Iterator<Item = f64>) -> f64 {
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(b).filter(|(x, y)| x.is_finite() && y.is_finite()) {
        (ab, aa, bb) = (ab + x * y, aa + x * x, bb + y * y);
    }
    let cosine = ab / (aa * bb).sqrt();
    if cosine.is_finite() { cosine } else { 0.0 }
}

/// How many words two names have in common, whole or abbreviated, of all that they have: 1 for `enc0.attn.q` and
/// `encoder.0.attn.query`. Different numbers count half, because layers may be counted from 0 or 1.
fn words_in_common(name: &str, path: &str) -> f64 {
    let (name, path) = (words(name), words(path));
    let number = |word: &str| word.parse::<u64>().ok();
    let alike = |a: &str, b: &str| match (number(a), number(b)) {
        (Some(a), Some(b)) => {
            if a == b {
                1.0
            } else {
                0.5
            }
        }
        (None, None) if a.starts_with(b) || b.starts_with(a) => 1.0,
        _ => 0.0,
    };
    let best = |word: &String| name.iter().map(|other| alike(other, word)).fold(0.0, f64::max);
    let common: f64 = path.iter().map(best).sum();
    2.0 * common / (name.len() + path.len()).max(1) as f64
}

/// Words of letters and numbers, in lower case.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut last = ' ';
    for c in text.chars() {
        let joins =
            c.is_alphanumeric() && last.is_alphanumeric() && c.is_ascii_digit() == last.is_ascii_digit();
        match words.last_mut().filter(|_| joins) {
            Some(word) => word.extend(c.to_lowercase()),
            None if c.is_alphanumeric() => words.push(c.to_lowercase().collect()),
            None => {}
        }
        last = c;
    }
    words
}

/// The pairs whose scores sum up to most, in the order of rows and columns.
fn aligned(scores: &[Vec<(f64, Evidence)>]) -> Vec<(usize, usize)> {
    let columns = scores.first().map_or(0, Vec::len);
    // best[r][c]: the most from rows r.. and columns c..
    let mut best = vec![vec![0.0f64; columns + 1]; scores.len() + 1];
    for r in (0..scores.len()).rev() {
        for c in (0..columns).rev() {
            let (score, _) = scores[r][c];
            let paired = if score > 0.0 { score + best[r + 1][c + 1] } else { 0.0 };
            best[r][c] = paired.max(best[r + 1][c]).max(best[r][c + 1]);
        }
    }
    let (mut r, mut c, mut pairs) = (0, 0, Vec::new());
    while r < scores.len() && c < columns {
        let (score, _) = scores[r][c];
        if score > 0.0 && best[r][c] == score + best[r + 1][c + 1] {
            pairs.push((r, c));
            (r, c) = (r + 1, c + 1);
        } else if best[r][c] == best[r + 1][c] {
            r += 1;
        } else {
            c += 1;
        }
    }
    pairs
}

/// Without an order: the best pair, then the best of the rest, as long as there is more evidence than the shape.
fn best_first(scores: &[Vec<(f64, Evidence)>]) -> Vec<(usize, usize)> {
    let mut all: Vec<(f64, usize, usize)> = Vec::new();
    for (r, row) in scores.iter().enumerate() {
        all.extend(
            row.iter().enumerate().filter(|(_, (score, _))| *score > ALIKE).map(|(c, (s, _))| (*s, r, c)),
        );
    }
    all.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    for (_, r, c) in all {
        if pairs.iter().all(|&(row, column)| row != r && column != c) {
            pairs.push((r, c));
        }
    }
    pairs.sort_unstable();
    pairs
}

/// The pairs as lines of a map, with patterns where layers repeat.
fn lines(frame: &Frame, side: &Side, pairs: &[Pair]) -> Vec<String> {
    let mut pairs = pairs.to_vec();
    pairs.sort_by_key(|pair| pair.node);
    let named: Vec<Named<'_>> = pairs
        .iter()
        .map(|pair| Named {
            tensor: &side.dump.tensors()[pair.tensor].name,
            node: &frame.nodes[pair.node].path,
            evidence: pair.evidence,
        })
        .collect();
    generalised(&named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_scores_decide_together() {
        let s = |x: f64| (x, Evidence::Order);
        // The second tensor is similar to the first node, but comes after one that is similar to the third.
        let scores = vec![vec![s(0.1), s(0.0), s(0.9)], vec![s(0.5), s(0.2), s(0.1)]];
        assert_eq!(aligned(&scores), [(0, 2)]);
        assert_eq!(best_first(&[vec![s(0.6), s(0.9)], vec![s(0.55), s(0.8)]]), [(0, 1), (1, 0)]);
        assert_eq!(best_first(&[vec![s(0.3)]]), []);
    }

    #[test]
    fn words_may_be_abbreviated() {
        assert_eq!(words_in_common("enc0.attn.query", "encoder.0.attn.q"), 1.0);
        assert!(words_in_common("enc.1.attn.query", "encoder.0.attn.q") < 1.0);
        assert_eq!(words_in_common("x", "logits"), 0.0);
    }
}

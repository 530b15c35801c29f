//! Whether two runs read the same input. This is checked first: two programs that read different sentences differ everywhere,
//! and neither is wrong.

use std::collections::{BTreeMap, BTreeSet};

use attnscope_graph::{self as graph, Dim, Op};
use attnscope_run::Weights;

use super::DiffError;
use super::frame::Frame;
use super::grain::Grain;
use super::names::Names;
use super::pair::{Bindings, load};
use super::side::Side;

/// The difference between the inputs of two runs.
#[derive(Debug, Clone, PartialEq)]
pub enum InputDifference {
    /// Other token ids.
    Ids {
        /// Of which sequence.
        side: graph::Side,
        /// The first row in which they differ.
        row: usize,
        /// The first position in it.
        position: usize,
        /// What stands there in A and in B.
        ids: [u32; 2],
    },
    /// Another number of something.
    Length {
        /// Of what: tokens of the source, frames.
        what: &'static str,
        /// In A and in B.
        lengths: [usize; 2],
    },
    /// Other audio.
    Audio {
        /// The relative difference of the features, or of the first convolution's output.
        relative: f64,
        /// The convolution, where not both sides dumped features and other features would explain it.
        seen_in: Option<String>,
    },
}

/// The least cosine of two vectors that are the same row of a table, in any type.
const SAME_ROW: f64 = 0.9999;
/// How many positions are looked up in a table.
const SAMPLE: usize = 16;

/// How many distinct ids must all be shifted by the same number of rows before the table is called rolled.
const ROLLED: usize = 3;

/// The first difference between the inputs of the two runs.
pub(super) fn difference(
    frame: &Frame,
    sides: [&Side; 2],
    bindings: &[Bindings; 2],
    weights: Option<&Weights>,
    tolerance: f64,
) -> Result<Option<InputDifference>, DiffError> {
    let inputs = Inputs { frame, sides, bindings, weights, tolerance };
    if let Some(found) = inputs.lengths() {
        return Ok(Some(found));
    }
    for node in 0..frame.nodes.len() {
        let found = match frame.op(node) {
            Some(Op::Ids(side)) => inputs.ids(node, side)?,
            Some(Op::Embed { .. }) => inputs.looked_up(node)?,
            Some(Op::Features) => inputs.features(node)?,
            _ => None,
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

struct Inputs<'i> {
    frame: &'i Frame,
    sides: [&'i Side; 2],
    bindings: &'i [Bindings; 2],
    weights: Option<&'i Weights>,
    /// How far features may be apart.
    tolerance: f64,
}

impl Inputs<'_> {
    /// A node's tensors, where both sides have it.
    fn both(&self, node: usize) -> Result<Option<[Vec<f64>; 2]>, DiffError> {
        let (Some(a), Some(b)) = (&self.bindings[0].of[node], &self.bindings[1].of[node]) else {
            return Ok(None);
        };
        let both = [load(self.sides[0], a)?, load(self.sides[1], b)?];
        Ok((both[0].len() == both[1].len()).then_some(both))
    }

    /// Tensors whose names match nodes but whose shapes do not, because one length differs everywhere.
    fn lengths(&self) -> Option<InputDifference> {
        let graph = self.frame.graph.as_ref()?;
        let names = Names::new();
        let is_node = |path: &str| self.frame.find(path).is_some();
        let reads = |path: &str| self.frame.reads(path);
        for (which, side) in self.sides.iter().enumerate() {
            let mut found: BTreeMap<(usize, usize), usize> = BTreeMap::new();
            for tensor in self.bindings[which].left(side).into_iter().map(|i| &side.dump.tensors()[i]) {
                let meaning = names.meanings(&tensor.name, &is_node, &reads).into_iter().next();
                let Some(node) = meaning.and_then(|meaning| self.frame.find(&meaning.node)) else { continue };
                let (dims, Some(shape)) = (&graph.nodes()[node].dims, &self.frame.nodes[node].shape) else {
                    continue;
                };
                if shape.len() != tensor.shape.len() {
                    continue;
                }
                let others: Vec<usize> = (0..shape.len()).filter(|&i| shape[i] != tensor.shape[i]).collect();
                let length = |i: &usize| LENGTHS.iter().position(|(dim, _)| *dim == dims[*i]);
                let Some(lengths) = others.iter().map(length).collect::<Option<Vec<usize>>>() else {
                    continue;
                };
                for (dim, i) in lengths.into_iter().zip(others) {
                    *found.entry((dim, tensor.shape[i])).or_default() += 1;
                }
            }
            // A tensor of that length that does fit speaks against it.
            let bound = |dim: Dim| {
                let has = |(n, node): (usize, &graph::Node)| {
                    self.bindings[which].of[n].is_some() && node.dims.contains(&dim)
                };
                graph.nodes().iter().enumerate().any(has)
            };
            let other = found.keys().find(|(dim, _)| !bound(LENGTHS[*dim].0));
            if let Some(&(dim, theirs)) = other {
                let (dim, what) = LENGTHS[dim];
                let ours = self.frame.sizes.get(dim)?;
                let lengths = if which == 0 { [theirs, ours] } else { [ours, theirs] };
                return Some(InputDifference::Length { what, lengths });
            }
        }
        None
    }

    fn ids(&self, node: usize, side: graph::Side) -> Result<Option<InputDifference>, DiffError> {
        let Some([a, b]) = self.both(node)? else { return Ok(None) };
        let open = self.frame.open(node);
        let differs = |&i: &usize| a[i] != b[i] && open.as_ref().is_none_or(|open| open.has(i));
        let Some(at) = (0..a.len()).find(differs) else { return Ok(None) };
        Ok(Some(self.at(side, at, node, [a[at] as u32, b[at] as u32])))
    }

    fn at(&self, side: graph::Side, at: usize, node: usize, ids: [u32; 2]) -> InputDifference {
        let length =
            self.frame.nodes[node].shape.as_ref().and_then(|s| s.get(1)).copied().unwrap_or(1).max(1);
        InputDifference::Ids { side, row: at / length, position: at % length, ids }
    }

    /// Which other rows of the table were looked up: every differing vector must be some row, else the ids are not the cause.
    /// If all are shifted by the same number of rows, the table is rolled.
    fn looked_up(&self, node: usize) -> Result<Option<InputDifference>, DiffError> {
        let Some((graph, weights)) = self.frame.graph.as_ref().zip(self.weights) else { return Ok(None) };
        let at = &graph.nodes()[node];
        let (Some(&table), Some(&ids)) = (at.weights.first(), at.inputs.first()) else { return Ok(None) };
        let Op::Ids(side) = graph.node(ids).op else { return Ok(None) };
        // Ids that both sides dumped were compared.
        if self.bindings.iter().all(|bindings| bindings.of[ids.index()].is_some()) {
            return Ok(None);
        }
        let Some(both) = self.both(node)? else { return Ok(None) };
        let width = self.frame.nodes[node].shape.as_ref().and_then(|s| s.last()).copied().unwrap_or(0).max(1);
        let table = weights.get(table)?;
        let open = self.frame.open(node);
        let row = |which: usize, r: usize| &both[which][r * width..(r + 1) * width];
        let differs = |&r: &usize| {
            open.as_ref().is_none_or(|open| open.has(r * width)) && cosine(row(0, r), row(1, r)) < SAME_ROW
        };
        let mut others: Vec<(usize, [u32; 2])> = Vec::new();
        for r in (0..both[0].len() / width).filter(differs).take(SAMPLE) {
            match [0, 1].map(|which| row_of(&table, row(which, r))) {
                [Some(a), Some(b)] if a != b => others.push((r, [a, b])),
                _ => return Ok(None),
            }
        }
        let rolled =
            |[a, b]: [u32; 2]| (i64::from(b) - i64::from(a)).rem_euclid((table.len() / width) as i64);
        let distinct: BTreeSet<u32> = others.iter().map(|(_, [a, _])| *a).collect();
        if distinct.len() >= ROLLED && others.iter().all(|(_, ids)| rolled(*ids) == rolled(others[0].1)) {
            return Ok(None);
        }
        Ok(others.first().map(|&(r, ids)| self.at(side, r, node, ids)))
    }

    /// Features that differ by more than front ends usually do, and by more than the rounding of a short type.
    fn features(&self, node: usize) -> Result<Option<InputDifference>, DiffError> {
        let Some(both) = self.both(node)? else { return Ok(None) };
        let relative = apart(&both[0], &both[1]);
        let unit = |values: &Vec<f64>| Grain::of(values, 1.0).map_or(0.0, Grain::unit);
        let rounding = both.iter().map(unit).fold(self.tolerance, f64::max);
        Ok((relative > rounding).then_some(InputDifference::Audio { relative, seen_in: None }))
    }
}

/// What is counted in an input.
const LENGTHS: [(Dim, &str); 4] = [
    (Dim::Batch, "rows"),
    (Dim::Source, "positions of the source"),
    (Dim::Target, "tokens of the target"),
    (Dim::Frames, "frames of audio"),
];

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(b) {
        (ab, aa, bb) = (ab + x * y, aa + x * x, bb + y * y);
    }
    // Two rows of zeros are equal.
    if aa == 0.0 && bb == 0.0 { 1.0 } else { ab / (aa * bb).sqrt().max(f64::MIN_POSITIVE) }
}

/// The row of a table that equals this one up to a factor.
fn row_of(table: &[f32], row: &[f64]) -> Option<u32> {
    let is =
        |entry: &[f32]| cosine(&entry.iter().map(|&x| f64::from(x)).collect::<Vec<_>>(), row) >= SAME_ROW;
    let at = table.chunks_exact(row.len().max(1)).position(is)?;
    u32::try_from(at).ok()
}

/// The size of the difference in terms of the larger of the two.
pub(super) fn apart(a: &[f64], b: &[f64]) -> f64 {
    let size = |values: &mut dyn Iterator<Item = f64>| {
        values.filter(|x| x.is_finite()).map(|x| x * x).sum::<f64>().sqrt()
    };
    let difference = size(&mut a.iter().zip(b).map(|(x, y)| x - y));
    let largest = size(&mut a.iter().copied()).max(size(&mut b.iter().copied()));
    if difference == 0.0 { 0.0 } else { difference / largest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_found_whatever_it_is_multiplied_by() {
        let table = [1.0, 0.0, 0.0, 1.0, 0.6, 0.8];
        assert_eq!(row_of(&table, &[6.0, 8.0]), Some(2));
        assert_eq!(row_of(&table, &[1.0, -1.0]), None);
    }
}

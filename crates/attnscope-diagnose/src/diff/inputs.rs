//! Whether two runs read the same thing at all. It is asked before anything is called a bug: two programs that read different
//! sentences differ everywhere, and neither is wrong.

use std::collections::{BTreeMap, BTreeSet};

use attnscope_graph::{self as graph, Dim, Op};
use attnscope_run::Weights;

use super::DiffError;
use super::frame::Frame;
use super::names::Names;
use super::pair::{Bindings, load};
use super::side::Side;

/// What two runs read that is not the same.
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
        /// The difference in terms of the features, or of what the first convolution makes of them.
        relative: f64,
    },
}

/// How near two vectors point, by their cosine, that are the same row of a table in whatever type.
const SAME_ROW: f64 = 0.9999;
/// How far two features are apart, in terms of their size, that are not of one recording. Programs differ in how they make
/// features by less than a hundredth of that.
const OTHER_AUDIO: f64 = 0.1;
/// What may be left of a convolution's output outside of what it can give, in terms of the output. bf16 leaves 0.004.
const OUTSIDE: f64 = 0.02;
/// Positions that are looked up in a table, and frames that are looked at.
const SAMPLE: usize = 16;

/// Distinct ids that are all as many rows further on before a table is called rolled.
const ROLLED: usize = 3;

/// The first thing that the two runs did not read alike.
pub(super) fn difference(
    frame: &Frame,
    sides: [&Side; 2],
    bindings: &[Bindings; 2],
    weights: Option<&Weights>,
) -> Result<Option<InputDifference>, DiffError> {
    let inputs = Inputs { frame, sides, bindings, weights };
    if let Some(found) = inputs.lengths() {
        return Ok(Some(found));
    }
    for node in 0..frame.nodes.len() {
        let found = match frame.op(node) {
            Some(Op::Ids(side)) => inputs.ids(node, side)?,
            Some(Op::Embed { .. }) => inputs.looked_up(node)?,
            Some(Op::Features) => inputs.features(node)?,
            Some(Op::Conv1d { .. }) => inputs.convolved(node)?,
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

    /// Tensors whose names are nodes' and whose shapes are not, because one length is another throughout.
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

    /// Rows of the table other than those of the ids: all that differ must be some row, or it is not the ids. Where all are as
    /// many rows further on, it is the table that is rolled.
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
        let table = weights.get(table);
        let open = self.frame.open(node);
        let row = |which: usize, r: usize| &both[which][r * width..(r + 1) * width];
        let differs = |&r: &usize| {
            open.as_ref().is_none_or(|open| open.has(r * width)) && cosine(row(0, r), row(1, r)) < SAME_ROW
        };
        let mut others: Vec<(usize, [u32; 2])> = Vec::new();
        for r in (0..both[0].len() / width).filter(differs).take(SAMPLE) {
            match [0, 1].map(|which| row_of(table, row(which, r))) {
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

    fn features(&self, node: usize) -> Result<Option<InputDifference>, DiffError> {
        let Some([a, b]) = self.both(node)? else { return Ok(None) };
        let relative = apart(&a, &b);
        Ok((relative > OTHER_AUDIO).then_some(InputDifference::Audio { relative }))
    }

    /// Features that were not dumped show in what a convolution makes of them: where it has more outputs than it reads, what
    /// it can give is a subspace, and another recording stays in it while another arithmetic leaves it.
    fn convolved(&self, node: usize) -> Result<Option<InputDifference>, DiffError> {
        let Some((graph, weights)) = self.frame.graph.as_ref().zip(self.weights) else { return Ok(None) };
        let at = &graph.nodes()[node];
        let reads_features = at.inputs.iter().all(|&id| graph.node(id).op == Op::Features);
        let (true, &[matrix, bias]) = (reads_features, at.weights.as_slice()) else { return Ok(None) };
        let (matrix, bias) = (weights.get(matrix), weights.get(bias));
        let outputs = bias.len().max(1);
        let reads = matrix.len() / outputs;
        let Some(both) = self.both(node)?.filter(|_| outputs > reads) else { return Ok(None) };
        let relative = apart(&both[0], &both[1]);
        if relative <= OTHER_AUDIO {
            return Ok(None);
        }
        let basis = orthonormal(matrix, outputs, reads);
        let steps = self.frame.nodes[node].shape.as_ref().and_then(|s| s.last()).copied().unwrap_or(0).max(1);
        let inside = |values: &Vec<f64>| {
            let frame = |t: usize| {
                let channel =
                    |o: usize| values.get(o * steps + t).copied().unwrap_or(0.0) - f64::from(bias[o]);
                outside(&basis, (0..outputs).map(channel).collect())
            };
            (0..steps).step_by(steps.div_ceil(SAMPLE)).map(frame).fold(0.0, f64::max) < OUTSIDE
        };
        Ok(both.iter().all(inside).then_some(InputDifference::Audio { relative }))
    }
}

/// What an input has a number of.
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
    // Two rows of zeros are one.
    if aa == 0.0 && bb == 0.0 { 1.0 } else { ab / (aa * bb).sqrt().max(f64::MIN_POSITIVE) }
}

/// The row of a table that is this one, whatever it is multiplied by.
fn row_of(table: &[f32], row: &[f64]) -> Option<u32> {
    let is =
        |entry: &[f32]| cosine(&entry.iter().map(|&x| f64::from(x)).collect::<Vec<_>>(), row) >= SAME_ROW;
    let at = table.chunks_exact(row.len().max(1)).position(is)?;
    u32::try_from(at).ok()
}

/// The size of the difference in terms of the larger of the two.
fn apart(a: &[f64], b: &[f64]) -> f64 {
    let size = |values: &mut dyn Iterator<Item = f64>| {
        values.filter(|x| x.is_finite()).map(|x| x * x).sum::<f64>().sqrt()
    };
    let difference = size(&mut a.iter().zip(b).map(|(x, y)| x - y));
    let largest = size(&mut a.iter().copied()).max(size(&mut b.iter().copied()));
    if difference == 0.0 { 0.0 } else { difference / largest }
}

/// An orthonormal basis of what a matrix of `rows` by `columns` can give, by Gram and Schmidt, twice for accuracy.
fn orthonormal(matrix: &[f32], rows: usize, columns: usize) -> Vec<Vec<f64>> {
    let mut basis: Vec<Vec<f64>> = Vec::new();
    for c in 0..columns {
        let column = (0..rows).map(|r| f64::from(matrix[r * columns + c])).collect::<Vec<f64>>();
        let size = norm(&column);
        let left = without(&basis, without(&basis, column));
        let rest = norm(&left);
        if rest > 1e-9 * size {
            basis.push(left.iter().map(|x| x / rest).collect());
        }
    }
    basis
}

fn norm(x: &[f64]) -> f64 {
    x.iter().map(|v| v * v).sum::<f64>().sqrt()
}

/// What is left of a vector outside of a basis.
fn without(basis: &[Vec<f64>], mut x: Vec<f64>) -> Vec<f64> {
    for direction in basis {
        let along: f64 = direction.iter().zip(&x).map(|(d, x)| d * x).sum();
        x.iter_mut().zip(direction).for_each(|(x, d)| *x -= along * d);
    }
    x
}

/// The same in terms of the vector.
fn outside(basis: &[Vec<f64>], x: Vec<f64>) -> f64 {
    let size = norm(&x).max(f64::MIN_POSITIVE);
    norm(&without(basis, x)) / size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_matrix_gives_is_told_from_what_it_does_not() {
        let mut random = attnscope_run::SplitMix::new(1);
        let (rows, columns) = (12, 5);
        let matrix: Vec<f32> = (0..rows * columns).map(|_| random.unit()).collect();
        let basis = orthonormal(&matrix, rows, columns);
        assert_eq!(basis.len(), columns);
        let x: Vec<f64> = (0..columns).map(|_| f64::from(random.unit())).collect();
        let given = |r: usize| (0..columns).map(|c| f64::from(matrix[r * columns + c]) * x[c]).sum::<f64>();
        assert!(outside(&basis, (0..rows).map(given).collect()) < 1e-12);
        assert!(outside(&basis, (0..rows).map(|_| f64::from(random.unit())).collect()) > 0.1);
    }

    #[test]
    fn a_row_is_found_whatever_it_is_multiplied_by() {
        let table = [1.0, 0.0, 0.0, 1.0, 0.6, 0.8];
        assert_eq!(row_of(&table, &[6.0, 8.0]), Some(2));
        assert_eq!(row_of(&table, &[1.0, -1.0]), None);
    }
}

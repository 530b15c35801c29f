//! Which tensor of each side belongs to which node: by a map, by names, then by equal values.

use std::collections::{HashMap, HashSet};

use attnscope_checkpoint::{DumpTensor, Error};

use super::frame::Frame;
use super::layout::{Layout, layouts};
use super::map::NameMap;
use super::measure::{Cells, Measure, Pieces, measure};
use super::names::Names;
use super::side::{InMemory, Side};

/// A tensor that is a node's.
#[derive(Debug, Clone)]
pub(super) struct Bound {
    /// Its number in the dump.
    pub(super) tensor: usize,
    pub(super) layout: Layout,
    /// The factor between the tensor and the node, for a tensor that was found by its values.
    pub(super) scale: f64,
    /// Found by its values, not by its name.
    pub(super) by_values: bool,
}

/// The tensors of one side, by node.
pub(super) struct Bindings {
    pub(super) of: Vec<Option<Bound>>,
}

impl Bindings {
    /// Pairs by the user's map, then by names. Also returns the state of each line of the map.
    pub(super) fn by_name(side: &Side, frame: &Frame, map: &NameMap) -> (Self, Vec<LineUse>) {
        let names = Names::new();
        let mut best: Vec<Option<(u8, Bound)>> = (0..frame.nodes.len()).map(|_| None).collect();
        let mut lines = vec![LineUse::NotUsed; map.lines.len()];
        let is_node = |path: &str| frame.find(path).is_some();
        let reads = |path: &str| frame.reads(path);
        for (i, tensor) in side.dump.tensors().iter().enumerate() {
            // Rank, node, line of the map.
            let mut meanings: Vec<(u8, usize, Option<usize>)> = Vec::new();
            for (line, other) in map.partners(&tensor.name) {
                let meant = || names.meanings(&other, &is_node, &reads).into_iter().next();
                let node = frame.find(&other).or_else(|| frame.find(&meant()?.node));
                meanings.extend(node.map(|node| (0, node, Some(line))));
            }
            // Where no model is known, the names of A are the nodes.
            match frame.find(&tensor.name) {
                Some(node) => meanings.push((1, node, None)),
                None => {
                    let all = names.meanings(&tensor.name, &is_node, &reads);
                    meanings
                        .extend(all.iter().filter_map(|m| Some((m.rank + 2, frame.find(&m.node)?, None))));
                    meanings.extend(frame.same_meaning(&tensor.name).map(|node| (u8::MAX, node, None)));
                }
            }
            for (rank, node, line) in meanings {
                let layout = fitting(frame, node, tensor).into_iter().next();
                if let Some(line) = line {
                    lines[line] = match (&layout, lines[line]) {
                        (Some(_), _) | (_, LineUse::Used) => LineUse::Used,
                        (None, _) => LineUse::ShapeDiffers,
                    };
                }
                let taken = best[node].as_ref().is_some_and(|(other, _)| *other <= rank);
                if !taken && let Some(layout) = layout {
                    best[node] = Some((rank, Bound { tensor: i, layout, scale: 1.0, by_values: false }));
                    break;
                }
            }
        }
        (Self { of: best.into_iter().map(|b| b.map(|(_, bound)| bound)).collect() }, lines)
    }

    /// The tensors that belong to no node.
    pub(super) fn left(&self, side: &Side) -> Vec<usize> {
        let used: HashSet<usize> = self.of.iter().flatten().map(|bound| bound.tensor).collect();
        (0..side.dump.tensors().len()).filter(|i| !used.contains(i)).collect()
    }
}

/// The state of a line of the map on one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineUse {
    /// It named a tensor's node.
    Used,
    /// It named one, but the shapes do not fit.
    ShapeDiffers,
    NotUsed,
}

/// A line of the map that matched nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusedLine {
    /// Its number in the file.
    pub line: usize,
    /// Its two names.
    pub names: [String; 2],
    /// Why it matched nothing.
    pub why: String,
}

/// The lines of the map that matched no tensor of either side.
pub(super) fn unused(
    map: &NameMap,
    frame: &Frame,
    sides: [&Side; 2],
    uses: &[Vec<LineUse>; 2],
) -> Vec<UnusedLine> {
    let is = |i: usize, what: LineUse| uses.iter().any(|lines| lines.get(i) == Some(&what));
    let idle = map.lines.iter().enumerate().filter(|(i, _)| !is(*i, LineUse::Used));
    let mut unused: Vec<UnusedLine> = idle
        .map(|(i, line)| {
            let known = |which: usize| {
                let tensors = sides.iter().flat_map(|side| side.dump.tensors()).map(|t| t.name.as_str());
                let mut all = tensors.chain(frame.nodes.iter().map(|node| node.path.as_str()));
                all.any(|name| line.fits(which, name))
            };
            let [a, b] = line.names();
            let why = match (known(0), known(1)) {
                _ if is(i, LineUse::ShapeDiffers) => "the shapes of the two do not fit each other".to_owned(),
                (false, false) => format!("no tensor or node is called {a} or {b}"),
                (false, true) => format!("no tensor or node is called {a}"),
                (true, false) => format!("no tensor or node is called {b}"),
                (true, true) => "no tensor of one side belongs to a node of the other by it".to_owned(),
            };
            UnusedLine { line: line.number, names: [a.to_owned(), b.to_owned()], why }
        })
        .collect();
    unused.sort_by_key(|line| line.line);
    unused
}

/// The layouts in which a tensor can be a node's.
pub(super) fn fitting(frame: &Frame, node: usize, tensor: &DumpTensor) -> Vec<Layout> {
    match &frame.nodes[node].shape {
        Some(shape) => layouts(shape, &tensor.shape, frame.heads(node)),
        None => vec![Layout::Same],
    }
}

/// A tensor with the name of a node but another shape: the name, the node's shape and its own.
pub(super) fn other_shape(frame: &Frame, sides: [&Side; 2]) -> Option<(String, [Vec<usize>; 2])> {
    let names = Names::new();
    let is_node = |path: &str| frame.find(path).is_some();
    let node = |name: &str| {
        let meant = || names.meanings(name, &is_node, &|path: &str| frame.reads(path)).into_iter().next();
        frame.find(name).or_else(|| frame.find(&meant()?.node))
    };
    let differing = |tensor: &DumpTensor| {
        let at = node(&tensor.name)?;
        let shape = frame.nodes[at].shape.clone()?;
        fitting(frame, at, tensor).is_empty().then(|| (tensor.name.clone(), [shape, tensor.shape.clone()]))
    };
    sides.iter().flat_map(|side| side.dump.tensors()).find_map(differing)
}

/// A node's values, in its order.
pub(super) fn load(side: &Side, bound: &Bound) -> Result<Vec<f64>, Error> {
    let values = bound.layout.apply(side.dump.read(&side.dump.tensors()[bound.tensor])?);
    Ok(if bound.scale == 1.0 { values } else { values.into_iter().map(|x| x * bound.scale).collect() })
}

/// A node's values, in its order; in pieces where the layout is the same.
pub(super) fn pieces(side: &Side, bound: &Bound) -> Result<Box<dyn Pieces>, Error> {
    if bound.layout == Layout::Same && bound.scale == 1.0 {
        return Ok(Box::new(side.pieces(&side.dump.tensors()[bound.tensor])?));
    }
    Ok(Box::new(InMemory(load(side, bound)?)))
}

/// Tensors with more values than this are not matched by their values.
const MOST_VALUES: usize = 1 << 26;
/// The relative difference up to which values are called equal.
pub(super) const SAME: f64 = 1e-4;

/// A factor nearer to 1 than this counts as 1: slightly different values have such a factor by chance, and it would hide the
/// difference.
const NO_FACTOR: f64 = 0.01;

/// Statistics that do not depend on the layout.
#[derive(Clone, Copy)]
struct Print {
    count: usize,
    largest: f64,
    /// Root mean square.
    rms: f64,
}

impl Print {
    fn of(side: &Side, tensor: &DumpTensor) -> Result<Option<Self>, Error> {
        let pieces = side.pieces(tensor)?;
        let (mut from, mut values, mut largest, mut squares) = (0, Vec::new(), 0.0f64, 0.0);
        loop {
            pieces.get(from, &mut values)?;
            if values.is_empty() {
                break;
            }
            from += values.len();
            largest = values.iter().fold(largest, |most, x| most.max(x.abs()));
            squares += values.iter().map(|x| x * x).sum::<f64>();
        }
        let rms = (squares / from.max(1) as f64).sqrt();
        Ok((largest.is_finite() && rms > 0.0).then_some(Self { count: from, largest, rms }))
    }

    /// Whether two tensors may be equal up to a scale.
    fn alike(&self, other: &Self) -> bool {
        let (a, b) = (self.largest / self.rms, other.largest / other.rms);
        (a - b).abs() <= 1e-3 * a
    }
}

/// Finds nodes of `own` for the tensors of `other` that no name explains: equal up to a layout and a scale.
pub(super) fn by_values(
    frame: &Frame,
    own: (&Side, &Bindings),
    other: (&Side, &mut Bindings),
) -> Result<(), Error> {
    let (side, bindings) = other;
    let open: Vec<usize> = (0..frame.nodes.len())
        .filter(|&node| own.1.of[node].is_some() && bindings.of[node].is_none())
        .collect();
    let small = |tensor: &&DumpTensor| (8..=MOST_VALUES).contains(&tensor.elements());
    let left = bindings.left(side);
    let counts: HashSet<usize> = left.iter().map(|&i| side.dump.tensors()[i].elements()).collect();
    let mut prints: HashMap<usize, Vec<(usize, Print)>> = HashMap::new();
    for &node in &open {
        let Some(bound) = &own.1.of[node] else { continue };
        // Most of a large trace need not be read.
        let small = |tensor: &&DumpTensor| small(tensor) && counts.contains(&tensor.elements());
        if let Some(tensor) = Some(&own.0.dump.tensors()[bound.tensor]).filter(small)
            && let Some(print) = Print::of(own.0, tensor)?
        {
            prints.entry(print.count).or_default().push((node, print));
        }
    }
    for i in left {
        let Some(tensor) = Some(&side.dump.tensors()[i]).filter(small) else { continue };
        // Values of an unread type cannot be matched.
        let Ok(Some(print)) = Print::of(side, tensor) else { continue };
        let same_count = prints.get(&print.count).map(Vec::as_slice).unwrap_or_default();
        let alike: Vec<usize> =
            same_count.iter().filter(|(_, p)| p.alike(&print)).map(|(node, _)| *node).collect();
        for node in alike.into_iter().take(16) {
            let Some(bound) = own.1.of[node].as_ref().filter(|_| bindings.of[node].is_none()) else {
                continue;
            };
            let expected = load(own.0, bound)?;
            if let Some(found) = identified(frame, node, i, &expected, side)? {
                bindings.of[node] = Some(found);
                break;
            }
        }
    }
    Ok(())
}

/// The tensor as a node's, if its values are.
fn identified(
    frame: &Frame,
    node: usize,
    i: usize,
    expected: &[f64],
    side: &Side,
) -> Result<Option<Bound>, Error> {
    let tensor = &side.dump.tensors()[i];
    let values = side.dump.read(tensor)?;
    for layout in fitting(frame, node, tensor) {
        let values = layout.apply(values.clone());
        let scale = ratio(expected, &values);
        let near = (scale - 1.0).abs() < NO_FACTOR;
        let scale = if near { 1.0 } else { scale };
        let scaled: Vec<f64> = values.iter().map(|x| x * scale).collect();
        let measure = Measure::of(expected, &scaled);
        if scale.is_finite() && scale > 0.0 && measure.apart == 0 && measure.relative() < SAME {
            return Ok(Some(Bound { tensor: i, layout, scale, by_values: true }));
        }
    }
    Ok(None)
}

/// The factor that brings `b` nearest to `a`.
pub(super) fn ratio(a: &[f64], b: &[f64]) -> f64 {
    let both = a.iter().zip(b).filter(|(a, b)| a.is_finite() && b.is_finite());
    let (products, squares) = both.fold((0.0, 0.0), |(p, s), (a, b)| (p + a * b, s + b * b));
    products / squares
}

/// Compares a node's tensors.
pub(super) fn compare(a: (&Side, &Bound), b: (&Side, &Bound), cells: &Cells<'_>) -> Result<Measure, Error> {
    measure(pieces(a.0, a.1)?.as_ref(), pieces(b.0, b.1)?.as_ref(), cells)
}

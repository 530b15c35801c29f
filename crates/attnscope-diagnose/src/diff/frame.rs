//! The nodes that are compared: those of the model of a trace, or the names of A where no model is known.

use std::collections::HashMap;

use attnscope_graph::{Architecture, Dim, Graph, Model, NodeId, Op, Role, Sizes, Wiring, build};
use attnscope_run::trace::Trace;
use attnscope_run::{CheckedInput, Input, Rows};

use super::names::means_masked;
use super::order::{Order, Scheme, place};
use super::side::Side;

/// Nodes in the order of computation.
pub(super) struct Frame {
    pub(super) nodes: Vec<FrameNode>,
    by_path: HashMap<String, usize>,
    /// The graph behind the nodes, which have its numbers.
    pub(super) graph: Option<Graph>,
    /// The numbers behind its dimensions for the input that was traced.
    pub(super) sizes: Sizes,
    /// The input of the traced model.
    pub(super) input: Option<Input>,
    /// Where the order of the nodes comes from.
    pub(super) order: Order,
    /// Where no model is known: the nodes by the meaning of their names.
    meant: HashMap<NodeId, usize>,
    scheme: Option<Scheme>,
}

/// The cells of a node's tensor that belong to tokens. Values at padding do not matter, and programs differ in them.
pub(super) struct Open<'f> {
    /// For each dimension its length, and the rows whose padding counts along it.
    dims: Vec<(usize, Option<&'f Rows>)>,
    /// The cells of one row of the batch, which is the first dimension.
    row: usize,
}

impl<'f> Open<'f> {
    fn new(dims: Vec<(usize, Option<&'f Rows>)>) -> Self {
        // No division by zero: a tensor with an empty dimension has no cells.
        let dims: Vec<_> = dims.into_iter().map(|(length, rows)| (length.max(1), rows)).collect();
        let row = dims.iter().skip(1).map(|(length, _)| length).product();
        Self { dims, row }
    }

    /// Whether a cell counts. Called for every cell of every padded tensor.
    pub(super) fn has(&self, cell: usize) -> bool {
        let batch = cell / self.row;
        let mut rest = cell;
        self.dims.iter().rev().all(|(length, rows)| {
            let at = rest % length;
            rest /= length;
            rows.is_none_or(|rows| rows.open().get(batch * rows.length() + at).copied().unwrap_or(true))
        })
    }
}

/// A node that both sides may have a tensor of.
pub(super) struct FrameNode {
    pub(super) path: String,
    pub(super) inputs: Vec<usize>,
    /// Its shape, where it is known before a tensor is seen.
    pub(super) shape: Option<Vec<usize>>,
}

impl Frame {
    /// From the model that was traced, from what a trace says about it, or from the names of A.
    pub(super) fn new(a: &Side, b: &Side, model: Option<&Model>) -> Self {
        let trace = a.trace.as_ref().or(b.trace.as_ref());
        let input = a.input().or_else(|| b.input());
        let known = model.filter(|model| trace.is_none_or(|trace| describes(&model.graph, trace)));
        if let Some(model) = known {
            // Two dumps of other programs: their inputs are among the dumped tensors.
            let dumped =
                || a.dumped_input(model).or_else(|| b.dumped_input(model)).filter(|_| trace.is_none());
            let input = input.or_else(dumped);
            let sizes = input.as_ref().and_then(|input| CheckedInput::new(model, input.clone()).ok());
            let sizes = sizes.map_or_else(|| model.sizes.clone(), |checked| checked.sizes().clone());
            return Self::of_graph(model.graph.clone(), sizes, input);
        }
        match trace.and_then(rebuilt) {
            Some((graph, sizes)) => Self::of_graph(graph, sizes, input),
            None => Self::of_names(trace, a, b),
        }
    }

    /// Why the given model cannot be used for these two sides, if so.
    pub(super) fn misfit(&self, model: &Model, [a, b]: [&Side; 2], computes: bool) -> Option<String> {
        let trace = a.trace.as_ref().or(b.trace.as_ref());
        // If a trace does not fit its own tokens, the model is not at fault.
        if self.graph.as_ref() == Some(&model.graph) && (computes || trace.is_some()) {
            return None;
        }
        let Some(trace) = trace else {
            let dumped = a.dumped_input(model).or_else(|| b.dumped_input(model)).is_some();
            return Some(match dumped {
                true => "what the dumps hold as its input does not fit its sizes".to_owned(),
                false => {
                    "the dumps do not hold what it reads: ids of source and target, or features".to_owned()
                }
            });
        };
        let own = model.graph.nodes().iter().map(|node| node.path.as_str());
        let traced = trace.nodes.iter().map(|node| node.path.as_str());
        let part = own.zip(traced).find(|(own, traced)| own != traced);
        Some(match part {
            Some((own, traced)) => format!("it has {own} where the trace has {traced}"),
            None => {
                format!("it has {} nodes and the trace has {}", model.graph.nodes().len(), trace.nodes.len())
            }
        })
    }

    fn of_graph(graph: Graph, sizes: Sizes, input: Option<Input>) -> Self {
        let node = |(_, node): (NodeId, &attnscope_graph::Node)| FrameNode {
            path: node.path.as_str().to_owned(),
            inputs: node.inputs.iter().map(|id| id.index()).collect(),
            shape: sizes.shape(&node.dims),
        };
        let nodes: Vec<FrameNode> = graph.iter().map(node).collect();
        Self { graph: Some(graph), sizes, input, ..Self::of_nodes(nodes, Order::Graph) }
    }

    /// A trace of a graph that this version does not know, or two dumps of other programs: each node after the one before.
    fn of_names(trace: Option<&Trace>, a: &Side, b: &Side) -> Self {
        let Some(trace) = trace else { return Self::of_dumps(a, b) };
        let mut nodes: Vec<FrameNode> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        for node in &trace.nodes {
            let inputs = node.inputs.iter().filter_map(|path| places.get(path.as_str()).copied()).collect();
            places.entry(&node.path).or_insert(nodes.len());
            nodes.push(FrameNode { path: node.path.clone(), inputs, shape: Some(node.shape.clone()) });
        }
        Self::of_nodes(nodes, Order::Graph)
    }

    /// The names of A, in the order in which they were computed, where one is known.
    fn of_dumps(a: &Side, b: &Side) -> Self {
        let (ours, theirs) = (a.dump.tensors(), b.dump.tensors());
        let scheme = Scheme::of(ours.iter().chain(theirs).map(|tensor| tensor.name.as_str()));
        let placed = place(a, b, &scheme);
        let node = |(i, &tensor): (usize, &usize)| FrameNode {
            path: ours[tensor].name.clone(),
            inputs: i.checked_sub(1).filter(|_| i < placed.known).into_iter().collect(),
            shape: Some(ours[tensor].shape.clone()),
        };
        let mut frame = Self::of_nodes(placed.tensors.iter().enumerate().map(node).collect(), placed.order);
        for (i, node) in frame.nodes.iter().enumerate() {
            if let Some(meaning) = scheme.meaning(&node.path) {
                frame.meant.entry(meaning).or_insert(i);
            }
        }
        frame.scheme = Some(scheme);
        frame
    }

    fn of_nodes(nodes: Vec<FrameNode>, order: Order) -> Self {
        Self {
            by_path: index(&nodes),
            nodes,
            graph: None,
            sizes: Sizes::default(),
            input: None,
            order,
            meant: HashMap::new(),
            scheme: None,
        }
    }

    /// No nodes: sizes alone, for weights.
    pub(super) fn of_sizes(sizes: Sizes) -> Self {
        Self { sizes, ..Self::of_nodes(Vec::new(), Order::Graph) }
    }

    pub(super) fn find(&self, path: &str) -> Option<usize> {
        self.by_path.get(path).copied()
    }

    /// Whether only the order of the nodes is known, not what they read.
    pub(super) fn is_order_alone(&self) -> bool {
        self.scheme.is_some()
    }

    /// Whether it is known what was computed before a node.
    pub(super) fn has_place(&self, node: usize) -> bool {
        !self.is_order_alone() || node == 0 || self.nodes.get(node).is_some_and(|n| !n.inputs.is_empty())
    }

    /// The node whose name means the same as this one, where no model is known and names of two schemes are compared.
    pub(super) fn same_meaning(&self, name: &str) -> Option<usize> {
        self.meant.get(&self.scheme.as_ref()?.meaning(name)?).copied()
    }

    /// The first node that a node reads.
    pub(super) fn reads(&self, path: &str) -> Option<String> {
        let first = *self.nodes.get(self.find(path)?)?.inputs.first()?;
        Some(self.nodes.get(first)?.path.clone())
    }

    /// The operation of a node.
    pub(super) fn op(&self, node: usize) -> Option<Op> {
        self.graph.as_ref().and_then(|graph| graph.nodes().get(node)).map(|node| node.op)
    }

    /// Whether very low scores in a node's tensor mean masked keys.
    pub(super) fn is_masked(&self, node: usize) -> bool {
        match self.op(node) {
            Some(op) => matches!(op, Op::Mask(_) | Op::AddMask { .. }),
            None => self.nodes.get(node).is_some_and(|n| means_masked(&n.path)),
        }
    }

    /// The cells of a node that count; `None` where all do.
    pub(super) fn open(&self, node: usize) -> Option<Open<'_>> {
        let (dims, input) = (&self.graph.as_ref()?.nodes().get(node)?.dims, self.input.as_ref()?);
        let shape = self.nodes.get(node)?.shape.as_ref()?;
        let padded = |rows: &&Rows| rows.open().contains(&false);
        let rows = |dim: &Dim| match dim {
            Dim::Source => input.rows(attnscope_graph::Side::Source).filter(padded),
            Dim::Target => input.rows(attnscope_graph::Side::Target).filter(padded),
            _ => None,
        };
        let mut dims: Vec<_> = shape.iter().copied().zip(dims.iter().map(rows)).collect();
        // These show the masking of keys at padding, so keys count.
        let hides = matches!(self.op(node), Some(Op::Mask(_) | Op::AddMask { .. } | Op::Normalise(_)));
        if let (true, Some((_, rows))) = (hides, dims.last_mut()) {
            *rows = None;
        }
        let by_row = self.graph.as_ref()?.nodes().get(node)?.dims.first() == Some(&Dim::Batch);
        (by_row && dims.iter().any(|(_, rows)| rows.is_some())).then(|| Open::new(dims))
    }

    /// For each row of the batch whether it is without padding; `None` where all are, or none is.
    pub(super) fn full_rows(&self) -> Option<Vec<bool>> {
        let input = self.input.as_ref()?;
        let is_full =
            |rows: &Rows, row: usize| !rows.open()[row * rows.length()..][..rows.length()].contains(&false);
        let full: Vec<bool> =
            (0..input.batch()).map(|row| input.tokens().all(|(_, rows)| is_full(rows, row))).collect();
        (full.contains(&true) && full.contains(&false)).then_some(full)
    }

    /// The heads of the stack that a node is in.
    pub(super) fn heads(&self, node: usize) -> Option<usize> {
        match self.graph.as_ref()?.nodes().get(node)?.role {
            Role::Layer(stack, ..) | Role::StackOut(stack) => self.sizes.get(Dim::Heads(stack)),
            _ => None,
        }
    }
}

fn index(nodes: &[FrameNode]) -> HashMap<String, usize> {
    nodes.iter().enumerate().map(|(i, node)| (node.path.clone(), i)).collect()
}

/// Whether a trace is of this graph.
fn describes(graph: &Graph, trace: &Trace) -> bool {
    let paths = trace.nodes.iter().map(|node| node.path.as_str());
    graph.nodes().iter().map(|node| node.path.as_str()).eq(paths)
}

/// The graph that a trace's wiring gives, with the sizes that its tensors show.
fn rebuilt(trace: &Trace) -> Option<(Graph, Sizes)> {
    let wiring: Wiring = serde_json::from_value(trace.about["wiring"].clone()).ok()?;
    let architecture = Architecture::of_paths(trace.nodes.iter().map(|node| node.path.as_str()));
    let graph = build(&architecture, &wiring);
    if !describes(&graph, trace) {
        return None;
    }
    let mut sizes = Sizes::default();
    for (node, traced) in graph.nodes().iter().zip(&trace.nodes) {
        for (&dim, &length) in node.dims.iter().zip(&traced.shape) {
            sizes.set(dim, length);
        }
    }
    Some((graph, sizes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [batch, head, query, key] with padded queries and keys.
    #[test]
    fn padding_counts_along_its_own_dimension() {
        let (queries, keys) = (Rows::new(&[vec![1, 2], vec![3]], 0), Rows::new(&[vec![4], vec![5, 6, 7]], 0));
        let open = Open::new(vec![(2, None), (2, None), (2, Some(&queries)), (3, Some(&keys))]);
        let found: Vec<bool> = (0..24).map(|cell| open.has(cell)).collect();
        let first = [true, false, false, true, false, false];
        let second = [true, true, true, false, false, false];
        assert_eq!(found, [first, first, second, second].concat());
    }
}

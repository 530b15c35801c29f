//! The model that is explained, and the run that its numbers come from.

use std::collections::{BTreeMap, BTreeSet};

use attnscope_checkpoint::Stats;
use attnscope_graph::{Dim, Graph, Model, Node, NodeId, Op, ShapeText, Side, Sizes};
use attnscope_run::{Input, Kept, Native, RunError, Sink, Source, Values, sizes_of};

use crate::failure::Failure;
use crate::ready::{Ready, Token};

/// A model, with a run of it where there was something to read.
pub(crate) struct Subject<'a> {
    /// What the user calls it.
    pub(crate) name: &'a str,
    /// The model.
    pub(crate) model: &'a Model,
    /// Its sizes, with lengths where there is an input.
    pub(crate) sizes: Sizes,
    /// The run.
    pub(crate) run: Option<Ran<'a>>,
}

/// A run whose tensors were measured, and some of them kept.
pub(crate) struct Ran<'a> {
    pub(crate) ready: &'a Ready<'a>,
    pub(crate) input: Input,
    pub(crate) generated: bool,
    pub(crate) stats: BTreeMap<NodeId, Stats>,
    pub(crate) kept: BTreeMap<NodeId, Kept>,
}

/// Which tensors of a run are kept.
pub(crate) enum Wanted {
    /// What explanations show: cross-attention, the decoder's first self-attention, logits.
    Shown,
    /// These.
    Nodes(BTreeSet<NodeId>),
}

impl Wanted {
    fn keeps(&self, graph: &Graph, id: NodeId) -> bool {
        let path = &graph.node(id).path;
        let attention = |leaf: &str| matches!(leaf, "scores" | "masked_scores" | "weights" | "mask");
        match self {
            Self::Nodes(nodes) => nodes.contains(&id),
            Self::Shown => {
                path.as_str() == "logits"
                    || path.is_cross_weights()
                    || (path.as_str().starts_with("decoder.0.")
                        && path.part().ends_with("_attn")
                        && attention(path.leaf()))
            }
        }
    }
}

struct Collect<'w> {
    graph: &'w Graph,
    wanted: &'w Wanted,
    stats: BTreeMap<NodeId, Stats>,
    kept: BTreeMap<NodeId, Kept>,
}

impl Sink for Collect<'_> {
    fn wants(&self, _: NodeId) -> bool {
        true
    }

    fn put(&mut self, node: NodeId, shape: &[usize], values: Values<'_>) -> Result<(), RunError> {
        let stats = match values {
            Values::F32(values) => Stats::of_f32(values),
            Values::F64(values) => Stats::of_f64(values),
        };
        self.stats.insert(node, stats);
        if self.wanted.keeps(self.graph, node) {
            self.kept.insert(node, Kept { shape: shape.to_vec(), values: values.to_f64() });
        }
        Ok(())
    }
}

impl<'a> Subject<'a> {
    /// A model that was not run: shapes stay letters where the input decides them.
    pub(crate) fn unrun(name: &'a str, model: &'a Model) -> Self {
        Self { name, model, sizes: model.sizes.clone(), run: None }
    }

    /// A model and its run on an input.
    pub(crate) fn run(
        ready: &'a Ready<'a>,
        input: Input,
        generated: bool,
        wanted: &Wanted,
    ) -> Result<Self, Failure> {
        let model = ready.model;
        let sizes = sizes_of(model, &input)?;
        let mut sink = Collect { graph: &model.graph, wanted, stats: BTreeMap::new(), kept: BTreeMap::new() };
        Native::new().run(model, &ready.weights, &input, &mut sink)?;
        let Collect { stats, kept, .. } = sink;
        let run = Some(Ran { ready, input, generated, stats, kept });
        Ok(Self { name: &ready.opened.name, model, sizes, run })
    }

    /// Name and family.
    pub(crate) fn name(&self) -> String {
        format!("{}, {}", self.name, self.model.title())
    }

    /// What was run, in a line.
    pub(crate) fn input_text(&self) -> String {
        let Some(run) = &self.run else {
            return "none given, so nothing was run: lengths are letters".to_owned();
        };
        let source = match &run.input.source {
            Source::Tokens(rows) => labels(&run.ready.tokens(Side::Source, rows)),
            Source::Features(f) => format!("{} frames of audio", f.frames),
        };
        let made = if run.generated { " (written by the model)" } else { "" };
        format!("{source} → {}{made}", labels(&run.ready.tokens(Side::Target, &run.input.target)))
    }

    pub(crate) fn graph(&self) -> &'a Graph {
        &self.model.graph
    }

    pub(crate) fn find(&self, path: &str) -> Option<&'a Node> {
        self.graph().find(path).map(|id| self.graph().node(id))
    }

    /// A size as a number, or as its letter where it is not known.
    pub(crate) fn size(&self, dim: Dim) -> String {
        self.sizes.get(dim).map_or_else(|| dim.symbol(&self.sizes), |n| n.to_string())
    }

    /// A shape in numbers, with letters where they are not known.
    pub(crate) fn shape(&self, dims: &[Dim]) -> String {
        ShapeText { dims, sizes: &self.sizes, symbolic: false }.to_string()
    }

    /// A shape in letters.
    pub(crate) fn letters(&self, dims: &[Dim]) -> String {
        ShapeText { dims, sizes: &self.sizes, symbolic: true }.to_string()
    }

    /// The shape of a node, where the model has it.
    pub(crate) fn shape_of(&self, path: &str) -> String {
        self.find(path).map_or_else(|| "absent".to_owned(), |node| self.shape(&node.dims))
    }

    /// What a tensor's values look like from afar.
    pub(crate) fn stats(&self, path: &str) -> Option<Stats> {
        self.run.as_ref()?.stats.get(&self.graph().find(path)?).copied()
    }

    /// A tensor that was kept.
    pub(crate) fn kept(&self, path: &str) -> Option<&Kept> {
        self.run.as_ref()?.kept.get(&self.graph().find(path)?)
    }

    /// The attentions of the first layers, as paths: `encoder.0.self_attn`.
    pub(crate) fn attentions(&self) -> Vec<String> {
        let first = |node: &&Node| {
            matches!(node.op, Op::Scores { .. }) && node.path.layer().is_some_and(|(_, n)| n == 0)
        };
        let path = |node: &Node| node.path.as_str().trim_end_matches(".scores").to_owned();
        self.graph().nodes().iter().filter(first).map(path).collect()
    }

    /// The tokens of the first row, padding left out.
    pub(crate) fn tokens(&self, side: Side) -> Option<Vec<Token>> {
        Some(self.row(side, 0)?.into_iter().filter(|token| !token.padding).collect())
    }

    /// What stands at each position of a row, padding too.
    pub(crate) fn row(&self, side: Side, row: usize) -> Option<Vec<Token>> {
        let run = self.run.as_ref()?;
        let rows = match (side, &run.input.source) {
            (Side::Source, Source::Tokens(rows)) => rows,
            (Side::Source, Source::Features(_)) => return None,
            (Side::Target, _) => &run.input.target,
        };
        run.ready.tokens(side, rows).into_iter().nth(row)
    }
}

fn labels(rows: &[Vec<Token>]) -> String {
    let row = |tokens: &Vec<Token>| tokens.iter().map(Token::label).collect::<Vec<_>>().join(" ");
    rows.iter().map(row).collect::<Vec<_>>().join(" ; ")
}

//! Proofs about padding: removed, embedded as something else, encoded as something else, and a row of padding alone.

use attnscope_graph::{Node, NodeId, Op, PositionCount, Side};
use attnscope_run::{Input, Rows, RunError, Sequence, position_limit};

use super::align::{Alone, aligned};
use super::is_token;
use super::perturbation_rig::{PerturbationRig, Perturbed, Tensor};
use super::place::{Axes, Free, Movement};
use super::proof::{Claim, Leak, Proof, Verdict};
use crate::unravel;

/// How many positions of padding are added to a side without any.
const ADDED: usize = 2;

/// [`SHAPES`] as text, for the text of a rule.
macro_rules! shapes {
    () => {
        4e-5
    };
}
pub(crate) use shapes;

/// The threshold for differences between runs of different shapes, as a share of the tensor's largest value. Every
/// node of the native executor is within 2e-5 of the f64 reference in its tests, so two runs of the same numbers are
/// within twice that of each other.
const SHAPES: f64 = shapes!();

/// Why a proof about cross-attention has nothing to try.
pub(super) const NO_CROSS: &str = "the model has no cross-attention";

/// Tokens and padding of one row: (source tokens, source padding, target tokens, target padding).
fn counts(input: &Input, [source, target]: [usize; 2], row: usize) -> [usize; 4] {
    let tokens = |side, length| (0..length).filter(|&at| is_token(input, side, row, at)).count();
    let (s, t) = (tokens(Side::Source, source), tokens(Side::Target, target));
    [s, source - s, t, target - t]
}

impl PerturbationRig<'_> {
    /// An input with padding on every side that can have some.
    pub(super) fn padded(&self, input: &Input) -> Input {
        let mut padded = input.clone();
        for (side, rows) in input.tokens() {
            padded = padded.with(side, Sequence::Tokens(self.padded_rows(side, rows)));
        }
        padded
    }

    /// How many positions of padding are added to each row of an input's source and target where padding is needed and
    /// there is none.
    pub fn added_padding(&self, input: &Input) -> [usize; 2] {
        let added = |side, rows: &Rows| self.padded_rows(side, rows).length() - rows.length();
        [Side::Source, Side::Target].map(|side| input.rows(side).map_or(0, |rows| added(side, rows)))
    }

    fn padded_rows(&self, side: Side, rows: &Rows) -> Rows {
        if rows.open().contains(&false) {
            return rows.clone();
        }
        let positions = self.model.graph.positions(side);
        let counted = positions.is_none_or(|added| added.count == PositionCount::Places);
        let room = position_limit(self.model, side).filter(|_| counted).unwrap_or(usize::MAX);
        let length = (rows.length() + ADDED).min(room);
        Rows::padded(&rows.tokens(), self.padding.id, self.padding.side, length)
    }

    /// Masked cells of all three masks: tokens that look at padding.
    fn masked_cells(&self, input: &Input) -> Result<usize, RunError> {
        let lengths = self.lengths(input)?;
        let of_row = |row| {
            let [s, s_pads, t, t_pads] = counts(input, lengths, row);
            s * s_pads + t * t_pads + t * s_pads
        };
        Ok((0..self.batch()).map(of_row).sum())
    }

    fn padding_at(&self, input: &Input, side: Side, length: usize) -> Vec<(usize, usize)> {
        let all = (0..self.batch()).flat_map(|row| (0..length).map(move |at| (row, at)));
        all.filter(|&(row, at)| !is_token(input, side, row, at)).collect()
    }

    /// Embeds padding as something else: tokens must not move.
    pub(super) fn padding_embeddings(&mut self) -> Result<Proof, RunError> {
        let claim = Claim::PaddingEmbeddings;
        let input = self.padded(self.input);
        let cells = self.masked_cells(&input)?;
        if cells == 0 {
            return Ok(Proof::not_run(claim, "no row has padding, and no position is left for any"));
        }
        let lengths = self.lengths(&input)?;
        let nodes = self.nodes;
        let before = self.run(&input, &[], &|id| [nodes.source, nodes.target].contains(&Some(id)))?;
        let mut interventions = Vec::new();
        for (side, length) in [Side::Source, Side::Target].into_iter().zip(lengths) {
            let Some(node) = nodes.embeddings(side) else { continue };
            interventions.extend(self.noise(node, &before, &self.padding_at(&input, side, length), (1, 1.0)));
        }
        let free = Free::padding(&input, lengths);
        let cause = "embeddings of padding replaced".into();
        self.stays_once(claim, Perturbed { input: &input, interventions, free, cause }, cells)
    }

    /// Overwrites the encoder's output at padding: no logit may move.
    pub(super) fn padding_states(&mut self) -> Result<Proof, RunError> {
        let claim = Claim::PaddingStates;
        if self.has_audio() {
            return Ok(Proof::not_run(claim, "a recording fills its window: the source has no padding"));
        }
        let input = self.padded(self.input);
        let lengths = self.lengths(&input)?;
        let pads = self.padding_at(&input, Side::Source, lengths[0]);
        if pads.is_empty() {
            return Ok(Proof::not_run(claim, "no source row has padding, and no position is left for any"));
        }
        let Some(memory) = self.nodes.memory else { return Ok(Proof::not_run(claim, NO_CROSS)) };
        let before = self.run(&input, &[], &|id| id == memory)?;
        let interventions = self.noise(memory, &before, &pads, (1, 1.0));
        let free = Free::new(lengths, self.batch(), |side, row, at| {
            side == Side::Source && !is_token(&input, side, row, at)
        });
        let of_row = |row| {
            let [_, s_pads, t, _] = counts(&input, lengths, row);
            s_pads * t
        };
        let cells = (0..self.batch()).map(of_row).sum();
        let cause = "encoder.out at padding overwritten".into();
        self.stays_once(claim, Perturbed { input: &input, interventions, free, cause }, cells)
    }

    /// One perturbation that must not change encoder.out and the logits.
    fn stays_once(
        &mut self,
        claim: Claim,
        perturbed: Perturbed<'_>,
        cells: usize,
    ) -> Result<Proof, RunError> {
        let watched = self.nodes.outputs();
        let before = self.run(perturbed.input, &[], &|id| watched.contains(&id))?;
        self.stays(claim, &before, &[perturbed], &watched, (cells, cells))
    }

    /// Every row alone, without padding, against the same row in the batch.
    pub(super) fn padding_alone(&mut self) -> Result<Proof, RunError> {
        let claim = Claim::PaddingAlone;
        let input = self.padded(self.input);
        let cells = self.masked_cells(&input)?;
        if cells == 0 {
            return Ok(Proof::not_run(claim, "no row has padding, and no position is left for any"));
        }
        let watched = self.nodes.outputs();
        let together = self.run(&input, &[], &|id| watched.contains(&id))?;
        let (mut largest, mut broken) = (0f64, None);
        for row in 0..self.batch() {
            let Some(alone) = Alone::new(&input, row) else { continue };
            let tensors = self.run(&alone.input, &[], &|id| watched.contains(&id))?;
            for &id in &watched {
                let (Some(a), Some(b)) = (tensors.get(&id), together.get(&id)) else { continue };
                let moved = aligned(self.model.graph.node(id), a, b, &alone);
                largest = largest.max(moved.largest);
                if moved.largest > SHAPES && broken.is_none() {
                    broken = Some(row);
                }
            }
        }
        let verdict = match broken {
            Some(row) => self.first_apart(&input, row)?,
            None => Verdict::Holds,
        };
        let (movement, threshold) = (largest, SHAPES);
        Ok(Proof { claim, runs: 0, cells, cells_in_all: cells, movement, felt: None, threshold, verdict })
    }

    /// Why a row alone differs from the same row in the batch: padding that is attended to or that takes positions, or another
    /// cause.
    fn first_apart(&mut self, input: &Input, row: usize) -> Result<Verdict, RunError> {
        let together = self.run(input, &[], &|_| true)?;
        let cause = format!("row {row} alone, without padding");
        let unknown = || Verdict::Inconclusive(format!("{cause}: no tensor but the last differs"));
        let Some(alone) = Alone::new(input, row) else { return Ok(unknown()) };
        let tensors = self.run(&alone.input, &[], &|_| true)?;
        for (id, node) in self.model.graph.iter() {
            let (Some(a), Some(b)) = (tensors.get(&id), together.get(&id)) else { continue };
            let Movement { largest, at, .. } = aligned(node, a, b, &alone);
            if largest <= SHAPES {
                continue;
            }
            let path = node.path.as_str().to_owned();
            let seen = match node.op {
                Op::Normalise(_) => padding_weight(node, b, input, row) > 0.0,
                Op::Positions { .. } => true,
                _ => false,
            };
            return Ok(match seen {
                true => {
                    Verdict::Fails(Leak { node: path, at: unravel(at, &a.shape), movement: largest, cause })
                }
                false if !largest.is_finite() => {
                    Verdict::Inconclusive(format!("overflow: {cause}, {path} is not finite on one side only"))
                }
                false => Verdict::Inconclusive(format!(
                    "{cause}, {path} is the first tensor that differs, by {largest:.1e} of its largest value, and no weight is on padding: rounding that grows"
                )),
            });
        }
        Ok(unknown())
    }

    /// A row whose source is all padding: its weights are 0, its logits are finite, and the other rows do not change.
    pub(super) fn all_padding(&mut self) -> Result<Proof, RunError> {
        let claim = Claim::AllPadding;
        let (Some(source), Some(target)) = (self.input.rows(Side::Source), self.input.rows(Side::Target))
        else {
            return Ok(Proof::not_run(claim, "a recording fills its window: the source has no padding"));
        };
        let (logits, batch) = (self.nodes.logits, self.batch());
        let (mut sources, mut targets) = (source.tokens(), target.tokens());
        sources.push(Vec::new());
        targets.push(targets.first().cloned().unwrap_or_default());
        let rows = |rows: &[Vec<u32>], least| Rows::padded(rows, self.padding.id, self.padding.side, least);
        let source = Sequence::Tokens(rows(&sources, source.length()));
        let input = Input::pair(source, rows(&targets, target.length()));
        let before = self.run(self.input, &[], &|id| id == logits)?;
        let graph = &self.model.graph;
        let is_weights = |id: NodeId| matches!(graph.node(id).op, Op::Normalise(_));
        let on_source = |id: NodeId| graph.node(id).dims.get(3) == Some(&Side::Source.length());
        let after = self.run(&input, &[], &|id| id == logits || (is_weights(id) && on_source(id)))?;
        let (Some(a), Some(b)) = (before.get(&logits), after.get(&logits)) else {
            return Ok(Proof::not_run(claim, "the model has no logits"));
        };
        let pairs = a.values.iter().zip(&b.values);
        let movement = pairs.map(|(&a, &b)| super::place::distance(a, b)).fold(0.0, f64::max) / a.most();
        let own = |tensor: &Tensor| tensor.values[tensor.values.len() / (batch + 1) * batch..].to_vec();
        let seen = after.iter().filter(|(id, _)| **id != logits).find_map(|(id, tensor)| {
            let most = own(tensor).iter().map(|x| f64::from(x.abs())).reduce(f64::max);
            most.filter(|&x| x > 0.0).map(|most| (*id, most))
        });
        let cause = "a source of nothing but padding added to the batch";
        let verdict = match seen {
            Some((id, movement)) => {
                let node = graph.node(id).path.as_str().to_owned();
                Verdict::Fails(Leak { node, at: vec![batch], movement, cause: cause.into() })
            }
            None if !own(b).iter().all(|x| x.is_finite()) || !movement.is_finite() => Verdict::Inconclusive(
                format!("overflow: {cause}, whose weights are all 0, and logits are not finite"),
            ),
            None if movement > SHAPES => Verdict::Inconclusive(format!(
                "{cause}, whose weights are all 0, and the logits of other rows differ by {movement:.1e}: rounding that grows"
            )),
            None => Verdict::Holds,
        };
        let [s, t] = self.lengths(&input)?;
        let cells = s * s + s * t;
        let threshold = SHAPES;
        Ok(Proof { claim, runs: 0, cells, cells_in_all: cells, movement, felt: None, threshold, verdict })
    }
}

/// The largest weight that a token of a row gives to padding. [batch, head, query, key]
fn padding_weight(node: &Node, weights: &Tensor, input: &Input, row: usize) -> f64 {
    let axes = Axes::of(node);
    let (Some(batch), Some((query, asks)), Some((key, keys))) = (axes.batch, axes.query, axes.key) else {
        return 0.0;
    };
    let of_token_to_padding = |cell: usize| {
        weights.along(batch, cell) == row
            && is_token(input, asks, row, weights.along(query, cell))
            && !is_token(input, keys, row, weights.along(key, cell))
    };
    let cells = weights.values.iter().enumerate().filter(|(cell, _)| of_token_to_padding(*cell));
    cells.fold(0.0, |most, (_, &weight)| most.max(f64::from(weight)))
}

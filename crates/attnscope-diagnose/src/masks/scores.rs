//! A mistake on the scores that a model computes.

use attnscope_checkpoint::Remedy;
use attnscope_graph::Side;
use attnscope_graph::figures::counted;
use attnscope_run::{Input, MaskReason, RunError};

use super::perturbation_rig::PerturbationRig;
use super::wrong::{Compared, Mistake};
use super::{Attention, is_token, masked_by};
use crate::unravel;

impl PerturbationRig<'_> {
    /// A mistake on the scores that this model computes in a layer and a head, for one row of an input.
    ///
    /// # Errors
    /// When there is no such layer, head or row, or the run fails.
    pub fn mistake(
        &mut self,
        mistake: Mistake,
        input: &Input,
        (layer, head, row): (usize, usize, usize),
    ) -> Result<Compared, RunError> {
        let attention = mistake.attention();
        let path = attention.path(&layer.to_string(), "scores");
        let absent = |what: String, expected: &str| RunError::Input {
            place: attention.title().into(),
            found: what,
            expected: expected.into(),
            remedy: "layers, heads and rows are counted from 0".into(),
        };
        let graph = &self.model.graph;
        if !Attention::of(&self.model.architecture).contains(&attention) {
            let kind = self.model.architecture.kind();
            return Err(RunError::Input {
                place: mistake.id().into(),
                found: format!("a mistake in {}", attention.title()),
                expected: format!("this model is {kind} and has no {}", attention.title()),
                remedy: "ask for a mistake in an attention that the model has".into(),
            });
        }
        let Some(scores) = graph.find(&path) else {
            let layers = format!("there are {}", graph.layers(attention.stack()));
            return Err(absent(format!("layer {layer}"), &layers));
        };
        let bias = graph.find(&attention.path(&layer.to_string(), "bias"));
        let tensors = self.run(input, &[], &|id| id == scores || Some(id) == bias)?;
        let Some(tensor) = tensors.get(&scores) else { return Err(absent(path, "it was not computed")) };
        let &[batch, heads, queries, keys] = &tensor.shape[..] else {
            return Err(absent(format!("{:?}", tensor.shape), "four dimensions were expected"));
        };
        if head >= heads || row >= batch {
            let sizes = format!("there are {heads} heads and {}", counted(batch, "row"));
            return Err(absent(format!("head {head} of row {row}"), &sizes));
        }
        if let Some(cell) = tensor.values.iter().position(|x| !x.is_finite()) {
            let at = unravel(cell, &tensor.shape);
            return Err(RunError::Input {
                place: path,
                found: format!("{} at {at:?}", tensor.values[cell]),
                expected: "a mistake can be shown only on finite scores".into(),
                remedy: Remedy::NoMistakes,
            });
        }
        let cells = queries * keys;
        let of = |values: &[f32], part: usize| values[part * cells..(part + 1) * cells].to_vec();
        let mut values = of(&tensor.values, row * heads + head);
        if let Some(bias) = bias.and_then(|id| tensors.get(&id)) {
            values.iter_mut().zip(of(&bias.values, head)).for_each(|(score, bias)| *score += bias);
        }
        let scores: Vec<f64> = values.into_iter().map(f64::from).collect();
        let side: Side = attention.keys();
        let reasons: Vec<Option<MaskReason>> = (0..cells)
            .map(|cell| {
                let (query, key) = (cell / keys, cell % keys);
                masked_by(attention.right(), query, key, || is_token(input, side, row, key))
            })
            .collect();
        let tokens: Vec<bool> =
            (0..queries).map(|query| is_token(input, attention.queries(), row, query)).collect();
        Ok(Compared::new(mistake, &scores, &reasons, &tokens))
    }

    /// What a mistake is shown on: the input, padded where the mistake is about padding and there is none.
    pub fn shown_on(&self, mistake: Mistake, input: &Input) -> Input {
        match mistake {
            Mistake::NoPadding => self.padded(input),
            _ => input.clone(),
        }
    }
}

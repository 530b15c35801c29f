//! Other wirings of a model that is a decoder alone: rotary positions, shared keys and values, windows, caps, norms.

use attnscope_graph::{Dim, KvSharing, Model, NormGain, Positions, RotaryPairs, RotaryScaling, Side, Stack};

use super::edit::WiringEdit;
use super::setup::Setup;

/// Bases in use: Llama 1 and 2, SmolLM 2, Llama 3, Qwen 2 and Mistral, Yi.
const THETAS: [f64; 5] = [10_000.0, 100_000.0, 500_000.0, 1_000_000.0, 5_000_000.0];
/// Shares of a head that families rotate.
const SHARES: [f64; 3] = [0.25, 0.5, 1.0];
/// Factors by which positions are stretched.
const FACTORS: [f64; 3] = [2.0, 4.0, 8.0];
/// The shortest window that is tried; longer ones are twice as long each.
const LEAST_WINDOW: usize = 8;
/// The caps of Gemma 2.
const CAPS: [Option<f64>; 2] = [None, Some(50.0)];
const LOGIT_CAPS: [Option<f64>; 2] = [None, Some(30.0)];

/// Edits of one setup; those that change nothing are left out elsewhere.
pub(super) fn edits(model: &Model, setup: &Setup, longest: usize) -> Vec<WiringEdit> {
    let architecture = &model.architecture;
    if architecture.has_cross_attention() || !architecture.reads(Side::Target) {
        return Vec::new();
    }
    let w = &setup.wiring;
    let mut edits = Vec::new();
    if w.positions(Side::Target) == Positions::Rotary {
        edits.extend(rotary_edits());
    }
    if w.kv_heads.is_some_and(|n| n > 1 && n < setup.heads_of(Stack::Decoder)) {
        edits.extend(KvSharing::ALL.map(WiringEdit::KvSharing));
    }
    if w.norm_gain.is_some() {
        edits.extend([NormGain::Weight, NormGain::OnePlusWeight].map(WiringEdit::NormGain));
    }
    edits.extend(windows(setup, longest).into_iter().map(WiringEdit::Window));
    edits.extend(CAPS.map(WiringEdit::ScoreCap));
    edits.extend(LOGIT_CAPS.map(WiringEdit::LogitCap));
    edits.extend(score_widths(model, setup).into_iter().map(WiringEdit::ScoreWidth));
    edits.extend([false, true].map(WiringEdit::ParallelResidual));
    // What a file does not have is seen when the edited model is bound to it.
    edits.extend([false, true].map(WiringEdit::TiedOutput));
    edits
}

fn rotary_edits() -> Vec<WiringEdit> {
    let mut edits = [RotaryPairs::Halves, RotaryPairs::Neighbours].map(WiringEdit::RotaryLayout).to_vec();
    edits.extend(THETAS.map(WiringEdit::RotaryTheta));
    edits.extend(SHARES.map(WiringEdit::RotaryShare));
    // The scalings of Llama 3.1 and of long texts leave short ones nearly as they are.
    edits.push(WiringEdit::RotaryScaling(None));
    edits.extend(FACTORS.map(|factor| WiringEdit::RotaryScaling(Some(RotaryScaling::Linear { factor }))));
    edits
}

/// No window, and those that hide something of the longest text. A declared one that hides nothing cannot be judged by it.
fn windows(setup: &Setup, longest: usize) -> Vec<Option<usize>> {
    if setup.wiring.window.is_some_and(|window| window >= longest) {
        return Vec::new();
    }
    let longer = std::iter::successors(Some(LEAST_WINDOW), |window| window.checked_mul(2));
    let shorter_than_text = longer.take_while(|window| *window < longest).map(Some);
    let beside = setup.wiring.window.into_iter().flat_map(|n| [n.checked_sub(1), n.checked_add(1)]);
    [None].into_iter().chain(shorter_than_text).chain(beside).filter(|window| *window != Some(0)).collect()
}

/// The head's own width, and the width of the stream shared out among the heads: Gemma's configs name either.
fn score_widths(model: &Model, setup: &Setup) -> Vec<Option<f64>> {
    let heads = setup.heads_of(Stack::Decoder);
    let shared = model.sizes.get(Dim::Model).filter(|width| heads > 0 && width.is_multiple_of(heads));
    let shared = shared.map(|width| (width / heads) as f64);
    let own = model.sizes.get(Dim::Head(Stack::Decoder)).map(|width| width as f64);
    [None].into_iter().chain(shared.filter(|shared| Some(*shared) != own).map(Some)).collect()
}

#[cfg(test)]
mod tests {
    use attnscope_graph::Wiring;
    use attnscope_run::Shift;

    use super::*;
    use crate::score::Padding;

    fn windows_of(window: Option<usize>, longest: usize) -> Vec<Option<usize>> {
        let wiring = Wiring { window, ..Wiring::VASWANI };
        let setup = Setup { wiring, heads: [0, 4], shift: Shift::AsIs, padding: Padding::None };
        windows(&setup, longest)
    }

    #[test]
    fn windows_are_tried_that_hide_something() {
        assert_eq!(windows_of(None, 30), [None, Some(8), Some(16)]);
        assert_eq!(windows_of(Some(12), 16), [None, Some(8), Some(11), Some(13)]);
        assert_eq!(windows_of(Some(4096), 30), []);
        assert_eq!(windows_of(None, 6), [None]);
    }
}

//! Steps by their names and formulas.

use attnscope_diagnose::worked::{Example, Judgement, Mask, Operand, Part, Step};

/// A step, or its heads where it has several.
pub(super) fn parts(example: &Example, judgement: &Judgement, step: Step) -> Vec<Part> {
    let heads = if step.per_head() && example.heads > 1 { example.heads } else { 0 };
    let parts: Vec<Part> = match heads {
        0 => vec![Part { step, head: None }],
        _ => (0..heads).map(|head| Part { step, head: Some(head) }).collect(),
    };
    parts.into_iter().filter(|part| judgement.truth.part(*part).is_some()).collect()
}

/// How a step is computed.
pub(super) fn formula(example: &Example, step: Step) -> String {
    let plus =
        |bias: Operand| example.operand(bias).map(|_| format!(" + {}", bias.name())).unwrap_or_default();
    let projection = |source: Operand, weight: Operand, bias: Operand| match example.unprojected() {
        true => source.name().to_owned(),
        false => format!("{}·{}{}", source.name(), weight.name(), plus(bias)),
    };
    match step {
        Step::Q => projection(example.query_source(), Operand::WQ, Operand::BQ),
        Step::K => projection(Operand::X, Operand::WK, Operand::BK),
        Step::V => projection(Operand::X, Operand::WV, Operand::BV),
        Step::Products => "Q·Kᵀ".into(),
        Step::Scores => match example.is_given(Step::Products) {
            true => format!("products / {}", example.scale),
            false => format!("Q·Kᵀ / {}", example.scale),
        },
        Step::MaskedScores => match example.mask {
            Mask::None => "scores".into(),
            _ => "scores + mask".into(),
        },
        Step::Weights if example.mask == Mask::None && !example.is_given(Step::MaskedScores) => {
            "softmax(scores)".into()
        }
        Step::Weights => "softmax(masked_scores)".into(),
        Step::Context if example.heads > 1 => "weights·V, head beside head".into(),
        Step::Context => "weights·V".into(),
        Step::Output => format!("context·W_O{}", plus(Operand::BO)),
    }
}

//! Steps by their names and formulas.

use super::{Example, Judgement, Mask, Operand, Part, Step};

/// A step, or its heads where it has several; the context as what each head makes, then side by side.
pub fn parts(example: &Example, judgement: &Judgement, step: Step) -> Vec<Part> {
    let whole = Part { step, head: None };
    let heads = (0..example.heads).map(|head| Part { step, head: Some(head) });
    let parts: Vec<Part> = match step {
        _ if example.heads == 1 => vec![whole],
        Step::Context if example.is_given(step) => vec![whole],
        Step::Context => heads.chain([whole]).collect(),
        _ if step.per_head() => heads.collect(),
        _ => vec![whole],
    };
    parts.into_iter().filter(|part| judgement.truth.part(*part).is_some()).collect()
}

/// How a step is computed, or one head of it.
pub fn formula(example: &Example, part: Part) -> String {
    let plus =
        |bias: Operand| example.operand(bias).map(|_| format!(" + {}", bias.name())).unwrap_or_default();
    let projection = |source: Operand, weight: Operand, bias: Operand| match example.unprojected() {
        true => source.name().to_owned(),
        false => format!("{}·{}{}", source.name(), weight.name(), plus(bias)),
    };
    // Of the same head.
    let of = |step: Step| Part { step, head: part.head };
    let products = || format!("{}·{}ᵀ", of(Step::Q), of(Step::K));
    match part.step {
        Step::Q => projection(example.query_source(), Operand::WQ, Operand::BQ),
        Step::K => projection(Operand::X, Operand::WK, Operand::BK),
        Step::V => projection(Operand::X, Operand::WV, Operand::BV),
        Step::Products => products(),
        Step::Scores => match example.is_given(Step::Products) {
            true => format!("{} / {}", of(Step::Products), example.scale),
            false => format!("{} / {}", products(), example.scale),
        },
        Step::MaskedScores => match example.mask {
            Mask::None => of(Step::Scores).to_string(),
            _ => format!("{} + mask", of(Step::Scores)),
        },
        Step::Weights if example.mask == Mask::None && !example.is_given(Step::MaskedScores) => {
            format!("softmax({})", of(Step::Scores))
        }
        Step::Weights => format!("softmax({})", of(Step::MaskedScores)),
        Step::Context if part.head.is_none() && example.heads > 1 => side_by_side(example.heads),
        Step::Context => format!("{}·{}", of(Step::Weights), of(Step::V)),
        Step::Output => format!("context·W_O{}", plus(Operand::BO)),
    }
}

/// `[context.0 | context.1]`, of many heads the first and the last.
fn side_by_side(heads: usize) -> String {
    let head = |head: usize| Part { step: Step::Context, head: Some(head) }.to_string();
    match heads {
        0..=3 => format!("[{}]", (0..heads).map(head).collect::<Vec<_>>().join(" | ")),
        _ => format!("[{} | … | {}]", head(0), head(heads - 1)),
    }
}

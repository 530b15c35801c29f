//! Worked examples for programs.

use attnscope_diagnose::worked::{
    Example, Fit, Judged, JudgedWord, Judgement, Matrix, Mistake, Part, Step, Verdict, divisor,
};
use serde_json::{Value, json};

use super::formula::{formula, parts};

/// An example for programs.
pub fn example_json(file: &str, example: &Example, judgement: &Judgement) -> Value {
    let first = judgement.first_mistake().map(|mistake| match mistake {
        Mistake::Claim(judged) => judged.claim.part.to_string(),
        Mistake::Word(word) => word.name.to_owned(),
    });
    let steps = Step::ALL.into_iter().flat_map(|step| parts(example, judgement, step)).filter_map(|part| {
        let value = judgement.truth.part(part)?;
        let given = example.is_given(part.step);
        Some(json!({
            "step": part.to_string(), "given": given,
            "formula": (!given).then(|| formula(example, part)),
            "shape": value.shape(), "values": rows_json(&value),
        }))
    });
    let word = |word: &JudgedWord| {
        json!({
            "claim": word.name, "line": word.line, "claimed": word.claimed,
            "verdict": if word.wrong { "wrong" } else { "right" }, "sentence": word.sentence,
        })
    };
    json!({
        "file": file,
        "title": example.title,
        "heads": example.heads,
        "scale": { "name": example.scale.to_string(), "value": divisor(example, example.scale) },
        "right": judgement.is_right(),
        "first_mistake": first,
        "steps": steps.collect::<Vec<_>>(),
        "claims": judgement.claims.iter().map(|judged| judged_json(example, judged)).collect::<Vec<_>>(),
        "words": judgement.words.iter().map(word).collect::<Vec<_>>(),
    })
}

fn judged_json(example: &Example, judged: &Judged) -> Value {
    let mut value = json!({
        "claim": judged.claim.part.to_string(),
        "line": judged.claim.stated.line,
        "verdict": match &judged.verdict {
            Verdict::Right => "right",
            Verdict::RightFromRounded => "right_as_rounded",
            Verdict::Follows { .. } => "follows",
            Verdict::Wrong(_) => "wrong",
        },
        "tolerance": judged.tolerance,
        "claimed": rows_json(&judged.claim.stated.matrix),
        "true": rows_json(&judged.truth),
        "from_claims": judged.follows.as_ref().map(rows_json),
    });
    if let Verdict::Follows { from } = &judged.verdict {
        value["because_of"] = from.iter().map(Part::to_string).collect();
    }
    if let Verdict::Wrong(diagnosis) = &judged.verdict {
        value["rows"] = json!(diagnosis.rows);
        value["worst"] = diagnosis.worst.map_or(Value::Null, |cell| {
            json!({
                "row": cell.row, "column": cell.column, "claimed": finite(cell.claimed),
                "true": finite(cell.truth), "from_claims": finite(cell.follows),
            })
        });
        let fit = |fit: &Fit| {
            json!({
                "kind": fit.explanation.kind(), "sentence": fit.explanation.sentence(example),
                "rows": fit.rows, "off": fit.off,
            })
        };
        value["explanations"] = diagnosis.fits.iter().map(fit).collect();
        value["tried"] = json!(diagnosis.tried);
    }
    value
}

fn finite(x: f64) -> Value {
    if x.is_finite() { json!(x) } else { Value::Null }
}

fn rows_json(matrix: &Matrix) -> Value {
    matrix.each_row().map(|row| row.iter().map(|&x| finite(x)).collect::<Value>()).collect()
}

//! Masks, mistakes and proofs on one page.

use attnscope::Token;
use attnscope::answer::{MaskProof, ShownMistake};
use attnscope_diagnose::masks::Mask;

use super::{legend, mask_drawing, mask_heading, measure_note, mistake, proof_table, what_is_proved};
use crate::glyphs::clean;
use crate::hint::Hint;
use crate::layout::Options;
use crate::text::Style;
use crate::tokens;

/// More rows of a batch are not drawn unless one is asked for.
const DRAWN_ROWS: usize = 4;

/// Masks and proofs for people; of a larger batch, the masks of one row or of the first few.
pub fn text(answer: &MaskProof, row: Option<usize>, options: Options, style: Style) -> String {
    let mut sections = vec![
        format!("{}: {}\n", clean(&answer.model), answer.title),
        tokens::text(&answer.tokens, options.width),
        answer_legend(answer, options),
    ];
    for mask in &answer.masks {
        sections.push(mask_heading(mask, options) + &drawings(answer, mask, row, options, style));
    }
    sections.extend(answer.wrong.iter().map(|wrong| shown_mistake(wrong, options, style)));
    let batch = answer.tokens.batch;
    let rows = match batch > answer.proved_rows {
        true => format!(", on the first {} of {batch} rows", answer.proved_rows),
        false => String::new(),
    };
    let table = proof_table(&answer.proofs, options);
    sections.push(format!("Proofs on the model itself{rows}\n\n{table}"));
    sections.push(match &answer.not_finite {
        Some(_) => {
            let doctor = Hint::Doctor(&clean(&answer.model)).words(options.reader);
            format!("{doctor} says where it comes from.\n")
        }
        None => {
            measure_note(&answer.proofs, options)
                + &what_is_proved(&answer.proofs, answer.added_padding, options)
        }
    });
    options.glyphs.lines(&sections.join("\n"))
}

/// One row of the batch, or each of a few.
fn drawings(answer: &MaskProof, mask: &Mask, row: Option<usize>, options: Options, style: Style) -> String {
    let batch = mask.shape[0];
    let rows: Vec<usize> = match row {
        Some(row) => vec![row],
        None => (0..batch.min(DRAWN_ROWS)).collect(),
    };
    let mut out = String::new();
    for &row in &rows {
        out += &if batch > 1 { format!("\nrow {row}\n") } else { "\n".to_owned() };
        let [queries, keys] =
            [mask.attention.queries(), mask.attention.keys()].map(|side| answer.tokens.labels(side, row));
        out += &mask_drawing(mask, row, [&queries, &keys], options, style);
    }
    if row.is_none() && batch > rows.len() {
        let one = Hint::Row.words(options.reader);
        out += &format!("\nrows {} to {} are not drawn: {one} draws one\n", rows.len(), batch - 1);
    }
    out
}

/// What the signs mean, and of the words for padding those that occur.
fn answer_legend(answer: &MaskProof, options: Options) -> String {
    let sides = [&answer.tokens.source, &answer.tokens.target];
    let tokens: Vec<&Token> = sides.into_iter().flatten().flatten().flatten().collect();
    let given = tokens.iter().find(|token| Some(token.id) == answer.pad && !token.padding);
    let given = given.map(|token| token.label());
    legend(&answer.masks, tokens.iter().any(|token| token.padding), given.as_deref(), options)
}

fn shown_mistake(shown: &ShownMistake, options: Options, style: Style) -> String {
    let attention = shown.compared.mistake.attention();
    let place = format!("{}, head {}, row {}", shown.node, shown.head, shown.row);
    let [queries, keys] = [attention.queries(), attention.keys()].map(|side| shown.tokens.labels(side, 0));
    mistake(&shown.compared, (&place, shown.added_padding), [&queries, &keys], options, style)
}

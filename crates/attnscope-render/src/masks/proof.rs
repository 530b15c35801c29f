//! Proofs: a line each, and what there is to say of those that fail.

use attnscope_diagnose::masks::{Claim, Proof, Verdict};
use attnscope_graph::{EntryStep, Role, Side};

use super::joined;
use crate::layout::Options;
use crate::table::{Column, Table};
use crate::tensor_table::shape_text;
use crate::wrap::{shown, wrap, wrap_plain};
use attnscope::figures::{number, thousands};

/// The proofs: what was perturbed, what must or must not move, how many cells, how far, the verdict.
pub(super) fn proof_table(proofs: &[Proof], options: Options) -> String {
    let columns = vec![
        Column::left("perturbed"),
        Column::left("must"),
        Column::right("cells"),
        Column::right("movement"),
        Column::left("verdict"),
    ];
    let mut table = Table::new(columns, options.glyphs).flexible(0);
    for proof in proofs {
        let ran = !matches!(proof.verdict, Verdict::NotRun(_));
        let decided = matches!(proof.verdict, Verdict::Holds | Verdict::Fails(_));
        let cells = match ran {
            false => "–".to_owned(),
            true if proof.cells == proof.cells_in_all => thousands(proof.cells as u64),
            true => format!("{} of {}", thousands(proof.cells as u64), thousands(proof.cells_in_all as u64)),
        };
        let movement = match (&proof.verdict, proof.claim.must_move()) {
            _ if !decided => "–".to_owned(),
            (Verdict::Holds, true) => format!("≥ {}", number(proof.movement)),
            _ => number(proof.movement),
        };
        table.row([
            proof.claim.perturbed(),
            proof.claim.expected(),
            &cells,
            &movement,
            verdict_word(&proof.verdict),
        ]);
    }
    let mut out = table.render(options.width);
    for text in undecided(proofs).into_iter().chain(proofs.iter().filter_map(remark)) {
        out.push('\n');
        out += &joined(&wrap(&shown(&text, options.glyphs), options.width));
    }
    out
}

/// Why proofs were not run or decide nothing, each reason once.
fn undecided(proofs: &[Proof]) -> Vec<String> {
    let mut reasons: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for proof in proofs {
        let (Verdict::NotRun(why) | Verdict::Inconclusive(why)) = &proof.verdict else { continue };
        let word = verdict_word(&proof.verdict);
        match reasons.iter_mut().find(|(_, known, _)| known == why) {
            Some((.., claims)) => claims.push(proof.claim.perturbed()),
            None => reasons.push((word, why, vec![proof.claim.perturbed()])),
        }
    }
    let text = |(word, why, claims): (&str, &str, Vec<&str>)| match claims.len() == proofs.len() {
        true => format!("{word}: {why}."),
        false => format!("{word}: {why} ({}).", claims.join("; ")),
    };
    reasons.into_iter().map(text).collect()
}

fn verdict_word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::Fails(_) => "FAILS",
        Verdict::NotRun(_) => "not run",
        Verdict::Inconclusive(_) => "inconclusive",
    }
}

/// What there is to say besides the line of the table.
fn remark(proof: &Proof) -> Option<String> {
    let claim = proof.claim;
    match &proof.verdict {
        Verdict::Holds | Verdict::NotRun(_) | Verdict::Inconclusive(_) => None,
        Verdict::Fails(leak) if claim.must_move() => {
            Some(format!("FAILS: {}. {} is the first tensor in which it stays.", leak.cause, leak.node))
        }
        Verdict::Fails(leak) if claim == Claim::AllPadding => {
            Some(format!("FAILS: {}, and {} is not what it must be.", leak.cause, leak.node))
        }
        Verdict::Fails(leak) => {
            let renumbered =
                "Positions count places here, so padding before a token gives it another number. ";
            Some(format!(
                "FAILS: {}, and {} is the first tensor that moves: by {} of its largest value at {}. {}",
                leak.cause,
                leak.node,
                number(leak.movement),
                shape_text(&leak.at),
                if are_positions(&leak.node) { renumbered } else { "" }
            ))
        }
    }
}

/// Whether a node is the positions of a side.
fn are_positions(node: &str) -> bool {
    let positions = |side| Role::Entry(side, EntryStep::Positions).to_string();
    [Side::Source, Side::Target].into_iter().any(|side| positions(side) == node)
}

/// What the proofs are about and what they cannot show; `added` is the padding of each row of the source and of the target
/// that an input without any was given.
pub(super) fn what_is_proved(proofs: &[Proof], added: [usize; 2], options: Options) -> String {
    let ran = |proof: &&Proof| !matches!(proof.verdict, Verdict::NotRun(_));
    let mut text = String::new();
    if added != [0, 0] && proofs.iter().filter(ran).any(|proof| proof.claim.needs_padding()) {
        let sides = added.iter().zip(["source", "target"]).filter(|(count, _)| **count > 0);
        let sides: Vec<String> = sides.map(|(count, name)| format!("{count} to each {name} row")).collect();
        text += "This input has no padding of its own where the proofs about padding need it, so they add positions: ";
        text += &format!("{}. ", sides.join(", "));
    }
    text += "A proof is about this program running this wiring on this input: whether anything gets past its masks. Whether \
             the weights were trained with that wiring is another question, and `attnscope doctor`'s.";
    joined(&wrap_plain(&shown(&text, options.glyphs), options.width))
}

/// How movements are measured, in a sentence or two.
pub(super) fn measure_note(proofs: &[Proof], options: Options) -> String {
    let loose = proofs.iter().find(|proof| proof.threshold > 0.0 && proof.cells > 0);
    let loose = loose.map(|proof| {
        format!(
            " Where the shape of the batch changes, so does rounding, and {} is allowed.",
            number(proof.threshold)
        )
    });
    let has_cross = proofs.iter().any(|proof| proof.claim.is_about_cross_attention());
    let has_window = proofs.iter().any(|proof| proof.claim == Claim::Window);
    let tensors = match (has_cross, has_window) {
        (true, _) => "encoder.out or of the logits",
        (false, true) => "the logits, with a window of its attention's context",
        (false, false) => "the logits",
    };
    let text = format!(
        "Cells are pairs of a query and a key. A movement is a share of the largest value of {tensors}; what stays is equal \
         to the bit.{}",
        loose.unwrap_or_default()
    );
    joined(&wrap_plain(&shown(&text, options.glyphs), options.width))
}

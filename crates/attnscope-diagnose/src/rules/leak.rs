//! What the three rules about masks share: a proof on the model itself, turned into a finding.

use attnscope_run::{Input, PadSide, Rows, Sequence};

use crate::exam::Exam;
use crate::masks::{Bench, Claim, Padding, Proof, Verdict};
use crate::measure::Outcome;
use crate::rule::{Checked, NotChecked, Rule};

/// Proves some claims; each that fails is a finding. Not checked where none could be tried.
pub(super) fn prove(exam: &Exam<'_>, rule: &Rule, claims: &[Claim]) -> Checked {
    let (weights, sample) = (exam.weights()?, exam.sample()?);
    // NaN does not move, and reaches everything: a proof on it would accuse masks that are right.
    exam.finite()?;
    let padding = Padding { id: exam.patient.pad, side: PadSide::Right };
    let failed = |e| NotChecked::from(&e);
    let input = fewer_rows(&sample.input, exam.patient.pad);
    let mut bench = Bench::new(exam.model(), weights, &input, padding).map_err(failed)?;
    let (mut findings, mut measures, mut cells) = (Vec::new(), Vec::new(), 0);
    let (mut not_run, mut inconclusive, mut tried) = (None, None, false);
    for &claim in claims {
        let proof = bench.prove(claim).map_err(failed)?;
        let measure = rule.measure("movement", proof.movement).threshold(proof.threshold).slice(claim.id());
        match &proof.verdict {
            Verdict::Holds => {
                (tried, cells) = (true, cells + proof.cells);
                measures.push(measure);
            }
            Verdict::Fails(leak) => {
                tried = true;
                measures.push(measure);
                findings.push(
                    rule.finding(sentence(&proof, &leak.cause, leak.movement))
                        .at(&leak.node)
                        .slice(format!("{:?}", leak.at))
                        .number(leak.movement, proof.threshold)
                        .with("claim", claim.id()),
                );
            }
            Verdict::NotRun(why) => not_run = not_run.or(Some(why.clone())),
            Verdict::Inconclusive(why) => {
                inconclusive = inconclusive.or(Some(format!("{}: {why}", claim.id())))
            }
        }
    }
    match (inconclusive, not_run) {
        // What moves or stays for another reason than a mask is no verdict about masks.
        (Some(why), _) if findings.is_empty() => Err(NotChecked::new(
            format!("inconclusive: {why}"),
            "mend what is named there first; `attnscope masks` shows every proof",
        )),
        (_, Some(why)) if !tried => {
            Err(NotChecked::new(why, "`attnscope masks` shows what there is to prove"))
        }
        _ => {
            let count = measures.len();
            let words = match count {
                1 => format!("the proof holds over {cells} cells"),
                count => format!("{count} proofs hold over {cells} cells"),
            };
            let all = rule.measure("proofs", count as f64).words(words);
            Ok(Outcome::from(findings).measured([all]).measured(measures))
        }
    }
}

/// Rows that a proof is made on: it runs the model once or more for every token of them.
const ROWS: usize = 2;

/// The first rows of an input; of recordings, each of which takes long, one.
fn fewer_rows(input: &Input, pad: u32) -> Input {
    if input.features().is_some() {
        return input.select(&(0..input.batch().min(1)).collect::<Vec<_>>());
    }
    let first = |rows: &Rows| Rows::new(&rows.tokens().into_iter().take(ROWS).collect::<Vec<_>>(), pad);
    let few = Input::empty(input.batch().min(ROWS));
    input.tokens().fold(few, |few, (side, rows)| few.with(side, Sequence::Tokens(first(rows))))
}

fn sentence(proof: &Proof, cause: &str, movement: f64) -> String {
    let expected = proof.claim.expected();
    match proof.claim.must_move() {
        true => format!("{cause}: {expected}, and this one does not"),
        false => format!("{cause}: {expected}, and this one moves by {movement:.2e} of its largest value"),
    }
}

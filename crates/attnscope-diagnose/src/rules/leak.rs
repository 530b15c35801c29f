//! What the three rules about masks share: a proof on the model itself, turned into a finding.

use attnscope_checkpoint::Remedy;
use attnscope_run::{Input, PadSide, Rows, Sequence};

use crate::masks::{Claim, Padding, PerturbationRig, Proof, Verdict};
use crate::measure::Outcome;
use crate::rule::{Checked, NotChecked, Rule};
use crate::rule_context::RuleContext;

/// Proves some claims; each that fails is a finding. Not checked where none could be tried.
pub(super) fn prove(context: &RuleContext<'_>, rule: &Rule, claims: &[Claim]) -> Checked {
    let (prepared, sample) = (context.prepared()?, context.sample()?);
    // NaN spreads everywhere and cannot be seen to move: a proof on it would blame right masks.
    context.finite()?;
    let padding = Padding { id: context.input.pad, side: PadSide::Right };
    let failed = |e| NotChecked::from(&e);
    let input = fewer_rows(&sample.input, context.input.pad);
    let mut rig = PerturbationRig::new(prepared, &input, padding).map_err(failed)?;
    let (mut findings, mut measures, mut cells) = (Vec::new(), Vec::new(), 0);
    let (mut not_run, mut inconclusive, mut tried) = (None, None, false);
    for &claim in claims {
        let proof = rig.prove(claim).map_err(failed)?;
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
        // A movement with another cause than a mask is not a finding about masks.
        (Some(why), _) if findings.is_empty() => {
            Err(NotChecked::new(format!("inconclusive: {why}"), Remedy::EveryProof))
        }
        (_, Some(why)) if !tried => Err(NotChecked::new(why, Remedy::ProofsAtAll)),
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

/// How many rows a proof uses: it runs the model at least once for every token of them.
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

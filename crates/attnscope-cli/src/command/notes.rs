//! What a user may not expect, in words for standard error.

use attnscope::Note;
use attnscope::figures::{counted, thousands};

/// A remark, in a line or more.
pub(super) fn lines(note: &Note) -> Vec<String> {
    match note {
        Note::ProposedMap(map) => {
            let first = "no name fits, but this map may; check it before use".to_owned();
            std::iter::once(first).chain(map.iter().cloned()).collect()
        }
        note => vec![words(note)],
    }
}

fn words(note: &Note) -> String {
    match note {
        Note::ProposedMap(map) => map.join("; "),
        Note::TracedModelChanged(name) => {
            format!("{name} has changed since it was traced and is not used; give another with --model")
        }
        Note::TracedModelAbsent(why) => {
            format!("the traced model was not found ({why}); give it with --model")
        }
        Note::TooFewPositions { side, rows, length } => {
            format!("the model has {rows} {} positions: it cannot be run on {length}", side.word())
        }
        Note::TextsCut { length, rows } => {
            let row = if rows.len() == 1 { "row" } else { "rows" };
            let have = if rows.len() == 1 { "has" } else { "have" };
            format!(
                "{row} {} {have} more tokens than the {length} that the classifier reads: the rest is left out",
                some_of(rows)
            )
        }
        Note::Contradiction(sentence) | Note::TaskHead(sentence) | Note::NotDone(sentence) => sentence.clone(),
        Note::DrawnOnly(obstacle) => format!("this model can be drawn, but not run: {obstacle}"),
        Note::NotDrawn(unused) => {
            format!("not in this drawing: {} of the model; see `attnscope inspect`", counted(*unused, "tensor"))
        }
        Note::Saving { tensors, bytes, folder } => {
            format!("{}, {} bytes, to {}", counted(*tensors, "tensor"), thousands(*bytes), folder.display())
        }
        Note::WeightsInFile { bytes } => format!(
            "the weights, {} bytes, do not fit in the memory that is left: every run reads them from the file, a layer \
             at a time",
            thousands(*bytes)
        ),
        Note::Saved(folder) => format!("trace written to {}", folder.display()),
        Note::Assumed(fields) => format!(
            "assumed, because the file does not say: {}; set other values with --wiring, or let `attnscope doctor \
             --pairs` find them",
            fields.join(", ")
        ),
        Note::PadsAsTokens { side, pad, before, after, rows } => {
            let place = match (before, after) {
                (0, _) => "end",
                (_, 0) => "start",
                _ => "start and end",
            };
            let (count, side) = (before + after, side.word());
            let numbers: Vec<String> = rows.iter().map(usize::to_string).collect();
            let (s, tokens) = match count {
                1 => ("", "is attended to as a token"),
                _ => ("s", "are attended to as tokens"),
            };
            let rows = if numbers.len() == 1 { "row" } else { "rows" };
            format!(
                "{count} pad id{s} ({pad}) at the {place} of {side} {rows} {} {tokens}: ids are used as they \
                 are, and Hugging Face's attention mask would hide them; for a padded batch leave them out and write `;` between \
                 rows, as in 5,6,7;8,9: shorter rows are then padded and masked",
                numbers.join(", ")
            )
        }
        Note::BeyondPositions { side, length, said, table } => {
            let table = if *table { "; Hugging Face has them in a table and raises an error" } else { "" };
            let side = side.word();
            format!(
                "the {side} has {length} positions, and the model's config gives {said}: attnscope computes further sinusoids{table}"
            )
        }
        Note::ChannelsCancel => {
            "every sample is 0 after the channels are mixed to one, although the channels are not silent: they cancel each other".into()
        }
        Note::Windows { seconds, window, by_segments } => {
            let how =
                if *by_segments { "each begins where the last segment ended" } else { "each transcribed by itself" };
            format!("{seconds:.2} s are decoded in windows of {window} s, {how}")
        }
    }
}

/// Numbers of rows, of many the first.
fn some_of(rows: &[usize]) -> String {
    const MOST: usize = 8;
    let first: Vec<String> = rows.iter().take(MOST).map(usize::to_string).collect();
    match rows.len().checked_sub(MOST).filter(|&more| more > 0) {
        Some(more) => format!("{} and {} more", first.join(", "), thousands(more as u64)),
        None => first.join(", "),
    }
}

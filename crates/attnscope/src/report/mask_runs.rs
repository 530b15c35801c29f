//! The masks of an input that is too long to draw them cell by cell.

use attnscope_diagnose::masks::{Mask, masks};

use crate::answer::{MaskRow, MaskRuns, Trace, letter};
use crate::failure::Failure;

/// The masks of a run for one row of its batch.
pub(super) fn mask_runs(trace: &Trace, row: usize) -> Result<Vec<MaskRuns>, Failure> {
    let model = trace.model().opened().model()?;
    Ok(masks(model, trace.input.input())?.iter().map(|mask| in_runs(mask, row)).collect())
}

fn in_runs(mask: &Mask, row: usize) -> MaskRuns {
    let [_, _, queries, keys] = mask.shape;
    let mut rows: Vec<MaskRow> = Vec::new();
    for cells in mask.of_row(row).chunks(keys.max(1)) {
        let runs: Vec<(char, usize)> =
            cells.chunk_by(|a, b| a == b).map(|run| (letter(run[0]), run.len())).collect();
        match rows.last_mut() {
            Some(last) if last.keys == runs => last.queries += 1,
            _ => rows.push(MaskRow { queries: 1, keys: runs }),
        }
    }
    MaskRuns {
        name: mask.attention.symbol(),
        attention: mask.attention.title(),
        heads: mask.heads,
        layers: mask.layers.len(),
        of_layers: (!mask.in_all_layers).then(|| mask.layers.clone()),
        reasons: mask.reasons.clone(),
        queries,
        keys,
        rows,
        fully_masked: mask.fully_masked_queries(row),
    }
}

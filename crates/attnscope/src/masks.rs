//! The masks of a model for an input, proved on the model itself.

use attnscope_diagnose::masks::{Mistake, Padding, PerturbationRig, masks};
use attnscope_graph::Side;
use attnscope_run::{Input as RunInput, PadSide, Rows, Sequence};

use crate::answer::{InputTokens, MaskProof, ShownMistake};
use crate::failure::{Argument, Failure};
use crate::figures::counted;
use crate::input::Input;
use crate::note::{Notes, notes_of_input};
use crate::ready::Ready;

/// Proofs run the model many times, so only on the first so many rows of a batch.
pub const PROVED_ROWS: usize = 16;

/// How masks are built, and which mistakes are shown.
#[derive(Debug, Clone)]
pub struct MaskOptions {
    /// Where the shorter rows of a batch are padded.
    pub pad: PadSide,
    /// Mistakes to show beside the right mask.
    pub wrong: Vec<Mistake>,
    /// The layer whose scores they are shown on.
    pub layer: usize,
    /// The head.
    pub head: usize,
    /// The row of the batch.
    pub row: usize,
}

impl Default for MaskOptions {
    fn default() -> Self {
        Self { pad: PadSide::Right, wrong: Vec::new(), layer: 0, head: 0, row: 0 }
    }
}

/// Builds the masks and proves them.
pub(crate) fn prove(
    ready: &Ready<'_>,
    input: &Input,
    options: &MaskOptions,
    mut notes: Notes,
) -> Result<MaskProof, Failure> {
    if !ready.model.graph.has_attention() {
        return Err(Failure::new(
            format!(
                "{}: the model has no attention, so that there is no mask to draw or to prove",
                ready.opened.name
            ),
            "masks are for models that have an attention",
        ));
    }
    let (given, generated) = input.read(ready)?.input(ready)?;
    notes.add(notes_of_input(ready, &given, generated));
    let given = padded(ready, &given, options.pad);
    let masks = masks(ready.model, &given)?;
    let batch = given.batch();
    if options.row >= batch {
        return Err(no_row(options.row, batch));
    }
    let proved = given.select(&(0..batch.min(PROVED_ROWS)).collect::<Vec<_>>());
    let padding = Padding { id: ready.pad, side: options.pad };
    let mut rig = PerturbationRig::new(&*ready.prepared, &proved, padding)?;
    let wrong = mistakes(ready, &mut rig, &given, options)?;
    let proofs = rig.prove_all()?;
    Ok(MaskProof {
        model: ready.opened.name.clone(),
        title: ready.model.title(),
        family: ready.model.family.id.to_owned(),
        tokens: InputTokens::of(ready, &given, generated),
        pad: ready.named_pad(),
        masks,
        proved_rows: batch.min(PROVED_ROWS),
        added_padding: rig.added_padding(&proved),
        not_finite: rig.not_finite()?,
        proofs,
        wrong,
        notes: notes.all,
    })
}

/// A row that a batch does not have.
pub(crate) fn no_row(row: usize, batch: usize) -> Failure {
    let error = format!("the batch has {}", counted(batch, "row"));
    Failure::new(error, "rows are counted from 0").about(Argument::Row(row))
}

/// The input with its padding where it is wanted.
fn padded(ready: &Ready<'_>, input: &RunInput, pad_side: PadSide) -> RunInput {
    let repad = |padded: RunInput, (side, rows): (Side, &Rows)| {
        // A classifier may read texts of one length only.
        let least = ready.fixed_length().filter(|_| side == Side::Source).unwrap_or(0);
        let rows = Rows::padded(&rows.tokens(), ready.pad, pad_side, least);
        padded.with(side, Sequence::Tokens(rows))
    };
    input.tokens().fold(input.clone(), repad)
}

/// Each mistake with the one row that it is shown on.
fn mistakes(
    ready: &Ready<'_>,
    rig: &mut PerturbationRig<'_>,
    input: &RunInput,
    options: &MaskOptions,
) -> Result<Vec<ShownMistake>, Failure> {
    let row = input.select(&[options.row]);
    let shown = |&mistake: &Mistake| {
        let on = rig.shown_on(mistake, &row);
        let added_padding = if on == row { 0 } else { rig.added_padding(&row)[0] };
        let compared = rig.mistake(mistake, &on, (options.layer, options.head, 0))?;
        Ok(ShownMistake {
            compared,
            node: mistake.attention().path(&options.layer.to_string(), "scores"),
            head: options.head,
            row: options.row,
            added_padding,
            tokens: InputTokens::of(ready, &on, false),
        })
    };
    options.wrong.iter().map(shown).collect()
}

//! What was measured while a model learned, from the folder of its run.

use std::fs;
use std::path::Path;

use attnscope_checkpoint::Checkpoint;
use attnscope_train::RunFolder;

use crate::answer::TrainingRun;
use crate::failure::Failure;

/// A model's own folder, where that is the folder of a training run in which something was measured.
pub(super) fn own_training(model: &Path) -> Option<&Path> {
    (RunFolder::weights_in(model).is_some() && model.join(METRICS).is_file()).then_some(model)
}

/// The file of a run's folder with what was measured.
const METRICS: &str = "metrics.jsonl";
/// More than a run of a year writes.
const MOST_BYTES: u64 = 1 << 28;

/// Reads the metrics of a training run's folder, for a report on a model.
///
/// # Errors
/// Where there is no metrics.jsonl in it, or a line of it cannot be read.
pub(super) fn read_training(model: &Checkpoint, folder: &Path) -> Result<TrainingRun, Failure> {
    let file = folder.join(METRICS);
    let help = "name the folder that `train` was given to write to";
    let failed = |why: String| Failure::new(format!("{}: {why}", file.display()), help);
    let length = fs::metadata(&file).map_err(|e| failed(e.to_string()))?.len();
    if length > MOST_BYTES {
        return Err(failed(format!("expected at most {MOST_BYTES} bytes, found {length}")));
    }
    let text = fs::read_to_string(&file).map_err(|e| failed(e.to_string()))?;
    let mut metrics = Vec::new();
    for (i, line) in text.lines().enumerate() {
        match serde_json::from_str(line) {
            Ok(metric) => metrics.push(metric),
            // A run that is under way, or was killed, may have written half of its last line.
            Err(_) if i + 1 == text.lines().count() => {}
            Err(_) => return Err(failed(format!("line {}: expected a line of metrics", i + 1))),
        }
    }
    if metrics.is_empty() {
        return Err(failed("nothing was measured yet".to_owned()));
    }
    let is_of_model = is_of_model(model, folder)?;
    Ok(TrainingRun { folder: folder.display().to_string(), is_of_model, metrics })
}

/// Whether a model's weights are the same bytes as those that a run keeps.
fn is_of_model(model: &Checkpoint, folder: &Path) -> Result<bool, Failure> {
    let run = RunFolder::at(folder);
    // What a run has not saved, or has not whole, is no model's.
    let kept: Vec<Checkpoint> =
        [run.best(), run.checkpoint()].iter().filter_map(|kept| Checkpoint::open(kept).ok()).collect();
    let lengths = |file: &Checkpoint| file.files().map(|(_, bytes)| bytes).collect::<Vec<_>>();
    for kept in kept.iter().filter(|kept| lengths(kept) == lengths(model)) {
        if kept.sha256()? == model.sha256()? {
            return Ok(true);
        }
    }
    Ok(false)
}

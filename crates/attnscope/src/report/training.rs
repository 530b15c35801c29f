//! What was measured while a model learned, from the folder of its run.

use std::fs;
use std::path::Path;

use crate::answer::TrainingRun;
use crate::failure::Failure;

/// More than a run of a year writes.
const MOST_BYTES: u64 = 1 << 28;

/// Reads the metrics of a training run's folder.
///
/// # Errors
/// Where there is no metrics.jsonl in it, or no line of it can be read.
pub fn read_training(folder: &Path) -> Result<TrainingRun, Failure> {
    let file = folder.join("metrics.jsonl");
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
            Err(e) => return Err(failed(format!("line {}: {e}", i + 1))),
        }
    }
    if metrics.is_empty() {
        return Err(failed("nothing was measured yet".to_owned()));
    }
    Ok(TrainingRun { folder: folder.display().to_string(), metrics })
}

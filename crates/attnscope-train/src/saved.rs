//! A run's folder: what others open (checkpoint/, best/), and what the run goes on with (state.safetensors).

use std::fs;
use std::path::{Path, PathBuf};

use attnscope_checkpoint::{Checkpoint, DType, Entry, Target, write};
use attnscope_graph::{Model, Slot, WeightId};
use attnscope_run::{OptimiserState, Weights};
use serde_json::{Map, Value, json};

use crate::error::TrainError;
use crate::metrics::write_whole;
use crate::progress::Progress;
use crate::recipe::Recipe;

/// Where a run keeps everything.
#[derive(Debug, Clone)]
pub struct RunFolder(PathBuf);

/// The file of a run's curves. Whoever watches the run draws them.
pub const CURVES: &str = "curves.svg";

/// The file of a model's weights, in the folder that others open.
const WEIGHTS: &str = "model.safetensors";

/// The key of the run's progress in the metadata of state.safetensors.
const PROGRESS: &str = "progress";

impl RunFolder {
    /// A folder that is not there yet, or is empty, or holds what a run leaves that diverged before it saved anything. It is
    /// made when the run begins.
    ///
    /// # Errors
    /// When there is something else in it, or it cannot be read.
    pub fn new(folder: &Path) -> Result<Self, TrainError> {
        let io = |why| TrainError::Io { place: folder.to_owned(), why };
        let own = Self(folder.to_owned());
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Ok(own),
            Err(why) => return Err(io(why)),
        };
        // A run begins its metrics with the recipe; a recipe alone is somebody's own.
        let unsaved: &[PathBuf] = match own.metrics().is_file() {
            true => &[own.recipe(), own.metrics(), own.curves()],
            false => &[],
        };
        for entry in entries {
            let entry = entry.map_err(io)?;
            if !unsaved.contains(&entry.path()) {
                let found = entry.file_name().to_string_lossy().into_owned();
                return Err(TrainError::Occupied { folder: folder.to_owned(), found });
            }
        }
        Ok(own)
    }

    /// Where a run has kept everything, if there was one.
    pub fn at(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// Begins a run: makes the folder, and writes down the recipe.
    pub(crate) fn begin(&self, recipe: &Recipe) -> Result<(), TrainError> {
        let io = |why| TrainError::Io { place: self.0.clone(), why };
        fs::create_dir_all(&self.0).map_err(io)?;
        write_whole(&self.recipe(), recipe.to_toml().as_bytes())?;
        write_whole(&self.metrics(), b"")
    }

    /// Takes back what a run began that failed before it saved anything. Where something else is in the folder, it stays.
    /// The folder itself goes where the run has made it. What was saved stays, and the error says so where the run cannot go on
    /// with it.
    pub(crate) fn abandon(&self, made: bool, cause: TrainError) -> TrainError {
        if self.state().is_file() {
            return cause;
        }
        let is_whole = |folder: &PathBuf| folder.join(WEIGHTS).is_file();
        if let Some(weights) = [self.best(), self.checkpoint()].into_iter().find(is_whole) {
            return TrainError::NotSaved { cause: Box::new(cause), weights };
        }
        for folder in [self.best(), self.checkpoint()] {
            let _ = fs::remove_dir_all(folder);
        }
        for file in [self.recipe(), self.metrics(), self.curves()] {
            let _ = fs::remove_file(file);
        }
        if made {
            let _ = fs::remove_dir(&self.0);
        }
        cause
    }

    /// What the examples of the run that is saved here follow from; `None` where none is.
    pub fn examples(&self) -> Option<String> {
        let file = Checkpoint::open(&self.state()).ok()?;
        let source = format!("metadata {PROGRESS}");
        let said = file.configs().iter().find(|config| config.source == source)?;
        Some(said.facts.get("digest")?.as_str()?.to_owned())
    }

    /// A folder in which a run was interrupted.
    ///
    /// # Errors
    /// When there is no run in it.
    pub fn existing(folder: &Path) -> Result<Self, TrainError> {
        let own = Self(folder.to_owned());
        if own.state().is_file() {
            return Ok(own);
        }
        let why = "no state.safetensors is in it".to_owned();
        Err(TrainError::Resume { place: folder.to_owned(), why })
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The best weights of a run, or the latest where nothing was validated yet; `None` where the folder holds no run.
    pub fn weights_in(folder: &Path) -> Option<PathBuf> {
        let own = Self(folder.to_owned());
        let is_run = own.recipe().is_file();
        [own.best(), own.checkpoint()].into_iter().find(|weights| is_run && weights.is_dir())
    }

    /// The recipe as it was used.
    pub fn recipe(&self) -> PathBuf {
        self.0.join("recipe.toml")
    }

    /// The latest weights, with everything that others need to open them.
    pub fn checkpoint(&self) -> PathBuf {
        self.0.join("checkpoint")
    }

    /// The weights with the best validation.
    pub fn best(&self) -> PathBuf {
        self.0.join("best")
    }

    /// A line for everything that was measured.
    pub fn metrics(&self) -> PathBuf {
        self.0.join("metrics.jsonl")
    }

    /// The curves of what was measured.
    pub fn curves(&self) -> PathBuf {
        self.0.join(CURVES)
    }

    fn state(&self) -> PathBuf {
        self.0.join("state.safetensors")
    }

    /// Writes a model where others can open it. Each file takes its name when it is whole.
    pub(crate) fn save_model(
        &self,
        folder: &Path,
        model: &Model,
        weights: &Weights,
        files: &[(String, Vec<u8>)],
    ) -> Result<(), TrainError> {
        fs::create_dir_all(folder).map_err(|why| TrainError::Io { place: folder.to_owned(), why })?;
        for (name, bytes) in files {
            let file = folder.join(name);
            if fs::read(&file).ok().as_deref() != Some(bytes) {
                write_whole(&file, bytes)?;
            }
        }
        let metadata = Map::from_iter([("format".to_owned(), json!("pt"))]);
        let tensors = file_tensors(model, weights)?;
        let entries = tensors.iter().map(|(name, shape, values)| entry(name.clone(), shape.clone(), values));
        Ok(write(Target::Safetensors, &folder.join(WEIGHTS), entries.collect(), &metadata)?)
    }

    /// Writes all that a run goes on with, in one file, so that no part of it can be of another step.
    pub(crate) fn save_state(
        &self,
        model: &Model,
        weights: &Weights,
        optimiser: &OptimiserState,
        progress: &Progress,
    ) -> Result<(), TrainError> {
        let state = self.state();
        let values: Vec<_> = ids(model).map(|(id, _)| weights.get(id)).collect::<Result<_, _>>()?;
        let mut entries = Vec::new();
        for (i, (_, path)) in ids(model).enumerate() {
            let parts = [
                ("weight", Some(&*values[i])),
                ("first", part(&optimiser.first_moments, i)),
                ("second", part(&optimiser.second_moments, i)),
            ];
            for (kind, values) in parts {
                let Some(values) = values else { continue };
                entries.push(entry(format!("{kind}/{path}"), vec![values.len()], values));
            }
        }
        let mut said = serde_json::to_value(progress).unwrap_or_default();
        said["optimiser_step"] = json!(optimiser.step);
        let metadata = Map::from_iter([(PROGRESS.to_owned(), said)]);
        Ok(write(Target::Safetensors, &state, entries, &metadata)?)
    }

    /// Reads it back.
    pub(crate) fn load_state(
        &self,
        model: &Model,
    ) -> Result<(Weights, OptimiserState, Progress), TrainError> {
        let place = self.state();
        let odd = |why: String| TrainError::Resume { place: place.clone(), why };
        let file = Checkpoint::open(&place)?;
        let source = format!("metadata {PROGRESS}");
        let said = file.configs().iter().find(|config| config.source == source);
        let said = said.ok_or_else(|| odd("its metadata does not say how far the run was".into()))?;
        let progress: Progress =
            serde_json::from_value(Value::Object(said.facts.clone())).map_err(|e| odd(e.to_string()))?;
        let step = said.facts.get("optimiser_step").and_then(Value::as_u64).unwrap_or(progress.step);
        let read = |kind: &str, path: &str, id: WeightId| {
            let name = format!("{kind}/{path}");
            let info = file.tensor(&name).ok_or_else(|| odd(format!("tensor {name:?} is missing")))?;
            let expected = usize::try_from(model.elements(id)).unwrap_or(usize::MAX);
            if info.elements() != expected {
                return Err(odd(format!("{name}: expected {expected} values, found {}", info.elements())));
            }
            Ok(file.read_f32(info)?)
        };
        let all = |kind: &str| {
            ids(model).map(|(id, path)| read(kind, path, id)).collect::<Result<Vec<_>, TrainError>>()
        };
        let optimiser = OptimiserState { step, first_moments: all("first")?, second_moments: all("second")? };
        Ok((Weights::of(all("weight")?), optimiser, progress))
    }
}

fn part(moments: &[Vec<f32>], i: usize) -> Option<&[f32]> {
    moments.get(i).map(Vec::as_slice)
}

fn ids(model: &Model) -> impl Iterator<Item = (WeightId, &str)> {
    model.binding.iter().map(|(id, _)| (id, model.graph.weight(id).path.as_str()))
}

fn entry(name: String, shape: Vec<usize>, values: &[f32]) -> Entry<'_> {
    Entry {
        name,
        dtype: DType::F32,
        shape,
        bytes: Box::new(move |put| {
            for part in values.chunks(1 << 14) {
                put(&part.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())?;
            }
            Ok(())
        }),
    }
}

/// Name, shape and values.
type FileTensor = (String, Vec<usize>, Vec<f32>);

/// The tensors of the model's file with the values of its weights: packed ones are put together, and those that the file holds
/// transposed are turned.
fn file_tensors(model: &Model, weights: &Weights) -> Result<Vec<FileTensor>, TrainError> {
    let mut tensors = Vec::new();
    for (index, spec) in model.tensors.iter().enumerate() {
        let bound: Vec<_> = model
            .binding
            .iter()
            .filter_map(|(id, slot)| match slot {
                Slot::Bound(found) if found.tensor == index => Some((id, found)),
                _ => None,
            })
            .collect();
        let Some((_, first)) = bound.first() else { continue };
        let transposed = first.transposed;
        let count: usize = spec.shape.iter().product();
        let mut values = vec![0f32; count];
        let rows = if transposed { spec.shape.last() } else { spec.shape.first() };
        let width = count.checked_div(rows.copied().unwrap_or(1)).unwrap_or(0);
        for (id, found) in &bound {
            let from = found.rows.as_ref().map_or(0, |rows| rows.start * width);
            let own = weights.get(*id)?;
            if let Some(place) = values.get_mut(from..from + own.len()) {
                place.copy_from_slice(&own);
            }
        }
        if transposed {
            values = (0..width)
                .flat_map(|c| values.iter().skip(c).step_by(width.max(1)).copied().collect::<Vec<_>>())
                .collect();
        }
        tensors.push((spec.name.clone(), spec.shape.clone(), values));
    }
    Ok(tensors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(files: &[&str]) -> (tempfile::TempDir, TrainError) {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let file = dir.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let cause = TrainError::Io { place: dir.path().to_owned(), why: full };
        let error = RunFolder::at(dir.path()).abandon(false, cause);
        (dir, error)
    }

    #[test]
    fn a_run_that_failed_before_it_saved_anything_leaves_nothing() {
        let (dir, error) = failed(&["recipe.toml", "metrics.jsonl", "best/config.json", "notes.txt"]);
        assert!(matches!(error, TrainError::Io { .. }), "{error}");
        let left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["notes.txt"]);
    }

    #[test]
    fn weights_that_were_saved_are_kept_and_named() {
        let (dir, error) = failed(&["recipe.toml", "best/model.safetensors"]);
        assert!(
            dir.path().join("best/model.safetensors").is_file() && dir.path().join("recipe.toml").is_file()
        );
        assert!(error.to_string().ends_with("best, and the run cannot be resumed"), "{error}");
        assert!(error.remedy().to_string().contains("begin again in another folder"), "{}", error.remedy());
        // With all that a run goes on with, it was no more than interrupted.
        let (_, error) = failed(&["recipe.toml", "checkpoint/model.safetensors", "state.safetensors"]);
        assert!(matches!(error, TrainError::Io { .. }), "{error}");
    }
}

//! The model as a user of the library has it.

use std::fmt;
use std::sync::{Arc, OnceLock};

use attnscope_run::Weights;

use crate::answer::{Diagnosis, Generation, Inspection, MaskProof, Summary};
use crate::doctor::{DoctorOptions, doctor};
use crate::failure::Failure;
use crate::generate::{GenerateOptions, generate};
use crate::given::Input;
use crate::inspect::{Detail, inspect};
use crate::masks::{MaskOptions, prove};
use crate::note::{Listener, Note, Notes};
use crate::open::Opened;
use crate::ready::Ready;
use crate::summary::{Lengths, summarise};
use crate::trace::{Trace, trace};

/// A model that is open. It owns what it needs, can be sent to other threads and shared between them, and is cheap to clone.
///
/// ```
/// let model = attnscope::open("demo")?;
/// let summary = model.summary(&attnscope::Lengths::default())?;
/// assert_eq!(summary.totals.parameters, 1_174_528);
/// # Ok::<(), attnscope::Failure>(())
/// ```
#[derive(Clone)]
pub struct Model {
    opened: Arc<Opened>,
    /// Read when they are first needed.
    weights: Arc<OnceLock<Weights>>,
    listener: Option<Listener>,
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").field("name", &self.opened.name).finish_non_exhaustive()
    }
}

/// Opens a file, a folder or a built-in: `demo` or `toy`.
///
/// # Errors
/// Where there is no checkpoint, or one that cannot be read or believed.
pub fn open(name: &str) -> Result<Model, Failure> {
    Ok(Opened::open(name, None)?.into())
}

impl From<Opened> for Model {
    fn from(opened: Opened) -> Self {
        Self { opened: Arc::new(opened), weights: Arc::default(), listener: None }
    }
}

impl Model {
    /// The checkpoint, and what it was recognised as.
    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    /// The same model, which tells of what a user may not expect when it comes up. Answers hold the same notes.
    ///
    /// ```
    /// use attnscope::{Lengths, Note};
    ///
    /// let model = attnscope::open("demo")?.on_note(|note| eprintln!("{note:?}"));
    /// let long = Lengths { source: Some(100_000), ..Lengths::default() };
    /// assert!(model.summary(&long)?.notes.is_empty()); // The demo computes its positions.
    /// # Ok::<(), attnscope::Failure>(())
    /// ```
    #[must_use]
    pub fn on_note(self, listener: impl Fn(&Note) + Send + Sync + 'static) -> Self {
        Self { listener: Some(Arc::new(listener)), ..self }
    }

    /// The model with its weights, its tokenizer and the input's languages.
    pub(crate) fn ready(&self, input: &Input) -> Result<Ready<'_>, Failure> {
        let weights = match self.weights.get() {
            Some(weights) => weights.clone(),
            None => {
                let weights = Weights::load(self.opened.model()?, &self.opened.checkpoint)?;
                self.weights.get_or_init(|| weights).clone()
            }
        };
        input.with_languages(Ready::with_weights(&self.opened, weights)?)
    }

    fn notes(&self) -> Notes {
        Notes::new(self.listener.clone())
    }

    /// What the checkpoint is: format, family, every fact and who says so, what is missing.
    ///
    /// ```
    /// use attnscope::Detail;
    ///
    /// let inspection = attnscope::open("demo")?.inspect(Detail::Headers)?;
    /// assert_eq!(inspection.format, "safetensors");
    /// # Ok::<(), attnscope::Failure>(())
    /// ```
    ///
    /// # Errors
    /// With [`Detail::Values`], where a value cannot be read or a checksum is wrong.
    pub fn inspect(&self, detail: Detail) -> Result<Inspection, Failure> {
        inspect(&self.opened, detail)
    }

    /// The layers with their shapes, parameters and costs on an input of these sizes.
    ///
    /// # Errors
    /// Where there is no model to sum up, its head count is not known, or a number does not fit in 64 bits.
    pub fn summary(&self, lengths: &Lengths) -> Result<Summary, Failure> {
        summarise(&self.opened, lengths, self.notes())
    }

    /// What the model writes by itself from every row of an input.
    ///
    /// ```
    /// use attnscope::{GenerateOptions, Input};
    ///
    /// let model = attnscope::open("demo")?;
    /// let written = model.generate(&Input::text("A man is sleeping."), &GenerateOptions::default())?;
    /// let best = written.outputs[0].best().and_then(|sentence| sentence.text.clone());
    /// assert_eq!(best.as_deref(), Some("Ein Mann schläft."));
    /// # Ok::<(), attnscope::Failure>(())
    /// ```
    ///
    /// # Errors
    /// Where the model does not run, or the input is not for it.
    pub fn generate(&self, input: &Input, options: &GenerateOptions) -> Result<Generation, Failure> {
        generate(self.ready(input)?, input, options, self.notes())
    }

    /// Runs the model and keeps the tensors that a selector picks: `logits`, `decoder.*.cross_attn.weights`, `*`.
    ///
    /// # Errors
    /// Where the model does not run, or the input is not for it.
    pub fn trace(&self, input: &Input, selector: &str) -> Result<Trace, Failure> {
        trace(self, input, selector, self.notes())
    }

    /// The masks for an input, and the proofs that nothing gets past them.
    ///
    /// ```
    /// use attnscope::{Input, MaskOptions};
    ///
    /// let proof = attnscope::open("demo")?.masks(&Input::text("A dog."), &MaskOptions::default())?;
    /// assert!(!proof.fails());
    /// # Ok::<(), attnscope::Failure>(())
    /// ```
    ///
    /// # Errors
    /// Where the model does not run, or the input is not for it.
    pub fn masks(&self, input: &Input, options: &MaskOptions) -> Result<MaskProof, Failure> {
        prove(&self.ready(input)?, input, options, self.notes())
    }

    /// What is wrong with the model, and why.
    ///
    /// # Errors
    /// Where there is no model to judge, or the pairs are not for it.
    pub fn doctor(&self, options: &DoctorOptions<'_>) -> Result<Diagnosis, Failure> {
        doctor(self, options)
    }
}

#[cfg(test)]
mod tests {
    use super::Model;

    #[test]
    fn a_model_can_be_shared_between_threads() {
        fn shared<T: Send + Sync + Clone + 'static>() {}
        shared::<Model>();
    }
}

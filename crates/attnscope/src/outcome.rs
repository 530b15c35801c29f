//! What an answer comes to, for whoever acts on it: a test, a script, an exit code.

use attnscope_checkpoint::Remedy;
use attnscope_diagnose::Severity;

use crate::answer::{Diagnosis, Difference, MaskProof, TraceCheck, WorkedExamples};
use crate::failure::{Argument, Failure};

/// What an answer comes to.
///
/// ```
/// use attnscope::{Input, MaskOptions, Outcome};
///
/// let proof = attnscope::open("demo")?.masks(&Input::text("A dog."), &MaskOptions::default())?;
/// assert_eq!(proof.outcome()?, Outcome::Fine);
/// # Ok::<(), attnscope::Failure>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub enum Outcome {
    /// Nothing is wrong, as far as it was looked at.
    Fine,
    /// Something was found: a defect, a difference, a claim that is false.
    Found,
}

impl Outcome {
    fn found(is_found: bool) -> Self {
        if is_found { Self::Found } else { Self::Fine }
    }
}

impl Difference {
    /// Whether the two differ.
    pub fn outcome(&self) -> Outcome {
        Outcome::found(self.report.differs())
    }
}

impl TraceCheck {
    /// Whether something in the trace does not follow from the rest.
    pub fn outcome(&self) -> Outcome {
        Outcome::found(!self.right)
    }
}

impl WorkedExamples {
    /// Whether something that is claimed is wrong.
    pub fn outcome(&self) -> Outcome {
        Outcome::found(!self.is_right())
    }
}

impl MaskProof {
    /// Whether something gets past a mask.
    ///
    /// # Errors
    /// Where nothing does, but a proof could not be made.
    pub fn outcome(&self) -> Result<Outcome, Failure> {
        if self.fails() {
            return Ok(Outcome::Found);
        }
        let undecided = self.proofs.iter().filter(|proof| proof.is_inconclusive());
        let undecided: Vec<&str> = undecided.map(|proof| proof.claim.id()).collect();
        match undecided.is_empty() {
            true => Ok(Outcome::Fine),
            false => Err(Failure::new(
                format!("{}: inconclusive: {}", self.model, undecided.join(", ")),
                Remedy::CausesByDoctor(self.model.clone()),
            )),
        }
    }
}

impl Diagnosis {
    /// Whether there is a finding that is at least this bad; without a severity, no finding counts.
    ///
    /// # Errors
    /// Where nothing was found, and a rule of `asked` was not checked: no success for who asked for it by name.
    pub fn outcome(&self, least: Option<Severity>, asked: &[String]) -> Result<Outcome, Failure> {
        if least.is_some_and(|severity| self.diagnosis.reaches(severity)) {
            return Ok(Outcome::Found);
        }
        match self.diagnosis.not_checked.first().filter(|_| !asked.is_empty()) {
            None => Ok(Outcome::Fine),
            Some((rule, missing)) => {
                let failure = Failure::new(format!("not checked: {}", missing.why), missing.how.clone());
                Err(failure.about(Argument::Rule(Some((*rule).to_owned()))))
            }
        }
    }
}

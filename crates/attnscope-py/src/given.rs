//! The input of a call: what its keywords say, as the library has it.

use std::path::PathBuf;

use attnscope::graph::Side;
use attnscope::{Failure, Input, Model, SourceInput, TargetInput};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::failure::raised;
use crate::one_of::one_of;

one_of! {
    /// Texts: one, or a list of them.
    pub(crate) enum Texts {
        One(String),
        Many(Vec<String>),
    }
    "a text or a list of texts"
}

impl From<Texts> for Vec<String> {
    fn from(texts: Texts) -> Self {
        match texts {
            Texts::One(text) => vec![text],
            Texts::Many(texts) => texts,
        }
    }
}

/// The keywords of an input besides its text, in the order in which the documentation has them.
const KEYWORDS: [&str; 9] = [
    "target",
    "ids",
    "mask",
    "target_ids",
    "target_mask",
    "audio",
    "features",
    "source_language",
    "target_language",
];

/// What a call was given to run the model on.
pub(crate) struct Given<'py> {
    py: Python<'py>,
    text: Option<Texts>,
    named: Option<Bound<'py, PyDict>>,
}

impl<'py> Given<'py> {
    pub(crate) fn new(
        py: Python<'py>,
        text: Option<Texts>,
        named: Option<Bound<'py, PyDict>>,
    ) -> PyResult<Self> {
        for name in named.iter().flat_map(|named| named.keys()) {
            let name: String = name.extract()?;
            if !KEYWORDS.contains(&name.as_str()) {
                let near = attnscope::nearest(&name, KEYWORDS.into_iter());
                let near = near.first().map(|near| format!(": is it {near}?")).unwrap_or_default();
                return Err(PyTypeError::new_err(format!("there is no argument {name}{near}")));
            }
        }
        Ok(Self { py, text, named })
    }

    /// Whether there is anything to run the model on.
    pub(crate) fn is_some(&self) -> bool {
        self.text.is_some() || self.named.as_ref().is_some_and(|named| !named.is_empty())
    }

    /// The same as the library has it. A model that is a decoder alone reads a text or ids as its prompt.
    pub(crate) fn input(self, model: &Model) -> PyResult<Input> {
        let is_prompt = model.opened().model().is_ok_and(|model| !model.architecture.reads(Side::Source));
        let ids = self.rows("ids", "mask")?;
        let target_ids = self.rows("target_ids", "target_mask")?;
        let target: Option<Texts> = self.get("target")?;
        let audio: Option<PathBuf> = self.get("audio")?;
        let features: Option<PathBuf> = self.get("features")?;
        let given = [self.text.is_some(), ids.is_some(), audio.is_some(), features.is_some()];
        if given.into_iter().filter(|&given| given).count() > 1 {
            return Err(self.twice("a text, ids=, audio= and features="));
        }
        if target.is_some() && target_ids.is_some() {
            return Err(self.twice("target= and target_ids="));
        }
        let (source_language, target_language) = (self.get("source_language")?, self.get("target_language")?);
        let target = match (target, target_ids) {
            (Some(texts), _) => Some(TargetInput::Texts(texts.into())),
            (None, ids) => ids.map(TargetInput::Ids),
        };
        let (source, target) = match (self.text, ids, audio, features) {
            (Some(texts), ..) if is_prompt => (Some(SourceInput::Prompts(texts.into())), target),
            (Some(texts), ..) => (Some(SourceInput::Texts(texts.into())), target),
            (_, Some(rows), ..) if is_prompt => (None, Some(target.unwrap_or(TargetInput::Ids(rows)))),
            (_, Some(rows), ..) => (Some(SourceInput::Ids(rows)), target),
            (_, _, Some(file), _) => (Some(SourceInput::Audio(file)), target),
            (_, _, _, Some(file)) => (Some(SourceInput::Features(file)), target),
            _ => (None, target),
        };
        Ok(Input { source, target, source_language, target_language })
    }

    /// What was given under a name; None is nothing.
    fn value(&self, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        let value = self.named.as_ref().map(|named| named.get_item(name)).transpose()?.flatten();
        Ok(value.filter(|value| !value.is_none()))
    }

    fn get<T: for<'a> FromPyObject<'a, 'py, Error = PyErr>>(&self, name: &str) -> PyResult<Option<T>> {
        let Some(value) = self.value(name)? else { return Ok(None) };
        value
            .extract()
            .map(Some)
            .map_err(|e: PyErr| PyTypeError::new_err(format!("argument {name}: {}", e.value(self.py))))
    }

    /// Rows of ids. Where there is a mask, as Hugging Face has it (1 for a token, 0 for padding at one end), without their padding:
    /// rows of other lengths are padded and masked where they are run.
    fn rows(&self, name: &str, mask: &str) -> PyResult<Option<Vec<Vec<u32>>>> {
        let (ids, open) = (self.numbers(name)?, self.numbers(mask)?);
        let wrong = |error: String, help: &str| raised(self.py, &Failure::new(error, help));
        let Some(ids) = ids else {
            return match open {
                None => Ok(None),
                Some(_) => {
                    Err(wrong(format!("{mask}=: there is no {name}= that it could mask"), "pass both"))
                }
            };
        };
        let mut rows = Vec::with_capacity(ids.len());
        for (r, row) in ids.iter().enumerate() {
            let id = |&id: &i64| {
                u32::try_from(id).map_err(|_| {
                    let error = format!("{name}=: row {r}: expected token ids, found {id}");
                    wrong(error, "pass ids as the tokenizer gives them; -100 is a label that a loss ignores")
                })
            };
            let kept = match open.as_ref().map(|open| open.get(r)) {
                None => row.as_slice(),
                Some(Some(open)) if open.len() == row.len() => unpadded(row, open).ok_or_else(|| {
                    let error =
                        format!("{mask}=: row {r}: expected one run of tokens, found padding inside it");
                    wrong(error, "pass rows that are padded at one end")
                })?,
                Some(_) => {
                    let error = format!("{mask}=: expected the shape of {name}=, found another");
                    return Err(wrong(error, "pass the attention mask that belongs to these ids"));
                }
            };
            rows.push(kept.iter().map(id).collect::<PyResult<Vec<u32>>>()?);
        }
        Ok(Some(rows))
    }

    /// Whole numbers in rows: lists, or an array or a tensor of one or two dimensions.
    fn numbers(&self, name: &str) -> PyResult<Option<Vec<Vec<i64>>>> {
        #[derive(FromPyObject)]
        enum Rows {
            One(Vec<i64>),
            Many(Vec<Vec<i64>>),
        }
        let Some(value) = self.value(name)? else { return Ok(None) };
        let value = match value.hasattr("tolist")? {
            true => value.call_method0("tolist")?,
            false => value,
        };
        Ok(Some(match value.extract() {
            Ok(Rows::One(row)) => vec![row],
            Ok(Rows::Many(rows)) => rows,
            Err(_) => {
                let error = format!("{name}=: expected whole numbers in a row or in rows");
                return Err(raised(
                    self.py,
                    &Failure::new(
                        error,
                        "pass a list of ids, a list of such lists, or a tensor of two dimensions",
                    ),
                ));
            }
        }))
    }

    fn twice(&self, what: &str) -> PyErr {
        raised(
            self.py,
            &Failure::new(format!("{what}: only one of them can be given"), "leave the others out"),
        )
    }
}

/// A row without its padding, which is at one of its ends.
fn unpadded<'r>(row: &'r [i64], open: &[i64]) -> Option<&'r [i64]> {
    let first = open.iter().position(|&open| open != 0).unwrap_or(0);
    let count = open.iter().filter(|&&open| open != 0).count();
    let is_whole = open.iter().skip(first).take(count).all(|&open| open != 0);
    row.get(first..first + count).filter(|_| is_whole)
}

//! What `trace.json` says about the run: the model, its files, its input tokens.

use attnscope_graph::Side;
use serde_json::Value;

use super::{ABOUT, Trace, TraceError};
use crate::input::{PadSide, Rows};

impl Trace {
    /// The MODEL that was traced, as it was given.
    pub fn model(&self) -> Option<&str> {
        self.about["model"].as_str()
    }

    /// The SHA-256 of each of the model's files.
    pub fn checksums(&self) -> Vec<&str> {
        let files = self.about["files"].as_array().into_iter().flatten();
        files.filter_map(|file| file["sha256"].as_str()).collect()
    }

    /// The head count, where it is one for both stacks. The user may have given it, so that no file has it; different counts
    /// always come from a file.
    pub fn heads(&self) -> Option<usize> {
        let heads = self.about["heads"].as_array()?;
        let first = heads.first()?;
        let count = first.as_u64().filter(|_| heads.iter().all(|n| n == first))?;
        usize::try_from(count).ok()
    }

    /// The tokens of a side, with their padding where it was.
    ///
    /// # Errors
    /// When the document is damaged: every row must be as long as the others, with its padding on the same side.
    pub fn tokens(&self, side: Side) -> Result<Rows, TraceError> {
        let name = side_name(side);
        let tokens = &self.about["tokens"][name];
        rows(tokens).ok_or_else(|| TraceError::Invalid {
            path: self.folder().join(ABOUT),
            place: format!("tokens.{name}"),
            expected: "rows of tokens, padded on one side",
            found: match tokens {
                Value::Null => "none".into(),
                _ => "others".into(),
            },
        })
    }

    /// The tokens of every side that has some.
    ///
    /// # Errors
    /// As [`Trace::tokens`].
    pub fn all_tokens(&self) -> Result<Vec<(Side, Rows)>, TraceError> {
        let has = |side: &Side| !self.about["tokens"][side_name(*side)].is_null();
        let sides = [Side::Source, Side::Target].into_iter().filter(has);
        sides.map(|side| Ok((side, self.tokens(side)?))).collect()
    }

    /// The words of each row, as a toy reads them.
    pub fn sentences(&self, side: Side) -> Vec<String> {
        let row = |row: &Value| -> String {
            let words = row.as_array().into_iter().flatten().filter_map(|token| token["piece"].as_str());
            words.collect::<Vec<_>>().join(" ")
        };
        self.about["tokens"][side_name(side)].as_array().into_iter().flatten().map(row).collect()
    }
}

fn side_name(side: Side) -> &'static str {
    match side {
        Side::Source => "source",
        Side::Target => "target",
    }
}

/// Rows of `{id, padding}`.
fn rows(value: &Value) -> Option<Rows> {
    let token = |token: &Value| -> Option<(u32, bool)> {
        Some((u32::try_from(token["id"].as_u64()?).ok()?, !token["padding"].as_bool()?))
    };
    let row = |row: &Value| row.as_array()?.iter().map(token).collect::<Option<Vec<_>>>();
    let rows = value.as_array()?.iter().map(row).collect::<Option<Vec<_>>>()?;
    let all = || rows.iter().flatten().copied();
    let pad = all().find(|(_, open)| !open).map_or(0, |(id, _)| id);
    let left = rows.iter().any(|row| row.first().is_some_and(|(_, open)| !open));
    let side = if left { PadSide::Left } else { PadSide::Right };
    let length = rows.iter().map(Vec::len).max().unwrap_or(0);
    let tokens = |row: &Vec<(u32, bool)>| row.iter().filter(|(_, open)| *open).map(|&(id, _)| id).collect();
    let padded = Rows::padded(&rows.iter().map(tokens).collect::<Vec<_>>(), pad, side, length);
    let same = padded.ids().iter().copied().zip(padded.open().iter().copied()).eq(all());
    same.then_some(padded)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn padding_stays_where_it_was() {
        let token = |id: u32, padding: bool| json!({ "id": id, "padding": padding });
        let left = json!([[token(9, true), token(1, false)], [token(2, false), token(3, false)]]);
        assert_eq!(rows(&left), Some(Rows::padded(&[vec![1], vec![2, 3]], 9, PadSide::Left, 2)));
        let right = json!([[token(1, false), token(9, true)], [token(2, false), token(3, false)]]);
        assert_eq!(rows(&right), Some(Rows::new(&[vec![1], vec![2, 3]], 9)));
        let both = json!([[token(9, true), token(1, false)], [token(2, false), token(9, true)]]);
        let ragged = json!([[token(1, false)], [token(2, false), token(3, false)]]);
        for damaged in [both, ragged, json!(null), json!([[{ "id": -1, "padding": false }]])] {
            assert_eq!(rows(&damaged), None, "{damaged}");
        }
    }
}

//! A user's own thresholds, from TOML.

use std::ops::Range;
use std::path::Path;

use attnscope_diagnose::Thresholds;
use toml::de::DeTable;

use crate::failure::Failure;
use crate::text_file::read_text;

/// More than any file of thresholds.
const MOST_BYTES: u64 = 1 << 20;
const HELP: &str = "write keys and numbers such as `wiring_gain = 0.02`; docs/rules.md lists the keys";

/// Reads thresholds; errors say in which line and column.
pub(crate) fn read_thresholds(file: &Path) -> Result<Thresholds, Failure> {
    let text = read_text(file, MOST_BYTES, HELP)?;
    parse(&text).map_err(|(at, why)| {
        let place = at.map(|at| format!(":{}", place(&text, at))).unwrap_or_default();
        Failure::new(format!("{}{place}: {why}", file.display()), HELP)
    })
}

/// Where something is wrong, in bytes, and what.
type Wrong = (Option<usize>, String);

fn parse(text: &str) -> Result<Thresholds, Wrong> {
    let wrong = |e: toml::de::Error| (e.span().map(|span| span.start), e.message().replace('\n', " "));
    let thresholds: Thresholds = toml::from_str(text).map_err(wrong)?;
    let Some(key) = thresholds.unusable() else { return Ok(thresholds) };
    let span = value_of(text, &key);
    let found = span.clone().and_then(|span| text.get(span)).unwrap_or_default();
    Err((span.map(|s| s.start), format!("{key}: expected a finite number of 0 or more, found {found}")))
}

/// Where the value of a key stands.
fn value_of(text: &str, key: &str) -> Option<Range<usize>> {
    let table = DeTable::parse(text).ok()?;
    table.get_ref().iter().find(|(name, _)| &**name.get_ref() == key).map(|(_, value)| value.span())
}

/// `line:column`, from 1.
fn place(text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("{line}:{column}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_line_and_column_of_what_is_wrong() {
        for (text, at, what) in [
            ("sink = 0.2\n# one\nsinc = 1.0\n", "3:1", "unknown field `sinc`"),
            ("sink = 0.2\nwiring_p = \"a\"\n", "2:12", "string \"a\""),
            (
                "sink = 0.2\n\n dead_cost = -0.1\n",
                "3:14",
                "dead_cost: expected a finite number of 0 or more, found -0.1",
            ),
            ("sink = 0.2\nsink = 0.3\n", "2:1", "duplicate"),
            ("sink = \n", "1:8", ""),
        ] {
            let (found, why) = parse(text).unwrap_err();
            assert_eq!(place(text, found.unwrap()), at, "{text}: {why}");
            assert!(why.contains(what), "{why}");
        }
        assert_eq!(parse("sink = 0.5\n").unwrap().sink, 0.5);
    }
}

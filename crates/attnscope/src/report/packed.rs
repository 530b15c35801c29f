//! Many texts that are alike, packed: what they share is written once, what differs stands in columns, which compress well.

use std::collections::HashMap;

use serde::Serialize;

/// The texts.
#[derive(Debug, Default, Serialize)]
pub(super) struct Packed {
    groups: Vec<Group>,
    /// Of each text its group, and its place there.
    places: Vec<[usize; 2]>,
}

/// Texts of the same words and the same signs between them.
#[derive(Debug, Default, Serialize)]
struct Group {
    /// What stands before each word, and after the last.
    between: Vec<String>,
    /// The words at each place: one, where it is the same in all texts, else one for each text, with line breaks between.
    columns: Vec<String>,
}

/// What stands between words: whatever JSON and formulas have there. A word never holds a line break.
fn is_between(c: char) -> bool {
    c.is_whitespace() || "\",:[]{}()".contains(c)
}

/// What stands between the words of a text, and the words.
fn split(text: &str) -> (Vec<&str>, Vec<&str>) {
    let (mut between, mut words) = (Vec::new(), Vec::new());
    let mut rest = text;
    loop {
        let start = rest.find(|c| !is_between(c)).unwrap_or(rest.len());
        between.push(&rest[..start]);
        rest = &rest[start..];
        if rest.is_empty() {
            return (between, words);
        }
        let end = rest.find(is_between).unwrap_or(rest.len());
        words.push(&rest[..end]);
        rest = &rest[end..];
    }
}

/// Packs texts, in their order.
pub(super) fn pack(texts: &[String]) -> Packed {
    let mut packed = Packed::default();
    let mut known: HashMap<Vec<&str>, usize> = HashMap::new();
    // The words of every text, by group.
    let mut rows: Vec<Vec<Vec<&str>>> = Vec::new();
    for text in texts {
        let (between, words) = split(text);
        let group = *known.entry(between.clone()).or_insert_with(|| {
            let between = between.iter().map(|&signs| signs.to_owned()).collect();
            packed.groups.push(Group { between, columns: Vec::new() });
            rows.push(Vec::new());
            packed.groups.len() - 1
        });
        packed.places.push([group, rows[group].len()]);
        rows[group].push(words);
    }
    for (group, rows) in packed.groups.iter_mut().zip(&rows) {
        let column = |at: usize| {
            let words: Vec<&str> = rows.iter().map(|row| row[at]).collect();
            match words.split_first() {
                Some((first, rest)) if rest.iter().all(|word| word == first) => (*first).to_owned(),
                _ => words.join("\n"),
            }
        };
        group.columns = (0..group.between.len().saturating_sub(1)).map(column).collect();
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a reader puts a text together again.
    fn unpacked(packed: &Packed, at: usize) -> String {
        let [group, place] = packed.places[at];
        let Group { between, columns } = &packed.groups[group];
        let word = |column: &String| {
            let words: Vec<&str> = column.split('\n').collect();
            (if words.len() == 1 { words[0] } else { words[place] }).to_owned()
        };
        let mut text = between[0].clone();
        for (column, signs) in columns.iter().zip(&between[1..]) {
            text += &word(column);
            text += signs;
        }
        text
    }

    #[test]
    fn texts_come_back_as_they_were() {
        let texts: Vec<String> = [
            r#"{"a":"t 1 (▁Hund)","v":0.25}"#,
            r#"{"a":"t 2 (▁Katze)","v":-1e-7}"#,
            r#"{"a":"t 3 (\"x\\, y)","v":null}"#,
            "",
            "word",
            " \u{2028}\t(e^(1 - 2))",
        ]
        .map(str::to_owned)
        .to_vec();
        let packed = pack(&texts);
        for (i, text) in texts.iter().enumerate() {
            assert_eq!(&unpacked(&packed, i), text);
        }
        assert_eq!(packed.places[0][0], packed.places[1][0], "the same signs, the same group");
        assert!(packed.groups[0].columns.contains(&"t".to_owned()), "what is the same is written once");
    }
}

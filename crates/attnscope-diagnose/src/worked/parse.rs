//! From TOML to an example. The file may be anybody's: every number, name and shape is checked, with its line.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::error::{ExampleError, UnknownName};
use super::example::{
    Claim, Example, Mask, NormaliserWord, Operand, Part, Scale, Stated, Step, Tolerance, WordClaim,
};
use super::matrix::Matrix;
use super::number::{digits_of, found, integer, number};
use super::shapes;

/// No file of a worked example is longer, in bytes.
pub const MOST_BYTES: u64 = 1 << 20;
/// No matrix of one has more numbers: it is for people to read.
pub(super) const MOST_CELLS: usize = 1 << 14;
/// With numbers up to this and that many of them, no step can overflow.
const LARGEST: f64 = 1e30;
const MOST_HEADS: i64 = 1024;

const KEYS: [&str; 8] = ["title", "heads", "scale", "mask", "tolerance", "decimals", "given", "claims"];
const MATRIX_HELP: &str = "write a matrix as a list of rows: [[1, 2], [3, 4]]";
const SCALE_HELP: &str = "scale is \"sqrt(d_head)\", \"sqrt(d_model)\", \"none\" or the number to divide by";
const MASK_HELP: &str = "mask is \"none\", \"causal\" or a matrix of 0 and \"-inf\"";

type Result<T> = std::result::Result<T, ExampleError>;
type Entry<'a, 'i> = (&'a str, usize, &'a Spanned<DeValue<'i>>);

/// Reads a worked example.
///
/// # Errors
/// When it is not TOML, has a name, number or shape that does not fit, or claims what nothing given leads to.
pub fn parse(text: &str) -> Result<Example> {
    let table = DeTable::parse(text).map_err(|e| {
        let line = e.span().map(|span| line_of(text, span.start));
        ExampleError::new(
            line,
            "",
            format!("not TOML: {}", e.message()),
            "see toml.io for how TOML is written",
        )
    })?;
    let ends = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(at, _)| at).collect();
    let example = Reader { ends }.example(table.get_ref())?;
    shapes::check(&example)?;
    Ok(example)
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|&b| b == b'\n').count()
}

struct Reader {
    /// Where each line ends. Every row of a matrix asks for its line.
    ends: Vec<usize>,
}

impl Reader {
    fn line<T>(&self, value: &Spanned<T>) -> usize {
        1 + self.ends.partition_point(|end| *end < value.span().start)
    }

    fn wrong<T>(&self, value: &Spanned<DeValue<'_>>, place: &str, expected: &str, help: &str) -> Result<T> {
        let what = format!("expected {expected}, found {}", found(value.get_ref()));
        Err(ExampleError::new(Some(self.line(value)), place, what, help))
    }

    fn unknown<T>(&self, line: usize, place: &str, key: &str, known: Vec<&'static str>) -> Result<T> {
        let what = format!("{key:?} is not a name that is known here");
        let help = format!("the names are {}", known.join(", "));
        let unknown = Some(Box::new(UnknownName { name: key.to_owned(), known }));
        Err(ExampleError { unknown, ..ExampleError::new(Some(line), place, what, help) })
    }

    /// The entries of a table in the order of the file.
    fn entries<'a, 'i>(&self, table: &'a DeTable<'i>) -> Vec<Entry<'a, 'i>> {
        let mut entries: Vec<_> = table.iter().map(|(k, v)| (&**k.get_ref(), self.line(k), v)).collect();
        entries.sort_by_key(|(_, line, value)| (*line, value.span().start));
        entries
    }

    fn example(&self, table: &DeTable<'_>) -> Result<Example> {
        let mut example = Example {
            title: String::new(),
            heads: 1,
            scale: Scale::SqrtHead,
            mask: Mask::None,
            tolerance: Tolerance::AsWritten,
            operands: BTreeMap::new(),
            given: Vec::new(),
            claims: Vec::new(),
            words: Vec::new(),
        };
        let entries = self.entries(table);
        // Which parts there are depends on the heads.
        if let Some((_, _, value)) = entries.iter().find(|(key, ..)| *key == "heads") {
            example.heads = self.heads(value)?;
        }
        for (key, line, value) in entries {
            match key {
                "title" => example.title = self.string(value, key)?,
                "heads" => {}
                "scale" => example.scale = self.scale(value, key)?,
                "mask" => example.mask = self.mask(value)?,
                "tolerance" | "decimals" if example.tolerance != Tolerance::AsWritten => {
                    let what = "tolerance and decimals are two ways to say one thing";
                    return Err(ExampleError::new(Some(line), key, what, "keep one of the two"));
                }
                "tolerance" => example.tolerance = self.tolerance(value)?,
                "decimals" => example.tolerance = self.decimals(value)?,
                "given" => self.given(value, &mut example)?,
                "claims" => self.claims(value, &mut example)?,
                _ => return self.unknown(line, "", key, KEYS.to_vec()),
            }
        }
        if example.operands.is_empty() && example.given.is_empty() {
            let help = "begin with [given] and X, or Q, K and V, or scores";
            return Err(ExampleError::new(None, "given", "nothing is given", help));
        }
        example.claims.sort_by_key(|claim| claim.part);
        Ok(example)
    }

    fn string(&self, value: &Spanned<DeValue<'_>>, place: &str) -> Result<String> {
        match value.get_ref() {
            DeValue::String(text) => Ok(text.to_string()),
            _ => self.wrong(value, place, "a text", "put it between quotation marks"),
        }
    }

    fn heads(&self, value: &Spanned<DeValue<'_>>) -> Result<usize> {
        let heads = integer(value.get_ref()).filter(|n| (1..=MOST_HEADS).contains(n));
        match heads.and_then(|n| usize::try_from(n).ok()) {
            Some(heads) => Ok(heads),
            None => self.wrong(value, "heads", "a whole number from 1 to 1024", "write heads = 1"),
        }
    }

    fn scale(&self, value: &Spanned<DeValue<'_>>, place: &str) -> Result<Scale> {
        match value.get_ref() {
            DeValue::String(text) => match &**text {
                "sqrt(d_head)" | "sqrt(d_k)" => Ok(Scale::SqrtHead),
                "sqrt(d_model)" => Ok(Scale::SqrtModel),
                "none" => Ok(Scale::None),
                _ => self.wrong(value, place, "a scale", SCALE_HELP),
            },
            other => match number(other).filter(|x| (1.0 / LARGEST..=LARGEST).contains(&x.abs())) {
                Some(x) => Ok(Scale::By(x)),
                None => self.wrong(value, place, "a scale", SCALE_HELP),
            },
        }
    }

    fn mask(&self, value: &Spanned<DeValue<'_>>) -> Result<Mask> {
        match value.get_ref() {
            DeValue::String(text) if text == "none" => Ok(Mask::None),
            DeValue::String(text) if text == "causal" => Ok(Mask::Causal),
            DeValue::Array(_) => {
                let stated = self.matrix(value, "mask", true)?;
                let cell = |x: &f64| *x == 0.0 || *x == f64::NEG_INFINITY;
                match stated.matrix.values().iter().find(|x| !cell(x)) {
                    Some(x) => {
                        let what = format!("expected 0 and \"-inf\", found {x}");
                        Err(ExampleError::new(Some(stated.line), "mask", what, MASK_HELP))
                    }
                    None => Ok(Mask::Given(stated)),
                }
            }
            _ => self.wrong(value, "mask", "a mask", MASK_HELP),
        }
    }

    fn tolerance(&self, value: &Spanned<DeValue<'_>>) -> Result<Tolerance> {
        match number(value.get_ref()).filter(|x| (0.0..=LARGEST).contains(x)) {
            Some(x) => Ok(Tolerance::Absolute(x)),
            None => self.wrong(value, "tolerance", "a number of at least 0", "write tolerance = 0.005"),
        }
    }

    fn decimals(&self, value: &Spanned<DeValue<'_>>) -> Result<Tolerance> {
        match integer(value.get_ref()).and_then(|n| u32::try_from(n).ok()).filter(|n| *n <= 15) {
            Some(digits) => Ok(Tolerance::Decimals(digits)),
            None => self.wrong(value, "decimals", "a whole number from 0 to 15", "write decimals = 2"),
        }
    }

    fn table<'a, 'i>(&self, value: &'a Spanned<DeValue<'i>>, place: &str) -> Result<&'a DeTable<'i>> {
        match value.get_ref() {
            DeValue::Table(table) => Ok(table),
            _ => self.wrong(value, place, "a table", &format!("write [{place}] in a line of its own")),
        }
    }

    fn given(&self, value: &Spanned<DeValue<'_>>, example: &mut Example) -> Result<()> {
        for (key, line, value) in self.entries(self.table(value, "given")?) {
            let place = format!("given.{key}");
            if let Some(operand) = Operand::ALL.into_iter().find(|o| o.name() == key) {
                example.operands.insert(operand, self.matrix(value, &place, false)?);
            } else if let Some(step) = step_of(key).filter(|step| *step != Step::Output) {
                example.given.extend(self.parts(step, value, &place, example.heads)?);
            } else {
                let steps = Step::ALL.into_iter().filter(|step| *step != Step::Output).map(Step::name);
                return self.unknown(
                    line,
                    "given",
                    key,
                    Operand::ALL.map(Operand::name).into_iter().chain(steps).collect(),
                );
            }
        }
        Ok(())
    }

    fn claims(&self, value: &Spanned<DeValue<'_>>, example: &mut Example) -> Result<()> {
        for (key, line, value) in self.entries(self.table(value, "claims")?) {
            let place = format!("claims.{key}");
            match (key, step_of(key)) {
                (_, Some(step)) => example.claims.extend(self.parts(step, value, &place, example.heads)?),
                ("scale", _) => example.words.push(WordClaim::Scale(self.scale(value, &place)?, line)),
                ("squash", _) => {
                    let word = match value.get_ref() {
                        DeValue::String(text) if text == "softmax" => NormaliserWord::Softmax,
                        DeValue::String(text) if text == "sigmoid" => NormaliserWord::Sigmoid,
                        _ => {
                            return self.wrong(
                                value,
                                &place,
                                "\"softmax\" or \"sigmoid\"",
                                "write one of the two",
                            );
                        }
                    };
                    example.words.push(WordClaim::Normaliser(word, line));
                }
                _ => {
                    let names = Step::ALL.map(Step::name).into_iter().chain(["scale", "squash"]);
                    return self.unknown(line, "claims", key, names.collect());
                }
            }
        }
        Ok(())
    }

    /// A step's matrix, or one for each head that is named: `weights.0`.
    fn parts(
        &self,
        step: Step,
        value: &Spanned<DeValue<'_>>,
        place: &str,
        heads: usize,
    ) -> Result<Vec<Claim>> {
        let infinite = matches!(step, Step::Scores | Step::MaskedScores);
        let DeValue::Table(table) = value.get_ref() else {
            if step.per_head() && heads > 1 {
                let help = format!("with heads = {heads}, write {0}.0, {0}.1, …", step.name());
                return self.wrong(value, place, "a matrix for each head", &help);
            }
            let part = Part { step, head: None };
            return Ok(vec![Claim { part, stated: self.matrix(value, place, infinite)? }]);
        };
        let mut claims = Vec::new();
        for (key, line, value) in self.entries(table) {
            // `00` would be a second head 0.
            let own = |head: &usize| *head < heads && key == head.to_string();
            let Some(head) = key.parse::<usize>().ok().filter(own) else {
                let what = format!("head {key:?}, and there are {heads}");
                return Err(ExampleError::new(Some(line), place, what, "heads are counted from 0"));
            };
            // One head is the whole.
            let head = (heads > 1).then_some(head);
            let stated = self.matrix(value, &format!("{place}.{key}"), infinite)?;
            claims.push(Claim { part: Part { step, head }, stated });
        }
        Ok(claims)
    }

    /// A list of rows, or one row.
    fn matrix(&self, value: &Spanned<DeValue<'_>>, place: &str, infinite: bool) -> Result<Stated> {
        let DeValue::Array(array) = value.get_ref() else {
            return self.wrong(value, place, "a matrix", MATRIX_HELP);
        };
        let flat = array.first().is_some_and(|first| !first.get_ref().is_array());
        let rows: Vec<(usize, &DeArray<'_>)> = match flat {
            true => vec![(self.line(value), array)],
            false => self.rows(array, place)?,
        };
        let columns = rows.first().map_or(0, |(_, row)| row.len());
        let (mut data, mut digits) = (Vec::new(), 0);
        for (r, (line, row)) in rows.iter().enumerate() {
            if row.len() != columns {
                let what = format!("row {} has {} numbers, row 1 has {columns}", r + 1, row.len());
                return Err(ExampleError::new(Some(*line), place, what, "give every row as many numbers"));
            }
            for cell in row.iter() {
                data.push(self.cell(cell, place, infinite)?);
                digits = digits.max(digits_of(cell.get_ref()));
            }
        }
        let cells = data.len();
        match Matrix::new(rows.len(), columns, data).filter(|_| cells <= MOST_CELLS) {
            Some(matrix) => Ok(Stated { matrix, line: self.line(value), digits }),
            None => {
                let what = format!("expected 1 to {MOST_CELLS} numbers, found {cells}");
                Err(ExampleError::new(Some(self.line(value)), place, what, MATRIX_HELP))
            }
        }
    }

    fn rows<'a, 'i>(&self, array: &'a DeArray<'i>, place: &str) -> Result<Vec<(usize, &'a DeArray<'i>)>> {
        let row = |row: &'a Spanned<DeValue<'i>>| match row.get_ref() {
            DeValue::Array(numbers) => Ok((self.line(row), numbers)),
            _ => self.wrong(row, place, "a row of numbers", MATRIX_HELP),
        };
        array.iter().map(row).collect()
    }

    fn cell(&self, value: &Spanned<DeValue<'_>>, place: &str, infinite: bool) -> Result<f64> {
        let x = match value.get_ref() {
            DeValue::String(text) if text == "-inf" || text == "-∞" => Some(f64::NEG_INFINITY),
            other => number(other),
        };
        match x {
            Some(f64::NEG_INFINITY) if infinite => Ok(f64::NEG_INFINITY),
            Some(x) if x.abs() <= LARGEST => Ok(x),
            _ if infinite => self.wrong(value, place, "a number or \"-inf\"", MATRIX_HELP),
            _ => self.wrong(value, place, "a finite number of at most 1e30", MATRIX_HELP),
        }
    }
}

fn step_of(key: &str) -> Option<Step> {
    Step::ALL.into_iter().find(|step| step.name() == key)
}

//! Tensors in a table.

use attnscope::figures::number;
use attnscope_checkpoint::Stats;

use crate::glyphs::Glyphs;
use crate::layout::Options;
use crate::table::{Column, Table};
use crate::wrap::{shown, width, wrap};

/// One line of the table of tensors.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TensorRow {
    /// Its number in the walk, where the table is the walk.
    pub(crate) number: Option<usize>,
    /// The node's path, or the weight's.
    pub(crate) path: String,
    /// What it is; empty in a table without such words.
    pub(crate) what: String,
    /// Its shape in letters.
    pub(crate) dims: Vec<String>,
    /// Its shape in numbers.
    pub(crate) shape: Vec<usize>,
    /// Statistics of its values; `None` where the model does not have it.
    pub(crate) stats: Option<Stats>,
    /// What is infinite in it hides something: −∞, as masks add it.
    pub(crate) masks: bool,
}

/// The tensors: a line each where the output is wide enough, two where it is not.
pub(crate) fn tensor_table(rows: &[TensorRow], options: Options) -> String {
    let table = one_line_each(rows, options.glyphs).render(usize::MAX);
    if table.lines().all(|line| width(line) <= options.width) {
        return table;
    }
    two_lines_each(rows, options)
}

fn one_line_each(rows: &[TensorRow], glyphs: Glyphs) -> Table {
    let mut columns = vec![Column::left("node"), Column::left("dims"), Column::left("shape")];
    let described = rows.iter().any(|row| !row.what.is_empty());
    if described {
        columns.insert(1, Column::left("what"));
    }
    columns.extend(MEASURES.map(Column::right));
    let numbered = rows.iter().any(|row| row.number.is_some());
    if numbered {
        columns.insert(0, Column::right("#"));
    }
    let mut table = Table::new(columns, glyphs);
    for row in rows {
        let mut cells = vec![row.path.clone()];
        if described {
            cells.push(row.what.clone());
        }
        match &row.stats {
            Some(stats) => {
                cells.extend([row.dims.join(","), shape_text(&row.shape)]);
                cells.extend(measures(row, stats));
            }
            None => cells.push("absent".into()),
        }
        if numbered {
            cells.insert(0, row.number.map(|n| n.to_string()).unwrap_or_default());
        }
        table.row(cells);
    }
    table
}

/// What it is, then what it holds.
fn two_lines_each(rows: &[TensorRow], options: Options) -> String {
    let most = |of: &dyn Fn(&TensorRow) -> String| rows.iter().map(|r| width(&of(r))).max().unwrap_or(0);
    let path = most(&|r| r.path.clone());
    let dims = most(&|r| r.dims.join(","));
    let shape = most(&|r| shape_text(&r.shape));
    let indent = if rows.iter().any(|r| r.number.is_some()) { 4 } else { 0 };
    let mut out = String::new();
    for row in rows {
        let number = row.number.map(|n| format!("{n:>2}  ")).unwrap_or_default();
        let first = format!("{:path$}  {}", row.path, row.what);
        let first = shown(first.trim_end(), options.glyphs);
        let lines = wrap(&first, options.width.saturating_sub(indent));
        out += &format!("{number}{}", lines.join(&format!("\n{:indent$}", "")));
        let room = options.width.saturating_sub(indent + 2);
        for line in below(row, dims, shape, room) {
            out += &format!("\n{:indent$}  {}", "", shown(line.trim_end(), options.glyphs));
        }
        out.push('\n');
    }
    out
}

/// Shape and values of a row, in one line where there is room for it.
fn below(row: &TensorRow, dims: usize, shape: usize, room: usize) -> Vec<String> {
    let Some(stats) = &row.stats else { return vec!["absent".to_owned()] };
    let (letters, numbers) = (row.dims.join(","), shape_text(&row.shape));
    let shape = format!("{letters:dims$}  {numbers:shape$}");
    let held = |pad: usize| {
        let one = |(name, value): (&&str, String)| format!("{name} {value:<pad$}");
        MEASURES.iter().zip(measures(row, stats)).map(one).collect::<Vec<_>>().join(" ")
    };
    // In columns, unless that is too wide.
    let columns = held(9);
    let held = if width(columns.trim_end()) <= room { columns } else { held(0) };
    match width(&shape) + 2 + width(held.trim_end()) <= room {
        true => vec![format!("{shape}  {held}")],
        false => vec![shape, held],
    }
}

/// What a line of the table says of a tensor's values.
const MEASURES: [&str; 5] = ["min", "mean", "max", "std", "NaN"];

fn measures(row: &TensorRow, stats: &Stats) -> [String; 5] {
    let [mut min, mean, max, std] = [stats.min, stats.mean, stats.max, stats.std].map(number);
    if row.masks && stats.inf > 0 {
        min = "-inf".to_owned();
    }
    [min, mean, max, std, nan_text(row, stats)]
}

/// `(1, 4, 5, 6)`, and `(6)` for one dimension.
pub(crate) fn shape_text(shape: &[usize]) -> String {
    let parts: Vec<String> = shape.iter().map(usize::to_string).collect();
    format!("({})", parts.join(","))
}

/// NaN first; infinite values beside it, since the numbers are of the finite ones.
fn nan_text(row: &TensorRow, stats: &Stats) -> String {
    match (stats.inf, row.masks) {
        (0, _) => stats.nan.to_string(),
        (inf, true) => format!("{}, {inf} × -inf", stats.nan),
        (inf, false) => format!("{}, {inf} × ±inf", stats.nan),
    }
}

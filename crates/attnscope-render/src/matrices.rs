//! Matrices beside each other, as in a formula.

use attnscope_diagnose::worked::Matrix;

use crate::glyphs::Glyphs;
use crate::wrap::width;

/// A part of a formula.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Piece {
    /// An operator or a word, in the middle line.
    Text(String),
    /// A matrix, with so many digits after the point.
    Matrix(Matrix, usize),
}

/// No number needs more digits to be shown as it was written.
const MOST_DIGITS: usize = 6;

impl Piece {
    /// A matrix as it was written.
    pub(crate) fn exact(matrix: Matrix) -> Self {
        let at = |digits: usize| {
            let scale = 10f64.powi(i32::try_from(digits).unwrap_or(0));
            matrix
                .values()
                .iter()
                .all(|x| !x.is_finite() || ((x * scale).round() / scale - x).abs() <= x.abs() * 1e-12)
        };
        let digits = (0..MOST_DIGITS).find(|&digits| at(digits)).unwrap_or(MOST_DIGITS);
        Self::Matrix(matrix, digits)
    }

    /// A matrix that was computed.
    pub(crate) fn rounded(matrix: Matrix, digits: usize) -> Self {
        Self::Matrix(matrix, digits)
    }

    pub(crate) fn transposed(self) -> Self {
        match self {
            Self::Matrix(matrix, digits) => {
                let [rows, columns] = matrix.shape();
                let cells = (0..columns).flat_map(|c| (0..rows).map(move |r| (r, c)));
                let data = cells.map(|(r, c)| matrix.row(r)[c]).collect();
                Self::Matrix(Matrix::new(columns, rows, data).unwrap_or(matrix), digits)
            }
            text => text,
        }
    }

    /// Whether it makes one matrix of those beside it, whose shapes are then worth naming.
    pub(crate) fn joins(&self) -> bool {
        matches!(self, Self::Text(text) if text == "·" || text == "|")
    }

    /// `[2×3]`, `·`, ` + `.
    pub(crate) fn shape_text(&self) -> String {
        match self {
            Self::Text(text) if text == "·" => text.clone(),
            Self::Text(text) => format!(" {text} "),
            Self::Matrix(matrix, _) => format!("[{}×{}]", matrix.rows(), matrix.columns()),
        }
    }

    fn height(&self) -> usize {
        match self {
            Self::Text(_) => 1,
            Self::Matrix(matrix, _) => matrix.rows(),
        }
    }

    fn lines(&self, glyphs: Glyphs) -> Vec<String> {
        match self {
            Self::Text(text) => vec![glyphs_line(text, glyphs)],
            Self::Matrix(matrix, digits) => matrix_lines(matrix, *digits, glyphs),
        }
    }
}

/// Spaces at the start are kept.
fn glyphs_line(text: &str, glyphs: Glyphs) -> String {
    glyphs.text(text)
}

/// The pieces in one line of formula, each in the middle of its height.
pub(crate) fn beside(pieces: &[Piece], glyphs: Glyphs) -> String {
    let height = pieces.iter().map(Piece::height).max().unwrap_or(0);
    let mut rows = vec![String::new(); height];
    for (n, piece) in pieces.iter().enumerate() {
        let lines = piece.lines(glyphs);
        let columns = lines.iter().map(|line| width(line)).max().unwrap_or(0);
        let top = (height - lines.len()) / 2;
        for (y, row) in rows.iter_mut().enumerate() {
            let line = y.checked_sub(top).and_then(|y| lines.get(y)).map_or("", String::as_str);
            let gap = if n == 0 { "" } else { " " };
            *row += &format!("{gap}{line}{}", " ".repeat(columns - width(line)));
        }
    }
    rows.iter().map(|row| format!("{}\n", row.trim_end())).collect()
}

fn matrix_lines(matrix: &Matrix, digits: usize, glyphs: Glyphs) -> Vec<String> {
    let cell = |x: f64| match x {
        f64::NEG_INFINITY => if glyphs == Glyphs::Ascii { "-inf" } else { "-∞" }.to_owned(),
        _ if x != 0.0 && (x.abs() >= 1e7 || x.abs() < 0.5 * 10f64.powi(-(digits as i32))) => {
            format!("{x:.2e}")
        }
        _ => format!("{x:.digits$}"),
    };
    let columns: Vec<Vec<String>> = (0..matrix.columns())
        .map(|c| {
            let cells: Vec<String> = matrix.each_row().map(|row| cell(row[c])).collect();
            let wide = cells.iter().map(|text| width(text)).max().unwrap_or(0);
            cells.into_iter().map(|text| format!("{}{text}", " ".repeat(wide - width(&text)))).collect()
        })
        .collect();
    let row = |r: usize| {
        let cells: Vec<&str> = columns.iter().map(|column| column[r].as_str()).collect();
        let (left, right) = brackets(r, matrix.rows(), glyphs);
        format!("{left}{}{right}", cells.join(" "))
    };
    (0..matrix.rows()).map(row).collect()
}

fn brackets(row: usize, rows: usize, glyphs: Glyphs) -> (char, char) {
    match (glyphs, row) {
        _ if rows == 1 => ('[', ']'),
        (Glyphs::Ascii, 0) => ('[', ']'),
        (Glyphs::Ascii, r) if r + 1 == rows => ('[', ']'),
        (Glyphs::Ascii, _) => ('|', '|'),
        (Glyphs::Unicode, 0) => ('⎡', '⎤'),
        (Glyphs::Unicode, r) if r + 1 == rows => ('⎣', '⎦'),
        (Glyphs::Unicode, _) => ('⎢', '⎥'),
    }
}

//! Tensors in print, as NumPy abbreviates them: all of a small one, three values from each end of a large one.

/// Above this many values the middle of every dimension is left out. NumPy waits until 1,000, which fills screens.
const MOST: usize = 200;
/// Values, rows, blocks that are shown at each end then.
const EDGE: usize = 3;
/// Digits after the point.
const DIGITS: usize = 4;

/// A tensor, row-major.
#[derive(Debug, Clone, Copy)]
pub struct Array<'a> {
    /// Its shape.
    pub shape: &'a [usize],
    /// Its values.
    pub values: &'a [f64],
    /// Whole numbers, as token ids are.
    pub whole: bool,
}

impl Array<'_> {
    /// As text in lines of at most `width` columns; with every value if `full`.
    pub fn text(&self, width: usize, full: bool) -> String {
        if self.shape.iter().product::<usize>() != self.values.len() {
            return String::new();
        }
        let edge = if full || self.values.len() <= MOST { usize::MAX } else { EDGE };
        let mut shown = Vec::new();
        self.pick(0, 0, edge, &mut shown);
        let format = Format::of(&shown, self.whole);
        let mut out = String::new();
        self.write(&mut Write { out: &mut out, width, edge, format }, 0, 0);
        out.push('\n');
        out
    }

    /// Elements from one index of a dimension to the next.
    fn step(&self, dim: usize) -> usize {
        self.shape[dim + 1..].iter().product()
    }

    /// The values that will be shown: their widths decide the columns.
    fn pick(&self, dim: usize, at: usize, edge: usize, shown: &mut Vec<f64>) {
        if dim == self.shape.len() {
            shown.extend(self.values.get(at));
            return;
        }
        for i in indices(self.shape[dim], edge).into_iter().flatten() {
            self.pick(dim + 1, at + i * self.step(dim), edge, shown);
        }
    }

    fn write(&self, to: &mut Write<'_>, dim: usize, at: usize) {
        if dim == self.shape.len() {
            to.out.push_str(&to.format.value(self.values.get(at).copied().unwrap_or(f64::NAN)));
            return;
        }
        to.out.push('[');
        if dim + 1 == self.shape.len() {
            self.write_row(to, dim, at);
        } else {
            let gap = "\n".repeat(self.shape.len() - dim - 1) + &" ".repeat(dim + 1);
            for (n, index) in indices(self.shape[dim], to.edge).into_iter().enumerate() {
                if n > 0 {
                    to.out.push_str(&gap);
                }
                match index {
                    Some(i) => self.write(to, dim + 1, at + i * self.step(dim)),
                    None => to.out.push_str("..."),
                }
            }
        }
        to.out.push(']');
    }

    /// The last dimension: values side by side, going on in the next line where they do not fit.
    fn write_row(&self, to: &mut Write<'_>, dim: usize, at: usize) {
        let indent = dim + 1;
        let mut column = indent;
        for (n, index) in indices(self.shape[dim], to.edge).into_iter().enumerate() {
            let word = match index {
                Some(i) => to.format.value(self.values.get(at + i).copied().unwrap_or(f64::NAN)),
                None => "...".to_owned(),
            };
            // The brackets that close the row, and all around it, still fit.
            if n > 0 && column + 1 + word.chars().count() + self.shape.len() > to.width {
                to.out.push('\n');
                to.out.push_str(&" ".repeat(indent));
                column = indent;
            } else if n > 0 {
                to.out.push(' ');
                column += 1;
            }
            column += word.chars().count();
            to.out.push_str(&word);
        }
    }
}

struct Write<'a> {
    out: &'a mut String,
    width: usize,
    edge: usize,
    format: Format,
}

/// The indices of a dimension that are shown; `None` stands for those left out.
fn indices(len: usize, edge: usize) -> Vec<Option<usize>> {
    if len <= edge.saturating_mul(2) {
        return (0..len).map(Some).collect();
    }
    (0..edge).map(Some).chain([None]).chain((len - edge..len).map(Some)).collect()
}

/// One format for all values of an array, so that they are aligned in columns.
#[derive(Debug, Clone, Copy)]
struct Format {
    width: usize,
    style: Style,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Whole,
    Fixed,
    Scientific,
}

impl Format {
    fn of(values: &[f64], whole: bool) -> Self {
        let sizes = || values.iter().map(|x| x.abs()).filter(|x| x.is_finite() && *x > 0.0);
        let (least, most) = sizes().fold((f64::INFINITY, 0.0f64), |(a, b), x| (a.min(x), b.max(x)));
        // Where a fixed point would show only zeros, or too many digits.
        let scientific = most >= 1e8 || (most > 0.0 && (most < 1e-3 || most / least > 1e6 && least < 1e-6));
        let style = match (whole, scientific) {
            (true, _) => Style::Whole,
            (false, true) => Style::Scientific,
            (false, false) => Style::Fixed,
        };
        let format = Self { width: 0, style };
        let width = values.iter().map(|&x| format.value(x).chars().count()).max().unwrap_or(0);
        Self { width, style }
    }

    fn value(self, x: f64) -> String {
        let text = match self.style {
            _ if x.is_nan() => "nan".to_owned(),
            _ if x.is_infinite() => if x > 0.0 { "inf" } else { "-inf" }.to_owned(),
            Style::Whole => format!("{x:.0}"),
            Style::Fixed => format!("{x:.DIGITS$}"),
            Style::Scientific => format!("{x:.DIGITS$e}"),
        };
        format!("{text:>width$}", width = self.width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(shape: &[usize], values: &[f64], width: usize, full: bool) -> String {
        Array { shape, values, whole: false }.text(width, full)
    }

    #[test]
    fn small_arrays_are_whole_and_in_columns() {
        let values = [1.0, -0.5, f64::NEG_INFINITY, 0.25, 12.0, f64::NAN];
        assert_eq!(
            text(&[2, 3], &values, 80, false),
            "[[ 1.0000 -0.5000    -inf]\n [ 0.2500 12.0000     nan]]\n"
        );
        assert_eq!(text(&[0], &[], 80, false), "[]\n");
        assert_eq!(text(&[], &[2.0], 80, false), "2.0000\n");
        assert_eq!(
            Array { shape: &[3], values: &[3.0, 2.0, 10.0], whole: true }.text(80, false),
            "[ 3  2 10]\n"
        );
    }

    #[test]
    fn large_arrays_lose_their_middle() {
        let values: Vec<f64> = (0..1200).map(f64::from).collect();
        let text = text(&[2, 20, 30], &values, 80, false);
        assert!(
            text.starts_with("[[[   0.0000    1.0000    2.0000 ...   27.0000   28.0000   29.0000]\n"),
            "{text}"
        );
        assert_eq!(text.matches("...").count(), 6 * 2 + 2);
        assert!(text.contains("\n\n [[ 600.0000"));
        assert!(
            super::Array { shape: &[1200], values: &values, whole: true }.text(80, true).contains(" 600 ")
        );
    }

    #[test]
    fn long_rows_go_on_in_the_next_line() {
        let text = text(&[1, 12], &[0.5; 12], 40, false);
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        assert_eq!(text.lines().count(), 3);
    }

    #[test]
    fn tiny_and_huge_values_keep_their_digits() {
        assert_eq!(text(&[2], &[1.5e-7, 2e-9], 80, false), "[1.5000e-7 2.0000e-9]\n");
        assert_eq!(text(&[1], &[3e9], 80, false), "[3.0000e9]\n");
    }
}

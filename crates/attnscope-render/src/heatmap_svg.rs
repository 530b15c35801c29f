//! Attention weights as a picture: one cell per pair of positions, the darker the larger.

use std::fmt::Write as _;

use crate::glyphs::clean;
use crate::heatmap::{short, strongest};
use crate::markup::escape;
use crate::wrap::width;
use attnscope::AttentionMap;

/// Pixels of a cell.
const CELL: [f64; 2] = [30.0, 20.0];
/// Pixels of a character of a label.
const LETTER: f64 = 7.0;
const FONT: f64 = 11.0;
const MARGIN: f64 = 14.0;
/// The most characters of a label.
const LABEL: usize = 24;
const SANS: &str = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif";

/// White to dark blue, from weight 0 to 1 in equal steps; also for red-green colour-blind readers.
const BLUES: [[f64; 3]; 5] = [
    [255.0, 255.0, 255.0],
    [198.0, 219.0, 239.0],
    [107.0, 174.0, 214.0],
    [33.0, 113.0, 181.0],
    [8.0, 48.0, 107.0],
];

/// Every panel of every attention, one below the other, under a title.
pub fn attention_svg(title: &str, maps: &[AttentionMap]) -> String {
    let mut body = String::new();
    let (mut across, mut down) = (MARGIN * 2.0 + width(title) as f64 * LETTER * 1.2, MARGIN + 24.0);
    text(&mut body, [MARGIN, MARGIN + 12.0], "font-size=\"15\" font-weight=\"600\"", &clean(title));
    for map in maps {
        let frame = Frame::of(map);
        across = across.max(frame.across());
        for (what, values) in &map.panels {
            let title = format!("{}, {what}", map.path);
            across = across.max(MARGIN * 2.0 + width(&title) as f64 * LETTER);
            text(&mut body, [MARGIN, down + 14.0], "font-weight=\"600\"", &clean(&title));
            down += 24.0 + frame.panel(&mut body, down + 24.0, map, values) + MARGIN;
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"attnscope\" width=\"{across}\" height=\"{down}\" \
         viewBox=\"0 0 {across} {down}\" font-family=\"{SANS}\" font-size=\"{FONT}\">\n<title>{}</title>\n<rect \
         width=\"{across}\" height=\"{down}\" fill=\"#ffffff\"/>\n{body}</svg>\n",
        escape(&clean(title))
    )
}

/// The space that labels take.
struct Frame {
    left: f64,
    top: f64,
    columns: usize,
}

impl Frame {
    fn of(map: &AttentionMap) -> Self {
        let longest = |labels: &[String]| {
            labels.iter().map(|l| width(&short(&clean(l), LABEL))).max().unwrap_or(0) as f64 * LETTER
        };
        // Labels of columns stand at 45 degrees.
        let top = longest(&map.columns) * std::f64::consts::FRAC_1_SQRT_2 + 10.0;
        Self { left: MARGIN + longest(&map.rows) + 6.0, top, columns: map.columns.len() }
    }

    fn across(&self) -> f64 {
        self.left + self.columns as f64 * CELL[0] + self.top + MARGIN
    }

    /// Draws a panel and says how high it is.
    fn panel(&self, out: &mut String, y: f64, map: &AttentionMap, values: &[f64]) -> f64 {
        let cells = y + self.top;
        for (c, column) in map.columns.iter().enumerate() {
            let (x, y) = (self.left + (c as f64 + 0.5) * CELL[0], cells - 5.0);
            let turned = format!("transform=\"rotate(-45 {x} {y})\"");
            text(out, [x, y], &turned, &short(&clean(column), LABEL));
        }
        for (r, row) in map.rows.iter().enumerate() {
            let top = cells + r as f64 * CELL[1];
            let label = short(&clean(row), LABEL);
            text(out, [self.left - 6.0, top + 14.0], "text-anchor=\"end\"", &label);
            let Some(weights) = values.get(r * self.columns..(r + 1) * self.columns) else { break };
            let most = strongest(weights);
            for (c, &weight) in weights.iter().enumerate() {
                let x = self.left + c as f64 * CELL[0];
                let hint = format!("{} · {}: {weight:.4}", clean(row), clean(&map.columns[c]));
                let _ = writeln!(
                    out,
                    "<rect class=\"cell\" x=\"{x}\" y=\"{top}\" width=\"{}\" height=\"{}\" fill=\"{}\" \
                     stroke=\"#d9d9d9\" stroke-width=\"0.5\"><title>{}</title></rect>",
                    CELL[0],
                    CELL[1],
                    colour(weight),
                    escape(&hint)
                );
                let number = match (weight.is_finite(), most == Some(c)) {
                    (false, _) => "nan".to_owned(),
                    (true, true) => format!("{:.0}", weight * 100.0),
                    (true, false) => continue,
                };
                let ink = if weight > 0.6 { "#ffffff" } else { "#1a1a1a" };
                let looks = format!("text-anchor=\"middle\" fill=\"{ink}\" pointer-events=\"none\"");
                text(out, [x + CELL[0] / 2.0, top + 14.0], &looks, &number);
            }
        }
        self.top + map.rows.len() as f64 * CELL[1]
    }
}

fn text(out: &mut String, [x, y]: [f64; 2], looks: &str, words: &str) {
    let _ = writeln!(out, "<text x=\"{x}\" y=\"{y}\" {looks}>{}</text>", escape(words));
}

/// The colour of a weight.
fn colour(weight: f64) -> String {
    if !weight.is_finite() {
        return "#f4b6b6".to_owned();
    }
    let at = weight.clamp(0.0, 1.0) * (BLUES.len() - 1) as f64;
    let below = (at as usize).min(BLUES.len() - 2);
    let part = at - below as f64;
    let mix = |i: usize| (BLUES[below][i] + (BLUES[below + 1][i] - BLUES[below][i]) * part).round() as u8;
    format!("#{:02x}{:02x}{:02x}", mix(0), mix(1), mix(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(words: &[&str]) -> Vec<String> {
        words.iter().map(|&w| w.to_owned()).collect()
    }

    #[test]
    fn every_weight_is_a_cell_with_its_number() {
        let map = AttentionMap {
            path: "encoder.0.self_attn.weights".into(),
            rows: labels(&["a", "<b>"]),
            columns: labels(&["x", "y", "z"]),
            panels: vec![("head 0".into(), vec![0.9, 0.1, 0.0, 0.2, f64::NAN, 0.3])],
            heads: Vec::new(),
            is_cross: false,
            reads_source: true,
            of_decoder: false,
        };
        let svg = attention_svg("toy & co", &[map]);
        assert_eq!(svg.matches("class=\"cell\"").count(), 6);
        assert!(svg.contains("<title>a · x: 0.9000</title>") && svg.contains(">90</text>"), "{svg}");
        assert!(svg.contains("&lt;b&gt; · y: NaN") && svg.contains(">nan</text>"), "{svg}");
        assert!(svg.contains("encoder.0.self_attn.weights, head 0") && svg.contains("toy &amp; co"), "{svg}");
    }

    #[test]
    fn colours_go_from_white_to_dark_blue() {
        assert_eq!([0.0, 0.5, 1.0, 2.0].map(colour), ["#ffffff", "#6baed6", "#08306b", "#08306b"]);
    }
}

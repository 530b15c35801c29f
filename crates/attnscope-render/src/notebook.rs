//! An answer as a piece of HTML for a notebook's cell: its text, and its drawings.
//!
//! The piece holds no script, and no style that could reach the rest of the page. A drawing is an image with its data in it: what is in
//! an image can neither run nor fetch anything, and its styles stay inside.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::glyphs::clean;
use crate::markup::escape;

/// The text takes the colours of the page around it, light or dark. Long lines scroll.
const TEXT: &str = "margin:0;padding:0;border:0;color:inherit;background:transparent;overflow-x:auto;white-space:pre;\
     font-family:ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;font-size:13px;line-height:1.3";

/// A drawing has a white page of its own. It is never wider than the cell.
const DRAWING: &str = "display:block;max-width:100%;height:auto;margin:0 0 8px 0;background:#ffffff";

/// The HTML of a text and of drawings, which are SVG and stand before it.
pub fn fragment(text: &str, drawings: &[String]) -> String {
    let mut out = String::from("<div>");
    for drawing in drawings {
        let data = STANDARD.encode(drawing);
        out += &format!(
            "<img style=\"{DRAWING}\" alt=\"{}\" src=\"data:image/svg+xml;base64,{data}\">",
            title(drawing)
        );
    }
    let lines: Vec<String> = text.trim_end().lines().map(|line| escape(&clean(line))).collect();
    out += &format!("<pre style=\"{TEXT}\">{}</pre></div>", lines.join("\n"));
    out
}

/// What a drawing says it is; it is escaped there.
fn title(drawing: &str) -> &str {
    let after = drawing.split_once("<title>").map_or("", |(_, after)| after);
    after.split_once("</title>").map_or("a drawing", |(title, _)| title)
}

#[cfg(test)]
mod tests {
    use super::fragment;

    #[test]
    fn what_a_model_says_stays_text() {
        let html = fragment("<script>alert(1)</script>\n\u{1b}[31mred & \"quoted\"", &[]);
        assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;\n"), "{html}");
        assert!(!html.contains('\u{1b}') && html.contains("&amp; &quot;quoted&quot;"), "{html}");
    }

    #[test]
    fn a_drawing_is_an_image_with_its_title_beside_it() {
        let html = fragment("text", &["<svg><title>&quot;x&quot; onload=</title></svg>".to_owned()]);
        assert!(
            html.contains("alt=\"&quot;x&quot; onload=\" src=\"data:image/svg+xml;base64,PHN2Zz48"),
            "{html}"
        );
    }
}

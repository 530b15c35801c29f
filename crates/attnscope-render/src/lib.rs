//! One neutral view of a model, lowered to text, SVG, Mermaid, DOT and a single HTML file.
//!
//! A [`Diagram`] says what is drawn. [`layout()`] gives it places in character cells, a [`Scene`];
//! [`text()`] and [`svg()`] draw that. [`mermaid()`] and [`dot()`] hand the diagram to programs that lay it
//! out themselves. [`html::page`] puts drawings and answers in a page, [`Table`] sets rows and columns for the terminal.
//!
//! ```
//! use attnscope_render::{Arrow, Block, Diagram, Kind, Options, Style, draw};
//!
//! let block = |title: &str, shape: &str, kind| Block {
//!     path: format!("encoder.0.self_attn.{title}"),
//!     title: title.into(),
//!     shape: shape.into(),
//!     lines: vec![],
//!     kind,
//!     hole: None,
//! };
//! let diagram = Diagram {
//!     blocks: vec![block("scores", "[4, S, S]", Kind::Attention), block("weights", "[4, S, S]", Kind::Attention)],
//!     arrows: vec![Arrow { from: 0, to: 1, label: "softmax".into() }],
//!     ..Diagram::default()
//! };
//! let drawing = [
//!     " ┌───────────────────┐",
//!     " │ scores  [4, S, S] │",
//!     " └─────────┬─────────┘",
//!     "           ▼ softmax",
//!     "┌─────────────────────┐",
//!     "│ weights   [4, S, S] │",
//!     "└─────────────────────┘",
//!     "",
//! ];
//! assert_eq!(draw(&diagram, Options::default(), Style::default()), Ok(drawing.join("\n")));
//! ```

mod array;
pub mod audit;
pub mod audit_page;
mod canvas;
mod diagram;
pub mod diff;
mod diff_table;
mod dot;
pub mod findings;
pub mod flow;
pub mod generate;
mod glyphs;
mod heatmap;
mod heatmap_svg;
mod hint;
pub mod html;
pub mod inspect;
mod layout;
mod markup;
pub mod masks;
mod matrices;
mod mermaid;
pub mod notebook;
pub mod page;
mod palette;
mod sarif;
mod scene;
pub mod summary;
mod svg;
mod table;
mod tensor_table;
mod text;
pub mod tokens;
pub mod trace;
pub mod trace_check;
pub mod training;
pub mod worked;
mod wrap;

pub use array::Array;
pub use diagram::{Arrow, Block, Diagram, Hole, Kind};
pub use dot::dot;
pub use flow::{fill, legend};
pub use glyphs::{Glyphs, clean};
pub use heatmap::Heatmap;
pub use heatmap_svg::attention_svg;
pub use hint::Reader;
pub use layout::{LayoutError, Options, layout};
pub use mermaid::mermaid;
pub use sarif::sarif;
pub use scene::{Boxed, Role, Route, Run, Scene};
pub use svg::{svg, svg_sheet};
pub use table::{Align, Column, Table};
pub use text::{Style, draw, text};
pub use wrap::wrap_plain;

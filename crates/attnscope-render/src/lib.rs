//! One neutral view of a model, lowered to text, SVG, Mermaid, DOT and a single HTML file.
//!
//! A [`Diagram`] says what is drawn. [`layout()`] gives it places in character cells, a [`Scene`];
//! [`text()`] and [`svg()`] draw that. [`mermaid()`] and [`dot()`] hand the diagram to programs that lay it
//! out themselves. [`html::page`] puts drawings in a page, [`Table`] sets rows and columns for the terminal.

mod canvas;
mod diagram;
mod dot;
mod flow;
mod glyphs;
pub mod html;
pub mod json;
mod layout;
mod markup;
mod mermaid;
mod palette;
mod scene;
mod svg;
mod table;
mod text;
mod wrap;

pub use diagram::{Arrow, Block, Diagram, Kind};
pub use dot::dot;
pub use flow::{Component, FlowOptions, LayerGroup, NothingSelected, fill, flow, legend, thousands};
pub use glyphs::{Glyphs, clean};
pub use layout::{LayoutError, Options, layout};
pub use mermaid::mermaid;
pub use scene::{Boxed, Role, Route, Run, Scene};
pub use svg::svg;
pub use table::{Align, Column, Table};
pub use text::{Style, draw, text};

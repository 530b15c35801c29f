//! One neutral view of a model, lowered to text, SVG, Mermaid, DOT and a single HTML file.

mod canvas;
mod diagram;
mod glyphs;
mod layout;
mod scene;
mod text;
mod wrap;

pub use diagram::{Arrow, Block, Diagram, Kind};
pub use glyphs::{Glyphs, clean};
pub use layout::{LayoutError, Options, layout};
pub use scene::{Boxed, Role, Route, Run, Scene};
pub use text::{Style, draw, text};

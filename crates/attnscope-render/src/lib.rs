//! One neutral view of a model, lowered to text, SVG, Mermaid, DOT and a single HTML file.

mod diagram;

pub use diagram::{Arrow, Block, Diagram, Kind};

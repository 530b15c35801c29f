//! One neutral view of a model, lowered to text, SVG, Mermaid, DOT and a single HTML file.

mod diagram;
mod flow;

pub use diagram::{Arrow, Block, Diagram, Kind};
pub use flow::{Component, FlowOptions, LayerGroup, NothingSelected, flow, thousands};

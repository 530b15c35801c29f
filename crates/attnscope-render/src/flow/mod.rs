//! From a model to the diagrams that show how data flows through it.
//!
//! Nothing here knows a family: boxes, arrows and words follow from the nodes, their operations and what the
//! checkpoint bound to them. A missing tensor is marked in the drawing.

mod block;
mod legend;
mod overview;
mod part;

use attnscope::answer::{DrawnPart, Flow};
use attnscope::figures::thousands;
use attnscope::layer_groups;
use attnscope_graph::{LayerPart, Model, ShapeText, Stack};

use crate::diagram::Diagram;
use crate::html::{self, Contents, Drawing, Place};
use crate::layout::{LayoutError, Options, layout};
use crate::svg::svg_sheet;
use crate::text::{Style, draw};
pub use legend::{fill, legend};

/// The diagrams of a model, in reading order.
pub fn diagrams(flow: &Flow) -> Vec<Diagram> {
    drawings(flow).into_iter().map(|drawing| drawing.diagram).collect()
}

/// The same with the layers that they show.
fn drawings(flow: &Flow) -> Vec<Drawing> {
    let view = View { model: &flow.model, symbolic: flow.options.symbolic };
    let overview = (!flow.overview.is_empty()).then(|| overview::diagram(&view, flow.overview));
    let loose = flow.options.layer.as_ref().filter(|_| flow.loose);
    let loose = loose.and_then(|selector| part::loose(&view, selector));
    let parts = flow.parts.iter().map(|drawn| part_drawing(&view, *drawn));
    let whole = |diagram: Diagram| Drawing { diagram, of: None };
    overview.map(whole).into_iter().chain(parts).chain(loose.map(whole)).collect()
}

/// The model at a glance, and every part of its layers, equal ones once.
pub(crate) fn every_drawing(flow: &Flow) -> Vec<Drawing> {
    let view = View { model: &flow.model, symbolic: flow.options.symbolic };
    let overview = Drawing { diagram: overview::diagram(&view, flow.overview), of: None };
    let groups = Stack::ALL.into_iter().flat_map(|stack| layer_groups(&flow.model, stack));
    let parts = groups
        .filter(|group| group.alike)
        .flat_map(|layers| LayerPart::ALL.map(|part| DrawnPart { layers, part }));
    let has = |drawn: &DrawnPart| {
        let mut nodes = flow.model.graph.layer(drawn.layers.stack, drawn.layers.first);
        nodes.any(|(_, node)| node.role.part() == Some(drawn.part))
    };
    [overview].into_iter().chain(parts.filter(has).map(|drawn| part_drawing(&view, drawn))).collect()
}

fn part_drawing(view: &View<'_>, drawn: DrawnPart) -> Drawing {
    Drawing { diagram: part::diagram(view, &drawn.layers, drawn.part), of: Some(drawn) }
}

/// One line that says which model this is.
pub fn headline(flow: &Flow) -> String {
    let (parameters, _) = flow.model.parameters();
    let (title, parameters) = (flow.model.title(), thousands(parameters));
    format!("{} · {title} · {} · {parameters} parameters", flow.name, flow.format)
}

/// The drawing for a terminal.
///
/// # Errors
/// As [`layout`], here and below.
pub fn text(flow: &Flow, options: Options, style: Style) -> Result<String, LayoutError> {
    let mut text = format!("{}\n", options.glyphs.text(&headline(flow)));
    text += &fill(&options.glyphs.text(&legend(&flow.model)), options.width);
    for diagram in diagrams(flow) {
        text.push('\n');
        text += &draw(&diagram, options, style)?;
    }
    Ok(text)
}

/// Columns of a drawing for a page: nothing wraps.
const PAGE: usize = 110;

/// All diagrams below each other in one picture.
pub fn svg(flow: &Flow) -> Result<String, LayoutError> {
    let options = Options { width: PAGE, ..Options::default() };
    let scenes = diagrams(flow).iter().map(|d| layout(d, options)).collect::<Result<Vec<_>, _>>()?;
    Ok(svg_sheet(&headline(flow), &legend_lines(flow), &scenes))
}

/// All diagrams as one page; `json` is the answer's JSON.
///
/// # Errors
/// As [`layout`].
pub fn page(flow: &Flow, json: &str) -> Result<String, LayoutError> {
    html::page(&Contents {
        title: &headline(flow),
        legend: &legend_lines(flow),
        drawings: &drawings(flow),
        data: &format!("{{\"flow\":{json}}}"),
        place: Place::File { commands: "{}" },
    })
}

pub(crate) fn legend_lines(flow: &Flow) -> Vec<String> {
    fill(&legend(&flow.model), PAGE).lines().map(str::to_owned).collect()
}

/// A model and the way in which its numbers are written.
pub(crate) struct View<'a> {
    pub(crate) model: &'a Model,
    pub(crate) symbolic: bool,
}

impl View<'_> {
    /// A shape without its batch, which is the same everywhere.
    pub(crate) fn shape(&self, dims: &[attnscope_graph::Dim]) -> String {
        use attnscope_graph::Dim;
        let dims = match dims {
            [Dim::Batch | Dim::Fixed(1), rest @ ..] if !rest.is_empty() => rest,
            _ => dims,
        };
        ShapeText { dims, sizes: &self.model.sizes, symbolic: self.symbolic }.to_string()
    }

    /// One dimension.
    pub(crate) fn dim(&self, dim: attnscope_graph::Dim) -> String {
        match self.model.sizes.get(dim) {
            Some(n) if !self.symbolic => n.to_string(),
            _ => dim.symbol(&self.model.sizes),
        }
    }
}

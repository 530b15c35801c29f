//! Rows, and with them the finished scene.

use super::Edge;
use super::content::Content;
use super::layers::Layers;
use super::place::Columns;
use super::ports::{self, Net};
use super::tracks::{self, Tracks};
use crate::diagram::Block;
use crate::glyphs::Glyphs;
use crate::scene::{Boxed, Role, Route, Run, Scene};
use crate::wrap::width;

/// A channel with everything decided but the row it starts in.
struct Channel {
    nets: Vec<Net>,
    tracks: Tracks,
    /// First row, the one under the rank's lowest border.
    y: usize,
}

impl Channel {
    fn new(
        layers: &Layers,
        columns: &Columns,
        edges: &[Edge],
        rank: usize,
        total: usize,
    ) -> Result<Self, usize> {
        let nets = ports::nets(layers, columns, edges, rank, total).map_err(|ports::NoPort(edge)| edge)?;
        let tracks = tracks::tracks(&nets).map_err(|tracks::Tangled(net)| some_edge(&nets[net], edges))?;
        Ok(Channel { nets, tracks, y: 0 })
    }

    /// The horizontal pieces, and a row of arrowheads if there are any.
    fn height(&self) -> usize {
        let heads = usize::from(self.nets.iter().any(|net| !net.ends.is_empty()));
        (self.tracks.rows + heads).max(1)
    }

    fn net(&self, source: usize) -> Option<(&Net, Option<usize>)> {
        let index = self.nets.iter().position(|net| net.source == source)?;
        Some((&self.nets[index], self.tracks.row[index].map(|row| self.y + row)))
    }
}

/// An edge whose going makes the net simpler.
fn some_edge(net: &Net, edges: &[Edge]) -> usize {
    let own = net.ends.first().map(|&(edge, _)| edge);
    own.or(edges.iter().rposition(|edge| edge.from == net.source)).unwrap_or(0)
}

/// Puts everything at its place, or says which edge there is no way for.
pub(super) fn scene(
    layers: &Layers,
    columns: &Columns,
    contents: &[Content],
    blocks: &[Block],
    edges: &[Edge],
    total: usize,
) -> Result<Scene, usize> {
    let mut channels = Vec::new();
    for rank in 0..layers.count.saturating_sub(1) {
        channels.push(Channel::new(layers, columns, edges, rank, total)?);
    }
    let (tops, height) = rows(layers, columns, contents, &mut channels);
    let boxes: Vec<Boxed> = (0..blocks.len())
        .map(|block| boxed(&blocks[block], &contents[block], columns, block, tops[layers.rank[block]]))
        .collect();
    let mut arrows = Vec::new();
    for (index, edge) in edges.iter().enumerate() {
        arrows.push(route(layers, &channels, &boxes, edge, index).ok_or(index)?);
    }
    let right = boxes.iter().map(|boxed| boxed.right() + 1).max().unwrap_or(0);
    let lanes = columns.x.iter().skip(blocks.len()).map(|x| x + 1).max().unwrap_or(0);
    let labels =
        arrows.iter().filter_map(|route| route.label.as_ref()).map(|label| label.x + width(&label.text));
    let width = right.max(lanes).max(labels.max().unwrap_or(0));
    let (title, facts) = (Vec::new(), Vec::new());
    Ok(Scene { glyphs: Glyphs::Unicode, title, facts, width, height, boxes, arrows })
}

/// The top row of every rank; sets the channels' rows on the way.
fn rows(
    layers: &Layers,
    columns: &Columns,
    contents: &[Content],
    channels: &mut [Channel],
) -> (Vec<usize>, usize) {
    let mut y = 0;
    let mut tops = Vec::new();
    for rank in 0..layers.count {
        tops.push(y);
        let boxes = (0..contents.len()).filter(|&block| layers.rank[block] == rank);
        y += boxes.map(|block| contents[block].rows(columns.width[block]) + 2).max().unwrap_or(2);
        if let Some(channel) = channels.get_mut(rank) {
            channel.y = y;
            y += channel.height();
        }
    }
    (tops, y)
}

fn boxed(block: &Block, content: &Content, columns: &Columns, index: usize, y: usize) -> Boxed {
    let (x, width) = (columns.x[index], columns.width[index]);
    let placed = content.fill(width);
    let height = 2 + placed.iter().map(|placed| placed.y + 1).max().unwrap_or(0);
    let runs = placed.into_iter().map(|p| Run { x: x + 2 + p.x, y: y + 1 + p.y, text: p.text, role: p.role });
    let (path, kind, hole, long) = (block.path.clone(), block.kind, block.hole, content.long.clone());
    Boxed { x, y, width, height, path, kind, hole, long, runs: runs.collect() }
}

/// Follows an edge from the bottom of its source through the channels to the top of its target.
fn route(layers: &Layers, channels: &[Channel], boxes: &[Boxed], edge: &Edge, index: usize) -> Option<Route> {
    let (first, last) = (layers.rank[edge.from], layers.rank[edge.to].checked_sub(1)?);
    let (net, track) = channels.get(first)?.net(edge.from)?;
    let mut points = Vec::new();
    let start = boxes[edge.from].bottom();
    if first == last {
        points.push((net.top, start));
    } else if net.lane_apart {
        points.push((net.lane?, start));
    } else {
        points.push((net.top, start));
        bend(&mut points, track, net.lane?);
    }
    let (net, track) = channels.get(last)?.net(edge.from)?;
    let &(_, column) = net.ends.iter().find(|(edge, _)| *edge == index)?;
    bend(&mut points, track, column);
    let end = boxes[edge.to].y.checked_sub(1)?;
    points.push((column, end));
    let label = (!edge.label.is_empty()).then(|| Run {
        x: column + 2,
        y: end,
        text: edge.label.clone(),
        role: Role::Detail,
    });
    Some(Route { from: edge.from, to: edge.to, points, label })
}

/// Goes down to the track, if the net has one, and along it to `column`.
fn bend(points: &mut Vec<(usize, usize)>, track: Option<usize>, column: usize) {
    let Some(&(from, _)) = points.last() else { return };
    if let (Some(row), true) = (track, from != column) {
        points.push((from, row));
        points.push((column, row));
    }
}

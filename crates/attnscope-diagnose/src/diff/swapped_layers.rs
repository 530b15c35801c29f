//! Two exchanged layers of a weight file: reported for the layers, not for the first weight that shows it.

use attnscope_graph::{NodePath, Stack};

use super::relation::Relation;
use super::{Compared, State};

/// A weight's layer, and its path within it.
fn place(path: &str) -> Option<((Stack, usize), String)> {
    let path = NodePath::from(path.to_owned());
    Some((path.layer()?, path.within_layer().to_owned()))
}

/// The layers that are exchanged: every weight of the two that differs is the same weight of the other. `moved` are weights of
/// B, by their paths, each with the path at which A has it.
pub(super) fn swapped_layers(rows: &[Compared], moved: &[(String, String)]) -> Option<Relation> {
    let first = rows.iter().find(|row| row.state == State::First)?;
    let partner = |path: &str| moved.iter().find(|(here, _)| here == path).map(|(_, there)| there.as_str());
    let (one, _) = place(&first.node)?;
    let (other, _) = place(partner(&first.node)?)?;
    let is_exchanged = |row: &Compared| {
        let Some((layer, part)) = place(&row.node) else { return true };
        let expected = match layer {
            layer if layer == one => other,
            layer if layer == other => one,
            _ => return true,
        };
        partner(&row.node).and_then(place) == Some((expected, part))
    };
    let differing = || rows.iter().filter(|row| matches!(row.state, State::First | State::After));
    let both = differing().any(|row| place(&row.node).is_some_and(|(layer, _)| layer == other));
    (one.0 == other.0 && both && differing().all(is_exchanged)).then_some(Relation::SwappedLayers {
        stack: one.0.name(),
        layers: [one.1.min(other.1), one.1.max(other.1)],
    })
}

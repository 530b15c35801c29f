//! The arithmetic of the cells of attention weights, as far as a report has room for it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use attnscope_diagnose::cell::{Cells, needed};
use attnscope_graph::NodeId;
use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::packed::pack;
use crate::answer::{Base64, CellPages, LeftOut, Page, ReportAttention, Trace};
use crate::explain::{Ran, Subject, arithmetic_of, cell_page};
use crate::failure::Failure;
use crate::ready::Ready;
use crate::trace::{in_f64, rounding_of};

/// Cells of all attentions together: about 130 bytes each in a page.
const MOST_CELLS: usize = 3200;

/// The cells of as many attentions as there is room for: those between two sequences first, and of these the small ones. Where an
/// attention does not fit, its first heads may.
pub(super) fn cells(
    ready: &Ready<'_>,
    trace: &Trace,
    attentions: &[ReportAttention],
    row: usize,
    left_out: &mut Vec<LeftOut>,
) -> Result<BTreeMap<String, CellPages>, Failure> {
    let size = |attention: &ReportAttention| attention.queries * attention.keys;
    let mut in_order: Vec<&ReportAttention> = attentions.iter().collect();
    in_order.sort_by_key(|attention| (attention.query_side == attention.key_side, size(attention)));
    let subject = Subject {
        name: &ready.opened.name,
        model: ready.model,
        sizes: trace.input.sizes().clone(),
        run: Some(Ran {
            ready,
            input: trace.input.input().clone(),
            generated: trace.tokens.generated,
            precision: trace.precision,
            stats: BTreeMap::new(),
            kept: BTreeMap::new(),
        }),
    };
    let (mut pages, mut room, mut without) = (BTreeMap::new(), MOST_CELLS, Vec::new());
    for attention in in_order {
        let path = format!("{}.weights", attention.path);
        let heads = attention.heads.min(room.checked_div(size(attention)).unwrap_or(0));
        let node = ready.model.graph.find(&path).filter(|_| heads > 0);
        let made = node.and_then(|node| {
            let needed = needed(&ready.model.graph, node);
            needed.iter().all(|id| trace.kept.contains_key(id)).then_some((node, needed))
        });
        let Some((node, needed)) = made else {
            without.push(attention.path.clone());
            continue;
        };
        if heads < attention.heads {
            without.push(format!("{} from head {heads} on", attention.path));
        }
        room -= heads * size(attention);
        ready.prepared.limits().cancel.check()?;
        let shape = [heads, attention.queries, attention.keys];
        pages.insert(path, pages_of(&subject, trace, shape, node, &needed, row)?);
    }
    if !without.is_empty() {
        let why = format!(
            "the arithmetic of cells is here for {MOST_CELLS} of them at most, and not for {}",
            without.join(", ")
        );
        left_out.push(LeftOut { part: "cells", why });
    }
    Ok(pages)
}

/// A page for every cell of so many heads, queries and keys in one row of the batch.
fn pages_of(
    subject: &Subject<'_>,
    trace: &Trace,
    shape: [usize; 3],
    node: NodeId,
    needed: &BTreeSet<NodeId>,
    row: usize,
) -> Result<CellPages, Failure> {
    let prepared = trace.model().prepared()?;
    let tensors = in_f64(&trace.kept, needed);
    let cells = Cells {
        model: subject.model,
        weights: prepared.weights(),
        input: trace.input.input(),
        sizes: trace.input.sizes(),
        precision: rounding_of(trace.precision),
        tensors: &tensors,
    };
    let mut pages: Vec<Page> = Vec::new();
    for head in 0..shape[0] {
        for query in 0..shape[1] {
            for key in 0..shape[2] {
                let told = arithmetic_of(&cells, node, &[row, head, query, key])?;
                pages.push(cell_page(subject, node, &told, false));
            }
        }
    }
    Ok(CellPages { row, shape, pages: Base64(compressed(&pages)?) })
}

/// The pages as JSON, packed and compressed.
fn compressed(pages: &[Page]) -> Result<Vec<u8>, Failure> {
    let failed =
        |e: &dyn std::fmt::Display| Failure::new(format!("the pages of cells: {e}"), "please report this");
    let texts =
        pages.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>().map_err(|e| failed(&e))?;
    let json = serde_json::to_vec(&pack(&texts)).map_err(|e| failed(&e))?;
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&json).map_err(|e| failed(&e))?;
    encoder.finish().map_err(|e| failed(&e))
}

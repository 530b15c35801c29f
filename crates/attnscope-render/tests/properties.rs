//! What must hold for every diagram, however odd.
#![allow(missing_docs, clippy::unwrap_used)]

use attnscope_render::{
    Arrow, Block, Column, Diagram, Glyphs, Hole, Kind, Options, Scene, Style, Table, clean, dot, layout,
    mermaid, svg, text,
};
use proptest::prelude::*;
use unicode_width::UnicodeWidthChar;

fn words() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z_.]{0,30}",
        "[a-z_./ ]{0,40} \\[[0-9, ]{1,9}\\]",
        "[重み注意a-c. ]{0,12}",
        "[√×·ᵀ→…≥αa-z ]{0,12}",
        any::<String>().prop_map(|text| text.chars().take(15).collect()),
    ]
}

fn hole() -> impl Strategy<Value = Option<Hole>> {
    prop_oneof![8 => Just(None), 1 => Just(Some(Hole::Missing)), 1 => Just(Some(Hole::WrongShape))]
}

fn block() -> impl Strategy<Value = Block> {
    (words(), words(), prop::collection::vec(words(), 0..4), 0..10_usize, hole()).prop_map(
        |(title, shape, lines, kind, hole)| {
            let kinds = [
                Kind::Input,
                Kind::Outside,
                Kind::Embedding,
                Kind::Linear,
                Kind::Attention,
                Kind::Mask,
                Kind::Stream,
                Kind::Activation,
                Kind::Stack,
                Kind::Output,
            ];
            Block { path: title.clone(), title, shape, lines, kind: kinds[kind], hole }
        },
    )
}

/// A diagram without cycles: arrows go from a lower index to a higher one.
fn diagram() -> impl Strategy<Value = Diagram> {
    (words(), prop::collection::vec(words(), 0..3), prop::collection::vec(block(), 1..14)).prop_flat_map(
        |(title, facts, blocks)| {
            let count = blocks.len();
            let arrow = (0..count, 0..count, prop_oneof![4 => Just(String::new()), 1 => "[a-z, ]{0,12}"]);
            prop::collection::vec(arrow, 0..count * 2).prop_map(move |arrows| {
                let arrows = arrows.into_iter().filter(|(a, b, _)| a != b);
                let arrows =
                    arrows.map(|(a, b, label)| Arrow { from: a.min(b), to: a.max(b), label }).collect();
                Diagram { title: title.clone(), facts: facts.clone(), blocks: blocks.clone(), arrows }
            })
        },
    )
}

/// Rows of cells; a wide character is followed by an empty cell.
fn cells(drawn: &str) -> Vec<Vec<String>> {
    drawn
        .lines()
        .map(|line| {
            let mut row: Vec<String> = Vec::new();
            for c in line.chars() {
                match (c.width().unwrap_or(0), row.iter_mut().rev().find(|cell| !cell.is_empty())) {
                    (0, Some(last)) => last.push(c),
                    (width, _) => {
                        row.push(c.to_string());
                        row.extend((1..width).map(|_| String::new()));
                    }
                }
            }
            row
        })
        .collect()
}

fn check_borders(scene: &Scene, grid: &[Vec<String>]) -> Result<(), TestCaseError> {
    let head = grid.len() - scene.height;
    let at = |x: usize, y: usize| grid[y + head].get(x).map_or(" ", String::as_str);
    for boxed in &scene.boxes {
        let (corners, sides, bottoms) = match (boxed.hole.is_some(), scene.glyphs) {
            (false, Glyphs::Unicode) => (["┌", "┐", "└", "┘"], "│", "─┬"),
            (true, Glyphs::Unicode) => (["┏", "┓", "┗", "┛"], "╏", "╍┯"),
            (false, Glyphs::Ascii) => (["+"; 4], "|", "-+"),
            (true, Glyphs::Ascii) => (["#"; 4], "#", "=#"),
        };
        let (left, right, top, bottom) = (boxed.x, boxed.right(), boxed.y, boxed.bottom());
        let found = [at(left, top), at(right, top), at(left, bottom), at(right, bottom)];
        prop_assert_eq!(found, corners);
        let mark: String = (left..right).map(|x| at(x, top)).collect();
        prop_assert!(boxed.hole.is_none_or(|hole| mark.contains(hole.label())), "no mark in {}", mark);
        for y in top + 1..bottom {
            prop_assert_eq!([at(left, y), at(right, y)], [sides; 2]);
        }
        for x in left + 1..right {
            prop_assert!(bottoms.contains(at(x, bottom)), "bottom border broken: {}", at(x, bottom));
            prop_assert!(
                boxed.hole.is_some() || at(x, top) == &bottoms[..bottoms.chars().next().unwrap().len_utf8()]
            );
        }
    }
    Ok(())
}

fn check_routes(scene: &Scene, diagram: &Diagram) -> Result<(), TestCaseError> {
    for route in &scene.arrows {
        let (from, to) = (&scene.boxes[route.from], &scene.boxes[route.to]);
        let (&first, &last) = (route.points.first().unwrap(), route.points.last().unwrap());
        prop_assert!(first.1 == from.bottom() && from.x < first.0 && first.0 < from.right());
        prop_assert!(last.1 + 1 == to.y && to.x < last.0 && last.0 < to.right());
        prop_assert!(diagram.arrows.iter().any(|arrow| (arrow.from, arrow.to) == (route.from, route.to)));
        for pair in route.points.windows(2) {
            let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
            prop_assert!(x0 == x1 || y0 == y1);
            for (index, boxed) in scene.boxes.iter().enumerate() {
                // It may touch the bottom border of the box it leaves, and nothing of any other.
                let low = if index == route.from { boxed.bottom() } else { boxed.bottom() + 1 };
                let apart = x0.max(x1) < boxed.x
                    || x0.min(x1) > boxed.right()
                    || y0.max(y1) < boxed.y
                    || y0.min(y1) >= low;
                prop_assert!(apart, "an arrow runs through box {index}");
            }
        }
    }
    Ok(())
}

/// Lines of different sources may cross, never run along each other or meet at a corner.
fn check_crossings(scene: &Scene) -> Result<(), TestCaseError> {
    use std::collections::HashMap;
    let mut across: HashMap<(usize, usize), usize> = HashMap::new();
    let mut down: HashMap<(usize, usize), usize> = HashMap::new();
    for route in &scene.arrows {
        for pair in route.points.windows(2) {
            let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
            for x in x0.min(x1)..=x0.max(x1) {
                for y in y0.min(y1)..=y0.max(y1) {
                    let map = if x0 == x1 { &mut down } else { &mut across };
                    let owner = *map.entry((x, y)).or_insert(route.from);
                    prop_assert_eq!(owner, route.from, "two lines in one cell");
                }
            }
        }
    }
    Ok(())
}

fn check_texts(scene: &Scene, diagram: &Diagram) -> Result<(), TestCaseError> {
    let squeeze = |text: &str| text.split_whitespace().collect::<String>();
    for (boxed, block) in scene.boxes.iter().zip(&diagram.blocks) {
        let all: String = boxed.runs.iter().map(|run| squeeze(&run.text)).collect();
        let mut wanted =
            squeeze(&scene.glyphs.text(&block.title)) + &squeeze(&scene.glyphs.text(&block.shape));
        wanted.extend(block.lines.iter().map(|line| squeeze(&scene.glyphs.text(line))));
        prop_assert!(all.starts_with(&wanted), "{all} lacks {wanted}");
        for run in &boxed.runs {
            let end = run.x + run.text.chars().map(|c| c.width().unwrap_or(0)).sum::<usize>();
            prop_assert!(run.x > boxed.x && end <= boxed.right(), "text over the border");
            prop_assert!(run.y > boxed.y && run.y < boxed.bottom());
        }
    }
    Ok(())
}

/// Visible characters, those of rules left out.
fn letters(text: &str) -> usize {
    text.chars().filter(|c| !c.is_whitespace() && *c != '─').count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_drawing_holds_together(diagram in diagram(), width in 20..130_usize, ascii in any::<bool>()) {
        let glyphs = if ascii { Glyphs::Ascii } else { Glyphs::Unicode };
        let scene = layout(&diagram, Options { width, glyphs, ..Options::default() }).unwrap();
        let drawn = text(&scene, Style::default());
        prop_assert!(scene.width <= width);
        prop_assert!(!ascii || drawn.is_ascii());
        prop_assert!(!drawn.chars().any(|c| c.is_control() && c != '\n'));
        let grid = cells(&drawn);
        for (line, row) in drawn.lines().zip(&grid) {
            prop_assert!(row.len() <= width, "{} columns: {line}", row.len());
            prop_assert!(!line.ends_with(' '));
        }
        check_borders(&scene, &grid)?;
        check_routes(&scene, &diagram)?;
        check_crossings(&scene)?;
        check_texts(&scene, &diagram)?;
        // Deterministic, and no format falls over.
        prop_assert_eq!(&scene, &layout(&diagram, Options { width, glyphs, ..Options::default() }).unwrap());
        let _ = (svg(&scene, "p"), mermaid(&diagram.title, std::slice::from_ref(&diagram)), dot(&diagram.title, std::slice::from_ref(&diagram)));
    }

    /// What is not drawn as a line is said in words in the box it goes to.
    #[test]
    fn no_arrow_is_lost(diagram in diagram(), width in 20..130_usize) {
        let scene = layout(&diagram, Options { width, ..Options::default() }).unwrap();
        for (index, boxed) in scene.boxes.iter().enumerate() {
            let into = diagram.arrows.iter().filter(|arrow| arrow.to == index).count();
            let drawn = scene.arrows.iter().filter(|route| route.to == index).count();
            let said = boxed.runs.iter().filter(|run| run.text.starts_with("←")).count();
            prop_assert!(drawn <= into && into <= drawn + said);
        }
    }

    /// A table leaves nothing out, adds nothing and keeps to its width, however odd its cells.
    #[test]
    fn every_table_keeps_to_its_width(
        rows in prop::collection::vec(prop::collection::vec(words(), 1..6), 0..8),
        headed in any::<bool>(),
        flexible in 0..6_usize,
        width in 20..160_usize,
    ) {
        let heading = |name: &&str| if headed { Column::left(name) } else { Column::right("") };
        let columns: Vec<Column> = ["Tensor", "Type", "Shape", "A longer heading", "Mean"].iter().map(heading).collect();
        let mut wanted = letters(&columns.iter().map(|column| column.heading.as_str()).collect::<String>());
        let mut table = Table::new(columns, Glyphs::Unicode).flexible(flexible);
        for row in &rows {
            table.row(row);
            wanted += row.iter().map(|cell| letters(&clean(cell))).sum::<usize>();
        }
        let drawn = table.render(width);
        prop_assert_eq!(letters(&drawn), wanted, "{}", drawn);
        for (line, row) in drawn.lines().zip(cells(&drawn)) {
            prop_assert!(row.len() <= width, "{} columns: {}", row.len(), line);
            prop_assert!(!line.ends_with(' '));
        }
    }

    #[test]
    fn clean_text_is_safe_and_stays_so(text in any::<String>()) {
        let cleaned = clean(&text);
        prop_assert!(!cleaned.chars().any(char::is_control));
        prop_assert_eq!(clean(&cleaned), cleaned.clone());
    }
}

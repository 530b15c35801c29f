//! Golden drawings: what a reader sees, in every format.
#![allow(missing_docs, unreachable_pub)]
#![allow(clippy::unwrap_used)] // Helpers of tests are not seen as tests.

mod samples;

use attnscope_render::html::{Contents, Drawing, Place, page};
use attnscope_render::{
    Arrow, Diagram, Glyphs, Hole, LayoutError, Options, Style, dot, draw, layout, mermaid, svg, svg_sheet,
};

fn at(width: usize, glyphs: Glyphs) -> Options {
    Options { width, glyphs, ..Options::default() }
}

/// A page whose data try to end their element.
fn html(title: &str, legend: &[String], diagrams: &[Diagram]) -> String {
    let drawings: Vec<Drawing> =
        diagrams.iter().map(|diagram| Drawing { diagram: diagram.clone(), of: None }).collect();
    let data = r#"{"flow":{"nodes":[],"model":"</script><script>alert(1)</script>"}}"#;
    let place = Place::File { commands: "{}" };
    page(&Contents { title, legend, drawings: &drawings, data, place }).unwrap()
}

#[test]
fn text_at_usual_widths() {
    for (name, diagram) in samples::all() {
        for width in [60, 80, 100, 120] {
            let text = draw(&diagram, at(width, Glyphs::Unicode), Style::default()).unwrap();
            insta::assert_snapshot!(format!("{name}_{width}"), text);
        }
    }
}

#[test]
fn text_in_ascii() {
    for (name, diagram) in samples::all() {
        let text = draw(&diagram, at(80, Glyphs::Ascii), Style::default()).unwrap();
        assert!(text.is_ascii(), "{text}");
        insta::assert_snapshot!(format!("{name}_ascii"), text);
    }
}

#[test]
fn a_very_narrow_terminal_gets_the_truth_in_words() {
    let text = draw(&samples::self_attention(), at(24, Glyphs::Unicode), Style::default()).unwrap();
    insta::assert_snapshot!("self_attention_24", text);
}

#[test]
fn colour_changes_nothing_visible() {
    for (_, diagram) in samples::all() {
        let plain = draw(&diagram, Options::default(), Style::default()).unwrap();
        let coloured = draw(&diagram, Options::default(), Style { color: true }).unwrap();
        assert_ne!(plain, coloured);
        assert_eq!(plain, without_escapes(&coloured));
    }
}

fn without_escapes(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or("").to_owned();
    parts.fold(first, |out, part| out + part.split_once('m').map_or("", |(_, rest)| rest))
}

#[test]
fn a_hole_cannot_be_overlooked() {
    for hole in [Hole::Missing, Hole::WrongShape] {
        let mut diagram = samples::self_attention();
        diagram.blocks.iter_mut().filter_map(|block| block.hole.as_mut()).for_each(|it| *it = hole);
        let label = hole.label();
        for glyphs in [Glyphs::Unicode, Glyphs::Ascii] {
            for width in [20, 60, 100] {
                assert!(draw(&diagram, at(width, glyphs), Style::default()).unwrap().contains(label));
            }
        }
        let drawn = svg(&layout(&diagram, Options::default()).unwrap(), "a");
        assert!(drawn.contains(&format!(">{label}</text>")));
        assert!(drawn.contains(&format!("({})</title>", label.to_lowercase())));
        assert!(mermaid(&diagram.title, std::slice::from_ref(&diagram)).contains(label));
        assert!(dot(&diagram.title, std::slice::from_ref(&diagram)).contains(label));
    }
    assert!(Some(Hole::Missing) > Some(Hole::WrongShape) && Some(Hole::WrongShape) > None);
}

#[test]
fn a_sheet_and_a_page_explain_their_letters() {
    let diagrams = [samples::feed_forward(), samples::cross_attention("")];
    let scenes: Vec<_> = diagrams.iter().map(|d| layout(d, at(110, Glyphs::Unicode)).unwrap()).collect();
    let legend = ["S source length · D = 512 d_model".to_owned(), "F = 1024 <b>".to_owned()];
    let sheet = svg_sheet("a/model & more · T5", &legend, &scenes);
    let heads: Vec<&str> = sheet.lines().skip(2).take(4).collect();
    insta::assert_snapshot!("sheet_head", heads.join("\n"));
    // A heading has its place whatever stands under it, and however long it is.
    let long = svg_sheet(&"models/".repeat(60), &[], &[]);
    assert_eq!(long.matches("<text").count(), 4, "{long}");
    let html = html("T5", &legend, diagrams.as_ref());
    assert!(html.contains("<h1>T5</h1>"));
    assert!(
        html.contains("<p class=\"legend\">S source length · D = 512 d_model<br>\nF = 1024 &lt;b&gt;</p>\n")
    );
}

#[test]
fn a_name_without_end_does_not_flood_a_drawing() {
    let mut diagram = samples::feed_forward();
    let long = format!("begin.{}.end", "x".repeat(5000));
    diagram.blocks[2].lines = vec![format!("{long} [2, 2] f16"), "a b ".repeat(2000)];
    diagram.blocks[2].title = long.clone();
    diagram.title = long.clone();
    diagram.facts = vec![long.clone(), format!("in {}", "some/folder/".repeat(20))];
    diagram.arrows[3].label = long.clone();
    for glyphs in [Glyphs::Unicode, Glyphs::Ascii] {
        for width in [20, 60, 80, 100, 160] {
            let scene = layout(&diagram, at(width, glyphs)).unwrap();
            let text = attnscope_render::text(&scene, Style::default());
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
            assert!(text.lines().count() < if width == 20 { 260 } else { 100 }, "{text}");
            let drawn = svg(&scene, "a");
            // The name is whole where the pointer rests, once as a title and once as a weight's.
            assert_eq!(drawn.matches(&long).count(), 2);
        }
    }
    let (mermaid, dot) =
        (mermaid("", std::slice::from_ref(&diagram)), dot("", std::slice::from_ref(&diagram)));
    assert!(mermaid.len() < 4000, "{}", mermaid.len());
    assert_eq!(dot.split("tooltip=").skip(1).map(|tip| tip.matches(&long).count()).sum::<usize>(), 2);
    assert_eq!(dot.matches(&long).count(), 2);
}

#[test]
fn other_formats() {
    let diagram = samples::cross_attention("");
    insta::assert_snapshot!(
        "cross_attention_svg",
        svg(&layout(&diagram, Options::default()).unwrap(), "flow")
    );
    insta::assert_snapshot!(
        "cross_attention_mermaid",
        mermaid(&diagram.title, std::slice::from_ref(&diagram))
    );
    insta::assert_snapshot!("cross_attention_dot", dot(&diagram.title, std::slice::from_ref(&diagram)));
    let strange = samples::strange_names();
    insta::assert_snapshot!("strange_names_mermaid", mermaid(&strange.title, std::slice::from_ref(&strange)));
    insta::assert_snapshot!("strange_names_dot", dot(&strange.title, std::slice::from_ref(&strange)));
}

#[test]
fn markup_in_a_name_stays_text() {
    let mut diagram = samples::feed_forward();
    diagram.blocks[1].title = "</text><script>alert(1)</script>".to_owned();
    diagram.blocks[1].path = "\"><script>".to_owned();
    diagram.title = "</title><script>".to_owned();
    diagram.facts = vec!["%%{init: {}}%% <script>".to_owned()];
    diagram.blocks[2].lines = vec![format!("<script>{}", "x".repeat(200))];
    let chart = mermaid("\"<script>\\", std::slice::from_ref(&diagram));
    assert!(!chart.contains("<script") && !chart.contains('{'), "{chart}");
    assert!(chart.starts_with("---\ntitle: \"\\x22\\x3cscript\\x3e\\x5c\"\n---\n"), "{chart}");
    let html = html("<script>", &["<script>".to_owned()], &[diagram.clone(), diagram]);
    assert_eq!(html.matches("<script").count(), 3, "two of data and the page's own");
    // Ids must differ between the drawings of a page.
    for id in ["flow0-head", "flow1-head", "flow0-title", "flow1-title"] {
        assert_eq!(html.matches(&format!("id=\"{id}\"")).count(), 1);
    }
    // The only addresses are names of namespaces, which nobody fetches.
    assert_eq!(html.matches("http://").count(), html.matches("http://www.w3.org/").count());
    assert!(!html.contains("https://"));
}

#[test]
fn a_bad_diagram_is_an_error() {
    let mut diagram = samples::feed_forward();
    diagram.arrows.push(Arrow { from: 0, to: 99, label: String::new() });
    assert_eq!(layout(&diagram, Options::default()), Err(LayoutError::NoSuchBlock { arrow: 8, block: 99 }));
    assert!(!mermaid(&diagram.title, std::slice::from_ref(&diagram)).contains("n99 "));
    assert!(!dot(&diagram.title, std::slice::from_ref(&diagram)).contains("n99 "));
    diagram.arrows.pop();
    diagram.arrows.push(Arrow { from: 6, to: 0, label: String::new() });
    assert_eq!(layout(&diagram, Options::default()), Err(LayoutError::Cycle));
    diagram.arrows.pop();
    diagram.arrows.push(Arrow { from: 2, to: 2, label: String::new() });
    assert_eq!(layout(&diagram, Options::default()), Err(LayoutError::Cycle));
}

#[test]
fn nothing_is_drawn_as_nothing() {
    let drawn = draw(&Diagram::default(), Options::default(), Style::default());
    assert_eq!(drawn.as_deref(), Ok(""));
    assert!(svg(&layout(&Diagram::default(), Options::default()).unwrap(), "x").ends_with("</svg>\n"));
    let place = Place::File { commands: "{}" };
    let empty = Contents { title: "", legend: &[], drawings: &[], data: "{}", place };
    assert!(page(&empty).unwrap().contains("<title>attnscope</title>"));
}

#[test]
fn forty_blocks_with_many_long_arrows_stay_quick() {
    let mut sketch = samples::Sketch::new("large", &[]);
    let names: Vec<String> = (0..40).map(|index| format!("block {index}")).collect();
    for name in &names {
        sketch = sketch.block(attnscope_render::Kind::Linear, name, "[T, 512]", &["some weight [512, 512]"]);
    }
    for index in 1..40 {
        sketch = sketch.arrow(&names[index / 2], &names[index], "").arrow(
            &names[index * 2 / 3],
            &names[index],
            "",
        );
    }
    let mut diagram = sketch.done();
    diagram.arrows.retain(|arrow| arrow.from != arrow.to);
    let start = std::time::Instant::now();
    draw(&diagram, at(120, Glyphs::Unicode), Style::default()).unwrap();
    // Far above what it takes, so that a busy machine does not fail it; far below what a runaway would take.
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
    eprintln!("forty blocks: {:?}", start.elapsed());
}

//! A corpus that was measured, as one HTML document: heads as a grid coloured by any measure, distributions, and the sentences behind
//! them. It holds no script: what is chosen is a radio button, what is opened is a link.

use std::collections::HashMap;
use std::fmt::Write as _;

use attnscope::answer::Audit;
use attnscope::corpus::{
    Distribution, ExtremeSentence, GroupSummary, HeadMeasure, HeadSummary, JoinMeasure, MeasureSummary,
    SentenceMeasure,
};
use attnscope::figures::thousands;

use crate::audit::{flags, shown};
use crate::glyphs::clean;
use crate::html::policy;
use crate::markup::escape;

/// Points of a grid's cell.
const CELL: (usize, usize) = (54, 24);
/// Points of its row names.
const NAMES: usize = 190;
/// Points of a histogram.
const BARS: (f64, f64) = (192.0, 36.0);
/// The colours of the smallest and of the largest mean.
const COLOURS: [[f64; 3]; 2] = [[255.0, 255.0, 255.0], [31.0, 78.0, 121.0]];

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;margin:24px auto;max-width:1100px;padding:0 16px;color:#1a1a1a;\
background:#fff}h1{font-size:22px}h2{font-size:18px;margin-top:32px}table{border-collapse:collapse}td,th{padding:3px 12px 3px 0;\
text-align:right;vertical-align:top;font-variant-numeric:tabular-nums}td:first-child,th:first-child,td.s{text-align:left}\
.s{min-width:200px;max-width:560px;font-size:13px;overflow-wrap:anywhere}.wide{overflow-x:auto}svg a:focus rect,svg a:hover rect{stroke:#c44600;\
stroke-width:2}.grid,.head{display:none}.head:target{display:block;border-top:3px solid #c44600;margin-top:16px}label{margin:0 14px 0 \
3px}details{font-size:13px}@media(prefers-color-scheme:dark){body{background:#16181c;color:#e6e6e6}svg text.n{fill:#e6e6e6}a{color:\
#8ab4f8}}";

/// The page.
pub fn page(answer: &Audit) -> String {
    let summary = &answer.summary;
    let sentences: Sentences<'_> = summary.examples.iter().map(|example| (example.row, example)).collect();
    let chosen: String =
        (0..HeadMeasure::ALL.len()).map(|m| format!("#m{m}:checked~#g{m}{{display:block}}")).collect();
    let style = format!("{STYLE}{chosen}");
    let title = text(&format!("{} on {}", answer.model, answer.corpus));
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"generator\" content=\"attnscope\">\n<meta name=\"color-scheme\" content=\"light dark\">\n{}<style>{style}</style>\n\
         <title>{title}</title>\n</head>\n<body>\n<h1>{title}</h1>\n",
        policy(&style, None)
    );
    // Writing to a string cannot fail; the result is dropped here and below.
    let _ = writeln!(
        out,
        "<p>{} sentences with {} target tokens were measured, of {} rows; {}.</p>",
        thousands(summary.sentences),
        thousands(summary.target_tokens),
        thousands(summary.rows),
        text(&flags(summary))
    );
    out += &costs(&summary.nll, &sentences);
    if !summary.heads.is_empty() {
        out += &heads(&summary.heads, &sentences);
    }
    if !summary.layers.is_empty() {
        out += "<section>\n<h2>Layers</h2>\n";
        out += &table_head("");
        for layer in &summary.layers {
            for measure in &layer.measures {
                let name = format!("{} {}", layer.sublayer, join_words(measure.measure));
                out += &measured(&name, measure, &sentences);
            }
        }
        out += "</table></div>\n</section>\n";
    }
    out += &groups(&summary.groups);
    out + "</body>\n</html>\n"
}

type Sentences<'a> = HashMap<i64, &'a ExtremeSentence>;

/// A text of somebody, as HTML.
fn text(of: &str) -> String {
    escape(&clean(of))
}

fn head_words(measure: HeadMeasure) -> String {
    measure.name().replace('_', " ")
}

fn join_words(measure: JoinMeasure) -> String {
    measure.name().replace('_', " ")
}

fn costs(nll: &[MeasureSummary<SentenceMeasure>], sentences: &Sentences<'_>) -> String {
    let mut out = format!("<section>\n<h2>What sentences cost</h2>\n{}", table_head("nats a token"));
    for measure in nll.iter().filter(|measure| measure.distribution.count > 0) {
        let name = match measure.measure {
            SentenceMeasure::Nll => "NLL",
            SentenceMeasure::NllSwapped => "NLL, another source",
            SentenceMeasure::DeltaNll => "ΔNLL",
        };
        out += &measured(name, measure, sentences);
    }
    out + "</table></div>\n</section>\n"
}

fn table_head(first: &str) -> String {
    format!(
        "<div class=\"wide\"><table>\n<tr><th>{first}</th><th>mean</th><th>deviation</th><th>5 %</th><th>median</th><th>95 %</th>\
         <th>1 % to 99 %</th><th class=\"s\">sentences at the ends</th></tr>\n"
    )
}

/// A row: a measure, how it is distributed, and the sentences at its ends.
fn measured<M>(name: &str, measure: &MeasureSummary<M>, sentences: &Sentences<'_>) -> String {
    let of = &measure.distribution;
    let quantile = |i: usize| shown(of.quantiles.get(i).copied(), 3);
    let numbers = [
        shown(of.mean, 3),
        shown(of.variance.map(f64::sqrt), 3),
        quantile(1),
        shown(of.median(), 3),
        quantile(5),
        histogram(of),
    ];
    let cells: String = numbers.iter().map(|cell| format!("<td>{cell}</td>")).collect();
    let ends = [("largest", &measure.highest), ("smallest", &measure.lowest)];
    let ends: String = ends.iter().map(|(what, rows)| at_end(what, rows, sentences)).collect();
    format!("<tr><td>{}</td>{cells}<td class=\"s\">{ends}</td></tr>\n", text(name))
}

fn at_end(what: &str, rows: &[(i64, f64)], sentences: &Sentences<'_>) -> String {
    let Some((_, first)) = rows.first() else { return String::new() };
    let mut out = format!("<details><summary>{what}: {first:.3}</summary>");
    for (row, value) in rows {
        let known = sentences.get(row);
        let sides = known.map(|known| [&known.source, &known.target]).into_iter().flatten().flatten();
        let sides: Vec<String> = sides.map(|side| text(side)).collect();
        let line =
            known.and_then(|known| known.line).map(|line| format!(", line {line}")).unwrap_or_default();
        let _ = write!(out, "<div>{value:.3}: row {row}{line}: {}</div>", sides.join(" | "));
    }
    out + "</details>"
}

/// The shares of equal bins, as bars.
fn histogram(of: &Distribution) -> String {
    let highest = of.histogram.iter().copied().fold(0.0, f64::max);
    if highest <= 0.0 {
        return "–".to_owned();
    }
    let (width, height) = BARS;
    let bar = width / of.histogram.len() as f64;
    let bars: String = of
        .histogram
        .iter()
        .enumerate()
        .filter(|(_, share)| **share > 0.0)
        .map(|(i, share)| {
            let tall = height * share / highest;
            let (x, y, wide) = (bar * i as f64, height - tall, bar - 1.0);
            format!("<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{tall:.1}\"/>")
        })
        .collect();
    let ends = [of.quantiles.first(), of.quantiles.last()].map(|end| shown(end.copied(), 3)).join(" to ");
    format!(
        "<svg width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{ends}\" fill=\"#2f7fb8\"><title>{ends}</title>{bars}</svg>"
    )
}

/// A grid for each measure, of which one is shown, and what is behind each head.
fn heads(heads: &[HeadSummary], sentences: &Sentences<'_>) -> String {
    let mut out = String::from(
        "<section>\n<h2>Heads</h2>\n<p>Means over sentences. A click on a head shows how it is distributed, and the sentences at the \
         ends.</p>\n",
    );
    for (m, measure) in HeadMeasure::ALL.iter().enumerate() {
        let checked = if m == 0 { " checked" } else { "" };
        let _ = writeln!(
            out,
            "<input type=\"radio\" name=\"measure\" id=\"m{m}\"{checked}><label for=\"m{m}\">{}</label>",
            head_words(*measure)
        );
    }
    for (m, measure) in HeadMeasure::ALL.iter().enumerate() {
        let _ = writeln!(out, "<div class=\"grid wide\" id=\"g{m}\">\n{}</div>", grid(heads, m, *measure));
    }
    for (n, head) in heads.iter().enumerate() {
        let _ = write!(
            out,
            "<div class=\"head\" id=\"head-{n}\">\n<h3>{} head {}</h3>\n{}",
            text(&head.attention),
            head.head,
            table_head("")
        );
        for measure in &head.measures {
            out += &measured(&head_words(measure.measure), measure, sentences);
        }
        out += "</table></div>\n</div>\n";
    }
    out + "</section>\n"
}

/// One measure: a row for each attention, a cell for each of its heads.
fn grid(heads: &[HeadSummary], m: usize, measure: HeadMeasure) -> String {
    let mean = |head: &HeadSummary| head.measures.get(m).and_then(|measure| measure.distribution.mean);
    let means = || heads.iter().filter_map(mean);
    let (low, high) = (means().fold(f64::INFINITY, f64::min), means().fold(f64::NEG_INFINITY, f64::max));
    let (mut cells, mut row, mut widest) = (String::new(), 0, 0);
    for (n, head) in heads.iter().enumerate() {
        let is_new = n.checked_sub(1).is_none_or(|before| heads[before].attention != head.attention);
        if is_new {
            row += 1;
            let y = row * CELL.1 + 16;
            let _ = writeln!(cells, "<text class=\"n\" x=\"0\" y=\"{y}\">{}</text>", text(&head.attention));
        }
        let column = usize::try_from(head.head).unwrap_or(0);
        widest = widest.max(column + 1);
        let (x, y) = (NAMES + column * CELL.0, row * CELL.1);
        let value = mean(head);
        let share = value.map(|value| if high > low { (value - low) / (high - low) } else { 0.0 });
        let ink = if share.unwrap_or(0.0) > 0.75 { "#fff" } else { "#000" };
        let _ = writeln!(
            cells,
            "<a href=\"#head-{n}\"><title>{} head {}: {} {}</title><rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" fill=\"{}\" \
             stroke=\"#999\"/><text aria-hidden=\"true\" x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"{ink}\">{}</text></a>",
            text(&head.attention),
            head.head,
            head_words(measure),
            shown(value, 3),
            CELL.0 - 2,
            CELL.1 - 2,
            share.map_or_else(|| "#ddd".to_owned(), colour),
            x + CELL.0 / 2 - 1,
            y + 16,
            shown(value, 2)
        );
    }
    let numbers: String = (0..widest)
        .map(|head| {
            let x = NAMES + head * CELL.0 + CELL.0 / 2 - 1;
            format!("<text class=\"n\" x=\"{x}\" y=\"16\" text-anchor=\"middle\">{head}</text>")
        })
        .collect();
    let (width, height) = (NAMES + widest * CELL.0, (row + 1) * CELL.1);
    format!(
        "<svg width=\"{width}\" height=\"{height}\" font-size=\"12\" font-family=\"sans-serif\">{numbers}\n{cells}</svg>\n"
    )
}

/// From white, the smallest, to dark, the largest.
fn colour(share: f64) -> String {
    let [from, to] = COLOURS;
    let [r, g, b] = [0, 1, 2].map(|i| (from[i] + share * (to[i] - from[i])).round() as u8);
    format!("#{r:02x}{g:02x}{b:02x}")
}

fn groups(groups: &[GroupSummary]) -> String {
    let Some(GroupSummary { column, .. }) = groups.first() else { return String::new() };
    let mut out = format!(
        "<section>\n<h2>By {0}</h2>\n<table>\n<tr><th>{0}</th><th>sentences</th><th>NLL</th><th></th><th>ΔNLL</th><th></th></tr>\n",
        text(column)
    );
    for group in groups {
        let of = |of: &Distribution| format!("<td>{}</td><td>{}</td>", shown(of.mean, 3), histogram(of));
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}</td>{}{}</tr>",
            text(group.value.as_deref().unwrap_or("–")),
            thousands(group.sentences),
            of(&group.nll),
            of(&group.delta_nll)
        );
    }
    out + "</table>\n</section>\n"
}

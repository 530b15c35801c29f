//! The curves of a run: loss and validation over the steps, and what another source costs.

use std::io::Write;
use std::path::Path;

use attnscope::Failure;
use attnscope::training::{CURVES, Metric};
use attnscope_checkpoint::{Error, ErrorKind, write_file};

use crate::markup::escape;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 160.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 28.0;

/// A line of a chart.
struct Curve {
    name: &'static str,
    color: &'static str,
    points: Vec<(f64, f64)>,
}

/// Writes the curves into the folder of their run.
///
/// # Errors
/// When the file cannot be written.
pub fn write_curves(folder: &Path, title: &str, metrics: &[Metric]) -> Result<(), Failure> {
    let (file, svg) = (folder.join(CURVES), curves(title, metrics));
    let failed = |e| Error::new(&file, ErrorKind::Write(e));
    Ok(write_file(&file, |mut open| open.write_all(svg.as_bytes()).map_err(failed))?)
}

/// The curves of what was measured, as one drawing.
pub fn curves(title: &str, metrics: &[Metric]) -> String {
    let mut charts = vec![(
        "nats a target",
        vec![train(metrics, "learned from", |l| l.nll), validation(metrics, "validation", |l| Some(l.nll))],
    )];
    charts.push((
        "share right",
        vec![
            train(metrics, "learned from", |l| l.accuracy),
            validation(metrics, "validation", |l| Some(l.accuracy)),
        ],
    ));
    charts.push(("BLEU", vec![validation(metrics, "validation", |l| l.bleu)]));
    charts.push(("nats that another source costs", vec![source_cost(metrics)]));
    charts.retain(|(_, curves)| curves.iter().any(|curve| !curve.points.is_empty()));
    let height = TOP + charts.len() as f64 * HEIGHT;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"14\" font-weight=\"bold\">{}</text>\n",
        escape(title)
    );
    for (i, (name, curves)) in charts.iter().enumerate() {
        svg += &chart(name, curves, TOP + i as f64 * HEIGHT);
    }
    svg + "</svg>\n"
}

fn train(
    metrics: &[Metric],
    name: &'static str,
    value: impl Fn(&attnscope::training::TrainMetric) -> f64,
) -> Curve {
    let point = |line: &Metric| match line {
        Metric::Train(line) => Some((line.step as f64, value(line))),
        _ => None,
    };
    Curve { name, color: "#4477aa", points: metrics.iter().filter_map(point).collect() }
}

fn validation(
    metrics: &[Metric],
    name: &'static str,
    value: impl Fn(&attnscope::training::ValidationMetric) -> Option<f64>,
) -> Curve {
    let point = |line: &Metric| match line {
        Metric::Validation(line) => Some((line.step as f64, value(line)?)),
        _ => None,
    };
    Curve { name, color: "#cc6677", points: metrics.iter().filter_map(point).collect() }
}

fn source_cost(metrics: &[Metric]) -> Curve {
    let point = |line: &Metric| match line {
        Metric::Monitor(look) => Some((look.step as f64, look.source_cost?)),
        _ => None,
    };
    Curve { name: "held out", color: "#228833", points: metrics.iter().filter_map(point).collect() }
}

fn chart(name: &str, curves: &[Curve], top: f64) -> String {
    let finite = || curves.iter().flat_map(|curve| &curve.points).filter(|(_, y)| y.is_finite());
    let last = finite().map(|(x, _)| *x).fold(1.0, f64::max);
    let low = finite().map(|(_, y)| *y).fold(0.0, f64::min);
    let high = finite().map(|(_, y)| *y).fold(low + 1e-6, f64::max);
    let (inner, tall) = (WIDTH - LEFT - RIGHT, HEIGHT - BOTTOM - 24.0);
    let bottom = top + 16.0 + tall;
    let place = |(x, y): (f64, f64)| (LEFT + inner * x / last, bottom - tall * (y - low) / (high - low));
    let mut svg = format!("<text x=\"{LEFT}\" y=\"{:.0}\">{}</text>\n", top + 8.0, escape(name));
    for i in 0..=4 {
        let value = low + (high - low) * f64::from(i) / 4.0;
        let (_, y) = place((0.0, value));
        svg += &format!(
            "<line x1=\"{LEFT}\" x2=\"{:.0}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{}</text>\n",
            LEFT + inner,
            LEFT - 6.0,
            y + 4.0,
            label(value)
        );
    }
    for step in [0.0, last] {
        let (x, _) = place((step, low));
        svg += &format!(
            "<text x=\"{x:.0}\" y=\"{:.0}\" text-anchor=\"middle\" fill=\"#555\">{step}</text>\n",
            bottom + 16.0
        );
    }
    for (i, curve) in curves.iter().filter(|curve| !curve.points.is_empty()).enumerate() {
        let points: Vec<String> = curve
            .points
            .iter()
            .filter(|(_, y)| y.is_finite())
            .map(|&point| {
                let (x, y) = place(point);
                format!("{x:.1},{y:.1}")
            })
            .collect();
        let y = top + 24.0 + 18.0 * i as f64;
        let x = WIDTH - RIGHT + 12.0;
        svg += &format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{c}\" stroke-width=\"1.6\"/>\
             <line x1=\"{x:.0}\" x2=\"{:.0}\" y1=\"{y:.0}\" y2=\"{y:.0}\" stroke=\"{c}\" stroke-width=\"2\"/>\
             <text x=\"{:.0}\" y=\"{:.0}\">{}</text>\n",
            points.join(" "),
            x + 18.0,
            x + 24.0,
            y + 4.0,
            escape(curve.name),
            c = curve.color
        );
    }
    svg
}

/// Few digits.
fn label(value: f64) -> String {
    let digits = if value.abs() >= 10.0 { 0 } else { 2 };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use attnscope::training::{TrainMetric, ValidationMetric};

    use super::*;

    #[test]
    fn a_chart_for_everything_that_was_measured() {
        let train = |step: u64, nll: f64| {
            Metric::Train(TrainMetric {
                step,
                epoch: 0,
                loss: nll,
                nll,
                accuracy: 0.5,
                learning_rate: 1e-3,
                gradient_norm: 1.0,
                padding: 0.1,
                tokens_per_second: 10.0,
            })
        };
        let validation = Metric::Validation(ValidationMetric {
            step: 20,
            epoch: 0,
            nll: 1.5,
            accuracy: 0.6,
            bleu: None,
            best: true,
        });
        let svg = curves("a < b", &[train(10, 2.0), validation, train(20, 1.0)]);
        assert_eq!(svg.matches("<polyline").count(), 4);
        assert!(svg.contains("a &lt; b") && !svg.contains("BLEU") && !svg.contains("NaN"), "{svg}");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        // The loss falls: its second point is lower on the page.
        let line = svg.split("<polyline points=\"").nth(1).unwrap();
        let ys: Vec<f64> = line
            .split('"')
            .next()
            .unwrap()
            .split(' ')
            .map(|p| p.split(',').nth(1).unwrap().parse().unwrap())
            .collect();
        assert!(ys[1] > ys[0], "{ys:?}");
        assert!(curves("empty", &[]).ends_with("</svg>\n"));
    }
}

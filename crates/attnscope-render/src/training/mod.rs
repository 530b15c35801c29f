//! Training runs and trained models for people: text, and the curves of a run.

mod curves;

use attnscope::answer::{Evaluation, HeldOutFrom, LearnedFrom, Prediction, RunEnd, Training, TrainingPlan};
use attnscope::figures::thousands;
use attnscope::training::{Metric, MonitorMetric, ValidationMetric};

pub use curves::{curves, write_curves};

use crate::glyphs::clean;
use crate::layout::Options;
use crate::summary::{layer_table, sized};
use crate::table::{Column, Table};

/// What a run came to.
pub fn text(training: &Training, options: Options) -> String {
    let mut lines = vec![format!(
        "{} · {} of {} parameters · {}",
        training.recipe,
        training.model,
        thousands(training.parameters),
        training.folder
    )];
    lines.push(examples(&training.data));
    let pace = training.seconds / training.steps.max(1) as f64;
    lines.push(format!(
        "{} after {} of {} steps, {} ({:.0} ms a step)",
        end_words(training.ended),
        thousands(training.steps),
        thousands(training.all_steps),
        duration(training.seconds),
        pace * 1e3
    ));
    match &training.best {
        Some(best) => lines.push(format!(
            "best validation: {} nats a target, {:.2} % right, after step {}",
            nats(best.nll),
            100.0 * best.accuracy,
            thousands(best.step)
        )),
        None => lines.push("nothing was validated".into()),
    }
    if let Some(divergence) = &training.divergence {
        lines.push(format!("step {}: {}", thousands(divergence.step), divergence.found));
        lines.push(match divergence.saved {
            Some(step) => format!("the checkpoint of step {} is kept", thousands(step)),
            None => "no checkpoint was saved before".into(),
        });
        lines.push("likely causes:".into());
        lines.extend(divergence.causes.iter().map(|cause| format!("  {cause}")));
    }
    let mut text = options.glyphs.lines(&(lines.join("\n") + "\n"));
    text += &validations(&training.metrics, options);
    text += &attentions(&training.metrics, options);
    match (training.warnings.is_empty(), training.ended) {
        // What a monitor did not say of numbers that were left behind is no good news.
        (true, RunEnd::Diverged) => return text,
        (true, _) => return text + "\nNo monitor has warned.\n",
        (false, _) => {}
    }
    text += "\nWarnings\n";
    for warning in &training.warnings {
        text += &options.glyphs.lines(&format!("  step {}: {}\n", thousands(warning.step), warning.says));
    }
    text
}

/// Four digits after the point; a loss that has exploded, by its power of ten.
fn nats(x: f64) -> String {
    if x.abs() < 1e6 { format!("{x:.4}") } else { format!("{x:.3e}") }
}

fn end_words(end: RunEnd) -> &'static str {
    match end {
        RunEnd::Finished => "finished",
        RunEnd::EarlyStop => "ended early, since validation got no better,",
        RunEnd::Interrupted => "interrupted",
        RunEnd::Diverged => "diverged",
    }
}

/// `1 example`, `22,500 examples`.
fn some(n: usize, word: &str) -> String {
    counted(n, word, &format!("{word}s"))
}

fn counted(n: usize, one: &str, more: &str) -> String {
    format!("{} {}", thousands(n as u64), if n == 1 { one } else { more })
}

fn examples(data: &LearnedFrom) -> String {
    let held_out = match data.held_out {
        HeldOutFrom::OwnSplit => "a split of their own",
        HeldOutFrom::OfTrain => "held out of the training split",
        HeldOutFrom::NoShare => "the training examples themselves, since validation_share is 0",
        HeldOutFrom::Same => "the training examples themselves, which are too few to hold any out",
    };
    let mut line = format!(
        "{} to learn from, {} for validation ({held_out}), {} tokens known",
        some(data.train, "example"),
        thousands(data.validation as u64),
        thousands(data.vocabulary as u64)
    );
    if data.too_long > 0 {
        line += &format!("; {} left out for their length", some(data.too_long, "pair"));
    }
    if data.cut_texts > 0 {
        line += &format!("; {} cut to what the model reads", some(data.cut_texts, "text"));
    }
    if !data.absent_classes.is_empty() {
        line += &format!("; no text of {}", data.absent_classes.join(", "));
    }
    line + &bad_rows(data.bad_rows, data.first_bad_row.as_deref())
}

fn bad_rows(count: usize, first: Option<&str>) -> String {
    match (count, first) {
        (0, _) | (_, None) => String::new(),
        (n, Some(first)) => format!("; {} passed over, the first: {first}", some(n, "bad row")),
    }
}

/// The validations, of many the first, some between, and the last.
fn validations(metrics: &[Metric], options: Options) -> String {
    const MOST: usize = 12;
    let all: Vec<&ValidationMetric> = metrics
        .iter()
        .filter_map(|line| match line {
            Metric::Validation(line) => Some(line),
            _ => None,
        })
        .collect();
    let Some(last) = all.last() else { return String::new() };
    let has_bleu = last.bleu.is_some();
    let mut columns =
        vec![Column::right("step"), Column::right("nats a target"), Column::right("right"), Column::left("")];
    if has_bleu {
        columns.insert(3, Column::right("BLEU"));
    }
    let mut table = Table::new(columns, options.glyphs);
    let step = all.len().div_ceil(MOST).max(1);
    for (i, line) in all.iter().enumerate() {
        if i % step != 0 && i + 1 != all.len() && !line.best {
            continue;
        }
        if i % step != 0 && i + 1 != all.len() && all.len() > MOST {
            continue;
        }
        let mut cells = vec![
            thousands(line.step),
            nats(line.nll),
            format!("{:.2} %", 100.0 * line.accuracy),
            if line.best { "best until then".to_owned() } else { String::new() },
        ];
        if has_bleu {
            cells.insert(3, line.bleu.map(|bleu| format!("{bleu:.1}")).unwrap_or_default());
        }
        table.row(cells);
    }
    format!("\nValidation\n{}", table.render(options.width))
}

/// What attention did at the last look.
fn attentions(metrics: &[Metric], options: Options) -> String {
    let last = metrics.iter().rev().find_map(|line| match line {
        Metric::Monitor(look) => Some(look),
        _ => None,
    });
    let Some(look) = last.filter(|look| !look.attentions.is_empty()) else { return String::new() };
    let columns = vec![
        Column::left("attention"),
        Column::left("entropy of each head"),
        Column::right("output / stream"),
        Column::left("dead heads"),
    ];
    let mut table = Table::new(columns, options.glyphs).flexible(1);
    for attention in &look.attentions {
        let entropy: Vec<String> = attention
            .entropy
            .iter()
            .map(|entropy| entropy.map_or_else(|| "–".into(), |entropy| format!("{entropy:.2}")))
            .collect();
        let dead: Vec<String> = attention.dead_heads.iter().map(usize::to_string).collect();
        table.row([
            attention.path.clone(),
            entropy.join(" "),
            attention.output_ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
            dead.join(" "),
        ]);
    }
    format!(
        "\nAttention after step {}{}\n{}",
        thousands(look.step),
        source_cost(look),
        table.render(options.width)
    )
}

fn source_cost(look: &MonitorMetric) -> String {
    match look.source_cost {
        Some(cost) => format!(": another pair's source costs {cost:.2} nats a token"),
        None => String::new(),
    }
}

/// What a run would take.
pub fn plan_text(plan: &TrainingPlan, options: Options) -> String {
    let shapes: Vec<String> = plan.largest_batch.iter().map(|shape| format!("{shape:?}")).collect();
    let mut lines = vec![
        format!("{} · {} of {} parameters", plan.recipe, plan.model, thousands(plan.parameters)),
        examples(&plan.data),
        format!(
            "{} in the first epoch, {:.1} % of {} positions padding; the largest is {}",
            counted(plan.batches, "batch", "batches"),
            100.0 * plan.padding,
            if plan.batches == 1 { "its" } else { "their" },
            shapes.join(" and ")
        ),
        memory(plan),
    ];
    match (plan.seconds_a_step, plan.seconds) {
        (Some(step), Some(all)) => lines.push(format!(
            "{} steps at {:.0} ms (a few were made and forgotten): about {}, validation left out",
            thousands(plan.steps),
            step * 1e3,
            duration(all)
        )),
        _ => lines.push(format!("{} steps", thousands(plan.steps))),
    }
    if let Some(loss) = plan.first_loss {
        lines.push(format!("the loss before anything is learned: {} nats a target", nats(loss)));
    }
    let text = options.glyphs.lines(&(lines.join("\n") + "\n"));
    if plan.layers.is_empty() {
        return text;
    }
    format!("{text}\nLayers, with the largest batch\n{}", layer_table(&plan.layers, options))
}

fn memory(plan: &TrainingPlan) -> String {
    let kept = sized(plan.bytes, "B");
    match plan.step_bytes {
        Some(step) => format!(
            "about {} of memory: {kept} of weights, gradients and moments, {} of tensors of the largest batch, by their shapes",
            sized(plan.bytes.saturating_add(step), "B"),
            sized(step, "B")
        ),
        None => format!("{kept} of weights, gradients and moments"),
    }
}

/// What a trained model is worth.
pub fn evaluation_text(evaluation: &Evaluation, options: Options) -> String {
    let mut lines = vec![format!(
        "{} · {}{}",
        evaluation.model,
        some(evaluation.examples, "example"),
        bad_rows(evaluation.bad_rows, evaluation.first_bad_row.as_deref())
    )];
    lines.push(format!(
        "{:.2} % of {} targets right, {:.4} nats a target",
        100.0 * evaluation.accuracy,
        thousands(evaluation.targets as u64),
        evaluation.nll
    ));
    if let Some(learned) = evaluation.learned_from.filter(|&learned| learned > 0) {
        lines.push(format!(
            "{} of these examples {} learned from: on {} this says nothing about texts that the model has not seen",
            thousands(learned as u64),
            if learned == 1 { "was" } else { "were" },
            if learned == 1 { "it" } else { "them" },
        ));
    }
    if evaluation.too_long > 0 {
        lines.push(format!(
            "{} pairs left out of that for their length",
            thousands(evaluation.too_long as u64)
        ));
    }
    if evaluation.cut_texts > 0 {
        lines.push(format!(
            "{} longer than what the model reads, and cut",
            some(evaluation.cut_texts, "text") + if evaluation.cut_texts == 1 { " was" } else { " were" },
        ));
    }
    if !evaluation.absent_classes.is_empty() {
        lines.push(format!("no text of {} is among them", evaluation.absent_classes.join(", ")));
    }
    if let Some(bleu) = &evaluation.bleu {
        let precisions: Vec<String> = bleu.precisions.iter().map(|p| format!("{p:.1}")).collect();
        lines.push(format!(
            "BLEU {:.2} (cased, 13a, greedy): n-grams {} %, brevity penalty {:.3}, {} tokens for {}",
            bleu.score,
            precisions.join(" / "),
            bleu.brevity_penalty,
            thousands(bleu.length as u64),
            thousands(bleu.reference_length as u64)
        ));
    }
    let mut text = options.glyphs.lines(&(lines.join("\n") + "\n"));
    if !evaluation.confusion.is_empty() {
        let mut columns = vec![Column::left("true class")];
        columns.extend(evaluation.classes.iter().map(|class| Column::right(&format!("taken for {class}"))));
        let mut table = Table::new(columns, options.glyphs);
        for (class, row) in evaluation.classes.iter().zip(&evaluation.confusion) {
            let counts = row.iter().map(|&count| thousands(count as u64));
            table.row(std::iter::once(class.clone()).chain(counts).collect::<Vec<_>>());
        }
        text += &format!("\n{}", table.render(options.width));
    }
    text
}

/// What a trained model makes of texts.
pub fn prediction_text(prediction: &Prediction, options: Options) -> String {
    let mut text = String::new();
    for row in &prediction.rows {
        let made = match (&row.generated, &row.class) {
            (Some(generated), _) => clean(&generated.replace('\n', " ")),
            (None, class) => {
                let most = row.probabilities.iter().copied().fold(0.0, f64::max);
                let (class, text) = (class.as_deref().unwrap_or("–"), row.text.replace('\n', " "));
                format!("{} ({:.1} %)\t{}", clean(class), 100.0 * most, clean(&text))
            }
        };
        text += &options.glyphs.lines(&format!("{made}\n"));
    }
    text
}

/// `1 h 5 min`, `3 min 20 s`, `4.2 s`.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        0..10 => format!("{seconds:.1} s"),
        10..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::{duration, nats};

    #[test]
    fn a_loss_that_has_exploded_is_a_power_of_ten() {
        assert_eq!([nats(5.25), nats(123_456_789.0)], ["5.2500", "1.235e8"]);
    }

    #[test]
    fn durations_are_in_words() {
        let cases = [(4.2, "4.2 s"), (59.0, "59 s"), (200.0, "3 min 20 s"), (3900.0, "1 h 5 min")];
        for (seconds, words) in cases {
            assert_eq!(duration(seconds), words);
        }
    }
}

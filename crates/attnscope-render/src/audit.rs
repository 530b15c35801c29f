//! A corpus that was measured, as text.

use attnscope::answer::{Audit, AuditComparison};
use attnscope::corpus::{
    CorpusSummary, Distribution, ExtremeSentence, GroupSummary, HeadMeasure, HeadSummary, JoinMeasure,
    MeasureSummary, SentenceMeasure,
};
use attnscope::figures::{counted, thousands, trimmed};

use crate::glyphs::clean;
use crate::layout::Options;
use crate::table::{Column, Table};
use crate::wrap::wrap;

/// Groups that are shown as text; JSON has more.
const GROUPS: usize = 12;
/// Heads whose measures moved most, of a comparison.
const MOVED: usize = 12;
/// The characters of a sentence that are shown.
const SENTENCE: usize = 60;

/// An audit for a reader.
pub fn text(answer: &Audit, options: Options) -> String {
    let mut out = head(answer, options.width);
    out.push('\n');
    out += &costs(answer, options);
    out += &extremes(answer, options);
    out += &heads(&answer.summary.heads, options);
    out += &layers(answer, options);
    out += &groups(answer, options);
    options.glyphs.lines(&out)
}

fn fill(line: &str, width: usize) -> String {
    wrap(line, width).join("\n") + "\n"
}

fn head(answer: &Audit, width: usize) -> String {
    let summary = &answer.summary;
    let sentences = usize::try_from(summary.sentences).unwrap_or(usize::MAX);
    let mut line = format!(
        "{} on {}: {} of {} target tokens measured",
        answer.model,
        answer.corpus,
        counted(sentences, "sentence"),
        thousands(summary.target_tokens)
    );
    if answer.shard.count > 1 {
        line += &format!(", shard {}/{}", answer.shard.index, answer.shard.count);
    }
    let mut out = fill(&line, width);
    if let Some(run) = &answer.run {
        let pace = if run.seconds > 0.0 { run.measured as f64 / run.seconds } else { 0.0 };
        let before = match run.skipped {
            0 => String::new(),
            skipped => format!("; {} were there before", thousands(skipped as u64)),
        };
        let line = format!(
            "{} in {} s, {} a second{before}; parts in {}",
            counted(run.measured, "row"),
            trimmed(run.seconds, 1),
            trimmed(pace, if pace < 10.0 { 1 } else { 0 }),
            answer.folder
        );
        out += &fill(&line, width);
    }
    out + &fill(&flags(summary), width)
}

/// What is unusual about rows, counted.
pub(crate) fn flags(summary: &CorpusSummary) -> String {
    let flags = [
        ("rejected (rejects.jsonl says why)", summary.rejected),
        ("truncated", summary.truncated),
        ("with unknown words", summary.unknown),
        ("with more tokens than positions", summary.over_positions),
        ("not finite", summary.non_finite),
    ];
    let set: Vec<String> =
        flags.iter().filter(|(_, n)| *n > 0).map(|(what, n)| format!("{} {what}", thousands(*n))).collect();
    match set.is_empty() {
        true => "no row was rejected, truncated or not finite".to_owned(),
        false => set.join("; "),
    }
}

/// A number, or a dash where there is none.
pub(crate) fn shown(x: Option<f64>, digits: usize) -> String {
    x.map_or_else(|| "–".to_owned(), |x| format!("{x:.digits$}"))
}

fn quantile(distribution: &Distribution, i: usize) -> Option<f64> {
    distribution.quantiles.get(i).copied()
}

fn costs(answer: &Audit, options: Options) -> String {
    let numbers = ["mean", "deviation", "5 %", "median", "95 %", "sentences"].map(Column::right);
    let columns = [Column::left("nats a token")].into_iter().chain(numbers).collect();
    let mut table = Table::new(columns, options.glyphs);
    for MeasureSummary { measure, distribution, .. } in &answer.summary.nll {
        if distribution.count > 0 {
            let name = match measure {
                SentenceMeasure::Nll => "NLL",
                SentenceMeasure::NllSwapped => "NLL, another source",
                SentenceMeasure::DeltaNll => "ΔNLL",
            };
            table.row([
                name.to_owned(),
                shown(distribution.mean, 3),
                shown(distribution.variance.map(f64::sqrt), 3),
                shown(quantile(distribution, 1), 3),
                shown(distribution.median(), 3),
                shown(quantile(distribution, 5), 3),
                thousands(distribution.count),
            ]);
        }
    }
    table.render(options.width)
}

/// The sentences that cost most, and those for which the source matters least.
fn extremes(answer: &Audit, options: Options) -> String {
    let find = |row: i64| answer.summary.examples.iter().find(|example| example.row == row);
    let mut out = String::new();
    for summary in &answer.summary.nll {
        let (what, rows) = match summary.measure {
            SentenceMeasure::Nll => ("largest NLL", &summary.highest),
            SentenceMeasure::DeltaNll => ("smallest ΔNLL", &summary.lowest),
            SentenceMeasure::NllSwapped => continue,
        };
        for (row, value) in rows {
            let text = find(*row).map(sentence).unwrap_or_default();
            out += &fill(&format!("{what} {value:.3}: row {row}{text}"), options.width);
        }
    }
    if out.is_empty() { out } else { format!("\n{out}") }
}

fn sentence(example: &ExtremeSentence) -> String {
    let short = |text: &str| match text.char_indices().nth(SENTENCE) {
        Some((end, _)) => format!("{}…", clean(&text[..end])),
        None => clean(text),
    };
    let sides = [&example.source, &example.target].into_iter().flatten();
    sides.map(|text| format!(" | {}", short(text))).collect()
}

fn heads(heads: &[HeadSummary], options: Options) -> String {
    if heads.is_empty() {
        return String::new();
    }
    let names = HeadMeasure::ALL.map(|measure| match measure {
        HeadMeasure::Entropy => "entropy",
        HeadMeasure::EffectiveKeys => "eff. keys",
        HeadMeasure::Peak => "peak",
        HeadMeasure::EndMass => "end",
        HeadMeasure::FirstMass => "first",
        HeadMeasure::DiagonalMass => "diagonal",
        HeadMeasure::PreviousMass => "previous",
        HeadMeasure::Sharpness => "sharpness",
    });
    let columns = [Column::left("mean over sentences")].into_iter().chain(names.map(Column::right)).collect();
    let mut table = Table::new(columns, options.glyphs);
    for head in heads {
        let means = head.measures.iter().map(|measure| shown(measure.distribution.mean, 2));
        table.row([format!("{} head {}", head.attention, head.head)].into_iter().chain(means));
    }
    format!("\n{}", table.render(options.width))
}

fn layers(answer: &Audit, options: Options) -> String {
    if answer.summary.layers.is_empty() {
        return String::new();
    }
    let columns = [
        Column::left("sublayer"),
        Column::right("output ratio"),
        Column::right("deviation"),
        Column::right("residual norm"),
        Column::right("deviation"),
    ];
    let mut table = Table::new(columns.into(), options.glyphs);
    for layer in &answer.summary.layers {
        let of = |measure: JoinMeasure| {
            let found = layer.measures.iter().find(|summary| summary.measure == measure);
            let distribution = found.map(|summary| &summary.distribution);
            [distribution.and_then(|d| d.mean), distribution.and_then(|d| d.variance).map(f64::sqrt)]
        };
        let [ratio, spread] = of(JoinMeasure::OutputRatio);
        let [norm, width] = of(JoinMeasure::ResidualNorm);
        let numbers = [ratio, spread, norm, width].map(|x| shown(x, 3));
        table.row([layer.sublayer.clone()].into_iter().chain(numbers));
    }
    format!("\n{}", table.render(options.width))
}

fn groups(answer: &Audit, options: Options) -> String {
    let groups = &answer.summary.groups;
    let Some(GroupSummary { column, .. }) = groups.first() else { return String::new() };
    let columns = [
        Column::left(&clean(column)),
        Column::right("sentences"),
        Column::right("NLL"),
        Column::right("ΔNLL"),
    ];
    let mut table = Table::new(columns.into(), options.glyphs);
    for group in groups.iter().take(GROUPS) {
        table.row([
            group.value.as_deref().map_or_else(|| "–".into(), clean),
            thousands(group.sentences),
            shown(group.nll.mean, 3),
            shown(group.delta_nll.mean, 3),
        ]);
    }
    let mut out = format!("\n{}", table.render(options.width));
    let rest: u64 =
        groups.iter().skip(GROUPS).map(|group| group.sentences).sum::<u64>() + answer.summary.other_groups;
    if rest > 0 {
        out += &format!("{} more sentences in other groups\n", thousands(rest));
    }
    out
}

/// Two audits side by side for a reader.
pub fn comparison(answer: &AuditComparison, options: Options) -> String {
    let found = &answer.comparison;
    let mut out = String::new();
    for (i, side) in ["A", "B"].iter().enumerate() {
        let sentences = thousands(found.sentences[i]);
        let line = format!("{side}: {} on {}, {sentences} sentences", found.models[i], found.corpora[i]);
        out += &fill(&line, options.width);
    }
    let line = match (&found.paired, found.same_corpus) {
        (Some(paired), _) => format!(
            "a sentence costs B {:+.3} nats more than A (95 %: {:+.3} to {:+.3}, {} sentences that both measured)",
            paired.mean,
            paired.low,
            paired.high,
            thousands(paired.sentences as u64)
        ),
        (None, true) => "no sentence was measured by both".to_owned(),
        (None, false) => "the corpora differ: sentences are not compared one by one".to_owned(),
    };
    out += &fill(&line, options.width);
    out.push('\n');
    let columns = [
        Column::left("mean over sentences"),
        Column::right("A"),
        Column::right("B"),
        Column::right("B − A in deviations"),
    ];
    let mut table = Table::new(columns.into(), options.glyphs);
    for measure in &found.nll {
        let [a, b] = measure.means;
        table.row([measure.measure.name().to_owned(), shown(a, 3), shown(b, 3), shown(measure.effect, 2)]);
    }
    let heads = found.heads.iter();
    let all = heads.flat_map(|head| head.measures.iter().map(move |measure| (head, measure)));
    let mut moved: Vec<_> =
        all.filter_map(|(head, measure)| Some((head, measure, measure.effect?))).collect();
    moved.sort_by(|a, b| b.2.abs().total_cmp(&a.2.abs()));
    for (head, measure, effect) in moved.into_iter().take(MOVED) {
        let name = format!("{} head {} {}", head.attention, head.head, measure.measure.name());
        let [a, b] = measure.means;
        table.row([name, shown(a, 3), shown(b, 3), shown(Some(effect), 2)]);
    }
    out += &table.render(options.width);
    for (side, only) in ["A", "B"].iter().zip(&found.only) {
        if !only.is_empty() {
            out += &fill(&format!("only {side} has {}", counted(only.len(), "more head")), options.width);
        }
    }
    options.glyphs.lines(&out)
}

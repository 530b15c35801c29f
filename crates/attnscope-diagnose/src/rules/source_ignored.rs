//! The decoder's output does not depend on the source.

use attnscope_checkpoint::Remedy;
use attnscope_graph::{AttentionKind, AttentionStep, Model, Role, Stack};
use attnscope_run::RunError;
use serde_json::json;

use crate::bootstrap::bootstrap;
use crate::contribution::source_contribution;
use crate::corpus::Corpus;
use crate::finding::Severity;
use crate::fit::FitTest;
use crate::measure::Outcome;
use crate::observe::{AttentionSeen, Joined};
use crate::rule::{Checked, NotChecked, Rule};
use crate::rule_context::RuleContext;
use crate::score::{Candidate, Scores, score};

pub(super) const RULE: Rule = Rule {
    id: "source-ignored",
    severity: Severity::Error,
    what: "The decoder finds a target as likely with another pair's source as with its own.",
    why: "Such a model is a language model with an unused encoder: fluent output that has nothing to do with the input. Its attention can look healthy, so the rule intervenes instead of looking at weights.",
    how: "Every pair's source is swapped for another pair's of about the same length; the cost is the rise of the target's negative log-likelihood, with a bootstrap interval over sentences. The same is done with sentences that the model generates itself, because mismatched pairs are not the model's fault, and with sources of random tokens, because sources that a healthy model cannot read are all the same to it. If another wiring explains the weights better than the declared one, it is used.",
    threshold: "A cost below source_cost = 0.05 nats a token with a 95 % interval that contains 0 or stays below 0.05; a trained translator pays several nats. The model's own sentences must cost less than 0.3 nats more with another source, and random tokens as source must change what a target costs, up or down, by less than 0.05. Over 20 pairs or more.",
    try_next: "Check that sources and targets were still paired in training, that the encoder's output reaches cross-attention, and its mask.",
    check,
};

const RESAMPLES: usize = 10_000;
/// The least cost, in nats per token, of another source for the model's own sentences, where the source is used.
const OWN_COST: f64 = 0.3;
const PAIRS: &str = "give pairs of the kind that the model was trained for, each target with its own source";

fn check(context: &RuleContext<'_>) -> Checked {
    if !context.model().architecture.has_cross_attention() {
        return Err(NotChecked::no_cross_attention());
    }
    let corpus = context.corpus()?;
    let Some(swapped) = corpus.with_swapped_sources() else {
        return Err(NotChecked::new(
            "all pairs have the same source: there is no other to swap it with",
            Remedy::DifferentPairs,
        ));
    };
    let search = context.search()?;
    let better = context.better()?;
    let declared;
    let (candidate, wiring) = match better {
        Some(better) => (&better.candidate, " under the wiring that explains the weights best"),
        None => {
            declared =
                Candidate::declared(context.prepared()?, &corpus.shift).map_err(|e| NotChecked::from(&e))?;
            (&declared, "")
        }
    };
    if sees_more(candidate, context.model()) {
        return Err(NotChecked::new(
            "under the wiring that explains the weights best, the decoder sees the token that it must predict and needs no source: whether it learned to use the source is not known",
            "see wiring-mismatch, which comes first",
        ));
    }
    let (own, known) = match better {
        Some(better) => (&better.scores, None),
        None => (&search.declared, search.swapped.clone()),
    };
    let swapped_scores = match known {
        Some(known) => known,
        None => score(&[candidate], &swapped, &|_, _| ()).map_err(|e| NotChecked::from(&e))?.swap_remove(0),
    };
    let costs: Vec<f64> = swapped_scores.nll().iter().zip(&own.nll()).map(|(a, b)| a - b).collect();
    if costs.iter().any(|cost| !cost.is_finite()) {
        return Err(NotChecked::new("the likelihood is not finite", "see first-nan, which comes first"));
    }
    let cost = bootstrap(&costs, &corpus.tokens(), RESAMPLES);
    let limit = context.thresholds().source_cost;
    let measure = RULE.measure("source_cost", cost.mean).threshold(limit);
    if cost.mean >= limit || (cost.low > 0.0 && cost.high >= limit) {
        let seen = match cost.low >= limit {
            true => "uses its source",
            false => "may use its source only a little",
        };
        let words = format!(
            "{seen}: swapping it costs {:.2} nats per token (95 %: {:.2} to {:.2}; threshold {limit}){wiring}",
            cost.mean, cost.low, cost.high
        );
        return Ok(Outcome::default().measured([measure.words(words)]));
    }
    // Misplaced weights, not the training, are the reason why the source has no effect.
    if context.repair().is_some() {
        return Ok(Outcome::default());
    }
    if let Some(edited) = context.edited_pairs()? {
        return Err(NotChecked::new(edited.words(), "correct the pairs: see ill-fitting-pairs"));
    }
    // A wrong wiring can cut off a source that the weights have learned to use: only where all were tried is none the reason.
    if better.is_none() && search.untried > 0 {
        return Err(NotChecked::new(
            format!(
                "swapping the sources costs {:.3} nats a token as declared, but there was no time for {} other wirings, and one of them may be the reason",
                cost.mean, search.untried
            ),
            "give the searches more seconds with --repair-time",
        ));
    }
    let test = FitTest::new(context.model(), corpus);
    let generated = test.generated(candidate).map_err(|e| NotChecked::from(&e))?;
    let own_cost = generated.as_ref().and_then(|g| g.source_cost);
    if let Some(own_cost) = own_cost.filter(|&own_cost| own_cost >= OWN_COST) {
        return Err(NotChecked::new(
            format!(
                "swapping the sources costs the targets {:.3} nats a token, and the model's own sentences {own_cost:.2}: the model uses its source, but these pairs do not show it",
                cost.mean
            ),
            PAIRS,
        ));
    }
    let change = random_change(candidate, corpus, own).map_err(|e| NotChecked::from(&e))?;
    if let Some(change) = change.filter(|&change| change >= limit) {
        return Err(NotChecked::new(
            format!(
                "swapping the sources costs the targets {:.3} nats a token, and random tokens as source change what they cost by {change:.2}: the model uses its source, but these pairs do not show it",
                cost.mean
            ),
            PAIRS,
        ));
    }
    let evidence = format!(
        "swapping the sources costs {:.3} nats a token (95 %: {:.3} to {:.3} over {} pairs){wiring}",
        cost.mean,
        cost.low,
        cost.high,
        corpus.len()
    );
    let signs = Signs::of(context);
    let finding = RULE
        .finding(format!("{evidence}{}", signs.words()))
        .number(cost.mean, limit)
        .at(format!("{}.*.{}", Stack::Decoder.name(), AttentionKind::CrossAttention.name()))
        .with("interval", json!([cost.low, cost.high]))
        .with("own_sentences_cost", json!(own_cost))
        .with("random_source_change", json!(change))
        .with("cross_output_ratio", json!(signs.ratios))
        .with("cross_entropy", json!(signs.entropies))
        .with("source_contribution", json!(signs.contribution));
    Ok(Outcome::from(vec![finding]).measured([measure]))
}

/// By how many nats per token the cost of each target changes, up or down, with a source of random tokens: sources that the
/// model cannot read are all the same to it, and swapping them shows nothing. `None` for clips.
fn random_change(candidate: &Candidate, corpus: &Corpus, own: &Scores) -> Result<Option<f64>, RunError> {
    let Some(random) = corpus.with_random_sources(candidate.model()) else { return Ok(None) };
    let scores = score(&[candidate], &random, &|_, _| ())?.swap_remove(0);
    let changes = scores.nll().iter().zip(&own.nll()).map(|(a, b)| (a - b).abs()).sum::<f64>();
    Ok(Some(changes / corpus.tokens().iter().sum::<usize>().max(1) as f64))
}

/// Whether a candidate's decoder sees tokens that it must predict and that the declared one's does not see.
fn sees_more(candidate: &Candidate, declared: &Model) -> bool {
    let lifted = |hides: fn(&Model) -> bool| !hides(candidate.model()) && hides(declared);
    lifted(|model| model.graph.is_causal(Stack::Decoder)) || lifted(Model::shifts_target)
}

/// Further signs. They describe, but do not decide.
#[derive(Default)]
struct Signs {
    /// Norm of each layer's cross-attention output, of the stream that it joins.
    ratios: Vec<f64>,
    /// Normalised entropy of each layer's weights.
    entropies: Vec<f64>,
    /// The source's share of the decoder's output, by ALTI.
    contribution: Option<f64>,
}

impl Signs {
    fn of(context: &RuleContext<'_>) -> Self {
        let (Ok(seen), Ok(sample), Ok(prepared)) =
            (context.behaviour(), context.sample(), context.prepared())
        else {
            return Self::default();
        };
        let is_cross = |role: Role| role.is(AttentionKind::CrossAttention, AttentionStep::Residual);
        let cross = seen.residuals.iter().filter(|joined| is_cross(joined.role));
        let attentions = seen.attentions.iter().filter(|a| a.place.kind == AttentionKind::CrossAttention);
        Self {
            ratios: cross.map(Joined::ratio).collect(),
            entropies: attentions.filter_map(AttentionSeen::mean_entropy).collect(),
            contribution: source_contribution(prepared, &sample.input).ok().flatten(),
        }
    }

    fn words(&self) -> String {
        let list = |values: &[f64]| values.iter().map(|x| format!("{x:.2}")).collect::<Vec<_>>().join(", ");
        let mut words = String::new();
        if !self.ratios.is_empty() {
            words += &format!("; cross-attention adds {} of the stream's norm", list(&self.ratios));
        }
        if !self.entropies.is_empty() {
            words += &format!(", its entropy is {}", list(&self.entropies));
        }
        if let Some(share) = self.contribution {
            words += &format!(", and the source's share of the decoder's output is {share:.2} (ALTI)");
        }
        words
    }
}

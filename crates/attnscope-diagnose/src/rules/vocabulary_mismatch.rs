//! A tokenizer that does not fit the model's vocabulary.

use attnscope_graph::{Dim, EntryStep, Role, Side};

use crate::finding::Severity;
use crate::measure::Outcome;
use crate::rule::{Checked, NotChecked, Rule};
use crate::rule_context::RuleContext;

pub(super) const RULE: Rule = Rule {
    id: "vocabulary-mismatch",
    severity: Severity::Error,
    what: "A tokenizer with more tokens than the embedding has rows, or far fewer.",
    why: "Ids past the table crash or read other memory; with the tokenizer of another model every word gets a wrong meaning.",
    how: "The tokenizer's largest id against the rows of the embedding tables.",
    threshold: "More tokens than rows is an error. Fewer by more than a tenth is a warning: padding to a round number explains less than that.",
    try_next: "Put the tokenizer that belongs to these weights beside them.",
    check,
};

/// The share of rows without a token that is normal.
const SPARE: f64 = 0.1;

fn check(context: &RuleContext<'_>) -> Checked {
    let Some(tokenizer) = context.input.tokenizer else {
        if !context.input.checkpoint.tokenizer().is_empty() {
            // It is read for a model that runs.
            context.prepared()?;
            return Err(NotChecked::new(
                "the tokenizer beside the weights was not read",
                "put a tokenizer.json there",
            ));
        }
        return Err(NotChecked::new("no tokenizer is known", "put tokenizer.json beside the weights"));
    };
    let model = context.model();
    let (mut findings, mut measures) = (Vec::new(), Vec::new());
    let sides: &[Side] = if model.graph.reads_audio() || model.graph.shares_tables() {
        &[Side::Target]
    } else {
        &[Side::Source, Side::Target]
    };
    for &side in sides {
        let Some(rows) = model.sizes.get(Dim::Vocab(side)) else { continue };
        let tokens = tokenizer.len_of(side);
        let words = format!("{tokens} ids of the tokenizer, {rows} rows of the embedding");
        let measure = RULE.measure("tokens", tokens as f64).threshold(rows as f64).words(words);
        let node = Role::Entry(side, EntryStep::Embed).to_string();
        measures.push(measure.at(&node));
        let finding = |evidence| RULE.finding(evidence).at(&node).number(tokens as f64, rows as f64);
        if tokens > rows {
            findings.push(finding(format!("the tokenizer has {tokens} ids and the embedding {rows} rows")));
        } else if (tokens as f64) < (1.0 - SPARE) * rows as f64 {
            let evidence = format!(
                "the tokenizer has {tokens} ids, and {} of the embedding's {rows} rows have none",
                rows - tokens
            );
            findings.push(finding(evidence).severity(Severity::Warning));
        }
    }
    Ok(Outcome::from(findings).measured(measures))
}

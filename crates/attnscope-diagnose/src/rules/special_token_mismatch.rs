//! Special tokens on which config, tokenizer and tables disagree.

use attnscope_graph::{Dim, EntryStep, Fact, Role, Side, Topic};

use crate::finding::Severity;
use crate::rule::{Checked, Rule};
use crate::rule_context::RuleContext;

pub(super) const RULE: Rule = Rule {
    id: "special-token-mismatch",
    severity: Severity::Error,
    what: "A special token whose id is past the vocabulary, or an end token that the tokenizer does not add.",
    why: "A decoder that begins or ends with the wrong token repeats itself, stops at once or never stops.",
    how: "The ids in configs are compared with the rows of the table; the end token of the config with the one that the tokenizer adds.",
    threshold: "None: ids agree or they do not.",
    try_next: "Take config.json and the tokenizer's files from the same checkpoint.",
    check,
};

fn check(context: &RuleContext<'_>) -> Checked {
    let model = context.model();
    let rows = model.sizes.get(Dim::Vocab(Side::Target)).unwrap_or(usize::MAX);
    let node = |step| Role::Entry(Side::Target, step).to_string();
    let mut findings = Vec::new();
    for fact in model.facts.iter().filter(|fact| fact.topic == Topic::Tokens) {
        if let Some(id) = ids(fact).into_iter().find(|&id| id as usize >= rows) {
            let evidence = format!("{} is {id}, and the table has {rows} rows", fact.source);
            let finding = RULE.finding(evidence).at(node(EntryStep::Embed));
            findings.push(finding.number(id as f64, rows as f64));
        }
    }
    findings.extend(
        end_token(context)
            .map(|evidence| RULE.finding(evidence).severity(Severity::Warning).at(node(EntryStep::Ids))),
    );
    Ok(findings.into())
}

/// What is wrong with the end token, if anything.
fn end_token(context: &RuleContext<'_>) -> Option<String> {
    let tokenizer = context.input.tokenizer?;
    let fact = context.model().facts.iter().find(|fact| fact.name == "eos_token_id")?;
    let (declared, sentence) = (ids(fact), tokenizer.encode_target("a").ok()?);
    let last = sentence.last()?;
    // mBART's sentences end with their language, after the end token.
    let ends = sentence.iter().any(|&id| declared.contains(&u64::from(id)));
    let piece = |id: u32| tokenizer.piece(Side::Target, id).unwrap_or_default();
    let adds = sentence.len() > 1 && piece(*last).starts_with('<');
    (adds && !ends && !declared.is_empty()).then(|| {
        format!(
            "{} is {declared:?}, and the tokenizer ends a sentence with {last} ({})",
            fact.source,
            piece(*last)
        )
    })
}

/// The ids that a fact names.
fn ids(fact: &Fact) -> Vec<u64> {
    match &fact.value {
        serde_json::Value::Array(ids) => ids.iter().filter_map(serde_json::Value::as_u64).collect(),
        value => value.as_u64().into_iter().collect(),
    }
}

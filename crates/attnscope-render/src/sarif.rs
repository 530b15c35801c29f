//! Findings as SARIF 2.1.0, which code hosts show beside a change.

use attnscope::answer::{Diagnosis, FindingDocument};
use attnscope_diagnose::{Finding, Rule, Severity, rules};
use serde_json::{Value, json};

/// The report as a SARIF log, as it is written. Built by hand: a log has few keys, and serde-sarif's types would add a build step
/// and a thousand generated fields for them.
pub fn sarif(answer: &Diagnosis) -> String {
    format!("{:#}\n", log(answer))
}

fn log(answer: &Diagnosis) -> Value {
    let rule = |rule: &&Rule| {
        json!({
            "id": rule.id,
            "shortDescription": { "text": rule.what },
            "fullDescription": { "text": rule.why },
            "help": { "text": format!("{} {} {}", rule.how, rule.threshold, rule.try_next) },
            "defaultConfiguration": { "level": level(rule.severity) },
        })
    };
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "attnscope",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules().iter().map(rule).collect::<Vec<_>>(),
            } },
            "columnKind": "unicodeCodePoints",
            "results": answer.diagnosis.findings.iter().map(|f| result(&answer.model, f)).collect::<Vec<_>>(),
        }],
    })
}

fn result(model: &str, finding: &Finding) -> Value {
    let nodes = finding.node.iter();
    let logical: Vec<Value> = nodes.map(|node| json!({ "fullyQualifiedName": node })).collect();
    json!({
        "ruleId": finding.rule,
        "level": level(finding.severity),
        "message": { "text": format!("{}. {}", finding.evidence, finding.try_next) },
        "locations": [{
            "physicalLocation": {
                "artifactLocation": { "uri": uri(model) },
                // A checkpoint has no lines; code hosts refuse a result without one.
                "region": { "startLine": 1 },
            },
            "logicalLocations": logical,
        }],
        "properties": FindingDocument::of(finding),
    })
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "note",
    }
}

/// A path as a URI reference (RFC 3986): whole ones as `file:`, every byte that is not plain as %XX. A colon, too: in
/// the first segment it would end a scheme.
fn uri(path: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~' | b'/');
    let byte = |b: u8| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") };
    let encoded: String = path.bytes().map(byte).collect();
    match encoded.strip_prefix('/') {
        // What follows `//` is a host, which a path has none of.
        Some(rest) => format!("file:///{}", rest.trim_start_matches('/')),
        None => encoded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_references() {
        for (path, expected) in [
            ("demo", "demo"),
            ("models/my model.pt", "models/my%20model.pt"),
            ("/data/mödel#1", "file:///data/m%C3%B6del%231"),
            ("//data/x", "file:///data/x"),
            ("c:model?", "c%3Amodel%3F"),
            ("100%.pt", "100%25.pt"),
        ] {
            assert_eq!(uri(path), expected);
        }
    }
}

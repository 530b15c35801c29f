//! A test that fails when the doctor finds an error: what a training or conversion script ends with.
//!
//! `cargo run -p attnscope --example doctor_in_a_test` runs it; `cargo test -p attnscope --examples` as a test.

use attnscope::diagnose::Severity;
use attnscope::{DoctorOptions, Failure, PairLines};

/// What is wrong with a model, a line each.
fn errors(model: &str, pairs: PairLines) -> Result<Vec<String>, Failure> {
    let answer = attnscope::open(model)?.doctor(&DoctorOptions { pairs, ..DoctorOptions::default() })?;
    let findings = answer.diagnosis.findings.iter().filter(|finding| finding.severity == Severity::Error);
    Ok(findings.map(|finding| format!("{}: {}", finding.rule, finding.evidence)).collect())
}

fn main() -> Result<(), Failure> {
    // With no pairs, the demo is judged on its own.
    for error in errors("demo", PairLines::default())? {
        println!("{error}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_model_is_healthy() -> Result<(), attnscope::Failure> {
        assert_eq!(super::errors("demo", attnscope::PairLines::default())?, Vec::<String>::new());
        Ok(())
    }
}

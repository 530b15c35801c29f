//! Compares a trace with another program's dump of the same run, and says where the two part.
//!
//! `cargo run -p attnscope --example diff_a_dump [TRACE DUMP [MODEL]]`

use std::path::PathBuf;

use attnscope::{DiffOptions, Failure};

fn main() -> Result<(), Failure> {
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let mut given = std::env::args().skip(1);
    let mut or = |usual: &str| given.next().map_or_else(|| fixtures.join(usual), PathBuf::from);
    let (trace, dump, model) = (or("marian/trace.safetensors"), or("dumps/hooks.npz"), or("marian"));
    let options = DiffOptions { model: Some(model.display().to_string()), ..DiffOptions::default() };
    let difference = attnscope::diff(&trace, &dump, &options)?;
    for party in &difference.parties {
        println!("{}: {}, {} tensors", party.path, party.kind, party.tensors);
    }
    match &difference.report.first {
        None => println!("they agree, but for rounding"),
        Some(first) => {
            let how = first.relation.as_ref().map(|relation| relation.sentence(first.odd_one.name()));
            println!(
                "they part at {}: {}",
                first.node,
                how.unwrap_or_else(|| "no simple relation".to_owned())
            );
        }
    }
    Ok(())
}

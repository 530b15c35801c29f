//! Opens a model, runs it, and reads one tensor of the run: where the decoder looks in the source.
//!
//! `cargo run -p attnscope --example read_tensor`

use attnscope::{Failure, Input};

fn main() -> Result<(), Failure> {
    let model = attnscope::open("demo")?;
    let trace = model.trace(&Input::text("Two dogs play in the snow."), "decoder.1.cross_attn.weights")?;
    let weights = trace.tensor("decoder.1.cross_attn.weights")?;
    println!("{:?} = {:?}", weights.dims, weights.shape);
    let Some(source) = trace.tokens.source.as_ref().and_then(|rows| rows.first()) else { return Ok(()) };
    // The first head of the first sentence: a row of weights for each token that the decoder reads.
    let values = weights.values.as_f64();
    let queries = values.chunks(source.len()).zip(trace.tokens.target.iter().flatten().flatten());
    for (row, query) in queries {
        let strongest = row.iter().zip(source).max_by(|(a, _), (b, _)| a.total_cmp(b));
        if let Some((weight, key)) = strongest {
            println!("{:>12} looks at {:<12} {weight:.2}", query.label(), key.label());
        }
    }
    Ok(())
}

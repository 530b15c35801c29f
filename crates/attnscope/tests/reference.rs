//! The executors against the code that made the fixtures.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use std::path::Path;

use attnscope::checkpoint::Checkpoint;
use attnscope::run::{Features, Input, Keep, Kept, Rows, Source, Weights, run_reference};
use common::{MODELS, fixture, open};

struct Reference(Checkpoint);

impl Reference {
    fn open(model: &str) -> Self {
        let (folder, file) = model.split_once('/').unwrap_or((model, ""));
        let name = match file.strip_suffix(".pt").and_then(|f| f.strip_prefix("checkpoint_")) {
            Some(which) => format!("reference_{which}.safetensors"),
            None => "reference.safetensors".into(),
        };
        Self(Checkpoint::open(Path::new(&fixture(&format!("{folder}/{name}")))).unwrap())
    }

    fn get(&self, names: &[&str]) -> Option<(Vec<usize>, Vec<f32>)> {
        let tensor = names.iter().find_map(|n| self.0.tensor(n))?;
        Some((tensor.shape.clone(), self.0.read_f32(tensor).unwrap()))
    }

    /// The positions of each row that are tokens: by the mask, or by fairseq's pad id where there is none.
    fn tokens(&self, names: &[&str], mask: &str, pad: f32) -> Option<Vec<Vec<usize>>> {
        let (shape, ids) = self.get(names)?;
        let open = match self.get(&[mask]) {
            Some((_, mask)) => mask.iter().map(|&m| m != 0.0).collect::<Vec<_>>(),
            None => ids.iter().map(|&id| id != pad).collect(),
        };
        let row = |b: usize| (0..shape[1]).filter(|i| open[b * shape[1] + i]).collect();
        Some((0..shape[0]).map(row).collect())
    }

    fn rows(&self, names: &[&str], mask: &str, pad: f32) -> Option<Rows> {
        let (shape, ids) = self.get(names)?;
        let open = self.tokens(names, mask, pad)?;
        let row =
            |(b, open): (usize, &Vec<usize>)| open.iter().map(|i| ids[b * shape[1] + i] as u32).collect();
        Some(Rows::new(&open.iter().enumerate().map(row).collect::<Vec<Vec<u32>>>(), 1))
    }
}

/// No id: every position is a token.
const NO_PAD: f32 = -1.0;

fn input(reference: &Reference, pad: f32) -> Input {
    let source = match reference.get(&["input_features", "mel"]) {
        Some((s, values)) => Source::Features(Features { values, batch: s[0], mels: s[1], frames: s[2] }),
        None => Source::Tokens(reference.rows(&["input_ids"], "attention_mask", pad).unwrap()),
    };
    let target = reference.rows(&["decoder_input_ids", "tokens"], "decoder_attention_mask", NO_PAD).unwrap();
    Input { source, target }
}

#[test]
fn the_reference_executor_equals_the_original() {
    for &(path, _, heads) in MODELS {
        let reference = Reference::open(path);
        let opened = open(&fixture(path), heads);
        let model = opened.encoder_decoder().unwrap();
        let weights = Weights::load(model, &opened.checkpoint).unwrap();
        // fairseq pads on the left and tells padding by its id.
        let pad = if path.starts_with("fairseq") { 1.0 } else { NO_PAD };
        let input = input(&reference, pad);
        let [encoder, logits] = ["encoder.out", "logits"].map(|p| model.graph.find(p).unwrap());
        let mut keep = Keep::new(|id| id == encoder || id == logits);
        run_reference(model, &weights, &input, &mut keep).unwrap();
        let source = reference.tokens(&["input_ids"], "attention_mask", pad);
        compare(path, "encoder.output", &keep.tensors[&encoder], &reference, source);
        compare(path, "logits", &keep.tensors[&logits], &reference, None);
    }
}

/// Position by position: theirs may stand elsewhere in the row, where padding is on the left.
fn compare(path: &str, name: &str, ours: &Kept, reference: &Reference, open: Option<Vec<Vec<usize>>>) {
    let (shape, theirs) = reference.get(&[name]).unwrap();
    assert_eq!(ours.shape, shape, "{path}: {name}");
    let (length, width) = (shape[1], shape[2]);
    let open = open.unwrap_or_else(|| vec![(0..length).collect(); shape[0]]);
    let most = theirs.iter().fold(0f64, |m, &x| m.max(f64::from(x).abs()));
    let mut worst = 0f64;
    for (b, row) in open.iter().enumerate() {
        for (at, &place) in row.iter().enumerate() {
            for i in 0..width {
                let (a, t) =
                    (ours.values[(b * length + at) * width + i], theirs[(b * length + place) * width + i]);
                worst = worst.max((a - f64::from(t)).abs());
            }
        }
    }
    assert!(worst <= 1e-5 * most, "{path}: {name} differs by {worst:e} of {most}");
}

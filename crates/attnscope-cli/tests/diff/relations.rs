//! Usual mistakes, each computed here by a few loops of its own from what a run kept, and a near neighbour of each that
//! must not be given its name.

use std::collections::BTreeMap;

use super::*;

/// A run of a model: every tensor by its node's path, and our trace of the same.
struct Run {
    _dir: tempfile::TempDir,
    trace: String,
    file: std::path::PathBuf,
    tensors: BTreeMap<String, Kept>,
    /// Paths in the order of computation.
    order: Vec<String>,
    weights: BTreeMap<String, Vec<f32>>,
}

impl Run {
    fn new(case: &Case, input: Input) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let trace = traced_input(&case.path(), &input, dir.path());
        let opened = open(&case.path(), case.heads);
        let model = opened.model().unwrap();
        let weights = Weights::load(model, &opened.checkpoint).unwrap();
        let mut keep = Keep::new(|_| true);
        run(model, &weights, &input, &mut keep).unwrap();
        let path = |id: &attnscope::graph::NodeId| model.graph.node(*id).path.as_str().to_owned();
        let mut ids: Vec<_> = keep.tensors.keys().copied().collect();
        ids.sort();
        let order = ids.iter().map(path).collect();
        let tensors = keep.tensors.iter().map(|(id, kept)| (path(id), kept.clone())).collect();
        let weight = |(id, _): (attnscope::graph::WeightId, _)| {
            (model.graph.weight(id).path.clone(), weights.get(id).unwrap().into_owned())
        };
        let weights = model.binding.iter().map(weight).collect();
        let file = dir.path().join("theirs.safetensors");
        Self { _dir: dir, trace, file, tensors, order, weights }
    }

    fn get(&self, path: &str) -> &Kept {
        &self.tensors[path]
    }

    /// What `diff` says when a node has other values and nothing after it, nor what hooks on modules do not see, was dumped.
    fn said(&self, node: &str, values: &[f64]) -> Value {
        self.said_without(node, values, "embed_sum")["first_divergence"].clone()
    }

    /// The whole report, without nodes of one more ending.
    fn said_without<'s>(&'s self, node: &str, values: &'s [f64], end: &str) -> Value {
        let inside = ["_heads", "scores", "mask", "weights", ".bias", ".residual", end];
        let at = self.order.iter().position(|path| path == node).unwrap();
        let kept =
            self.order[..=at].iter().filter(|p| *p == node || !inside.iter().any(|end| p.ends_with(end)));
        let tensor = |path: &'s String| {
            let own = self.get(path);
            (path.as_str(), &own.shape[..], if path == node { values } else { &own.values })
        };
        self.report(kept.map(tensor))
    }

    /// What `diff` says of a dump of these tensors alone.
    fn report<'t>(&self, tensors: impl IntoIterator<Item = (&'t str, &'t [usize], &'t [f64])>) -> Value {
        let tensor = |(name, shape, values): (&str, &[usize], &[f64])| {
            let bytes = values.iter().flat_map(|&x| (x as f32).to_le_bytes()).collect();
            (name.to_owned(), shape.to_vec(), bytes)
        };
        save(&self.file, tensors.into_iter().map(tensor).collect());
        let (_, report) = diff(&[&self.trace, self.file.to_str().unwrap()]);
        report
    }

    /// The name of the relation and the step that it is about.
    fn named(&self, node: &str, values: &[f64]) -> String {
        let first = self.said(node, values);
        assert_eq!((first["node"].as_str(), first["kind"].as_str()), (Some(node), Some("bug")), "{first}");
        let word = |key: &str| first[key].as_str().unwrap_or("–").to_owned();
        format!("{} {}", word("relation"), word("cause").rsplit('.').next().unwrap())
    }
}

#[test]
fn an_embedding_that_went_on_without_its_scale_is_named() {
    let run = Run::new(&DEMO, DEMO.input());
    let (scaled, positions) = (run.get("src.embed"), run.get("src.positions"));
    let node = "encoder.0.self_attn.q";
    let width = *scaled.shape.last().unwrap();
    let (weight, bias) = (&run.weights[&format!("{node}.weight")], &run.weights[&format!("{node}.bias")]);
    let lookup: Vec<f64> = scaled.values.iter().map(|x| x / (width as f64).sqrt()).collect();
    let queries = |embedded: &[f64]| -> Vec<f64> {
        let n = positions.values.len();
        let x: Vec<f64> = embedded.iter().enumerate().map(|(i, x)| x + positions.values[i % n]).collect();
        let dot = |row: &[f64], o: usize| {
            let w = &weight[o * width..][..width];
            row.iter().zip(w).map(|(x, w)| x * f64::from(*w)).sum::<f64>() + f64::from(bias[o])
        };
        x.chunks(width).flat_map(|row| (0..width).map(|o| dot(row, o)).collect::<Vec<_>>()).collect()
    };
    // The module's own output is the bare row of the table, scaled or not afterwards.
    let table = "model.encoder.embed_tokens";
    let said = |queries: &[f64]| {
        let shape = &scaled.shape[..];
        run.report([(table, shape, &lookup[..]), (node, shape, queries)])["first_divergence"].clone()
    };
    assert_eq!(said(&queries(&scaled.values)), Value::Null);
    let first = said(&queries(&lookup));
    assert_eq!((first["node"].as_str(), first["relation"].as_str()), (Some(node), Some("scale")), "{first}");
    assert_eq!(first["cause"], "src.embed", "{first}");
    let other: Vec<f64> = lookup.iter().map(|x| 3.0 * x).collect();
    assert_ne!(said(&queries(&other))["relation"], "scale");
}

/// Our trace of an input of one's own.
fn traced_input(model: &str, input: &Input, to: &Path) -> String {
    let folder = to.join("ours").display().to_string();
    let ids = |rows: &Rows| {
        let row = |row: &Vec<u32>| row.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        rows.tokens().iter().map(row).collect::<Vec<_>>().join(";")
    };
    let source = input.rows(Side::Source).unwrap();
    let (source, target) = (ids(source), ids(input.rows(Side::Target).unwrap()));
    let made =
        attnscope(&["trace", model, "--src-ids", &source, "--tgt-ids", &target, "--save", &folder, "-q"]);
    assert!(made.status.success(), "{}", stderr(&made));
    folder
}

/// An attention as a few loops, each step of which can be another.
struct Loops<'r> {
    q: &'r Kept,
    k: &'r Kept,
    v: &'r Kept,
    /// [batch, 1, query, key]: 0 or −∞.
    mask: Option<&'r Kept>,
    scale: f64,
}

/// [batch, head, query, key].
type Scores = Vec<Vec<Vec<Vec<f64>>>>;

impl<'r> Loops<'r> {
    fn of(run: &'r Run, part: &str) -> Self {
        let get = |leaf: &str| run.get(&format!("{part}.{leaf}"));
        let size = *get("q_heads").shape.last().unwrap() as f64;
        let mask = run.tensors.get(&format!("{part}.mask"));
        Self { q: get("q_heads"), k: get("k_heads"), v: get("v_heads"), mask, scale: 1.0 / size.sqrt() }
    }

    fn at(kept: &Kept, b: usize, h: usize, l: usize, k: usize) -> f64 {
        let [_, heads, length, size] = kept.shape[..] else { panic!("four axes") };
        kept.values[((b * heads + h) * length + l) * size + k]
    }

    fn scores(&self) -> Scores {
        let [batch, heads, queries, size] = self.q.shape[..] else { panic!("four axes") };
        let keys = self.k.shape[2];
        let dot = |b, h, t, s| {
            (0..size).map(|i| Self::at(self.q, b, h, t, i) * Self::at(self.k, b, h, s, i)).sum::<f64>()
        };
        let row = |b, h, t| (0..keys).map(|s| dot(b, h, t, s) * self.scale).collect();
        let head = |b, h| (0..queries).map(|t| row(b, h, t)).collect();
        (0..batch).map(|b| (0..heads).map(|h| head(b, h)).collect()).collect()
    }

    fn masked(&self, b: usize, t: usize, s: usize) -> bool {
        self.mask.is_some_and(|mask| {
            let [_, _, queries, keys] = mask.shape[..] else { panic!("four axes") };
            mask.values[(b * queries + t) * keys + s] == f64::NEG_INFINITY
        })
    }

    /// The weights of each row of scores; `hide` says which cells are masked.
    fn softmax(scores: &Scores, hide: &dyn Fn(usize, usize, usize) -> bool) -> Scores {
        let mut weights = scores.clone();
        for (b, heads) in weights.iter_mut().enumerate() {
            for (t, row) in heads.iter_mut().flat_map(|head| head.iter_mut().enumerate()) {
                let exp: Vec<f64> =
                    row.iter().enumerate().map(|(s, x)| if hide(b, t, s) { 0.0 } else { x.exp() }).collect();
                let sum: f64 = exp.iter().sum();
                row.iter_mut().zip(&exp).for_each(|(w, e)| *w = if sum > 0.0 { e / sum } else { 0.0 });
            }
        }
        weights
    }

    /// [batch, query, head · size].
    fn context(&self, weights: &Scores) -> Vec<f64> {
        let [batch, heads, _, size] = self.v.shape[..] else { panic!("four axes") };
        let queries = self.q.shape[2];
        let mut out = Vec::new();
        for (b, t) in (0..batch).flat_map(|b| (0..queries).map(move |t| (b, t))) {
            for (h, k) in (0..heads).flat_map(|h| (0..size).map(move |k| (h, k))) {
                let row = &weights[b][h][t];
                out.push(row.iter().enumerate().map(|(s, w)| w * Self::at(self.v, b, h, s, k)).sum());
            }
        }
        out
    }

    fn right(&self) -> Vec<f64> {
        self.context(&Self::softmax(&self.scores(), &|b, t, s| self.masked(b, t, s)))
    }
}

fn each(scores: &mut Scores, mut f: impl FnMut([usize; 4], &mut f64)) {
    for (b, heads) in scores.iter_mut().enumerate() {
        for (h, head) in heads.iter_mut().enumerate() {
            for (t, row) in head.iter_mut().enumerate() {
                row.iter_mut().enumerate().for_each(|(s, x)| f([b, h, t, s], x));
            }
        }
    }
}

const SELF: &str = "decoder.0.self_attn";
const CONTEXT: &str = "decoder.0.self_attn.context";

#[test]
fn mistakes_of_masks_and_the_softmax_are_named() {
    let run = Run::new(&DEMO, DEMO.input());
    let loops = Loops::of(&run, SELF);
    // The loops are the model's: without a mistake nothing is found.
    assert_eq!(run.said(CONTEXT, &loops.right()), Value::Null);
    let scores = loops.scores();
    let mut after = Loops::softmax(&scores, &|_, _, _| false);
    each(&mut after, |[b, _, t, s], w| *w = if loops.masked(b, t, s) { 0.0 } else { *w });
    assert_eq!(run.named(CONTEXT, &loops.context(&after)), "mask_after_softmax weights");
    let mut before = scores.clone();
    each(&mut before, |[b, _, t, s], x| *x = if loops.masked(b, t, s) { 0.0 } else { *x });
    let multiplied = loops.context(&Loops::softmax(&before, &|_, _, _| false));
    assert_eq!(run.named(CONTEXT, &multiplied), "mask_multiplied masked_scores");
    let offset = |by: i64| {
        let hide = |b: usize, t: usize, s: usize| {
            // A padded key is masked for the last query, too.
            loops.masked(b, loops.q.shape[2] - 1, s) || s as i64 > t as i64 + by
        };
        loops.context(&Loops::softmax(&scores, &hide))
    };
    assert_eq!(run.named(CONTEXT, &offset(1)), "causal_offset mask");
    assert_eq!(run.named(CONTEXT, &offset(-1)), "causal_offset mask");
    // Where padding is not masked, the last token of a padded row sees some: rows without padding tell the same.
    let unpadded = loops.context(&Loops::softmax(&scores, &|_, t, s| s > t + 1));
    assert_eq!(run.named(CONTEXT, &unpadded), "causal_offset mask");
    // Two positions too many is no offset by one.
    assert!(!run.named(CONTEXT, &offset(2)).starts_with("causal_offset"));
    // Along the queries, and along the heads.
    let along = |over: &dyn Fn([usize; 4]) -> [usize; 4]| {
        let mut masked = scores.clone();
        each(&mut masked, |[b, _, t, s], x| *x = if loops.masked(b, t, s) { 0.0 } else { x.exp() });
        let mut sums: BTreeMap<[usize; 4], f64> = BTreeMap::new();
        each(&mut masked, |at, x| *sums.entry(over(at)).or_insert(0.0) += *x);
        each(&mut masked, |at, x| *x = if sums[&over(at)] > 0.0 { *x / sums[&over(at)] } else { 0.0 });
        loops.context(&masked)
    };
    assert_eq!(run.named(CONTEXT, &along(&|[b, h, _, s]| [b, h, 0, s])), "softmax_axis weights");
    assert_eq!(run.named(CONTEXT, &along(&|[b, _, t, s]| [b, 0, t, s])), "softmax_axis weights");
    // Over everything at once is no axis.
    assert!(!run.named(CONTEXT, &along(&|[b, ..]| [b, 0, 0, 0])).starts_with("softmax_axis"));
}

#[test]
fn mistakes_of_scores_and_heads_are_named() {
    let run = Run::new(&DEMO, DEMO.input());
    let loops = Loops::of(&run, SELF);
    let twice = Loops { scale: loops.scale * loops.scale, ..Loops::of(&run, SELF) };
    let first = run.said(CONTEXT, &twice.right());
    assert_eq!(
        (first["relation"].as_str(), first["cause"].as_str()),
        (Some("scale"), Some("decoder.0.self_attn.scores"))
    );
    assert!(first["sentence"].as_str().unwrap().contains("applied twice"), "{first}");
    let other = Loops { scale: loops.scale * 1.3, ..Loops::of(&run, SELF) };
    assert!(!run.named(CONTEXT, &other.right()).starts_with("scale"));
    let values = Loops { k: loops.v, v: loops.k, ..Loops::of(&run, SELF) };
    let first = run.said(CONTEXT, &values.right());
    assert_eq!(
        (first["relation"].as_str(), first["detail"]["tensors"][1].as_str()),
        (Some("swapped_inputs"), Some("v"))
    );
    let keys = Loops { q: loops.k, k: loops.q, ..Loops::of(&run, SELF) };
    let first = run.said(CONTEXT, &keys.right());
    assert_eq!(
        (first["relation"].as_str(), first["detail"]["tensors"][0].as_str()),
        (Some("swapped_inputs"), Some("q"))
    );
    // Values in the place of keys alone are no exchange.
    let half = Loops { k: loops.v, ..Loops::of(&run, SELF) };
    assert!(!run.named(CONTEXT, &half.right()).starts_with("swapped_inputs"));
    // Features h, h + heads, … of a head.
    let cut = |leaf: &str, from: &dyn Fn(usize, usize, usize, usize) -> usize| {
        let (flat, heads) = (run.get(&format!("{SELF}.{leaf}")), run.get(&format!("{SELF}.{leaf}_heads")));
        let [batch, count, length, size] = heads.shape[..] else { panic!("four axes") };
        let mut values = Vec::new();
        for (b, h) in (0..batch).flat_map(|b| (0..count).map(move |h| (b, h))) {
            for (l, k) in (0..length).flat_map(|l| (0..size).map(move |k| (l, k))) {
                values.push(flat.values[(b * length + l) * count * size + from(h, k, count, size)]);
            }
        }
        Kept { shape: heads.shape.clone(), values }
    };
    let interleaved = |h: usize, k: usize, heads: usize, _: usize| k * heads + h;
    let [q, k, v] = ["q", "k", "v"].map(|leaf| cut(leaf, &interleaved));
    let cut_up = Loops { q: &q, k: &k, v: &v, ..Loops::of(&run, SELF) };
    assert_eq!(run.named(CONTEXT, &cut_up.right()), "interleaved_heads –");
    // The queries alone: not the same mistake.
    let only = Loops { q: &q, ..Loops::of(&run, SELF) };
    assert!(!run.named(CONTEXT, &only.right()).starts_with("interleaved_heads"));
    // [batch, head, query, size] read as if it were [batch, query, head · size].
    let heads = run.get(&format!("{SELF}.context_heads"));
    assert_eq!(run.named(CONTEXT, &heads.values), "heads_not_transposed –");
}

/// In f16: 11 digits.
fn short(x: f64) -> f64 {
    half::f16::from_f64(x).to_f64()
}

#[test]
fn an_attention_in_half_precision_is_named() {
    let run = Run::new(&DEMO, DEMO.input());
    let round = |kept: &Kept| Kept {
        shape: kept.shape.clone(),
        values: kept.values.iter().map(|x| short(*x)).collect(),
    };
    let loops = Loops::of(&run, SELF);
    let [q, k, v] = [loops.q, loops.k, loops.v].map(round);
    let halves = Loops { q: &q, k: &k, v: &v, ..Loops::of(&run, SELF) };
    let mut scores = halves.scores();
    each(&mut scores, |_, x| *x = short(*x));
    let mut weights = Loops::softmax(&scores, &|b, t, s| loops.masked(b, t, s));
    each(&mut weights, |_, x| *x = short(*x));
    // What the projection reads is in half precision, what it gives is not.
    let context: Vec<f64> = halves.context(&weights).iter().map(|x| short(*x)).collect();
    let out = format!("{SELF}.out");
    let (matrix, bias) = (&run.weights[&format!("{out}.weight")], &run.weights[&format!("{out}.bias")]);
    let project = |context: &[f64]| -> Vec<f64> {
        let row = |row: &[f64]| -> Vec<f64> {
            let one = |(w, b): (&[f32], &f32)| {
                w.iter().zip(row).map(|(w, x)| f64::from(*w) * x).sum::<f64>() + f64::from(*b)
            };
            matrix.chunks(bias.len()).zip(bias).map(one).collect()
        };
        context.chunks(bias.len()).flat_map(row).collect()
    };
    assert_eq!(run.said_without(&out, &project(&loops.right()), ".context")["first_divergence"], Value::Null);
    let first = &run.said_without(&out, &project(&context), ".context")["first_divergence"];
    assert_eq!(
        (first["relation"].as_str(), first["detail"]["to"].as_str()),
        (Some("lower_precision"), Some("f16")),
        "{first}"
    );
    // As much noise that is no rounding.
    let mut state = 1u64;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / (1u64 << 31) as f64 - 0.5
    };
    let noisy: Vec<f64> = loops.right().iter().map(|x| x * (1.0 + 1e-3 * noise())).collect();
    let first = &run.said_without(&out, &project(&noisy), ".context")["first_divergence"];
    assert!(!first.is_null() && first["relation"] != "lower_precision", "{first}");
}

#[test]
fn mistakes_of_norms_are_named() {
    let run = Run::new(&DEMO, DEMO.input());
    let node = "encoder.0.self_attn.norm";
    let x = run.get("encoder.0.self_attn.residual");
    let (gain, bias) = (&run.weights[&format!("{node}.weight")], &run.weights[&format!("{node}.bias")]);
    let norm = |spread: &dyn Fn(f64, f64) -> f64| -> Vec<f64> {
        let width = gain.len();
        let row = |row: &[f64]| -> Vec<f64> {
            let n = width as f64;
            let mean = row.iter().sum::<f64>() / n;
            let squares: f64 = row.iter().map(|x| (x - mean).powi(2)).sum();
            let one = |(i, x): (usize, &f64)| {
                (x - mean) / spread(squares, n) * f64::from(gain[i]) + f64::from(bias[i])
            };
            row.iter().enumerate().map(one).collect()
        };
        x.values.chunks(width).flat_map(row).collect()
    };
    // The residual sum is not dumped: it follows from what is.
    let eps = 1e-5;
    assert_eq!(run.said(node, &norm(&|s, n| (s / n + eps).sqrt())), Value::Null);
    let named = |spread: &dyn Fn(f64, f64) -> f64| run.named(node, &norm(spread));
    assert_eq!(named(&|s, n| (s / (n - 1.0) + eps).sqrt()), "unbiased_std –");
    assert_eq!(run.said(node, &norm(&|s, n| (s / (n - 1.0)).sqrt() + eps))["relation"], "unbiased_std");
    // Divided by n − 2: nothing that anybody does.
    assert!(!named(&|s, n| (s / (n - 2.0) + eps).sqrt()).starts_with("unbiased_std"));
    // Too small for any cell, and told by all of them together: the epsilons that cannot be told apart, and no other.
    for other in [1e-6, 1e-12] {
        let report = run.said_without(node, &norm(&|s, n| (s / n + other).sqrt()), "embed_sum");
        assert!(report["first_divergence"].is_null(), "{report}");
        let unusual = &report["unusual"][0];
        assert_eq!(
            (unusual["node"].as_str(), unusual["like"]["relation"].as_str()),
            (Some(node), Some("other_eps"))
        );
        let fits: Vec<f64> = unusual["like"]["detail"]["fits"]
            .as_array()
            .unwrap()
            .iter()
            .map(|x| x.as_f64().unwrap())
            .collect();
        assert!(fits.contains(&other) && !fits.contains(&1e-3), "{unusual}");
    }
    let first = run.said(node, &norm(&|s, n| (s / n + 1e-3).sqrt()));
    assert_eq!(first["detail"]["fits"], serde_json::json!([1e-3]), "{first}");
}

#[test]
fn mistakes_of_sums_and_dropout_are_named() {
    let run = Run::new(&DEMO, DEMO.input());
    let node = "encoder.0.self_attn.residual";
    let (x, y) = (run.get("encoder.0.in"), run.get("encoder.0.self_attn.out"));
    let sum = |of_x: f64, of_y: f64| -> Vec<f64> {
        x.values.iter().zip(&y.values).map(|(x, y)| of_x * x + of_y * y).collect()
    };
    assert_eq!(run.named(node, &sum(2.0, 1.0)), "residual_scale –");
    assert_eq!(run.named(node, &sum(0.0, 1.0)), "residual_scale –");
    assert_eq!(run.named(node, &sum(1.0, 2.0)), "other_residual_gain –");
    assert!(!run.named(node, &sum(1.5, 1.0)).starts_with("residual_scale"));
    // A coin for each cell: 0, or larger by 1/(1 − p).
    let coin = |i: usize| {
        (i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31).wrapping_mul(0xBF58_476D_1CE4_E5B9)
            >> 40
    };
    let drop = |i: usize, x: f64, p: f64| {
        if (coin(i) as f64) < p * (1u64 << 24) as f64 { 0.0 } else { x / (1.0 - p) }
    };
    let dropped: Vec<f64> =
        sum(1.0, 0.0).iter().zip(&y.values).enumerate().map(|(i, (x, y))| x + drop(i, *y, 0.1)).collect();
    assert_eq!(run.named(node, &dropped), "dropout –");
    let out: Vec<f64> = y.values.iter().enumerate().map(|(i, y)| drop(i, *y, 0.3)).collect();
    let first = run.said("encoder.0.self_attn.out", &out);
    assert_eq!(first["relation"], "dropout", "{first}");
    assert!((first["detail"]["p"].as_f64().unwrap() - 0.3).abs() < 1e-3, "{first}");
    // Zeros alone are none.
    let holes: Vec<f64> = y.values.iter().enumerate().map(|(i, y)| drop(i, *y, 0.3) * 0.7).collect();
    assert_ne!(run.said("encoder.0.self_attn.out", &holes)["relation"], "dropout");
}

/// A long input: far distances share buckets.
fn long_t5() -> Run {
    let ids = |n: usize, by: usize| (0..n).map(|i| 2 + (i * by % 50) as u32).collect::<Vec<u32>>();
    let source = Sequence::Tokens(Rows::new(&[ids(150, 7)], 0));
    Run::new(&T5, Input::pair(source, Rows::new(&[ids(150, 11)], 0)))
}

/// T5's buckets, as its paper describes them.
fn t5_bucket(relative: i64, both: bool, buckets: i64, most: f64) -> i64 {
    let (buckets, first, distance) = match both {
        true => (buckets / 2, if relative > 0 { buckets / 2 } else { 0 }, relative.abs()),
        false => (buckets, 0, (-relative).max(0)),
    };
    let exact = buckets / 2;
    if distance < exact {
        return first + distance;
    }
    let part = (distance as f32 / exact as f32).ln() / (most as f32 / exact as f32).ln();
    first + (exact + (part * (buckets - exact) as f32) as i64).min(buckets - 1)
}

#[test]
fn mistakes_of_relative_positions_are_named() {
    let run = long_t5();
    for (part, both) in [("encoder.0.self_attn", true), ("decoder.0.self_attn", false)] {
        let node = format!("{part}.context");
        let loops = Loops { scale: 1.0, ..Loops::of(&run, part) };
        let stack = part.split('.').next().unwrap();
        let table = &run.weights[&format!("{stack}.0.self_attn.bias.weight")];
        let heads = loops.q.shape[1];
        let buckets = (table.len() / heads) as i64;
        let with = |bucket: &dyn Fn(i64) -> i64| {
            let mut scores = loops.scores();
            each(&mut scores, |[_, h, t, s], x| {
                let row = bucket(s as i64 - t as i64).clamp(0, buckets - 1) as usize;
                *x += f64::from(table[row * heads + h]);
            });
            loops.context(&Loops::softmax(&scores, &|b, t, s| loops.masked(b, t, s)))
        };
        let own = |relative: i64| t5_bucket(relative, both, buckets, 128.0);
        assert_eq!(run.said(&node, &with(&own)), Value::Null, "{part}");
        let how = |bucket: &dyn Fn(i64) -> i64| {
            let first = run.said(&node, &with(bucket));
            assert_eq!(first["relation"], "other_bucket", "{first}");
            first["detail"]["how"].as_str().unwrap().to_owned()
        };
        assert_eq!(how(&|r| own(r - 1)), "distance");
        assert_eq!(how(&|r| own(r) + 1), "row");
        assert_eq!(how(&|r| t5_bucket(r, both, buckets, 64.0)), "max_distance");
        let direction = if both { "one_direction" } else { "both_directions" };
        assert_eq!(how(&|r| t5_bucket(r, !both, buckets, 128.0)), direction);
        // A distance that is off by three has another cause.
        let first = run.said(&node, &with(&|r| own(r - 3)));
        assert!(!first.is_null() && first["relation"] != "other_bucket", "{first}");
    }
}

/// The normal distribution's share below x, by Simpson's rule.
fn normal(x: f64) -> f64 {
    let density = |t: f64| (-t * t / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let (steps, width) = (2000, x / 2000.0);
    let weight = |i: usize| if i == 0 || i == steps { 1.0 } else { (2 + 2 * (i % 2)) as f64 };
    0.5 + (0..=steps).map(|i| weight(i) * density(i as f64 * width)).sum::<f64>() * width / 3.0
}

/// An input that was not normed, and another activation, between the tensors of a dump of T5.
#[test]
fn mistakes_of_the_feed_forward_are_named() {
    let run = Run::new(&T5, T5.input());
    let linear = |x: &Kept, weight: &str| -> Vec<f64> {
        let (w, width) = (&run.weights[weight], *x.shape.last().unwrap());
        let row = |row: &[f64]| -> Vec<f64> {
            w.chunks(width).map(|w| w.iter().zip(row).map(|(w, x)| f64::from(*w) * x).sum()).collect()
        };
        x.values.chunks(width).flat_map(row).collect()
    };
    let hidden = linear(run.get("encoder.1.self_attn.residual"), "encoder.1.ffn.hidden.weight");
    assert_eq!(run.named("encoder.1.ffn.hidden", &hidden), "other_input –");
    // relu in the model; gelu with the error function here.
    let gelu = |x: &f64| x * normal(*x);
    let pre = run.get("encoder.1.ffn.hidden");
    let act: Vec<f64> = pre.values.iter().map(gelu).collect();
    let first = run.said("encoder.1.ffn.act", &act);
    assert_eq!(
        (first["relation"].as_str(), first["detail"]["activation"].as_str()),
        (Some("other_activation"), Some("gelu"))
    );
    let other: Vec<f64> = pre.values.iter().map(|x| x.max(0.1 * x)).collect();
    assert_ne!(run.said("encoder.1.ffn.act", &other)["relation"], "other_activation");
}

#[test]
fn weights_of_fewer_bits_are_named() {
    let int8 = |values: &mut [f32], width: usize| {
        for row in values.chunks_mut(width) {
            let step = row.iter().fold(0f32, |most, w| most.max(w.abs())) / 127.0;
            row.iter_mut().for_each(|w| *w = (*w / step).round_ties_even() * step);
        }
    };
    let named = |edit: &dyn Fn(&mut [f32])| {
        weight_fault(&DEMO, |p: &mut FaultyModel| p.edit("encoder.1.ffn.hidden.weight", edit))
    };
    assert_eq!(named(&|w| int8(w, 128)), "encoder.1.ffn.hidden bug quantised");
    let whole = |w: &mut [f32]| {
        let all = w.len();
        int8(w, all);
    };
    assert_eq!(named(&whole), "encoder.1.ffn.hidden bug quantised");
    let bf16 = |w: &mut [f32]| w.iter_mut().for_each(|w| *w = half::bf16::from_f32(*w).to_f32());
    assert_eq!(named(&bf16), "encoder.1.ffn.hidden bug rounded_weight");
    // Four bits, and noise of the size of eight.
    let four = |values: &mut [f32]| {
        for row in values.chunks_mut(128) {
            let step = row.iter().fold(0f32, |most, w| most.max(w.abs())) / 7.0;
            row.iter_mut().for_each(|w| *w = (*w / step).round_ties_even() * step);
        }
    };
    assert_eq!(named(&four), "encoder.1.ffn.hidden bug –");
    let noise = |w: &mut [f32]| {
        w.iter_mut().enumerate().for_each(|(i, w)| *w += ((i * 7919 % 101) as f32 / 101.0 - 0.5) * 2e-3)
    };
    assert_eq!(named(&noise), "encoder.1.ffn.hidden bug –");
    let rolled = |w: &mut [f32]| w.rotate_right(128);
    let said = weight_fault(&DEMO, |p: &mut FaultyModel| p.edit("src.embed.weight", rolled));
    assert_eq!(said, "src.embed bug rolled_rows");
}

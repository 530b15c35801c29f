//! Names and order: maps with patterns, proposed maps, dumps of which nobody says in which order they were computed.

use super::*;

/// A tensor of a run: path, shape, values.
pub(super) type Ran = (String, Vec<usize>, Vec<f32>);

/// Every tensor of a run of the demo that `kept` picks, in the order of computation.
pub(super) fn ran(kept: &dyn Fn(&str) -> bool, fault: impl Fn(&mut FaultyModel)) -> Vec<Ran> {
    ran_on(&DEMO.input(), kept, fault)
}

pub(super) fn ran_on(
    input: &Input,
    kept: &dyn Fn(&str) -> bool,
    fault: impl Fn(&mut FaultyModel),
) -> Vec<Ran> {
    let dir = tempfile::tempdir().unwrap();
    let mut faulty = FaultyModel::of("demo");
    fault(&mut faulty);
    let opened = open(&faulty.save(&dir.path().join("model")), None);
    let model = opened.model().unwrap();
    let weights = Weights::load(model, &opened.checkpoint).unwrap();
    let mut keep = Keep::new(|id| kept(model.graph.node(id).path.as_str()));
    run(model, &weights, input, &mut keep).unwrap();
    let mut all: Vec<_> = keep.tensors.iter().collect();
    all.sort_by_key(|(id, _)| **id);
    let tensor = |(id, kept): (&attnscope::graph::NodeId, &Kept)| {
        let values = kept.values.iter().map(|&x| x as f32).collect();
        (model.graph.node(*id).path.as_str().to_owned(), kept.shape.clone(), values)
    };
    all.into_iter().map(tensor).collect()
}

/// What hooks on modules see, under Hugging Face's names.
fn hugging_face(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('.').collect();
    let name = match parts.as_slice() {
        ["logits"] => "lm_head".to_owned(),
        [stack, n, "out"] => format!("model.{stack}.layers.{n}"),
        [stack, n, attention @ ("self_attn" | "cross_attn"), part @ ("q" | "k" | "v" | "out")] => {
            let attention = if *attention == "self_attn" { "self_attn" } else { "encoder_attn" };
            format!("model.{stack}.layers.{n}.{attention}.{part}_proj")
        }
        [stack, n, "self_attn", "norm"] => format!("model.{stack}.layers.{n}.self_attn_layer_norm"),
        [stack, n, "cross_attn", "norm"] => format!("model.{stack}.layers.{n}.encoder_attn_layer_norm"),
        [stack, n, "ffn", "norm"] => format!("model.{stack}.layers.{n}.final_layer_norm"),
        [stack, n, "ffn", "hidden"] => format!("model.{stack}.layers.{n}.fc1"),
        [stack, n, "ffn", "out"] => format!("model.{stack}.layers.{n}.fc2"),
        _ => return None,
    };
    Some(name)
}

pub(super) fn hooked(path: &str) -> bool {
    hugging_face(path).is_some()
}

/// Written as `name` calls the tensors: safetensors are sorted by name, JSON keeps the order.
pub(super) fn saved(file: &Path, run: &[Ran], name: &dyn Fn(usize, &str) -> String, sorted: bool) -> String {
    let named = run.iter().enumerate().map(|(i, (path, shape, values))| (name(i, path), shape, values));
    match sorted {
        true => {
            let bytes = |values: &Vec<f32>| values.iter().flat_map(|x| x.to_le_bytes()).collect();
            save(file, named.map(|(name, shape, values)| (name, shape.clone(), bytes(values))).collect());
        }
        false => {
            let one = |(name, shape, values): (String, &Vec<usize>, &Vec<f32>)| {
                (name, serde_json::json!({ "shape": shape, "values": values }))
            };
            std::fs::write(file, Value::Object(named.map(one).collect()).to_string()).unwrap();
        }
    }
    file.display().to_string()
}

/// Weights that are moved, one at a time, and the first node that shows it.
const MOVED: [(&str, &str); 7] = [
    ("encoder.0.self_attn.v.weight", "encoder.0.self_attn.v"),
    ("encoder.1.self_attn.norm.weight", "encoder.1.self_attn.norm"),
    ("encoder.1.ffn.out.weight", "encoder.1.ffn.out"),
    ("decoder.0.self_attn.out.bias", "decoder.0.self_attn.out"),
    ("decoder.0.cross_attn.k.weight", "decoder.0.cross_attn.k"),
    ("decoder.1.cross_attn.norm.bias", "decoder.1.cross_attn.norm"),
    ("decoder.1.ffn.hidden.weight", "decoder.1.ffn.hidden"),
];

pub(super) fn move_weight(weight: &str) -> impl Fn(&mut FaultyModel) + '_ {
    move |p: &mut FaultyModel| p.edit(weight, |values| values.iter_mut().for_each(|x| *x *= 1.5))
}

#[test]
fn two_dumps_are_walked_in_the_order_that_they_tell() {
    let dir = tempfile::tempdir().unwrap();
    let right = ran(&hooked, |_| {});
    let by_module = |_: usize, path: &str| hugging_face(path).unwrap();
    // Names that mean nothing, and whose alphabet is no order.
    let letter = |n: usize| char::from(b'a' + (n % 26) as u8);
    let opaque = |i: usize, _: &str| format!("x{}{}", letter(i * 37 % 89), letter(i * 37 % 89 / 26));
    for (weight, node) in MOVED {
        let wrong = ran(&hooked, move_weight(weight));
        let pair = |name: &dyn Fn(usize, &str) -> String, sorted: bool| {
            let [a, b] = [("a.safetensors", &right), ("b.safetensors", &wrong)]
                .map(|(file, run)| saved(&dir.path().join(file), run, name, sorted));
            diff(&[&a, &b])
        };
        let (code, report) = pair(&by_module, true);
        let said = (code, report["first_divergence"]["node"].as_str(), report["order"].as_str());
        assert_eq!(said, (1, Some(by_module(0, node).as_str()), Some("names")), "{weight}");
        let (code, report) = pair(&opaque, false);
        let at = right.iter().position(|(path, ..)| path == node).unwrap();
        let said = (code, report["first_divergence"]["node"].as_str(), report["order"].as_str());
        assert_eq!(said, (1, Some(opaque(at, "").as_str()), Some("written")), "{weight}");
    }
}

/// A tensor whose name says nothing has no place in the order of the others, but what differs in it differs.
#[test]
fn a_tensor_without_a_place_is_not_called_rounding() {
    let dir = tempfile::tempdir().unwrap();
    let name = |_: usize, path: &str| match path {
        "decoder.1.ffn.act" => "mine/alpha".to_owned(),
        "encoder.0.self_attn.weights" => "mine/beta".to_owned(),
        _ => hugging_face(path).unwrap(),
    };
    let kept =
        |path: &str| hooked(path) || ["decoder.1.ffn.act", "encoder.0.self_attn.weights"].contains(&path);
    let [a, b] =
        [("a.safetensors", ran(&kept, |_| {})), ("b.safetensors", ran(&kept, move_weight(MOVED[5].0)))]
            .map(|(file, run)| saved(&dir.path().join(file), &run, &name, true));
    let (_, report) = diff(&[&a, &b]);
    assert_eq!(report["first_divergence"]["node"], name(0, MOVED[5].1));
    let nodes = report["nodes"].as_array().unwrap();
    let state = |name: &str| nodes.iter().find(|node| node["node"] == name).unwrap()["state"].clone();
    assert_eq!((state("mine/alpha"), state("mine/beta")), ("apart".into(), "same".into()));
    let row = |node: &&Value| node["relative"].as_f64().unwrap() > 1e-3;
    assert!(nodes.iter().filter(row).all(|node| node["state"] != "rounding"), "{report:#}");
    // All that the table leaves out and that differs is counted.
    let text = stdout(&attnscope(&["diff", &a, &b]));
    let at = nodes.iter().position(|node| node["state"] == "first").unwrap();
    let differ = nodes[at + 7..].iter().filter(row).count();
    assert!(text.contains(&format!("{differ} of which differ")), "{differ}\n{text}");
}

#[test]
fn without_an_order_nothing_is_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let (right, wrong) = (ran(&hooked, |_| {}), ran(&hooked, move_weight(MOVED[2].0)));
    let opaque = |i: usize, _: &str| format!("t{}", ["ba", "ce", "da"][i % 3].repeat(1 + i));
    let [a, b] = [("a.safetensors", &right), ("b.safetensors", &wrong)]
        .map(|(file, run)| saved(&dir.path().join(file), run, &opaque, true));
    let (code, report) = diff(&[&a, &b]);
    assert_eq!(
        (code, &report["first_divergence"], report["order"].as_str()),
        (1, &Value::Null, Some("unknown"))
    );
    let ranked = report["largest_differences"].as_array().unwrap();
    assert!(ranked.len() > 5, "{ranked:?}");
    let size = |name: &Value| {
        let mut nodes = report["nodes"].as_array().unwrap().iter();
        nodes.find(|node| node["node"] == *name).unwrap()["relative"].as_f64().unwrap()
    };
    assert!(ranked.windows(2).all(|pair| size(&pair[0]) >= size(&pair[1])));
    let text = stdout(&attnscope(&["diff", &a, &b]));
    assert!(
        text.contains("No order of computation is known") && !text.contains("first divergence"),
        "{text}"
    );
    // The same file twice has nothing to rank.
    let (code, report) = diff(&[&a, &a]);
    assert_eq!((code, report["largest_differences"].as_array().map(Vec::len)), (0, Some(0)));
}

/// Names of two schemes mean the same modules.
#[test]
fn names_of_two_schemes_are_compared_without_a_model() {
    let dir = tempfile::tempdir().unwrap();
    let (right, wrong) = (ran(&hooked, |_| {}), ran(&hooked, move_weight(MOVED[4].0)));
    let a = saved(&dir.path().join("a.safetensors"), &right, &|_, path| path.to_owned(), true);
    let b = saved(&dir.path().join("b.safetensors"), &wrong, &|_, path| hugging_face(path).unwrap(), true);
    for (a, b, first) in [(&a, &b, MOVED[4].1.to_owned()), (&b, &a, hugging_face(MOVED[4].1).unwrap())] {
        let (code, report) = diff(&[a, b]);
        assert_eq!(
            (code, report["first_divergence"]["node"].as_str()),
            (1, Some(first.as_str())),
            "{report:#}"
        );
        assert_eq!(report["nodes"].as_array().unwrap().len(), right.len());
    }
}

/// Names in the style of someone's own code, layers counted from 1.
fn own_style(path: &str) -> String {
    let parts: Vec<&str> = path.split('.').collect();
    match parts.as_slice() {
        [stack, n, rest @ ..] if n.parse::<usize>().is_ok() => {
            format!("{}{}/{}", &stack[..1], n.parse::<usize>().unwrap() + 1, rest.join("_"))
        }
        _ => "net/words".to_owned(),
    }
}

#[test]
fn patterns_map_layers_and_unused_lines_are_said() {
    let dir = tempfile::tempdir().unwrap();
    let ours = DEMO.trace(dir.path());
    let wrong = ran(&hooked, move_weight(MOVED[6].0));
    let theirs = saved(&dir.path().join("b.safetensors"), &wrong, &|_, path| own_style(path), true);
    let map = dir.path().join("names.map");
    let lines = "e{n+1}/self_attn_{x} = encoder.{n}.self_attn.{x}\n\
                 e{n+1}/ffn_{x} = encoder.{n}.ffn.{x}\n\
                 d{n+1}/{a}_attn_{x} = decoder.{n}.{a}_attn.{x}\n\
                 \"d{n+1}/ffn_{x}\" = \"decoder.{n}.ffn.{x}\"\n\
                 e{n+1}/out = encoder.{n}.out\n\
                 d{n+1}/out = decoder.{n}.out\n\
                 net/words = logits\n\
                 e{n}/mlp_{x} = encoder.{n}.ffn.{x}\n\
                 e1/ffn_out = encoder.0.ffn.outt\n\
                 e1/ffn_out = encoder.0.self_attn.scores\n";
    std::fs::write(&map, lines).unwrap();
    let map = map.display().to_string();
    let (code, report) = diff(&[&ours, &theirs, "--map", &map]);
    assert_eq!((code, report["first_divergence"]["node"].as_str()), (1, Some("decoder.1.ffn.hidden")));
    assert_eq!(report["not_compared"]["b"], serde_json::json!([]));
    assert!(report["nodes"].as_array().unwrap().iter().all(|n| n["seen_as"].is_null()), "{report:#}");
    let unused: Vec<(u64, &str)> = report["map"]["unused"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| (line["line"].as_u64().unwrap(), line["why"].as_str().unwrap()))
        .collect();
    let expected = [
        (8, "no tensor or node is called e{n}/mlp_{x}"),
        (9, "no tensor or node is called encoder.0.ffn.outt"),
        (10, "the shapes of the two do not fit each other"),
    ];
    assert_eq!(unused, expected);
    let text = stdout(&attnscope(&["diff", &ours, &theirs, "--map", &map]));
    assert!(text.contains("line 9 of the map matched nothing"), "{text}");
}

#[test]
fn a_map_is_proposed_and_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, input) = traced_ids("demo", &[54, 231, 8, 77, 310, 0], &[3999, 60, 12, 400, 7], dir.path());
    // From the encoder's second layer on, every value is another.
    let wrong = ran_on(&input, &hooked, move_weight(MOVED[1].0));
    let theirs = saved(&dir.path().join("b.safetensors"), &wrong, &|_, path| own_style(path), false);
    let (_, report) = diff(&[&ours, &theirs]);
    let lines: Vec<&str> =
        report["map"]["proposed"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    let has = |start: &str| lines.iter().any(|line| line.starts_with(start));
    for start in [
        "e{n+1}/self_attn_q = encoder.{n}.self_attn.q  # ",
        "e{n+1}/ffn_norm = encoder.{n}.ffn.norm  # ",
        // After the fault no values are the same, and what only looks alike does nothing.
        "# d{n+1}/cross_attn_out = decoder.{n}.cross_attn.out  # ",
        "# net/words = logits  # ",
    ] {
        assert!(has(start), "{start}\n{}", lines.join("\n"));
    }
    // What was not found by its values was not compared.
    assert!(report["nodes"].as_array().unwrap().len() < wrong.len(), "{report:#}");
    // Taken over as it is, it is a map that finds the fault, and with what only looks alike, too.
    let map = dir.path().join("names.map");
    let all: Vec<&str> = lines.iter().map(|line| line.trim_start_matches("# ")).collect();
    for lines in [&lines, &all] {
        std::fs::write(&map, lines.join("\n")).unwrap();
        let (code, report) = diff(&[&ours, &theirs, "--map", map.to_str().unwrap()]);
        assert_eq!((code, report["first_divergence"]["node"].as_str()), (1, Some(MOVED[1].1)), "{report:#}");
        assert_eq!(report["map"]["unused"], serde_json::json!([]));
    }
    let text = stdout(&attnscope(&["diff", &ours, &theirs]));
    assert!(text.contains("it was not used") && text.contains("--map FILE"), "{text}");
}

/// A module around another, and dropout, give what they read: two names of one node. None is given to a node that only looks
/// alike, so that the map makes no bug of a run without one.
#[test]
fn two_names_of_one_node_are_proposed_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, input) = traced_ids("demo", &[54, 231, 8, 77, 310, 0], &[3999, 60, 12, 400, 7], dir.path());
    let mut run = ran_on(&input, &hooked, |_| {});
    let again: Vec<Ran> = run
        .iter()
        .filter(|(path, ..)| path.ends_with(".ffn.out") || path.ends_with(".self_attn.out"))
        .map(|(path, shape, values)| (format!("{path}.again"), shape.clone(), values.clone()))
        .collect();
    assert!(again.len() > 6);
    run.extend(again);
    let theirs = saved(&dir.path().join("b.safetensors"), &run, &|_, path| own_style(path), true);
    let (_, report) = diff(&[&ours, &theirs]);
    assert_eq!(report["first_divergence"], Value::Null, "{report:#}");
    let lines: Vec<&str> =
        report["map"]["proposed"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    for line in [
        "e{n+1}/ffn_out_again = encoder.{n}.ffn.out  # same values",
        "d{n+1}/self_attn_out = decoder.{n}.self_attn.out  # same values",
    ] {
        assert!(lines.contains(&line), "{line}\n{}", lines.join("\n"));
    }
    let map = dir.path().join("names.map");
    std::fs::write(&map, lines.join("\n")).unwrap();
    let (code, report) = diff(&[&ours, &theirs, "--map", map.to_str().unwrap()]);
    assert_eq!((code, &report["first_divergence"]), (0, &Value::Null), "{report:#}");
}

#[test]
fn a_part_of_a_weight_is_named_by_its_own_axes() {
    let dir = tempfile::tempdir().unwrap();
    let mut faulty = FaultyModel::of("demo");
    faulty.edit("encoder.0.ffn.out.weight", |values| {
        // [128, 256]
        values.chunks_mut(256).for_each(|row| row[32..64].iter_mut().for_each(|x| *x += 0.5));
    });
    let (code, report) = checkpoints("demo", &faulty.save(dir.path()));
    assert_eq!((code, first(&report).as_str()), (1, "encoder.0.ffn.out.weight bug weight_slice"));
    let sentence = report["first_divergence"]["sentence"].as_str().unwrap();
    assert_eq!(sentence, "in B only columns 32–63 of encoder.0.ffn.out.weight differ");
}

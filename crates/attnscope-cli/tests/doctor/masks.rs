//! What is said of masks: one that leaks is named where it leaks, and none is blamed for what is no mask.

use super::*;

/// NaN does not move: nothing but the weight and the run is accused.
#[test]
fn a_nan_is_not_called_a_fault_of_masks() {
    let folder = TempDir::new().unwrap();
    let mut faulty = FaultyModel::of("demo");
    (FAULTS.iter().find(|fault| fault.what == "nan").unwrap().apply)(&mut faulty);
    let broken = faulty.save(&folder.path().join("broken"));
    let file = pairs(folder.path(), 20);
    for input in [["--src", SENTENCE], ["--pairs", &file]] {
        let (report, code, said) = doctor(&broken, &input);
        assert_eq!(found(&report, false), ["nonfinite-weight", "first-nan"], "{report:#}\n{said}");
        assert_eq!(code, 1);
    }
}

/// What stops at a projection of zeros, or overflows, says nothing about masks: the weights are accused, masks are not.
#[test]
fn a_mask_is_not_blamed_for_what_is_no_mask() {
    let masks = "causal-leak,padding-leak,cross-mask-fault,zero-weight,constant-weight";
    let undecided = |model: &str, fault: fn(&mut FaultyModel), input: &[&str]| {
        let folder = TempDir::new().unwrap();
        let mut faulty = FaultyModel::of(model);
        fault(&mut faulty);
        let broken = faulty.save(folder.path());
        let (report, code, said) = doctor(&broken, &[&["--rules", masks], input].concat());
        assert_eq!(code, 1, "{report:#}\n{said}");
        let blamed = found(&report, false);
        assert!(blamed.iter().all(|rule| rule.ends_with("-weight")), "{report:#}");
        let of = |n: &Value| (n["rule"].as_str().unwrap().to_owned(), n["why"].as_str().unwrap().to_owned());
        report["not_checked"].as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    let zero: fn(&mut FaultyModel) = |p| {
        (0..2).for_each(|n| p.edit(&format!("decoder.{n}.cross_attn.out.weight"), |w| w.fill(0.0)));
    };
    let not_checked = undecided("demo", zero, &["--src", SENTENCE]);
    assert_eq!(not_checked[0].0, "cross-mask-fault");
    assert!(not_checked[0].1.starts_with("inconclusive: cross-reach: "), "{not_checked:?}");
    let large: fn(&mut FaultyModel) = |p| p.tensors.iter_mut().for_each(|t| t.values.fill(3e38));
    let not_checked = undecided(&fixture("t5"), large, &["--src-ids", "5,6,7,8,1", "--tgt-ids", "0,4,5,6"]);
    assert!(not_checked.iter().any(|(rule, _)| rule == "causal-leak"), "{not_checked:?}");
    assert!(not_checked.iter().all(|(_, why)| why.contains("overflow")), "{not_checked:?}");
}

#[test]
fn a_mask_that_leaks_is_named_where_it_leaks() {
    let leaks = ["causal-leak", "padding-leak", "cross-mask-fault"];
    let demo = open("demo", None);
    let first = |edit: fn(&mut Wiring)| {
        let diagnosis = miswired(&demo, edit, None, 2, &leaks);
        diagnosis.findings.first().map(|f| (f.rule, f.node.clone().unwrap_or_default()))
    };
    assert_eq!(first(|_| ()), None);
    let (rule, node) = first(|w| w.causal_mask = Switch::Off).unwrap();
    assert_eq!((rule, node.as_str()), ("causal-leak", "decoder.0.self_attn.masked_scores"));
    let (rule, node) = first(|w| w.padding_mask = Switch::Off).unwrap();
    assert!(rule == "padding-leak" && node.starts_with("encoder.0.self_attn"), "{node}");
    let (rule, node) = first(|w| w.cross_mask = CrossMask::Causal).unwrap();
    assert!(rule == "cross-mask-fault" && node.starts_with("decoder.0.cross_attn"), "{node}");
}

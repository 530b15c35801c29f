//! Every explanation fires on its mistake and is silent on a right example; nothing in a file brings the program down.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::derive::{Fixed, derive};
use super::hypotheses::hypotheses;
use super::recipe::Recipe;
use super::rounding::apart;
use super::*;

/// Cross-attention with biases and a mask: with one head or two, every mistake can be made in it.
fn rich(numbers: &[f64], heads: usize) -> Example {
    let mut numbers = numbers.iter().copied().cycle();
    let mut matrix = |rows: usize, columns: usize| -> String {
        let row = |numbers: Vec<f64>| format!("{numbers:?}");
        let rows: Vec<String> = (0..rows).map(|_| row(numbers.by_ref().take(columns).collect())).collect();
        format!("[{}]", rows.join(", "))
    };
    let names = [
        ("X", 4, 4),
        ("C", 4, 4),
        ("W_Q", 4, 4),
        ("W_K", 4, 4),
        ("W_V", 4, 4),
        ("W_O", 4, 4),
        ("b_Q", 1, 4),
        ("b_K", 1, 4),
        ("b_V", 1, 4),
        ("b_O", 1, 4),
    ];
    let given: Vec<String> =
        names.iter().map(|(name, rows, columns)| format!("{name} = {}", matrix(*rows, *columns))).collect();
    parse(&format!("heads = {heads}\nmask = \"causal\"\ntolerance = 1e-6\n[given]\n{}", given.join("\n")))
        .unwrap()
}

fn claim(part: Part, matrix: Matrix) -> Claim {
    Claim { part, stated: Stated { matrix, line: 1, digits: 9 } }
}

fn parts(heads: usize) -> Vec<Part> {
    let of = |step: Step| -> Vec<Part> {
        let heads: Vec<Option<usize>> =
            if step.per_head() { (0..heads).map(Some).collect() } else { vec![None] };
        heads.into_iter().map(|head| Part { step, head }).collect()
    };
    Step::ALL.into_iter().flat_map(of).collect()
}

/// The kinds that are found for one claim alone.
fn kinds(example: &Example, claims: Vec<Claim>) -> Vec<&'static str> {
    let judgement = judge(&Example { claims, ..example.clone() });
    match &judgement.claims.last().unwrap().verdict {
        Verdict::Wrong(diagnosis) => diagnosis.fits.iter().map(|fit| fit.explanation.kind()).collect(),
        _ => Vec::new(),
    }
}

fn irregular(seed: usize) -> Vec<f64> {
    (0..200)
        .map(|i| {
            (((i * 37 + seed * 91 + 11) as f64 * 0.618).fract() * 4.0 - 2.0) * (1.0 + (i % 7) as f64 / 10.0)
        })
        .collect()
}

#[test]
fn every_mistake_of_computation_is_recognised() {
    let examples = [rich(&irregular(1), 1), rich(&irregular(1), 2)];
    let seen: BTreeSet<&str> = examples.iter().flat_map(recognised).collect();
    let all: BTreeSet<&str> = examples.iter().flat_map(hypotheses).map(|e| e.kind()).collect();
    assert_eq!(seen, all, "some mistake shows nowhere");
    assert!(all.len() > 18, "{all:?}");
}

/// Makes every mistake, one at a time, and claims every step that it changes.
fn recognised(example: &Example) -> BTreeSet<&'static str> {
    let truth = derive(example, &Recipe::of(example), &[]);
    let mut seen = BTreeSet::new();
    for mistake in hypotheses(example) {
        let wrong = derive(example, &mistake.edit(Recipe::of(example)).unwrap(), &[]);
        for part in parts(example.heads) {
            let (Some(made), Some(right)) = (wrong.part(part), truth.part(part)) else { continue };
            if made.shape() != right.shape() || apart(made.values(), right.values()) < 1e-3 {
                continue;
            }
            let kinds = kinds(example, vec![claim(part, made)]);
            assert!(kinds.contains(&mistake.kind()), "{mistake:?} in {part}: {kinds:?}");
            seen.insert(mistake.kind());
        }
    }
    seen
}

#[test]
fn the_right_scale_is_not_tried_and_the_others_are() {
    let values: Vec<f64> = hypotheses(&rich(&irregular(2), 2))
        .iter()
        .filter_map(|e| if let Explanation::Scale { value, .. } = e { Some(*value) } else { None })
        .collect();
    // d_head 2, d_model 4, 4 keys: √2 is right, √4 = d_head = 2, 1.
    assert_eq!(values, [2.0, 1.0]);
}

#[test]
fn numbers_tell_of_signs_copies_transposes_and_rounding() {
    let example = rich(&irregular(3), 2);
    let truth = derive(&example, &Recipe::of(&example), &[]);
    let part = Part { step: Step::Output, head: None };
    let right = truth.part(part).unwrap();
    let change = |f: &dyn Fn(usize, f64) -> f64| {
        let values = right.values().iter().enumerate().map(|(i, &x)| f(i, x)).collect();
        claim(part, Matrix::new(4, 4, values).unwrap())
    };
    assert_eq!(kinds(&example, vec![change(&|i, x| if i == 5 { -x } else { x })]), ["sign"]);
    assert!(kinds(&example, vec![claim(part, right.transposed())]).contains(&"transposed"));
    let context = truth.part(Part { step: Step::Context, head: None }).unwrap();
    let copied = change(&|i, x| if (4..8).contains(&i) { context.row(1)[i - 4] } else { x });
    assert_eq!(kinds(&example, vec![copied]), ["copied"]);
    let moved = change(&|i, x| if i < 4 { right.row(2)[i] } else { x });
    assert_eq!(kinds(&example, vec![moved]), ["copied"]);
    let mut coarse = change(&|_, x| (x * 10.0).round() / 10.0);
    coarse.stated.digits = 1;
    assert_eq!(kinds(&example, vec![coarse]), ["too_coarse"]);
    assert_eq!(kinds(&example, vec![change(&|i, x| x + i as f64)]), [""; 0]);
}

#[test]
fn a_claim_that_follows_from_a_wrong_one_is_not_a_second_mistake() {
    let example = rich(&irregular(4), 2);
    let weights = Part { step: Step::Weights, head: Some(0) };
    let truth = derive(&example, &Recipe::of(&example), &[]);
    let wrong = claim(weights, truth.part(weights).unwrap().map(|x| x * 0.5));
    let after = derive(&example, &Recipe::of(&example), &[Fixed { claim: &wrong, reach: None }]);
    let output = Part { step: Step::Output, head: None };
    let claims = vec![wrong, claim(output, after.part(output).unwrap())];
    let judgement = judge(&Example { claims, ..example.clone() });
    assert!(matches!(judgement.claims[0].verdict, Verdict::Wrong(_)));
    assert_eq!(judgement.claims[1].verdict, Verdict::Follows { from: vec![weights] });
    assert!(matches!(judgement.first_mistake(), Some(Mistake::Claim(j)) if j.claim.part == weights));
    // The other head's weights have nothing to do with it.
    let other = Part { step: Step::Weights, head: Some(1) };
    let claims = vec![
        claim(weights, truth.part(weights).unwrap().map(|x| x * 0.5)),
        claim(other, truth.part(other).unwrap()),
    ];
    assert_eq!(judge(&Example { claims, ..example }).claims[1].verdict, Verdict::Right);
}

/// Every part as a recipe makes it, computed with all digits and written with few.
fn written(example: &Example, made: &Derived, digits: u32) -> Vec<Claim> {
    let scale = 10f64.powi(digits.try_into().unwrap());
    let round = |matrix: Matrix| matrix.map(|x| (x * scale).round() / scale);
    let claim = |part: Part| Claim {
        part,
        stated: Stated { matrix: round(made.part(part).unwrap()), line: 1, digits },
    };
    parts(example.heads).into_iter().map(claim).collect()
}

/// How far two derivations are apart in a part.
fn differ(a: &Derived, b: &Derived, part: Part) -> f64 {
    let (Some(a), Some(b)) = (a.part(part), b.part(part)) else { return f64::INFINITY };
    if a.shape() == b.shape() { apart(a.values(), b.values()) } else { f64::INFINITY }
}

#[test]
fn what_comes_after_a_mistake_follows_however_it_was_rounded() {
    let (mut tried, mut kinds) = (0, BTreeSet::new());
    for (seed, digits, heads) in [(1, 2, 1), (2, 3, 1), (3, 4, 1), (4, 2, 2), (5, 3, 2), (6, 4, 2)] {
        let numbers: Vec<f64> = irregular(seed).iter().map(|x| (x * 30.0).round() / 100.0).collect();
        let example = Example { tolerance: Tolerance::Decimals(digits), ..rich(&numbers, heads) };
        let truth = derive(&example, &Recipe::of(&example), &[]);
        for mistake in hypotheses(&example) {
            let made = derive(&example, &mistake.edit(Recipe::of(&example)).unwrap(), &[]);
            let changed: Vec<Part> =
                parts(heads).into_iter().filter(|part| differ(&truth, &made, *part) > 1e-9).collect();
            let Some(first) = changed.first().map(|part| part.step) else { continue };
            // A difference that is rounded away is not a mistake that can be seen.
            let seen =
                |part: &Part| part.step != first || (0.05..1e6).contains(&differ(&truth, &made, *part));
            if !changed.iter().all(seen) {
                continue;
            }
            let claims = written(&example, &made, digits);
            for judged in judge(&Example { claims, ..example.clone() }).claims {
                let wrong = matches!(judged.verdict, Verdict::Wrong(_));
                let here = judged.claim.part.step == first && changed.contains(&judged.claim.part);
                assert_eq!(wrong, here, "{mistake:?}, {digits} digits, seed {seed}: {judged:#?}");
            }
            tried += 1;
            kinds.insert(mistake.kind());
        }
    }
    assert!(tried > 50 && kinds.len() > 10, "{tried}: {kinds:?}");
}

#[test]
fn a_second_mistake_is_found_after_a_first() {
    for (seed, digits) in (1..7).flat_map(|seed| [2, 3, 4].map(|digits| (seed, digits))) {
        let numbers: Vec<f64> = irregular(seed).iter().map(|x| (x * 30.0).round() / 100.0).collect();
        let example = Example { tolerance: Tolerance::Decimals(digits), ..rich(&numbers, 1) };
        let unscaled = Explanation::Scale { by: Divisor::One, value: 1.0 };
        let recipe = unscaled.edit(Recipe::of(&example)).unwrap();
        let context = Part { step: Step::Context, head: None };
        // The sign of the largest number turned, and the output computed from that.
        let mut turned = derive(&example, &recipe, &[]).part(context).unwrap();
        let most = turned.values().iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        turned = turned.map(|x| if x.abs() == most { -x } else { x });
        let second = claim(context, turned);
        let made = derive(&example, &recipe, &[Fixed { claim: &second, reach: None }]);
        let judgement = judge(&Example { claims: written(&example, &made, digits), ..example.clone() });
        let wrong: Vec<Step> = judgement
            .claims
            .iter()
            .filter(|judged| matches!(judged.verdict, Verdict::Wrong(_)))
            .map(|judged| judged.claim.part.step)
            .collect();
        assert_eq!(wrong, [Step::Scores, Step::Context], "seed {seed}, {digits} digits");
        let Verdict::Wrong(diagnosis) = &judgement.claims[7].verdict else { panic!() };
        assert!(
            diagnosis.fits.iter().any(|fit| fit.explanation == Explanation::Sign { cells: 1 }),
            "{diagnosis:?}"
        );
    }
}

#[test]
fn whole_numbers_are_not_taken_for_rounded_ones() {
    // Q is wrong; the products follow from it but for one that is off by 1.
    let text = "[given]\nX = [[1, 2], [3, 4]]\nW_Q = [[1, 0], [0, 1]]\nW_K = [[2, 0], [0, 2]]\n[claims]\nQ = [[1, 3], [3, 4]]\nproducts = ";
    let verdicts = |products: &str| {
        let judgement = judge(&parse(&format!("{text}{products}")).unwrap());
        judgement.claims[1].verdict.clone()
    };
    assert!(matches!(verdicts("[[14, 30], [22, 50]]"), Verdict::Follows { .. }));
    assert!(matches!(verdicts("[[14, 31], [22, 50]]"), Verdict::Wrong(_)));
}

#[test]
fn rounded_numbers_lead_to_rounded_numbers() {
    let text = "decimals = 2\n[given]\nQ = [[10.04]]\nK = [[10.04]]\nV = [[1.0]]\n[claims]\nproducts = [[100.80]]\nscores = [[100.80]]";
    assert!(judge(&parse(text).unwrap()).is_right());
    let rough = "scale = 0.001\ndecimals = 2\n[given]\nQ = [[10.04]]\nK = [[10.04]]\n[claims]\nproducts = [[100.80]]\nscores = [[100800]]";
    let judgement = judge(&parse(rough).unwrap());
    assert_eq!(judgement.claims[1].verdict, Verdict::RightFromRounded);
    assert!(judgement.is_right());
}

#[test]
fn a_transposed_claim_of_another_shape_is_a_wrong_claim() {
    let text = "[given]\nQ = [[1, 2]]\nK = [[3, 4], [5, 6]]\n[claims]\nproducts = [[11], [17]]";
    let judgement = judge(&parse(text).unwrap());
    let Verdict::Wrong(diagnosis) = &judgement.claims[0].verdict else { panic!() };
    assert_eq!((diagnosis.fits[0].explanation.kind(), diagnosis.worst), ("transposed", None));
}

#[test]
fn refusals_name_the_line_and_the_shapes() {
    for (text, line, said) in [
        ("title = \"a\ngiven = 1", Some(1), "not TOML"),
        ("[given]\nX = [[1, 2],\n     [3]]", Some(3), "row 2 has 1 numbers, row 1 has 2"),
        ("[given]\nX = [[1, nan]]", Some(2), "found nan"),
        ("[given]\nX = [[1, 1e31]]", Some(2), "found 1e31"),
        ("[given]\nX = [[1, \"-inf\"]]", Some(2), "found \"-inf\""),
        ("[given]\nX = []", Some(2), "found 0"),
        ("[given]\nX = [[1, 2]]\nW_Q = [[1, 2], [3, 4], [5, 6]]", Some(3), "X is 1×2 and W_Q is 3×2"),
        ("[given]\nQ = [[1, 2]]\nK = [[1, 2, 3]]", Some(3), "Q is 1×2 and K is 1×3"),
        ("[given]\nQ = [[1, 2]]\nK = [[1, 2]]\nV = [[1], [2]]", Some(4), "weights is 1×1 and V is 2×1"),
        (
            "heads = 2\n[given]\nQ = [[1, 2, 3]]\nK = [[1, 2, 3]]",
            Some(3),
            "2 heads do not divide the 3 columns of Q",
        ),
        ("heads = 0\n[given]\nX = [[1]]", Some(1), "found 0"),
        ("mask = [[0, 0]]\n[given]\nX = [[1]]", Some(1), "mask is 1×2 and scores is 1×1"),
        ("mask = [[0.5]]\n[given]\nX = [[1]]", Some(1), "found 0.5"),
        ("scale = 0\n[given]\nX = [[1]]", Some(1), "found 0"),
        ("decimals = 2\ntolerance = 0.1\n[given]\nX = [[1]]", Some(2), "two ways"),
        ("[given]\nX = [[1]]\nW_O = [[1, 2], [3, 4]]", Some(3), "context is 1×1 and W_O is 2×2"),
        ("[given]\nX = [[1]]\nQ = [[1]]\nK = [[1]]", Some(2), "no step uses it"),
        (
            "[given]\nX = [[1]]\nW_Q = [[1]]\n[claims]\nK = [[1]]",
            Some(5),
            "nothing that is given leads to it",
        ),
        ("[given]\nscores = [[1]]\n[claims]\nscores = [[1]]", Some(4), "it is given"),
        ("[given]\nproducts = [[1]]", Some(2), "√d_head cannot be known"),
        ("heads = 2\n[given]\nscores = [[1]]", Some(3), "a matrix for each head"),
        ("heads = 2\n[given]\nscores.0 = [[1]]", Some(3), "head 1 is missing"),
        ("heads = 2\n[given]\nscores.2 = [[1]]", Some(3), "head \"2\", and there are 2"),
        ("[given]\nW_q = [[1]]", Some(2), "\"W_q\" is not a name"),
        ("[claims]\n", None, "nothing is given"),
        ("[given]\nX = [[1]]\nb_Q = [[1]]", Some(3), "no step uses it"),
        ("[given]\nX = [[1]]\nW_Q = [[1]]\nb_Q = [[1, 2]]", Some(4), "b_Q is 1×2"),
    ] {
        let error = parse(text).expect_err(text);
        assert_eq!(error.line, line, "{text}: {error}");
        assert!(error.to_string().contains(said), "{text}: {error}");
        assert_ne!(error.remedy, "".into());
    }
    let long = format!("[given]\nX = [{}]", "[1],".repeat(200));
    assert!(parse(&long).expect_err("40,000 scores").to_string().contains("200×200"));
}

#[test]
fn a_row_that_sees_nothing_has_no_weights() {
    let text = "mask = [[\"-inf\", \"-inf\"], [0, \"-inf\"]]\n[given]\nX = [[1, 2], [3, 4]]\n[claims]\nweights = [[0, 0], [1, 0]]";
    assert!(judge(&parse(text).unwrap()).is_right());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What is true is right, and nothing is suspected of it.
    #[test]
    fn true_claims_are_right(numbers in prop::collection::vec(-2.0..2.0f64, 40..200)) {
        let example = rich(&numbers, 2);
        let truth = derive(&example, &Recipe::of(&example), &[]);
        let claims: Vec<Claim> = parts(2).into_iter().map(|part| claim(part, truth.part(part).unwrap())).collect();
        let judgement = judge(&Example { claims, ..example });
        prop_assert!(judgement.is_right());
        prop_assert!(judgement.claims.iter().all(|judged| judged.verdict == Verdict::Right));
        prop_assert_eq!(judgement.first_mistake(), None);
    }

    /// A file of anything is refused or judged.
    #[test]
    fn hostile_files_are_refused(text in "\\PC{0,200}") {
        let _ = parse(&text).map(|example| judge(&example));
    }

    /// As above, of the words that examples are made of.
    #[test]
    fn shuffled_files_are_refused_or_judged(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..14)) {
        let _ = parse(&pieces.concat()).map(|example| judge(&example));
    }
}

const PIECES: &[&str] = &[
    "heads = 2\n",
    "mask = \"causal\"\n",
    "mask = [[0, -inf]]\n",
    "decimals = 1\n",
    "scale = 1e-30\n",
    "[given]\n",
    "[claims]\n",
    "X = [[1, 2]]\n",
    "X = [[1, 2], [3, 1e30]]\n",
    "C = [[1, -1e30]]\n",
    "W_Q = [[1, 2], [3, 4]]\n",
    "W_K = [[1e30, 2], [3, 4]]\n",
    "W_V = [[1, 2], [3, 4]]\n",
    "W_O = [[1, 2], [3, 4]]\n",
    "Q = [[1, 2]]\n",
    "K = [[1, 2]]\n",
    "V = [[1, 2]]\n",
    "V = [[1], [2]]\n",
    "scores = [[1, 2], [3, -inf]]\n",
    "scores.0 = [[1]]\n",
    "scores.1 = [[1]]\n",
    "weights = [[1, 0]]\n",
    "weights.1 = [[0.5]]\n",
    "context = [[1, 2]]\n",
    "output = [[1, 2], [3, 4]]\n",
    "output = [[1, 2]]\n",
    "masked_scores = [[-inf]]\n",
    "squash = \"sigmoid\"\n",
];

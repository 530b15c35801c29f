//! Each relation as a sentence.

use attnscope_graph::figures;
use attnscope_graph::{KvSharing, NormGain, NormKind, Normaliser, RotaryPairs};
use serde_json::Value;

use super::relation::{Relation, WeightAxis};
use super::variant::{OtherBucket, OtherRotary};

/// The most numbers or ranges that a sentence lists.
const MOST_WORDS: usize = 12;

impl Relation {
    /// A sentence about the side that is called `it`: "B".
    pub fn sentence(&self, it: &str) -> String {
        match self {
            Self::Cast { to } => format!("{it} holds the same values, rounded to {to}"),
            Self::Scale { factor, known } => {
                let factor = factor_text(*factor);
                match known.as_ref().filter(|known| **known != factor) {
                    Some(known) => format!("{it} is the expected tensor times {factor} ({known})"),
                    None => format!("{it} is the expected tensor times {factor}"),
                }
            }
            Self::Transpose { weight: Some(weight) } => format!("{it} is what {weight} gives, transposed"),
            Self::Transpose { weight: None } => format!("{it} has rows and columns exchanged"),
            Self::PermutedHeads { order, weight: None } => {
                format!("{it} has its heads in another order: {}", list(order))
            }
            Self::PermutedHeads { order, weight: Some(weight) } => {
                format!("{it} is what {weight} gives with its heads in another order: {}", list(order))
            }
            Self::SwappedHalves => format!("{it} has the two halves of its features exchanged"),
            Self::Interleaved => {
                format!(
                    "{it} has interleaved features where the other has two halves, or the other way round"
                )
            }
            Self::OffByOnePosition { by, offset: Some(offset) } => {
                format!("{it} takes positions that are off by {by}: position 0 has row {offset} of the table")
            }
            Self::OffByOnePosition { by, offset: None } => {
                let (n, way) = (by.abs(), if *by > 0 { "later" } else { "earlier" });
                format!("{it} has every position {n} {way}")
            }
            Self::MissingBias { weight } => format!("{it} is what comes out when {weight} is not added"),
            Self::AddedVector => format!("{it} differs by the same vector at every position"),
            Self::OtherEps { eps, expected, fits } if fits.len() < 2 => {
                format!("{it} is what the norm gives with eps {eps:e} in place of {expected:e}")
            }
            Self::OtherEps { expected, fits, .. } => {
                let all: Vec<String> = fits.iter().map(|eps| format!("{eps:e}")).collect();
                format!("{it} is what the norm gives with eps {} in place of {expected:e}", all.join(" or "))
            }
            Self::UnbiasedStd { eps_outside: false } => {
                format!("{it} is what the norm gives when the variance is divided by n − 1, not by n")
            }
            Self::UnbiasedStd { eps_outside: true } => {
                format!(
                    "{it} is what the norm gives with torch.std (divided by n − 1) and eps added after the root"
                )
            }
            Self::EpsOutsideRoot => format!("{it} is what the norm gives when eps is added after the root"),
            Self::SoftmaxAxis { axis } => format!("{it} has the softmax over the {axis}, not over the keys"),
            Self::MaskAfterSoftmax => {
                format!("{it} masks after the softmax: masked weights are 0, and the others do not sum to 1")
            }
            Self::MaskMultiplied => {
                format!(
                    "{it} multiplies masked scores by 0 before the softmax: 0 is not −∞, and masked keys keep weight"
                )
            }
            Self::CausalOffset { by: 1 } => {
                format!("{it} has a causal mask that is off by one: a query sees the next position")
            }
            Self::CausalOffset { .. } => {
                format!("{it} has a causal mask that is off by one: a query does not see its own position")
            }
            Self::OtherBucket { how } => format!("{it} has another relative bias: {}", how.words()),
            Self::SwappedInputs { tensors: [a, b] } => format!("{it} has {a} and {b} exchanged"),
            Self::InterleavedHeads { at } => {
                format!("{it} {} with neighbouring features in different heads (interleaved)", head_step(at))
            }
            Self::HeadsNotTransposed { at } => {
                format!("{it} {} without transposing heads and positions", head_step(at))
            }
            Self::LowerPrecision { to, part } => {
                format!("{it} is what comes out when {part} alone is computed in {to}")
            }
            Self::Quantised { weight, scales, activations } => {
                let both = if *activations { ", and so is what it is multiplied by" } else { "" };
                format!("{it} is what {weight} gives in 8-bit integers, a scale for {scales}{both}")
            }
            Self::RoundedWeight { weight, to } => format!("{it} is what {weight} gives, rounded to {to}"),
            Self::RolledRows { weight, by } => {
                format!("{it} is what {weight} gives with its rows moved by {by}")
            }
            Self::ResidualScale { scale: 0.0 } => format!("{it} leaves the stream out of the sum"),
            Self::ResidualScale { scale } => format!("{it} adds the stream times {scale}"),
            Self::Dropout { p } => {
                format!(
                    "{it} has dropout left on: p = {p:.3}, some cells are 0 and the others are larger by 1/(1 − p)"
                )
            }
            Self::OtherNorm { kind: NormKind::Rms } => {
                format!("{it} is what the norm gives when the mean is not subtracted")
            }
            Self::OtherNorm { kind: NormKind::Layer } => {
                format!("{it} is what the norm gives when the mean is subtracted")
            }
            Self::OtherNormGain { gain: NormGain::Weight } => {
                format!("{it} is what the norm gives when its gain is the weight, not 1 + weight")
            }
            Self::OtherNormGain { gain: NormGain::OnePlusWeight } => {
                format!("{it} is what the norm gives when its gain is 1 + weight, not the weight")
            }
            Self::OtherRotary { how } => match how {
                OtherRotary::Layout(RotaryPairs::Halves) => {
                    format!(
                        "{it} rotates feature i with feature i + half of the head, not with its neighbour"
                    )
                }
                OtherRotary::Layout(RotaryPairs::Neighbours) => {
                    format!(
                        "{it} rotates neighbouring features, not feature i with feature i + half of the head"
                    )
                }
                OtherRotary::Theta(theta) => format!("{it} is rotated with theta {theta}"),
                OtherRotary::Shift(by) => format!("{it} is rotated by positions that are off by {by}"),
                OtherRotary::NoScaling => format!("{it} is rotated without the scaling of frequencies"),
                OtherRotary::AllFeatures => {
                    format!("{it} has all features of a head rotated, not a share of them")
                }
            },
            Self::OtherKvSharing { sharing: KvSharing::Tile } => {
                format!(
                    "in {it} head h of the queries reads head h modulo the number of heads of keys and values, where neighbouring heads share one"
                )
            }
            Self::OtherKvSharing { sharing: KvSharing::Repeat } => {
                format!(
                    "in {it} neighbouring heads of queries share a head of keys and values, where every so many do"
                )
            }
            Self::CachedPositions { from, how } => {
                format!(
                    "{it} has wrong positions from {from} on, as in decoding with a cache: {}",
                    how.words()
                )
            }
            Self::CachedMask { from, how } => {
                format!(
                    "{it} has a wrong mask from query {from} on, as in decoding with a cache: {}",
                    how.words()
                )
            }
            Self::NotApplied => format!("{it} is the input of this step: the step is not applied"),
            Self::OtherActivation { activation, expected } => {
                format!("{it} is what {} gives in place of {}", activation.name(), expected.name())
            }
            Self::OtherNormaliser { normaliser: Normaliser::Sigmoid } => {
                format!("{it} is what a sigmoid gives in place of a softmax")
            }
            Self::OtherNormaliser { normaliser: Normaliser::Softmax } => {
                format!("{it} is what a softmax gives in place of a sigmoid")
            }
            Self::MaskNotApplied { which } => format!("{it} does not hide {which}"),
            Self::MaskTooWide { mask } => format!("{it} hides too much: its mask is {mask}"),
            Self::BiasNotAdded => format!("{it} is what comes out when the relative bias is not added"),
            Self::OtherPositions { kind } => {
                let word = serde_json::to_value(kind).ok();
                let word = word.as_ref().and_then(Value::as_str).unwrap_or("other").replace('_', " ");
                format!("{it} has other positions: {word}")
            }
            Self::OtherResidualGain { gain: 0.0 } => {
                format!("{it} leaves the sublayer's output out of the sum")
            }
            Self::OtherResidualGain { gain } => format!("{it} adds the sublayer's output times {gain}"),
            Self::OtherResidual { node } => format!("{it} adds {node} in place of the stream"),
            Self::OtherInput { node } => format!("{it} is computed from {node}"),
            Self::OtherWeights { node } => format!("{it} is what the weights of {node} give"),
            Self::OtherLayer { node } => format!("{it} is what the weights of another layer give, of {node}"),
            Self::SwappedLayers { stack, layers: [one, other] } => {
                format!("{it} has layers {one} and {other} of the {stack} exchanged")
            }
            Self::CorruptedRow { rows, weight: Some(weight) } => {
                format!("in {it} only {}", numbered("row", rows, &format!(" of {weight}")))
            }
            Self::CorruptedRow { rows, weight: None } => {
                format!("in {it} only {}", numbered("feature", rows, ", at every position,"))
            }
            Self::SomeHeads { heads } => format!("only {}", numbered("head", heads, "")),
            Self::SomeRows { rows } => format!("only {}", numbered("row", rows, " of the batch")),
            Self::SomePositions { positions } => format!("only {}", numbered("position", positions, "")),
            Self::WeightSlice { weight, axes } => {
                let words: Vec<String> = axes.iter().map(|(axis, at)| places(*axis, at)).collect();
                let one = axes.iter().all(|(_, at)| at.len() == 1);
                let differ = if one { "differs" } else { "differ" };
                format!("in {it} only {} of {weight} {differ}", words.join(" × "))
            }
            Self::SomeCells { cells } => {
                let all: Vec<String> = cells.iter().map(|cell| shape(cell)).collect();
                let (noun, differ) = if cells.len() == 1 { ("cell", "differs") } else { ("cells", "differ") };
                format!("only the {noun} {} {differ}", first_few(&all))
            }
            Self::OtherShape { shapes: [expected, found] } => {
                format!("{it} has another shape: {} where {} was expected", shape(found), shape(expected))
            }
            Self::MissingWeight => format!("{it} does not have it"),
            Self::NotANumber { cells: 1 } => "1 cell is NaN on one side alone".to_owned(),
            Self::NotANumber { cells } => format!("{cells} cells are NaN on one side alone"),
            Self::AllZero { weight: None } => format!("{it} is all zero"),
            Self::AllZero { weight: Some(weight) } => {
                format!("{it} is what comes out when {weight} is all zero")
            }
        }
    }
}

impl OtherBucket {
    fn words(self) -> String {
        match self {
            Self::BothDirections => "earlier and later keys have rows of their own (bidirectional)".into(),
            Self::OneDirection => "later keys share a row (not bidirectional)".into(),
            Self::Negated => "earlier keys are taken for later ones, and the other way round".into(),
            Self::Distance(by) => format!("distances are off by {by}"),
            Self::Row(by) => format!("rows of the table are off by {by}"),
            Self::MaxDistance(max) => format!("the largest distance is {max}"),
        }
    }
}

fn head_step(at: &str) -> &'static str {
    match at {
        "split" => "splits heads",
        "merge" => "merges heads",
        _ => "splits and merges heads",
    }
}

/// `row 3 of it differs`, `rows 3, 4 of it differ`.
fn numbered(noun: &str, numbers: &[usize], of: &str) -> String {
    match numbers {
        [one] => format!("{noun} {one}{of} differs"),
        several => format!("{noun}s {}{of} differ", ranges(several)),
    }
}

/// Places along an axis of a weight: `column 3`, `rows 0–31`.
fn places(axis: WeightAxis, at: &[usize]) -> String {
    let nouns = axis.name();
    match at {
        [one] => format!("{} {one}", nouns.trim_end_matches('s')),
        several => format!("{nouns} {}", ranges(several)),
    }
}

/// A factor without the zeros at its end.
fn factor_text(factor: f64) -> String {
    let sign = if factor < 0.0 { "−" } else { "" };
    format!("{sign}{}", figures::trimmed(factor.abs(), 6))
}

/// A shape, or the place of a cell: `(2,5,64)`.
fn shape(numbers: &[usize]) -> String {
    let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
    format!("({})", numbers.join(","))
}

/// Numbers in their order, the first few.
fn list(numbers: &[usize]) -> String {
    let shown: Vec<String> = numbers.iter().map(usize::to_string).collect();
    first_few(&shown)
}

/// Sorted numbers, neighbours together: `0–31, 40, 41`.
fn ranges(numbers: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &n in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == n => *last = n,
            _ => runs.push((n, n)),
        }
    }
    let shown: Vec<String> = runs
        .into_iter()
        .flat_map(|(first, last)| match last - first {
            0 => vec![first.to_string()],
            1 => vec![first.to_string(), last.to_string()],
            _ => vec![format!("{first}–{last}")],
        })
        .collect();
    first_few(&shown)
}

fn first_few(words: &[String]) -> String {
    let more = if words.len() > MOST_WORDS { ", …" } else { "" };
    format!("{}{more}", words[..words.len().min(MOST_WORDS)].join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_written_as_a_range() {
        assert_eq!(ranges(&[3]), "3");
        assert_eq!(ranges(&[3, 4]), "3, 4");
        assert_eq!(ranges(&[0, 1, 2, 7, 9, 10, 11, 12]), "0–2, 7, 9–12");
        let odd: Vec<usize> = (0..40).map(|n| 2 * n).collect();
        assert_eq!(ranges(&odd).split(", ").count(), MOST_WORDS + 1);
    }

    #[test]
    fn a_factor_stands_beside_what_it_is() {
        let times = |factor, known: Option<&str>| {
            Relation::Scale { factor, known: known.map(str::to_owned) }.sentence("B")
        };
        assert_eq!(
            times(22.627_416_997_969_52, Some("√d_model")),
            "B is the expected tensor times 22.627417 (√d_model)"
        );
        assert_eq!(times(8.0, Some("√d_head")), "B is the expected tensor times 8 (√d_head)");
        assert_eq!(times(2.0, Some("2")), "B is the expected tensor times 2");
        assert_eq!(times(-1.0, Some("−1")), "B is the expected tensor times −1");
        assert_eq!(times(1.25, None), "B is the expected tensor times 1.25");
    }

    #[test]
    fn a_part_of_a_weight_is_named_by_its_own_axes() {
        let slice = |axes| Relation::WeightSlice { weight: "w".into(), axes }.sentence("B");
        let columns: Vec<usize> = (32..64).collect();
        assert_eq!(
            slice(vec![(WeightAxis::Columns, columns.clone())]),
            "in B only columns 32–63 of w differ"
        );
        let both = vec![(WeightAxis::Rows, vec![3]), (WeightAxis::Columns, columns)];
        assert_eq!(slice(both), "in B only row 3 × columns 32–63 of w differ");
        let one = vec![(WeightAxis::Rows, vec![3]), (WeightAxis::Columns, vec![7])];
        assert_eq!(slice(one), "in B only row 3 × column 7 of w differs");
        assert_eq!(slice(vec![(WeightAxis::Elements, vec![5])]), "in B only element 5 of w differs");
    }
}

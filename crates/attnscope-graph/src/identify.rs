//! Which family a listing of tensors is of, under which names, with how many layers.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Value, json};

use crate::architecture::{Architecture, Classifier, ENCODER_ONLY, Head, NO_STACK};
use crate::block::Block;
use crate::dim::Stack;
use crate::facts::{Configs, Fact, FactError, Topic, layer_keys};
use crate::family::{CLASSIFIER, Evidence, FAMILIES, Family, Task};
use crate::names::{Lookup, NameScheme, TensorSpec};
use crate::observe;
use crate::recognise::ASSUMED;

/// More layers than any model has; larger numbers in a file are ignored.
const MOST_LAYERS: usize = 1024;
/// More classes than any classifier has.
const MOST_CLASSES: usize = 1 << 20;

/// The family, names and layers, before anything is measured.
pub(crate) struct Identified {
    pub(crate) family: &'static Family,
    pub(crate) scheme: &'static NameScheme,
    pub(crate) prefix: String,
    pub(crate) architecture: Architecture,
    pub(crate) facts: Vec<Fact>,
    /// How many groups of layers the tensors show, where layers share weights.
    pub(crate) layer_groups: Option<usize>,
    /// A config names the family, so that keys that it leaves out have the defaults of the family's own code. GGUF's
    /// architecture name is not such a config, because GGUF has no keys for most settings.
    pub(crate) named: bool,
    /// The config's name of the model, where it is no known family.
    pub(crate) unknown: Option<String>,
}

/// How many names of a listing a scheme explains.
struct Fit {
    scheme: &'static NameScheme,
    prefix: String,
    matched: usize,
    layers: BTreeMap<Stack, usize>,
}

impl Fit {
    fn layers(&self, stack: Stack) -> usize {
        self.layers.get(&stack).copied().unwrap_or(0)
    }
}

impl Identified {
    pub(crate) fn find(tensors: &[TensorSpec], configs: &Configs<'_>) -> Result<Option<Self>, FactError> {
        if let Some(classifier) = Self::classifier(configs)? {
            return Ok(Some(classifier));
        }
        let fits: Vec<Fit> = schemes().into_iter().filter_map(|s| Fit::of(s, tensors)).collect();
        let Some(best) = fits.iter().map(|f| f.matched).max() else { return Ok(None) };
        let mut candidates = Vec::new();
        for &family in FAMILIES {
            let fits = fits.iter().filter(|f| f.matched == best);
            let own = fits.filter(|f| family.schemes.iter().any(|s| std::ptr::eq(*s, f.scheme)));
            candidates.extend(own.map(|fit| (family, fit)));
        }
        let Some(choice) = choose(&candidates, tensors, configs)? else { return Ok(None) };
        let (family, fit) = choice.candidate;
        // A file without any tensor of one of the stacks is not a model of the family, whatever a config says.
        if family.stacks.iter().any(|shape| fit.layers(shape.stack) == 0) {
            return Ok(None);
        }
        let lookup = Lookup::new(fit.scheme, fit.prefix.clone(), tensors);
        let (head, task) = observe::head(family, &lookup, configs, named_task(configs));
        let shared = shared_layers(family, configs)?;
        let architecture =
            Architecture::new(family.stacks, head, |stack| shared.unwrap_or(fit.layers(stack)));
        let mut facts = vec![choice.fact];
        facts.extend(task.map(|task| Fact {
            topic: Topic::Shape,
            name: "head".into(),
            value: json!(task.words()),
            source: "tensor names".into(),
            disagree: Vec::new(),
        }));
        for stack in architecture.stacks() {
            let seen = architecture.layers(stack);
            let said = configs.sizes(layer_keys(&architecture, stack))?;
            let name = format!("{} layers", stack.name());
            let source = match (shared, said.first()) {
                (None, _) => "tensor names".to_owned(),
                (Some(_), Some(said)) => said.source.clone(),
                (Some(_), None) => ASSUMED.to_owned(),
            };
            facts.push(Fact::size(&name, seen, source, &said));
        }
        Ok(Some(Self {
            family,
            scheme: fit.scheme,
            prefix: fit.prefix.clone(),
            architecture,
            facts,
            layer_groups: shared.map(|_| fit.layers.values().copied().max().unwrap_or(1)),
            named: choice.named,
            unknown: choice.unknown,
        }))
    }
}

/// How many layers a model has whose layers share weights: tensors show only the groups. A config that does not say means as many
/// as the published models have.
fn shared_layers(family: &Family, configs: &Configs<'_>) -> Result<Option<usize>, FactError> {
    if family.wiring.layer_groups.is_none() {
        return Ok(None);
    }
    let said = configs.sizes(&["num_hidden_layers"])?;
    Ok(Some(said.first().map_or(12, |said| said.value).clamp(1, MOST_LAYERS)))
}

impl Identified {
    /// A classifier, where a config says that it is one and lists its blocks.
    fn classifier(configs: &Configs<'_>) -> Result<Option<Self>, FactError> {
        let words = type_words(configs)?;
        let is_own = |(word, _): &&(String, String)| CLASSIFIER.model_types.contains(&word.as_str());
        let Some((_, source)) = words.iter().find(is_own) else { return Ok(None) };
        let fact = family_fact(CLASSIFIER, source.clone(), &[]);
        let Some(said) = configs.first(&["classifier"]) else { return Ok(None) };
        let classifier: Classifier = serde_json::from_value(said.value.clone())
            .map_err(|e| said.wrong("blocks and the number of classes", e.to_string()))?;
        Block::check(&classifier.blocks, classifier.length, None)
            .map_err(|e| said.wrong("blocks that fit each other", e.to_string()))?;
        if classifier.classes == 0 || classifier.classes > MOST_CLASSES {
            let found = format!("{} classes", classifier.classes);
            return Err(said.wrong("a number of classes that a model can have", found));
        }
        let layers = configs.sizes(&["encoder_layers"])?.first().map_or(0, |said| said.value);
        let stacks = if layers == 0 { NO_STACK } else { ENCODER_ONLY };
        let layers = layers.min(MOST_LAYERS);
        let architecture = Architecture::new(stacks, Head::Classifier(classifier), |_| layers);
        let mut facts = vec![fact];
        if layers > 0 {
            facts.push(Fact::size("encoder layers", layers, "config.json: encoder_layers".into(), &[]));
        }
        Ok(Some(Self {
            family: CLASSIFIER,
            scheme: CLASSIFIER.schemes[0],
            prefix: String::new(),
            architecture,
            facts,
            layer_groups: None,
            named: true,
            unknown: None,
        }))
    }
}

/// The schemes of all families, each once.
fn schemes() -> Vec<&'static NameScheme> {
    let mut schemes: Vec<&'static NameScheme> = Vec::new();
    for scheme in FAMILIES.iter().flat_map(|f| f.schemes) {
        if !schemes.iter().any(|s| std::ptr::eq(*s, *scheme)) {
            schemes.push(scheme);
        }
    }
    schemes
}

impl Fit {
    fn of(scheme: &'static NameScheme, tensors: &[TensorSpec]) -> Option<Self> {
        let patterns = scheme.patterns();
        let mut by_prefix: HashMap<&str, Vec<(Stack, usize)>> = HashMap::new();
        for tensor in tensors {
            if let Some((stack, n, prefix)) = patterns.layer_of(&tensor.name) {
                by_prefix.entry(prefix).or_default().push((stack, n));
            }
        }
        // Equal counts (a model and its moving average in one file): the shorter prefix.
        let best =
            |(p, m): &(&str, Vec<_>)| (m.len(), std::cmp::Reverse(p.len()), std::cmp::Reverse(p.to_string()));
        let (prefix, matches) = by_prefix.into_iter().max_by_key(best)?;
        let mut seen: BTreeMap<Stack, BTreeSet<usize>> = BTreeMap::new();
        for &(stack, n) in &matches {
            seen.entry(stack).or_default().insert(n);
        }
        let layers = seen.into_iter().map(|(stack, seen)| (stack, count_layers(seen))).collect();
        Some(Self { scheme, prefix: prefix.to_owned(), matched: matches.len(), layers })
    }
}

/// One more than the highest number, unless that number is absurd for the few that are there.
fn count_layers(seen: BTreeSet<usize>) -> usize {
    let seen: Vec<usize> = seen.into_iter().collect();
    let believable = |n: usize, distinct: usize| n < MOST_LAYERS && n <= 2 * distinct + 8;
    let kept = (1..=seen.len()).rev().find(|&k| believable(seen[k - 1], k));
    kept.map_or(0, |k| seen[k - 1] + 1)
}

type Candidate<'a> = (&'static Family, &'a Fit);

/// A family, and why it was chosen.
struct Choice<'a> {
    candidate: Candidate<'a>,
    fact: Fact,
    named: bool,
    unknown: Option<String>,
}

/// The candidate that a config names, else the one that the tensors point to.
fn choose<'a>(
    candidates: &[Candidate<'a>],
    tensors: &[TensorSpec],
    configs: &Configs<'_>,
) -> Result<Option<Choice<'a>>, FactError> {
    let lookups: Vec<Lookup<'_>> =
        candidates.iter().map(|(_, fit)| Lookup::new(fit.scheme, fit.prefix.clone(), tensors)).collect();
    let holds = |i: usize| candidates[i].0.evidence.iter().filter(|e| e.holds(&lookups[i])).count();
    let proven = |i: &usize| holds(*i) == candidates[*i].0.evidence.len();
    let said = type_words(configs)?;
    let named: Vec<usize> = (0..candidates.len())
        .filter(|&i| said.iter().any(|(word, _)| claims(candidates[i].0, word)))
        .collect();
    if let Some(&i) = named.iter().find(|i| proven(i)).or(named.first()) {
        let candidate = candidates[i];
        let source =
            said.iter().find(|(word, _)| claims(candidate.0, word)).map(|(_, source)| source.clone());
        // A type whose family the tensors could be of, too, is no contradiction: mt5 of T5's tensors.
        let could_be = |word: &str| {
            let fits =
                |i: usize| candidates[i].0.evidence.iter().all(|e| !e.is_structure() || e.holds(&lookups[i]));
            (0..candidates.len()).any(|i| claims(candidates[i].0, word) && fits(i))
        };
        let contradicts = |(word, source): &&(String, String)| {
            source.ends_with(": model_type")
                && is_known_type(word)
                && !claims(candidate.0, word)
                && !could_be(word)
        };
        let others: Vec<(String, String)> = said.iter().filter(contradicts).cloned().collect();
        let fact = family_fact(candidate.0, source.unwrap_or_default(), &others);
        let config = |(word, source): &(String, String)| {
            claims(candidate.0, word) && !source.ends_with(": general.architecture")
        };
        let named = said.iter().any(config);
        return Ok(Some(Choice { candidate, fact, named, unknown: None }));
    }
    let by_evidence = (0..candidates.len()).find(proven);
    let closest = || (0..candidates.len()).rev().max_by_key(|&i| holds(i));
    let Some(i) = by_evidence.or_else(closest) else { return Ok(None) };
    let unknown = said
        .iter()
        .find(|(word, source)| source.ends_with(": model_type") && !is_known_type(word))
        .map(|(word, _)| word.clone());
    let source = match (by_evidence, &unknown) {
        (Some(_), None) => "tensor names and shapes",
        _ => "the closest by tensor names and shapes",
    };
    let candidate = candidates[i];
    let fact = family_fact(candidate.0, source.into(), &said);
    Ok(Some(Choice { candidate, fact, named: false, unknown }))
}

/// Whether a family goes by a config's word.
fn claims(family: &Family, word: &str) -> bool {
    family.model_types.iter().any(|known| known.eq_ignore_ascii_case(word))
}

/// Whether some family goes by a config's word.
pub(crate) fn is_known_type(word: &str) -> bool {
    FAMILIES.iter().any(|family| claims(family, word))
}

fn family_fact(family: &Family, source: String, said: &[(String, String)]) -> Fact {
    let disagree = said.iter().map(|(word, source)| (source.clone(), json!(word))).collect();
    Fact { topic: Topic::Shape, name: "family".into(), value: json!(family.id), source, disagree }
}

/// The task that a config's class names.
fn named_task(configs: &Configs<'_>) -> Option<Task> {
    let all = configs.all(&["architectures"]);
    let names = all.iter().filter_map(|said| said.value.as_array()).flatten();
    names.filter_map(Value::as_str).find_map(Task::of_class)
}

/// The words by which configs name a family, each with its source.
fn type_words(configs: &Configs<'_>) -> Result<Vec<(String, String)>, FactError> {
    let keys =
        ["model_type", "hf_model_type", "architecture", "general.architecture", "arch", "hf_architecture"];
    let mut words = Vec::new();
    for key in keys {
        for said in configs.all(&[key]) {
            match said.value.as_str() {
                Some(word) => words.push((word.to_owned(), said.source)),
                None if key == "model_type" => return Err(said.wrong("a word", said.value.to_string())),
                None => {}
            }
        }
    }
    for said in configs.all(&["architectures"]) {
        for word in said.value.as_array().into_iter().flatten().filter_map(Value::as_str) {
            words.push((word.to_owned(), said.source.clone()));
        }
    }
    Ok(words)
}

impl Evidence {
    /// Whether it is about which tensors there are. Gates and vocabularies differ within one architecture.
    fn is_structure(&self) -> bool {
        match self {
            Self::Has(_) | Self::Lacks(_) | Self::HasName(_) | Self::PositionRows(_) => true,
            Self::NamedByConfig
            | Self::Gated
            | Self::NotGated
            | Self::VocabAtLeast(_)
            | Self::VocabBelow(_) => false,
        }
    }

    fn holds(&self, lookup: &Lookup<'_>) -> bool {
        let rows = |path: &str| {
            let found = lookup.find(path)?;
            found.shape(lookup.tensors).first().copied()
        };
        match *self {
            Self::Has(path) => lookup.find(path).is_some(),
            Self::Lacks(path) => lookup.find(path).is_none(),
            Self::HasName(end) => lookup.tensors.iter().any(|t| t.name.ends_with(end)),
            Self::PositionRows(extra) => {
                rows("src.positions.weight").is_some_and(|n| n > extra && (n - extra).is_multiple_of(8))
            }
            Self::NamedByConfig => false,
            Self::Gated => observe::is_gated(lookup),
            Self::NotGated => !observe::is_gated(lookup),
            Self::VocabAtLeast(least) => rows("src.embed.weight").is_some_and(|n| n >= least),
            Self::VocabBelow(most) => rows("src.embed.weight").is_none_or(|n| n < most),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_counted_and_an_absurd_number_is_not_believed() {
        let cases: &[(&[usize], usize)] =
            &[(&[], 0), (&[0], 1), (&[0, 1, 2], 3), (&[0, 2], 3), (&[0, 1, 999_999], 2), (&[5_000], 0)];
        for (seen, expected) in cases {
            assert_eq!(count_layers(seen.iter().copied().collect()), *expected, "{seen:?}");
        }
    }
}

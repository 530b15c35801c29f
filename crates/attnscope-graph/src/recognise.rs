//! From names, shapes and configs to a model: which family, how large, how joined, and who says so.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};

use crate::bind::{Binding, Slot, bind, elements};
use crate::build::{Layers, build};
use crate::dim::{Dim, Side, Sizes, Stack};
use crate::facts::{Config, Configs, Fact, FactError, SIZE_KEYS, TOKEN_KEYS, Topic, layer_keys};
use crate::family::{Evidence, FAMILIES, Family};
use crate::graph::{Graph, WeightId};
use crate::names::{Lookup, NameScheme, TensorSpec};
use crate::observe::{self, Sources};
use crate::other::{Other, classify};
use crate::wiring::{EmbeddingScale, Front, Positions, Wiring};

/// More layers than any model has; a file that claims more is not believed.
const MOST_LAYERS: usize = 1024;

/// An encoder-decoder: everything that is known without running it.
#[derive(Debug)]
pub struct Model {
    /// Its family.
    pub family: &'static Family,
    /// How its weights are named.
    pub scheme: &'static NameScheme,
    /// What stands before the names: `model.`.
    pub prefix: String,
    /// How it is joined.
    pub wiring: Wiring,
    /// Its sizes, as far as they are known.
    pub sizes: Sizes,
    /// Its nodes.
    pub graph: Graph,
    /// Which tensors its weights are.
    pub binding: Binding,
    /// The tensors of the file.
    pub tensors: Vec<TensorSpec>,
    /// Everything above with its sources, for a reader.
    pub facts: Vec<Fact>,
    /// Why a run is not possible, if it is not.
    pub obstacles: Vec<String>,
}

/// What a file turned out to hold.
#[derive(Debug)]
pub enum Recognised {
    /// A model that this program draws and runs.
    EncoderDecoder(Box<Model>),
    /// Something else, told as far as it can be.
    Other(Other),
}

/// Finds out what a listing of tensors is. `heads` is the user's word, which outranks every document.
pub fn recognise(
    tensors: Vec<TensorSpec>,
    configs: &[Config<'_>],
    heads: Option<usize>,
) -> Result<Recognised, FactError> {
    let configs = Configs(configs);
    let Some(found) = Identified::find(&tensors, &configs)? else {
        return Ok(Recognised::Other(classify(&tensors, &configs)));
    };
    let lookup = Lookup::new(found.scheme, found.prefix.clone(), &tensors);
    let mut sources = Sources::default();
    let mut wiring = observe::configure(found.family, &configs, &mut sources)?;
    observe::observe(found.family, &lookup, found.layers, &mut wiring, &mut sources);
    let graph = build(found.layers, &wiring);
    let mut facts = found.facts.clone();
    let sizes = measure(&graph, &lookup, &configs, &wiring, heads, &mut facts)?;
    let binding = bind(&graph, &sizes, &lookup, wiring.tied_output);
    facts.extend(wiring_facts(&wiring, found.family, &sources));
    note_tie(&configs, &wiring, &mut facts)?;
    facts.extend(token_facts(&configs));
    let (family, scheme, prefix) = (found.family, found.scheme, found.prefix);
    let obstacles = obstacles(&graph, &sizes, &binding, &facts);
    let model = Model { family, scheme, prefix, wiring, sizes, graph, binding, tensors, facts, obstacles };
    Ok(Recognised::EncoderDecoder(Box::new(model)))
}

impl Model {
    /// Whether a weight is bound to a constant of the model, not to a parameter.
    pub fn is_buffer(&self, weight: WeightId) -> bool {
        match self.binding.slot(weight) {
            Slot::Bound(found) => self.scheme.is_buffer(&self.tensors[found.tensor].name),
            Slot::Missing { .. } | Slot::Mismatched { .. } => false,
        }
    }

    /// Distinct elements of the weights that the file has, buffers apart: (parameters, buffers).
    pub fn parameters(&self) -> (u64, u64) {
        let (mut parameters, mut buffers) = (0, 0);
        let mut seen = std::collections::HashSet::new();
        for (_, slot) in self.binding.iter() {
            let Slot::Bound(found) = slot else { continue };
            let tensor = &self.tensors[found.tensor];
            let identity = tensor.storage.map_or((found.tensor, false), |s| (s, true));
            if !seen.insert((identity, found.rows.clone())) {
                continue;
            }
            let n = elements(found, &self.tensors);
            if self.scheme.is_buffer(&tensor.name) { buffers += n } else { parameters += n }
        }
        (parameters, buffers)
    }
}

/// The family, names and layers, before anything is measured.
struct Identified {
    family: &'static Family,
    scheme: &'static NameScheme,
    prefix: String,
    layers: Layers,
    facts: Vec<Fact>,
}

/// How well a scheme explains a listing.
struct Fit {
    scheme: &'static NameScheme,
    prefix: String,
    matched: usize,
    layers: [usize; 2],
}

impl Identified {
    fn find(tensors: &[TensorSpec], configs: &Configs<'_>) -> Result<Option<Self>, FactError> {
        let fits: Vec<Fit> = schemes().into_iter().filter_map(|s| Fit::of(s, tensors)).collect();
        let Some(best) = fits.iter().map(|f| f.matched).max() else { return Ok(None) };
        let mut candidates = Vec::new();
        for &family in FAMILIES {
            let fits = fits.iter().filter(|f| f.matched == best);
            let own = fits.filter(|f| family.schemes.iter().any(|s| std::ptr::eq(*s, f.scheme)));
            candidates.extend(own.map(|fit| (family, fit)));
        }
        let Some(((family, fit), family_fact)) = choose(&candidates, tensors, configs)? else {
            return Ok(None);
        };
        let mut facts = vec![family_fact];
        let seen = fit.layers;
        let mut layers = [0; 2];
        for (i, stack) in Stack::ALL.into_iter().enumerate() {
            let said = configs.sizes(layer_keys(stack))?;
            let claimed = said.first().map_or(0, |s| s.value);
            // A stack of which nothing is in the file (one shard of several) has the layers the config says.
            let is_encoder_decoder = configs.flag(&["is_encoder_decoder"])?.is_some_and(|s| s.value);
            layers[i] = match seen[i] {
                0 if is_encoder_decoder && claimed <= MOST_LAYERS => claimed,
                n => n,
            };
            let source = if seen[i] > 0 { "tensor names".to_owned() } else { "config".to_owned() };
            let value = json!(layers[i]);
            facts.push(fact(&format!("{} layers", stack.name()), value, source, said));
        }
        if layers.contains(&0) {
            return Ok(None);
        }
        let layers = Layers { encoder: layers[0], decoder: layers[1] };
        Ok(Some(Self { family, scheme: fit.scheme, prefix: fit.prefix.clone(), layers, facts }))
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
        let layers = Stack::ALL.map(|stack| {
            let mut seen: Vec<usize> = matches.iter().filter(|(s, _)| *s == stack).map(|&(_, n)| n).collect();
            seen.sort_unstable();
            seen.dedup();
            count_layers(&seen)
        });
        Some(Self { scheme, prefix: prefix.to_owned(), matched: matches.len(), layers })
    }
}

/// One more than the highest number, unless that number is absurd for the few that are there.
fn count_layers(seen: &[usize]) -> usize {
    let believable = |n: usize, distinct: usize| n < MOST_LAYERS && n <= 2 * distinct + 8;
    let kept = (1..=seen.len()).rev().find(|&k| believable(seen[k - 1], k));
    kept.map_or(0, |k| seen[k - 1] + 1)
}

type Candidate<'a> = (&'static Family, &'a Fit);

/// The candidate that a config names, else the one that the tensors point to.
fn choose<'a>(
    candidates: &[Candidate<'a>],
    tensors: &[TensorSpec],
    configs: &Configs<'_>,
) -> Result<Option<(Candidate<'a>, Fact)>, FactError> {
    let holds = |(family, fit): &Candidate<'_>| {
        let lookup = Lookup::new(fit.scheme, fit.prefix.clone(), tensors);
        family.evidence.iter().filter(|e| e.holds(&lookup)).count()
    };
    let proven = |c: &&Candidate<'_>| holds(c) == c.0.evidence.len();
    let said = type_words(configs)?;
    let named: Vec<_> = candidates
        .iter()
        .filter(|(family, _)| said.iter().any(|(word, _)| family.model_types.contains(&word.as_str())))
        .copied()
        .collect();
    let chosen = named.iter().find(proven).or(named.first());
    if let Some(&chosen) = chosen {
        let source = said.iter().find(|(word, _)| chosen.0.model_types.contains(&word.as_str()));
        let source = source.map_or_else(String::new, |(_, s)| s.clone());
        return Ok(Some((chosen, family_fact(chosen.0, source, &[]))));
    }
    let by_evidence = candidates.iter().find(proven);
    let closest = || candidates.iter().rev().max_by_key(|c| holds(c));
    let source = match by_evidence {
        Some(_) => "tensor names and shapes",
        None => "the closest by tensor names and shapes",
    };
    Ok(by_evidence.or_else(closest).map(|&chosen| (chosen, family_fact(chosen.0, source.into(), &said))))
}

fn family_fact(family: &Family, source: String, said: &[(String, String)]) -> Fact {
    let disagree = said.iter().map(|(word, source)| (source.clone(), json!(word))).collect();
    Fact { topic: Topic::Shape, name: "family".into(), value: json!(family.id), source, disagree }
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
            Self::Gated => observe::is_gated(lookup),
            Self::NotGated => !observe::is_gated(lookup),
            Self::VocabAtLeast(least) => rows("src.embed.weight").is_some_and(|n| n >= least),
            Self::VocabBelow(most) => rows("src.embed.weight").is_none_or(|n| n < most),
        }
    }
}

/// Every size, from the shapes of the tensors by majority, then from configs.
fn measure(
    graph: &Graph,
    lookup: &Lookup<'_>,
    configs: &Configs<'_>,
    wiring: &Wiring,
    heads: Option<usize>,
    facts: &mut Vec<Fact>,
) -> Result<Sizes, FactError> {
    let mut sizes = Sizes::default();
    let votes = votes(graph, lookup);
    for (&dim, counts) in &votes {
        if let Some((&size, _)) = counts.iter().max_by_key(|(_, n)| **n) {
            sizes.set(dim, size);
        }
    }
    if let (true, Some(rows)) = (wiring.shared_embeddings, sizes.get(Dim::Vocab(Side::Source))) {
        sizes.set(Dim::Vocab(Side::Target), rows);
    }
    for row in SIZE_KEYS {
        let said = configs.sizes(row.keys)?;
        let given = heads.filter(|_| matches!(row.dim, Dim::Heads(_)));
        let stored_rows = votes.contains_key(&row.dim);
        // A config counts positions without the rows that an offset skips.
        let skipped = match row.dim {
            Dim::Positions(_) if stored_rows => wiring.position_offset,
            _ => 0,
        };
        let derived = sizes.get(row.dim);
        let (size, source) = match (given, derived, said.first()) {
            (Some(n), ..) => (n, "--heads".to_owned()),
            (None, Some(n), _) if matches!(row.dim, Dim::Head(_)) => (n, "width of q ÷ heads".to_owned()),
            (None, Some(n), _) => (n - skipped.min(n), "tensor shapes".to_owned()),
            (None, None, Some(first)) if applies(row.dim, wiring) => (first.value, first.source.clone()),
            _ => continue,
        };
        if derived.is_none() || given.is_some() {
            sizes.set(row.dim, size);
        }
        facts.push(fact(row.name, json!(size), source, said));
    }
    Ok(sizes)
}

/// Whether a size that only a config speaks of is one that this model has.
fn applies(dim: Dim, wiring: &Wiring) -> bool {
    match dim {
        Dim::Positions(side) => wiring.positions(side) != Positions::None,
        Dim::Mels => wiring.front == Front::Audio,
        Dim::Buckets(_) => wiring.relative_bias,
        Dim::Head(_) => false,
        Dim::Vocab(Side::Source) => wiring.front == Front::Tokens,
        _ => true,
    }
}

/// How often the tensors say that a dimension has a size. One odd tensor does not outvote the rest.
fn votes(graph: &Graph, lookup: &Lookup<'_>) -> BTreeMap<Dim, BTreeMap<usize, usize>> {
    let mut votes: BTreeMap<Dim, BTreeMap<usize, usize>> = BTreeMap::new();
    for weight in graph.weights() {
        let Some(found) = lookup.find(&weight.path) else { continue };
        let mut shape = found.shape(lookup.tensors);
        if shape.len() != weight.dims.len() {
            shape.retain(|&n| n != 1);
        }
        if shape.len() != weight.dims.len() {
            continue;
        }
        for (&dim, &size) in weight.dims.iter().zip(&shape) {
            if !matches!(dim, Dim::Fixed(_)) {
                *votes.entry(dim).or_default().entry(size).or_default() += 1;
            }
        }
    }
    votes
}

fn fact(name: &str, value: Value, source: String, said: Vec<crate::facts::Said<usize>>) -> Fact {
    let differs = |s: &crate::facts::Said<usize>| json!(s.value) != value;
    let disagree = said.iter().filter(|s| differs(s)).map(|s| (s.source.clone(), json!(s.value))).collect();
    Fact { topic: Topic::Shape, name: name.to_owned(), value, source, disagree }
}

/// A fact for each field of the wiring that has a say, in its order.
fn wiring_facts(wiring: &Wiring, family: &Family, sources: &Sources) -> Vec<Fact> {
    let Ok(Value::Object(fields)) = serde_json::to_value(wiring) else { return Vec::new() };
    let default = format!("{}'s default", family.title);
    let positions = [wiring.source_positions, wiring.target_positions];
    // Fields that follow from another one that is off say nothing.
    let idle = |name: &str| match name {
        "relative_buckets" | "relative_max_distance" => !wiring.relative_bias,
        "position_offset" => positions.iter().all(|p| *p == Positions::None),
        "scales_target" => wiring.embedding_scale == EmbeddingScale::None,
        _ => false,
    };
    fields
        .into_iter()
        .filter(|(name, _)| !idle(name))
        .map(|(name, value)| {
            let source = sources.get(&name).cloned().unwrap_or_else(|| default.clone());
            Fact { topic: Topic::Wiring, name, value, source, disagree: Vec::new() }
        })
        .collect()
}

/// Newer configs say that an output is tied which the file stores apart.
fn note_tie(configs: &Configs<'_>, wiring: &Wiring, facts: &mut [Fact]) -> Result<(), FactError> {
    let said = configs.flag(&["tie_word_embeddings"])?.filter(|said| said.value != wiring.tied_output);
    let fact = facts.iter_mut().find(|f| f.name == "tied_output");
    if let (Some(said), Some(fact)) = (said, fact) {
        fact.disagree.push((said.source, json!(said.value)));
    }
    Ok(())
}

fn token_facts(configs: &Configs<'_>) -> Vec<Fact> {
    let token = |key: &&str| {
        let said = configs.first(&[key])?;
        Some(Fact {
            topic: Topic::Tokens,
            name: (*key).into(),
            value: said.value.clone(),
            source: said.source,
            disagree: Vec::new(),
        })
    };
    TOKEN_KEYS.iter().filter_map(token).collect()
}

/// Everything that stands in the way of a run, in words.
fn obstacles(graph: &Graph, sizes: &Sizes, binding: &Binding, facts: &[Fact]) -> Vec<String> {
    let mut obstacles = Vec::new();
    for stack in Stack::ALL {
        let (inner, heads) = (sizes.get(Dim::Inner(stack)), sizes.get(Dim::Heads(stack)));
        match (inner, heads) {
            (_, None) => obstacles.push(format!(
                "the number of {} heads is not in the file: give it with --heads",
                stack.name()
            )),
            (Some(inner), Some(heads)) if heads == 0 || !inner.is_multiple_of(heads) => {
                let name = format!("{} heads", stack.name());
                let source = facts.iter().find(|f| f.name == name).map_or("", |f| f.source.as_str());
                obstacles.push(format!(
                    "{heads} {} heads ({source}) do not divide the width {inner} of the q projection",
                    stack.name()
                ));
            }
            _ => {}
        }
    }
    let missing = binding.missing().count();
    if missing > 0 {
        obstacles.push(format!("{missing} of {} weights are missing", graph.weights().len()));
    }
    let mismatched = binding.mismatched().count();
    if mismatched > 0 {
        obstacles.push(format!("{mismatched} of {} weights have the wrong shape", graph.weights().len()));
    }
    obstacles
}

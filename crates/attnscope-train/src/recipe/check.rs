//! Values of a recipe that cannot go together, or that nothing can be learned with.

use attnscope_graph::Block;

use super::{DataTable, ModelTable, Recipe, Schedule, TokensTable, TrainTable};

/// What is wrong, and under which key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) key: Vec<String>,
    pub(super) why: String,
}

/// The first fault, if there is one.
pub(super) fn fault(recipe: &Recipe) -> Option<Fault> {
    data(recipe)
        .or_else(|| tokens(&recipe.tokens))
        .or_else(|| model(recipe))
        .or_else(|| optimiser(recipe))
        .or_else(|| train(recipe))
}

fn at(key: &[&str], why: impl Into<String>) -> Option<Fault> {
    Some(Fault { key: key.iter().map(|part| (*part).to_owned()).collect(), why: why.into() })
}

/// Larger than any width, length or batch that is in use. Products of three sizes still fit 64 bits.
const LARGEST: usize = 1 << 20;

/// A fault where a size is 0, or larger than any model's.
fn size(key: &[&str], value: usize) -> Option<Fault> {
    if (1..=LARGEST).contains(&value) {
        return None;
    }
    at(key, format!("expected 1 to {LARGEST}, found {value}"))
}

/// More epochs than anybody trains for: the length of a run is counted in steps before it begins.
const MOST_EPOCHS: usize = 10_000;

/// More layers than any model has: a drawing of a recipe builds them all.
const MOST_LAYERS: usize = 1024;

/// A fault where there are too many layers.
fn at_most_layers(layers: usize) -> Option<Fault> {
    let wrong = format!("expected at most {MOST_LAYERS}, found {layers}");
    if layers > MOST_LAYERS { at(&["model", "layers"], wrong) } else { None }
}

/// A fault where a share is not from 0 to below 1.
fn share(key: &[&str], value: f64) -> Option<Fault> {
    if (0.0..1.0).contains(&value) {
        return None;
    }
    at(key, format!("expected a share from 0 to below 1, found {value}"))
}

fn data(recipe: &Recipe) -> Option<Fault> {
    match (&recipe.data, &recipe.model) {
        (DataTable::Classification { .. }, ModelTable::EncoderDecoder(_)) => {
            at(&["model", "kind"], "expected \"classifier\", since the task is classification")
        }
        (DataTable::Translation { .. }, ModelTable::Classifier(_)) => {
            at(&["model", "kind"], "expected \"encoder-decoder\", since the task is translation")
        }
        (DataTable::Classification { classes, validation_share, .. }, ModelTable::Classifier(model)) => {
            if classes.len() != model.classes {
                let why =
                    format!("expected {}, the names in data.classes, found {}", classes.len(), model.classes);
                return at(&["model", "classes"], why);
            }
            if classes.len() < 2 {
                return at(
                    &["data", "classes"],
                    format!("expected 2 classes or more, found {}", classes.len()),
                );
            }
            if let Some(i) = (1..classes.len()).find(|&i| is_among(&classes[i], &classes[..i])) {
                let why = format!("expected each class once, found {:?} twice", classes[i]);
                return at(&["data", "classes", &i.to_string()], why);
            }
            share(&["data", "validation_share"], *validation_share)
        }
        (DataTable::Translation { pairs, train, validation_share, .. }, ModelTable::EncoderDecoder(_)) => {
            if !pairs.is_empty() && train.is_some() {
                return at(&["data", "pairs"], "expected pairs or train, found both");
            }
            share(&["data", "validation_share"], *validation_share)
        }
    }
}

/// Whether data could mean either: names of classes are compared without regard to case.
fn is_among(class: &str, others: &[String]) -> bool {
    others.iter().any(|other| other.trim().eq_ignore_ascii_case(class.trim()))
}

fn tokens(tokens: &TokensTable) -> Option<Fault> {
    let (asked_for, specials) = match tokens {
        TokensTable::Words { size, specials, .. } => (*size, specials),
        TokensTable::Bpe { size, specials } => (Some(*size), specials),
    };
    let wanted = ["<pad>", "<unk>"];
    if let Some(missing) = wanted.iter().find(|token| !specials.iter().any(|own| own == *token)) {
        return at(&["tokens", "specials"], format!("expected {missing} among them, found {specials:?}"));
    }
    if let Some(i) = (1..specials.len()).find(|&i| specials[..i].contains(&specials[i])) {
        return at(&["tokens", "specials"], format!("expected each token once, found {} twice", specials[i]));
    }
    match asked_for {
        Some(own) if own <= specials.len() => at(
            &["tokens", "size"],
            format!("expected more than the {} special tokens, found {own}", specials.len()),
        ),
        Some(own) => size(&["tokens", "size"], own),
        None => None,
    }
}

fn model(recipe: &Recipe) -> Option<Fault> {
    match &recipe.model {
        ModelTable::Classifier(model) => {
            let sizes = [("embedding", model.embedding), ("length", model.length), ("heads", model.heads)];
            let wrong = sizes.iter().find_map(|(key, value)| size(&["model", key], *value));
            wrong
                .or_else(|| at_most_layers(model.layers))
                .or_else(|| share(&["model", "dropout"], model.dropout))
                .or_else(|| divides("embedding", model.embedding, model.heads))
                .or_else(|| {
                    let fit = Block::check(&model.block, Some(model.length), Some(model.embedding));
                    let error = fit.err()?;
                    let block = error.block.to_string();
                    let key = ["model", "block", &block].into_iter().chain(error.key);
                    at(&key.collect::<Vec<_>>(), error.problem)
                })
        }
        ModelTable::EncoderDecoder(model) => {
            let sizes = [
                ("layers", model.layers.encoder().min(model.layers.decoder())),
                ("d_model", model.d_model),
                ("heads", model.heads),
                ("d_ff", model.d_ff),
                ("positions", model.positions),
            ];
            let wrong = sizes.iter().find_map(|(key, value)| size(&["model", key], *value));
            wrong
                .or_else(|| at_most_layers(model.layers.encoder().max(model.layers.decoder())))
                .or_else(|| share(&["model", "dropout"], model.dropout))
                .or_else(|| divides("d_model", model.d_model, model.heads).or_else(|| ends(recipe)))
        }
    }
}

/// A fault where heads do not share out a width.
fn divides(key: &str, width: usize, heads: usize) -> Option<Fault> {
    if width.is_multiple_of(heads) {
        return None;
    }
    at(&["model", "heads"], format!("expected a number that divides {key}, {width}, found {heads}"))
}

/// A decoder stops where a sentence ends, so that its end must have a token.
fn ends(recipe: &Recipe) -> Option<Fault> {
    let (TokensTable::Words { specials, .. } | TokensTable::Bpe { specials, .. }) = &recipe.tokens;
    if specials.iter().any(|token| token == "</s>") {
        return None;
    }
    at(&["tokens", "specials"], format!("expected </s> among them, which ends a target, found {specials:?}"))
}

fn optimiser(recipe: &Recipe) -> Option<Fault> {
    let own = &recipe.optimiser;
    let positive = [
        ("learning_rate", Some(own.learning_rate)),
        ("epsilon", Some(own.epsilon)),
        ("clip_norm", own.clip_norm),
    ];
    for (key, value) in positive {
        let Some(value) = value else { continue };
        if !(value.is_finite() && value > 0.0) {
            return at(&["optimiser", key], format!("expected a number above 0, found {value}"));
        }
    }
    let wrong = share(&["optimiser", "beta1"], own.beta1)
        .or_else(|| share(&["optimiser", "beta2"], own.beta2))
        .or_else(|| share(&["optimiser", "weight_decay"], own.weight_decay));
    wrong.or_else(|| match recipe.schedule {
        Schedule::LinearWarmUp { warm_up: 0 } | Schedule::InverseSquareRoot { warm_up: 0 } => {
            at(&["schedule", "warm_up"], "expected 1 step or more, found 0")
        }
        _ => None,
    })
}

fn train(recipe: &Recipe) -> Option<Fault> {
    let own = &recipe.train;
    match (own.batch, own.batch_tokens) {
        (None, None) => return at(&["train"], "expected batch or batch_tokens, found neither"),
        (Some(_), Some(_)) => {
            return at(&["train", "batch_tokens"], "expected batch or batch_tokens, found both");
        }
        _ => {}
    }
    let batch = own.batch.and_then(|batch| size(&["train", "batch"], batch));
    batch
        .or_else(|| own.batch_tokens.and_then(|tokens| size(&["train", "batch_tokens"], tokens)))
        .or_else(|| size(&["train", "longest"], own.longest))
        .or_else(|| steps(own))
        .or_else(|| size(&["monitors", "examples"], recipe.monitors.examples))
        .or_else(|| share(&["train", "label_smoothing"], own.label_smoothing))
}

/// How long a run is, and how often something is done in it.
fn steps(own: &TrainTable) -> Option<Fault> {
    match (own.epochs, own.steps) {
        (None, None) => return at(&["train"], "expected epochs or steps, found neither"),
        (Some(_), Some(_)) => return at(&["train", "steps"], "expected epochs or steps, found both"),
        _ => {}
    }
    let periods = [
        ("epochs", own.epochs),
        ("steps", own.steps),
        ("validate_every", own.validate_every),
        ("checkpoint_every", own.checkpoint_every),
        ("log_every", Some(own.log_every)),
        ("patience", own.patience),
    ];
    if let Some((key, _)) = periods.iter().find(|(_, value)| *value == Some(0)) {
        return at(&["train", key], "expected 1 or more, found 0");
    }
    match own.epochs {
        Some(epochs) if epochs > MOST_EPOCHS as u64 => {
            at(&["train", "epochs"], format!("expected at most {MOST_EPOCHS}, found {epochs}"))
        }
        _ => None,
    }
}

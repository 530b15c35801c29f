use super::*;

fn error(text: &str) -> RecipeError {
    Recipe::parse("r.toml", text).unwrap_err()
}

/// A shipped recipe with one text in it replaced.
fn edited(name: &str, from: &str, to: &str) -> String {
    let text = shipped(name).unwrap();
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1)
}

#[test]
fn every_shipped_recipe_is_one_and_survives_being_written() {
    for (name, text) in SHIPPED {
        let recipe = Recipe::parse(name, text).unwrap_or_else(|e| panic!("{e}"));
        let again = Recipe::parse("written", &recipe.to_toml()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(recipe, again, "{name}");
    }
    assert_eq!(shipped("imdb"), None);
}

/// Every file under recipes/ can be asked for by its name.
#[test]
fn every_recipe_file_is_shipped() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes");
    let files = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        files.map(|file| file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned()).collect();
    names.sort();
    assert_eq!(names, SHIPPED.map(|(name, _)| name));
}

#[test]
fn the_lecture_s_classifiers_are_as_it_has_them() {
    for name in ["imdb-rnn", "imdb-bilstm", "imdb-mlp", "imdb-conv", "imdb-conv-maxpool", "imdb-attention"] {
        let recipe = Recipe::parse(name, shipped(name).unwrap()).unwrap();
        let ModelTable::Classifier(model) = &recipe.model else { panic!("{name}") };
        assert_eq!((model.embedding, model.length, model.classes), (128, 500, 2), "{name}");
        assert_eq!(
            recipe.tokens,
            TokensTable::Words {
                rules: WordRules::BasicEnglish,
                size: Some(20_000),
                min_frequency: 3,
                specials: ["<pad>", "<s>", "<unk>"].map(String::from).to_vec(),
            },
            "{name}"
        );
        assert_eq!((recipe.train.batch, recipe.train.epochs), (Some(32), Some(5)), "{name}");
        assert_eq!(recipe.optimiser, OptimiserTable::default(), "{name}");
    }
}

/// Line and column of the end of a text.
fn end_of(text: &str, needle: &str) -> (usize, usize) {
    let before = &text[..text.find(needle).unwrap() + needle.len()];
    (before.matches('\n').count() + 1, before.rsplit('\n').next().unwrap().len() + 1)
}

#[test]
fn errors_say_where_and_what_was_expected() {
    // The edit, what stands before the place, and what is said.
    let both = "expected epochs or steps, found both";
    let cases = [
        ("toy", "seed = 1", "sead = 1", "\n", "sead: unknown key; allowed here: seed, data"),
        (
            "toy",
            "batch = 1",
            "batch = \"one\"",
            "batch = ",
            "train.batch: expected a whole number, 0 or more, found \"one\"",
        ),
        ("toy", "batch = 1", "batch = 0", "batch = ", "train.batch: expected 1 to 1048576, found 0"),
        (
            "toy",
            "batch = 1",
            "batch = 1048577",
            "batch = ",
            "train.batch: expected 1 to 1048576, found 1048577",
        ),
        ("toy", "d_ff = 256", "d_ff = 9999999999", "d_ff = ", "model.d_ff: expected 1 to 1048576"),
        ("toy", "steps = 60", "epochs = 10001", "epochs = ", "train.epochs: expected at most 10000"),
        (
            "imdb-conv",
            "length = 500",
            "length = 99999999999",
            "length = ",
            "model.length: expected 1 to 1048576, found 99999999999",
        ),
        ("imdb-conv", "size = 20000", "size = 99999999", "size = ", "tokens.size: expected 1 to 1048576"),
        ("toy", "heads = 4", "heads = 3", "heads = ", "expected a number that divides d_model, 128, found 3"),
        ("toy", "steps = 60", "steps = 60\nepochs = 2", "steps = ", both),
        (
            "toy",
            "steps = 60\n",
            "",
            "\n\n[optimiser]\nlearning_rate = 1e-3\n\n",
            "epochs or steps, found neither",
        ),
        ("toy", "\"</s>\", ", "", "specials = ", "expected </s> among them"),
        (
            "toy",
            "dropout = 0.0",
            "dropout = 1.0",
            "dropout = ",
            "expected a share from 0 to below 1, found 1",
        ),
        (
            "imdb-conv",
            "classes = 2",
            "classes = 3",
            "length = 500\nclasses = ",
            "expected 2, the names in data.classes",
        ),
        ("imdb-conv", "rate = 1e-3", "rate = 0.0", "rate = ", "expected a number above 0"),
        (
            "imdb-conv",
            "[\"negative\", \"positive\"]",
            "[\"good\", \"Good\"]",
            "classes = [\"good\", ",
            "data.classes.1: expected each class once, found \"Good\" twice",
        ),
        (
            "toy",
            "seed = 1\n",
            "seed = 99999999999999999999999999\n",
            "seed = ",
            "seed: expected a whole number, 0 or more, found 99999999999999999999999999, which is too large",
        ),
        (
            "imdb-conv",
            "stride = 3",
            "stride = 0",
            "stride = ",
            "model.block.0.stride: expected 1 to 16777216, found 0",
        ),
    ];
    for (recipe, from, to, before, what) in cases {
        let text = edited(recipe, from, to);
        let place = end_of(&text, before);
        let error = error(&text);
        assert_eq!(error.place, Some(place), "{error}");
        assert!(error.to_string().contains(what), "{error}");
        assert!(error.to_string().starts_with(&format!("r.toml:{}:{}: ", place.0, place.1)), "{error}");
    }
}

#[test]
fn blocks_that_do_not_fit_are_named_by_their_table() {
    let text = edited("imdb-conv", "features = 13568", "features = 13567");
    let error = error(&text);
    assert!(
        error.why.contains("model.block.4.features: expected 13568, as many as there are, found 13567"),
        "{error}"
    );
    assert_eq!(error.place, Some(end_of(&text, "kind = \"flatten\"\nfeatures = ")), "{error}");
}

/// A table with a `kind` is read as a whole; its errors stand at the key all the same, in the recipe's words.
#[test]
fn what_is_wrong_within_a_block_is_found_there() {
    // The edit, what stands before the place, and all that is said.
    let cases = [
        (
            "channels = 256",
            "chanels = 256",
            "relu\"\n\n[[model.block]]\nkind = \"conv1d\"\n",
            "model.block.2.chanels: unknown key; allowed here: channels, kernel, stride",
        ),
        (
            "channels = 256",
            "channels = \"256\"",
            "relu\"\n\n[[model.block]]\nkind = \"conv1d\"\nchannels = ",
            "model.block.2.channels: expected a whole number, 0 or more, found \"256\"",
        ),
        (
            "kind = \"flatten\"",
            "kind = \"flat\"",
            "relu\"\n\n[[model.block]]\nkind = \"conv1d\"\nchannels = 256\nkernel = 7\nstride = 3\n\n[[model.block]]\nkind = \"activation\"\nfunction = \"relu\"\n\n[[model.block]]\nkind = ",
            "model.block.4.kind: expected one of \"rnn\", \"lstm\"",
        ),
        (
            "embedding = 128",
            "embedding = 1.5",
            "embedding = ",
            "model.embedding: expected a whole number, 0 or more, found 1.5",
        ),
        (
            "task = \"classification\"",
            "task = \"sorting\"",
            "task = ",
            "data.task: expected one of \"classification\"",
        ),
    ];
    for (from, to, before, what) in cases {
        let text = edited("imdb-conv", from, to);
        let error = error(&text);
        assert!(error.why.starts_with(what), "{error}");
        assert_eq!(error.place, Some(end_of(&text, before)), "{error}");
    }
    let missing = error(&edited("imdb-conv", "channels = 256\n", ""));
    assert_eq!(missing.why, "model.block.2.channels: expected this key, found none");
    let layers = error(&edited("toy", "layers = 2", "layers = \"two\""));
    assert!(layers.why.starts_with("model.layers: expected a whole number of layers, or two"), "{layers}");
}

#[test]
fn recipes_differ_by_their_keys() {
    let toy = Recipe::parse("toy", shipped("toy").unwrap()).unwrap();
    let mut other = toy.clone();
    (other.train.steps, other.train.patience) = (Some(61), Some(2));
    let said = |key: &str, own: Option<&str>, other: &str| RecipeDifference {
        key: key.into(),
        own: own.map(str::to_owned),
        other: Some(other.into()),
    };
    let expected = [said("train.patience", None, "2"), said("train.steps", Some("60"), "61")];
    assert_eq!(toy.differences(&other), expected);
    assert_eq!(toy.differences(&toy), []);
}

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
        ("toy", "seed = 1", "sead = 1", "\n", "unknown field `sead`"),
        ("toy", "batch = 1", "batch = \"one\"", "batch = ", "string \"one\""),
        ("toy", "batch = 1", "batch = 0", "batch = ", "train.batch: expected 1 or more, found 0"),
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
    assert!(error.why.contains("model.block.4: flatten says 13567 features, and there are 13568"), "{error}");
    let line = text[..text.find("kind = \"flatten\"").unwrap()].matches('\n').count();
    assert_eq!(error.place.map(|(line, _)| line), Some(line), "{error}");
}

/// A table with a `kind` is known by that first: its errors stand at the table.
#[test]
fn a_wrong_key_of_a_block_is_named_with_what_is_there() {
    let error = error(&edited("imdb-conv", "channels = 128", "chanels = 128"));
    assert!(error.why.contains("chanels"), "{error}");
    assert!(error.place.is_some(), "{error}");
}

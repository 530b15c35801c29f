//! Whole runs of models that learn in seconds.

#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use attnscope_checkpoint::Checkpoint;
use attnscope_run::{Limits, Native, SplitMix};
use attnscope_train::data::DataSet;
use attnscope_train::recipe::{ModelTable, shipped};
use attnscope_train::tokens::VocabularyBuilder;
use attnscope_train::{
    Ended, Fault, Metric, Predicted, Recipe, RunFolder, RunOptions, Setup, Start, StepReport, TrainError,
    TrainWatcher, Trained, TrainingRun, dry_run, learn_tokenizer, train, training_data,
};

/// Learns a dictionary: each word of a sentence has one translation.
const LEXICON: &str = r#"
seed = 3
[data]
task = "translation"
[tokens]
kind = "words"
rules = "whitespace"
specials = ["<pad>", "</s>", "<unk>"]
[model]
kind = "encoder-decoder"
layers = 1
d_model = 32
heads = 2
d_ff = 64
activation = "relu"
dropout = 0.05
[optimiser]
learning_rate = 5e-3
clip_norm = 1.0
[schedule]
kind = "linear-warm-up"
warm_up = 20
[train]
batch = 32
steps = 240
label_smoothing = 0.05
validate_every = 60
log_every = 20
[monitors]
every = 20
patience = 160
"#;

/// Sentences of 12 words and their translations, in order or with each other's targets.
fn pairs(file: &Path, shuffled: bool) {
    let mut random = SplitMix::new(9);
    let sentences: Vec<Vec<usize>> =
        (0..640).map(|_| (0..3 + random.below(4)).map(|_| random.below(12)).collect()).collect();
    let words = |sentence: &[usize], mark: &str| {
        sentence.iter().map(|word| format!("{mark}{word}")).collect::<Vec<_>>().join(" ")
    };
    let line = |i: usize| {
        let target = if shuffled { (i + 311) % sentences.len() } else { i };
        format!("{}\t{}\n", words(&sentences[i], "s"), words(&sentences[target], "t"))
    };
    fs::write(file, (0..sentences.len()).map(line).collect::<String>()).unwrap();
}

fn setup(recipe: &Recipe, data: Option<&Path>) -> Setup {
    let data = DataSet::open(&recipe.data, data).unwrap();
    let tokenizer = learn_tokenizer(recipe, &data).unwrap();
    let start = Start::untrained(recipe, &tokenizer, &Limits::default()).unwrap();
    let longest = match &recipe.model {
        ModelTable::Classifier(model) => model.length,
        ModelTable::EncoderDecoder(_) => recipe.train.longest,
    };
    let data = training_data(recipe, &data, &start.tokenizer, longest).unwrap();
    Setup { recipe: recipe.clone(), start, data }
}

fn options(folder: &Path, resume: bool) -> RunOptions {
    let folder = if resume { RunFolder::existing(folder) } else { RunFolder::new(folder) };
    RunOptions { folder: folder.unwrap(), resume, stop: Arc::new(AtomicBool::new(false)) }
}

fn run(setup: Setup, options: &RunOptions, watcher: &mut dyn TrainWatcher) -> TrainingRun {
    train(&Native::new(), &Limits::default(), setup, options, watcher).unwrap()
}

#[test]
fn the_toy_learns_its_pair_by_heart() {
    let dir = tempfile::tempdir().unwrap();
    let recipe = Recipe::parse("toy", shipped("toy").unwrap()).unwrap();
    let options = options(&dir.path().join("run"), false);
    let done = run(setup(&recipe, None), &options, &mut ());
    assert_eq!((done.ended, done.steps), (Ended::Finished, 60));
    let (_, nll, accuracy) = done.best.unwrap();
    assert!(nll < 0.05 && accuracy == 1.0, "{nll} {accuracy}");
    let names = |folder: &Path| {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(
        names(options.folder.path()),
        ["best", "checkpoint", "metrics.jsonl", "recipe.toml", "state.safetensors"]
    );
    let files = [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ];
    assert_eq!(names(&options.folder.checkpoint()), files);
    assert_eq!(names(&options.folder.best()), files);
    // What was written is a model that can be learned with again.
    let saved = Start::saved(&Checkpoint::open(&options.folder.checkpoint()).unwrap()).unwrap();
    assert_eq!(saved.model.family.id, "marian");
    let written =
        Recipe::parse("recipe.toml", &fs::read_to_string(options.folder.recipe()).unwrap()).unwrap();
    assert_eq!(written, recipe);
}

/// A classifier that must find one word among eight.
const WORDS: &str = r#"
seed = 2
[data]
task = "classification"
classes = ["bad", "good"]
[tokens]
kind = "words"
rules = "basic-english"
specials = ["<pad>", "<unk>"]
[model]
kind = "classifier"
embedding = 16
length = 8
classes = 2
MODEL
[optimiser]
learning_rate = 1e-2
[train]
batch = 16
epochs = 8
"#;

/// The blocks of a small classifier of each kind.
const CLASSIFIERS: [(&str, &str); 5] = [
    ("rnn", "block = [{ kind = \"rnn\", hidden = 16 }, { kind = \"last-state\" }]"),
    (
        "bilstm",
        "block = [{ kind = \"lstm\", hidden = 8, bidirectional = true }, { kind = \"lstm\", hidden = 8, bidirectional = true }, { kind = \"last-state\" }]",
    ),
    (
        "mlp",
        "block = [{ kind = \"flatten\", features = 128 }, { kind = \"linear\", features = 32 }, { kind = \"activation\", function = \"relu\" }]",
    ),
    (
        "conv-maxpool",
        "block = [{ kind = \"conv1d\", channels = 16, kernel = 3, stride = 1 }, { kind = \"activation\", function = \"relu\" }, { kind = \"max-pool\" }, { kind = \"dropout\", p = 0.1 }]",
    ),
    (
        "attention",
        "layers = 1\nheads = 2\nfeed_forward = 32\ndropout = 0.1\nblock = [{ kind = \"mean-pool\" }]",
    ),
];

/// Texts of 3 to 8 words, one of which says what they are.
fn reviews(file: &Path) {
    let mut random = SplitMix::new(4);
    let line = |i: usize, random: &mut SplitMix| {
        let mut words: Vec<String> =
            (0..2 + random.below(6)).map(|_| format!("w{}", random.below(9))).collect();
        let place = random.below(words.len() + 1);
        words.insert(place, ["awful", "lovely"][i % 2].to_owned());
        let split = if i % 10 == 9 || i % 10 == 8 { "test" } else { "train" };
        format!("{{\"split\":\"{split}\",\"label\":{},\"text\":\"{}\"}}\n", i % 2, words.join(" "))
    };
    fs::write(file, (0..600).map(|i| line(i, &mut random)).collect::<String>()).unwrap();
}

#[test]
fn every_kind_of_classifier_learns_and_is_judged_on_the_test_split() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("reviews.jsonl");
    reviews(&file);
    for (name, blocks) in CLASSIFIERS {
        let recipe = Recipe::parse(name, &WORDS.replace("MODEL", blocks)).unwrap_or_else(|e| panic!("{e}"));
        let options = options(&dir.path().join(name), false);
        let done = run(setup(&recipe, Some(&file)), &options, &mut ());
        assert_eq!(done.ended, Ended::Finished, "{name}");
        let trained = Trained::open(&Native::new(), recipe.clone(), &options.folder.best()).unwrap();
        let data = DataSet::open(&recipe.data, Some(&file)).unwrap();
        let examples = options.folder.examples();
        let judged = trained.evaluate(&data, examples.as_deref(), &|_, _| {}).unwrap();
        assert_eq!((judged.examples, judged.targets, judged.bleu), (120, 120, None), "{name}");
        assert!(judged.learned_from.is_some(), "{name}: the data is what it was trained with");
        assert!(judged.accuracy > 0.9, "{name}: {judged:?}");
        let right: usize = (0..2).map(|class| judged.confusion[class][class]).sum();
        assert_eq!(right as f64 / 120.0, judged.accuracy, "{name}");
        let made = trained.predict(&["w1 Lovely, w2".to_owned(), "awful".to_owned()]).unwrap();
        for (made, class) in made.iter().zip([1, 0]) {
            let Predicted::Classes { probabilities, .. } = made else { panic!("{name}: {made:?}") };
            assert!(probabilities[class] > 0.5, "{name}: {probabilities:?}");
        }
        let length = trained.text_length().unwrap();
        let words = |n: usize| vec!["lovely"; n].join(" ");
        let made = trained.predict(&[words(length), words(length + 1)]).unwrap();
        let cut = made.iter().map(|made| matches!(made, Predicted::Classes { is_cut: true, .. }));
        assert_eq!(cut.collect::<Vec<_>>(), [false, true], "{name}");
    }
}

/// The lecture prints these.
#[test]
fn the_lecture_s_classifiers_have_its_numbers_of_parameters() {
    let text: String = (0..20_000).map(|i| format!("w{i} ")).collect();
    let expected = [
        ("imdb-rnn", 2_560_000 + 64 * (128 + 64 + 2) + 2 * 64 + 2),
        ("imdb-bilstm", 2_560_000 + 2 * 256 * (128 + 64 + 2) + 2 * 256 * (128 + 64 + 2) + 2 * 128 + 2),
        ("imdb-mlp", 68_228_482),
        ("imdb-conv", 4_641_538),
        ("imdb-conv-maxpool", 2_806_402),
    ];
    for (name, parameters) in expected {
        let recipe = Recipe::parse(name, shipped(name).unwrap()).unwrap();
        let mut words = VocabularyBuilder::new(&recipe).unwrap();
        (0..3).for_each(|_| words.add(&text).unwrap());
        let start = Start::untrained(&recipe, &words.finish().unwrap(), &Limits::default()).unwrap();
        assert_eq!(start.tokenizer.len(), 20_000);
        assert_eq!(start.model.parameters().0, parameters, "{name}");
    }
}

/// A decoder that cannot gain from its source is told of, and one that can is not.
#[test]
fn shuffled_sources_are_told_of_and_paired_ones_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let recipe = Recipe::parse("lexicon", LEXICON).unwrap();
    for shuffled in [false, true] {
        let file = dir.path().join(format!("{shuffled}.tsv"));
        pairs(&file, shuffled);
        let options = options(&dir.path().join(format!("{shuffled}")), false);
        let done = run(setup(&recipe, Some(&file)), &options, &mut ());
        let costs: Vec<f64> = done
            .metrics
            .iter()
            .filter_map(|line| match line {
                Metric::Monitor(look) => look.source_cost,
                _ => None,
            })
            .collect();
        assert_eq!(costs.len(), 12);
        let told: Vec<_> = done.warnings().filter(|warning| warning.fault == Fault::SourceIgnored).collect();
        match (shuffled, &told[..]) {
            (false, []) => assert!(costs.last().unwrap() > &1.0, "{costs:?}"),
            (true, [warning]) => {
                assert_eq!((warning.step, warning.began), (160, 20), "{costs:?}");
                assert!(warning.says.contains("the decoder ignores the source"), "{}", warning.says);
            }
            _ => panic!("shuffled: {shuffled}, {told:?}, {costs:?}"),
        }
    }
}

/// Stops a run after a step.
struct StopAt(u64, Arc<AtomicBool>);

impl TrainWatcher for StopAt {
    fn stepped(&mut self, report: &StepReport) {
        self.1.store(report.step >= self.0, Ordering::Relaxed);
    }
}

/// The lines of a run's metrics without what a clock says.
fn timeless(options: &RunOptions) -> Vec<String> {
    let text = fs::read_to_string(options.folder.metrics()).unwrap();
    let clock = |line: &str| line.find(",\"tokens_per_second\":").map_or(line.len(), |at| at);
    text.lines().map(|line| line[..clock(line)].to_owned()).collect()
}

#[test]
fn a_run_that_was_interrupted_ends_with_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pairs.tsv");
    pairs(&file, false);
    let text =
        LEXICON.replace("steps = 240", "epochs = 3").replace("validate_every = 60", "validate_every = 17");
    let recipe = Recipe::parse("lexicon", &text).unwrap();
    let whole = options(&dir.path().join("whole"), false);
    let done = run(setup(&recipe, Some(&file)), &whole, &mut ());
    assert_eq!(done.steps, done.all_steps);
    let parted = options(&dir.path().join("parted"), false);
    let first = run(setup(&recipe, Some(&file)), &parted, &mut StopAt(25, parted.stop.clone()));
    assert_eq!((first.ended, first.steps), (Ended::Interrupted, 25));
    // A line that a killed process left half written is no line.
    let metrics = parted.folder.metrics();
    fs::write(&metrics, fs::read_to_string(&metrics).unwrap() + "{\"kind\":\"train\",\"st").unwrap();
    let again = options(&dir.path().join("parted"), true);
    let second = run(setup(&recipe, Some(&file)), &again, &mut ());
    assert_eq!(second.ended, Ended::Finished);
    assert_eq!(timeless(&again), timeless(&whole));
    for name in ["checkpoint/model.safetensors", "best/model.safetensors"] {
        let [a, b] = [&whole, &again].map(|options| fs::read(options.folder.path().join(name)).unwrap());
        assert!(a == b, "{name}");
    }
}

/// A process that is killed goes on from its last checkpoint, and comes to the same end.
#[test]
fn a_run_that_was_killed_goes_on_from_its_last_checkpoint() {
    struct Keep<'a>(&'a Path, &'a Path);
    impl TrainWatcher for Keep<'_> {
        fn stepped(&mut self, report: &StepReport) {
            // As the disk was when a signal that cannot be caught came, five steps after the checkpoint of step 20.
            if report.step == 25 {
                for name in ["state.safetensors", "metrics.jsonl", "recipe.toml"] {
                    fs::copy(self.0.join(name), self.1.join(name)).unwrap();
                }
            }
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let recipe = shipped("toy")
        .unwrap()
        .replace("steps = 60", "steps = 40")
        .replace("[train]", "[train]\nlog_every = 3");
    let recipe = Recipe::parse("toy", &recipe).unwrap();
    let whole = options(&dir.path().join("whole"), false);
    let killed = dir.path().join("killed");
    fs::create_dir(&killed).unwrap();
    run(setup(&recipe, None), &whole, &mut Keep(whole.folder.path(), &killed));
    let again = options(&killed, true);
    run(setup(&recipe, None), &again, &mut ());
    assert_eq!(timeless(&again), timeless(&whole));
    let [a, b] = [&whole, &again].map(|o| fs::read(o.folder.checkpoint().join("model.safetensors")).unwrap());
    assert!(a == b);
}

#[test]
fn what_cannot_be_begun_or_resumed_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let error = RunFolder::existing(dir.path()).unwrap_err();
    assert!(error.to_string().contains("no state.safetensors is in it"), "{error}");
    fs::write(dir.path().join("notes.txt"), "mine").unwrap();
    let error = RunFolder::new(dir.path()).unwrap_err();
    assert!(error.to_string().contains("expected a new or empty folder, found notes.txt"), "{error}");
    assert!(matches!(error, TrainError::Occupied { .. }));
    // What a run leaves that saved nothing is no run; a recipe of one's own is not taken for it.
    let left = dir.path().join("left");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("recipe.toml"), "").unwrap();
    assert!(RunFolder::new(&left).is_err());
    fs::write(left.join("metrics.jsonl"), "").unwrap();
    RunFolder::new(&left).unwrap();
    fs::create_dir(left.join("best")).unwrap();
    assert!(RunFolder::new(&left).is_err());
    // Other examples than those that a run was begun with.
    let recipe = shipped("toy").unwrap().replace("steps = 60", "steps = 2");
    let begun = options(&dir.path().join("run"), false);
    run(setup(&Recipe::parse("toy", &recipe).unwrap(), None), &begun, &mut ());
    let other = Recipe::parse("toy", &recipe.replace("hello from", "from hello")).unwrap();
    let again = options(&dir.path().join("run"), true);
    let error = train(&Native::new(), &Limits::default(), setup(&other, None), &again, &mut ()).unwrap_err();
    assert!(error.to_string().contains("the examples are not those that it was begun with"), "{error}");
}

/// What was trained is opened again by its folder alone.
#[test]
fn a_trained_translator_is_judged_and_translates() {
    let dir = tempfile::tempdir().unwrap();
    let recipe = Recipe::parse("toy", shipped("toy").unwrap()).unwrap();
    let options = options(&dir.path().join("run"), false);
    run(setup(&recipe, None), &options, &mut ());
    let trained = Trained::open(&Native::new(), recipe.clone(), &options.folder.best()).unwrap();
    let data = DataSet::open(&recipe.data, None).unwrap();
    let judged = trained.evaluate(&data, options.folder.examples().as_deref(), &|_, _| {}).unwrap();
    assert_eq!(judged.learned_from, Some(1));
    assert_eq!(trained.evaluate(&data, Some("of others"), &|_, _| {}).unwrap().learned_from, None);
    assert_eq!((judged.examples, judged.targets, judged.accuracy), (1, 6, 1.0));
    assert!(judged.bleu.unwrap().score > 99.9 && judged.nll < 0.05, "{judged:?}");
    let made = trained.predict(&["hello from cairo egypt team project".to_owned()]).unwrap();
    assert_eq!(made, [Predicted::Text("we are debugging transformer today".into())]);
}

#[test]
fn a_dry_run_says_what_a_run_would_take() {
    let recipe = Recipe::parse("toy", shipped("toy").unwrap()).unwrap();
    let plan = dry_run(&Native::new(), &Limits::default(), setup(&recipe, None)).unwrap();
    assert_eq!((plan.steps, plan.batches, plan.padding), (60, 1, 0.0));
    // Six words and the end a side, and what the decoder reads: the start and five words.
    assert_eq!(plan.largest, [[1, 7], [1, 6]]);
    assert_eq!(plan.bytes, 16 * plan.parameters);
    assert!(plan.seconds_a_step.unwrap() > 0.0);
    // Nothing is known: about the logarithm of the vocabulary.
    assert!((plan.first_loss.unwrap() - 14f64.ln()).abs() < 1.5, "{plan:?}");
}

#[test]
fn a_loss_that_is_not_finite_ends_the_run_with_its_step() {
    let dir = tempfile::tempdir().unwrap();
    let recipe = shipped("toy").unwrap().replace("learning_rate = 1e-3", "learning_rate = 1e30");
    let recipe = Recipe::parse("toy", &recipe).unwrap();
    let options = options(&dir.path().join("run"), false);
    let done = run(setup(&recipe, None), &options, &mut ());
    assert_eq!(done.ended, Ended::Diverged);
    let divergence = done.divergence.unwrap();
    assert!(divergence.step >= 1 && divergence.step <= 3, "{divergence:?}");
    assert!(
        divergence.causes.iter().any(|cause| cause.contains("optimiser.learning_rate")),
        "{divergence:?}"
    );
    assert_eq!(divergence.saved, None);
    assert!(!options.folder.checkpoint().exists());
}

//! Generates with the settings of a generation_config.json.

use std::sync::{Arc, LazyLock};

use attnscope_checkpoint::Checkpoint;
use attnscope_graph::{Config, Model, Recognised, recognise};
use attnscope_run::generate::{Generator, Limit, Settings};
use attnscope_run::{Executor, Limits, Native, Weights, tensor_specs};
use serde_json::{Map, Value};

/// Of the beams and tokens that are asked for, as many as are quick.
const BEAMS: usize = 3;
const TOKENS: usize = 6;

struct Tiny {
    model: Arc<Model>,
    weights: Weights,
    config: attnscope_checkpoint::Config,
}

static TINY: LazyLock<Tiny> = LazyLock::new(|| {
    let files: Vec<(_, std::borrow::Cow<'static, [u8]>)> = vec![
        ("model.safetensors", include_bytes!("../../fixtures/marian/model.safetensors").into()),
        ("config.json", include_bytes!("../../fixtures/marian/config.json").into()),
    ];
    let Ok(checkpoint) = Checkpoint::from_memory("marian", files) else { unreachable!("the fixture opens") };
    let Some(config) = checkpoint.configs().first().cloned() else {
        unreachable!("the fixture has a config")
    };
    let said = [Config { source: &config.source, facts: &config.facts }];
    let Ok(Recognised::Model(model)) = recognise(tensor_specs(&checkpoint), &said, None) else {
        unreachable!("the fixture is a model")
    };
    let Ok(weights) = Weights::load(&model, &checkpoint) else { unreachable!("the fixture is whole") };
    Tiny { model: Arc::new(*model), weights, config }
});

/// Reads the settings and generates a few tokens with them.
pub fn generate(bytes: &[u8]) {
    let Ok(facts) = serde_json::from_slice::<Map<String, Value>>(bytes) else { return };
    let Tiny { model, weights, config } = &*TINY;
    let said = attnscope_checkpoint::Config { source: "generation_config.json".into(), facts };
    let Ok(mut settings) = Settings::of(model, &[config.clone(), said]) else { return };
    settings.beams = settings.beams.min(BEAMS);
    let most = settings.max_length(settings.start.len()).min(settings.start.len() + TOKENS);
    settings.limit = Limit::Total(most);
    let Ok(prepared) = Native::new().prepare(model.clone(), weights.clone()) else {
        unreachable!("the fixture runs")
    };
    let mut session = prepared.session(&Limits::default());
    let made = Generator::new(&settings).from_tokens(&mut *session, &[vec![5, 6, 7, 0], vec![8, 0]]);
    for hypothesis in made.iter().flatten().flatten() {
        assert!(hypothesis.tokens.len() <= TOKENS, "{hypothesis:?}");
    }
}

//! A trained translator against Hugging Face's translations and sacrebleu's score of them.

use std::io::Read;

use attnscope::run::generate::Generator;
use attnscope::run::generate::Settings;
use attnscope::{Opened, Ready};
use flate2::read::GzDecoder;
use serde_json::Value;

use crate::bleu;
use crate::common::{fixture, open, shared};

fn unpacked(path: &str) -> String {
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text
}

fn translate(opened: &Opened, english: &[&str]) -> Vec<(Vec<u32>, String)> {
    let ready = Ready::new(opened).unwrap();
    let tokenizer = ready.tokenizer().unwrap();
    let sources: Vec<Vec<u32>> = english.iter().map(|text| tokenizer.encode_source(text).unwrap()).collect();
    let settings = Settings { beams: 1, ..ready.settings() };
    let generator = Generator::new(&settings);
    let made = generator.from_tokens(&mut *ready.session(), &sources).unwrap();
    made.into_iter()
        .map(|mut best| best.remove(0).tokens)
        .map(|ids| (ids.clone(), tokenizer.decode(&ids, true)))
        .collect()
}

#[test]
fn translations_are_hugging_face_s_and_score_as_they_do() {
    let (Some(model), Some(english), Some(german)) = (
        shared("models/marian-tiny-en-de"),
        shared("data/multi30k/test_2016_flickr.en.gz"),
        shared("data/multi30k/test_2016_flickr.de.gz"),
    ) else {
        return;
    };
    let opened = open(&model, None);
    let (english, german) = (unpacked(&english), unpacked(&german));
    let sources: Vec<&str> = english.lines().collect();
    assert_eq!(sources.len(), 1000);
    let made = translate(&opened, &sources);

    let said: Value = serde_json::from_str(&unpacked(&fixture("real/marian.json.gz"))).unwrap();
    let theirs = said["sentences"].as_array().unwrap();
    assert_eq!(theirs.len(), 100);
    for ((ids, text), theirs) in made.iter().zip(theirs) {
        let expected: Vec<u32> =
            theirs["target_ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
        assert_eq!(*ids, expected, "{}", theirs["source"]);
        assert_eq!(text, theirs["target"].as_str().unwrap());
    }

    let pairs: Vec<(String, String)> =
        made.into_iter().map(|(_, text)| text).zip(german.lines().map(str::to_owned)).collect();
    let ours = bleu::corpus(&pairs);
    let theirs = &said["bleu"];
    let near = |ours: f64, theirs: &Value| (ours - theirs.as_f64().unwrap()).abs() < 0.1;
    println!("BLEU {:.4}, sacrebleu {}", ours.score, theirs["score"]);
    assert!((ours.score - 36.1).abs() < 0.1 && near(ours.score, &theirs["score"]), "{}", ours.score);
    for (n, precision) in ours.precisions.iter().enumerate() {
        assert!(near(*precision, &theirs["precisions"][n]), "{n}: {precision}");
    }
    assert!((ours.brevity_penalty - theirs["brevity_penalty"].as_f64().unwrap()).abs() < 1e-3);
}

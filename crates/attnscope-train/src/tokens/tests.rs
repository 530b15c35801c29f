use super::*;
use crate::recipe::shipped;

fn learned(recipe: &str, texts: &[&str]) -> tokenizers::Tokenizer {
    let recipe = Recipe::parse(recipe, shipped(recipe).unwrap()).unwrap();
    let mut builder = VocabularyBuilder::new(&recipe).unwrap();
    texts.iter().for_each(|text| builder.add(text).unwrap());
    tokenizers::Tokenizer::from_bytes(builder.finish().unwrap()).unwrap()
}

fn tokens(tokenizer: &tokenizers::Tokenizer, text: &str) -> Vec<String> {
    tokenizer.encode(text, true).unwrap().get_tokens().to_vec()
}

/// Texts cut by torchtext's own `basic_english`: fixtures/basic-english/make.py.
#[test]
fn words_are_those_of_torchtext() {
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/basic-english/expected.json");
    let cases: Vec<(String, Vec<String>)> = serde_json::from_slice(&std::fs::read(fixture).unwrap()).unwrap();
    // A word that stands three times has a number.
    let texts: Vec<&str> = cases.iter().flat_map(|(text, _)| [text.as_str(); 3]).collect();
    let tokenizer = learned("imdb-conv", &texts);
    assert!(cases.len() > 20);
    for (text, expected) in &cases {
        assert_eq!(tokens(&tokenizer, text), *expected, "{text:?}");
    }
}

#[test]
fn words_are_numbered_by_frequency_and_rare_ones_are_unknown() {
    let tokenizer = learned("imdb-conv", &["b b b b a a a c c c d d", "."]);
    let ids = tokenizer.encode("<pad> <s> <unk> b a c d .", true).unwrap().get_ids().to_vec();
    assert_eq!(ids, [0, 1, 2, 3, 4, 5, 2, 2]);
    assert_eq!(tokenizer.get_vocab_size(true), 6);
}

#[test]
fn the_vocabulary_has_its_largest_size_with_special_tokens() {
    let recipe =
        shipped("imdb-conv").unwrap().replace("size = 20000", "size = 5").replace("min_frequency = 3\n", "");
    let mut builder = VocabularyBuilder::new(&Recipe::parse("r", &recipe).unwrap()).unwrap();
    builder.add("a a a b b c").unwrap();
    let tokenizer = tokenizers::Tokenizer::from_bytes(builder.finish().unwrap()).unwrap();
    assert_eq!(tokenizer.get_vocab_size(true), 5);
    assert_eq!(tokenizer.encode("a b c", true).unwrap().get_ids(), [3, 4, 2]);
}

#[test]
fn a_sentence_of_a_translator_ends_and_is_read_back() {
    let words = learned("toy", &["hello from cairo", "we are here"]);
    let ids = words.encode("we are from cairo", true).unwrap().get_ids().to_vec();
    assert_eq!(ids.last(), Some(&1));
    assert_eq!(words.decode(&ids, true).unwrap(), "we are from cairo");
    let text = "the dog and the cat and the bird in the snow";
    let pieces = learned("multi30k-en-de", &[text; 4]);
    let ids = pieces.encode(text, true).unwrap().get_ids().to_vec();
    assert_eq!(ids.last(), Some(&1));
    assert!(ids.len() < text.len() / 2, "{ids:?}");
    assert_eq!(pieces.decode(&ids, true).unwrap(), text);
    assert_eq!(["<pad>", "</s>", "<unk>"].map(|token| pieces.token_to_id(token)), [0, 1, 2].map(Some));
}

/// The same pieces whatever the order of hashes.
#[test]
fn byte_pairs_are_the_same_every_time() {
    let texts = ["a dog runs in the snow", "zwei Hunde rennen im Schnee", "the dogs ran", "der Hund rannte"];
    let [a, b] = [(); 2].map(|()| learned("multi30k-en-de", &texts).to_string(false).unwrap());
    assert_eq!(a, b);
}

//! What somebody at the page of `serve` can do about an error. Flags of other commands mean nothing there: the page has fields.

use attnscope::Remedy;

use super::remedies;

/// What to do next.
pub(super) fn words(remedy: &Remedy) -> String {
    match remedy {
        Remedy::Or(first, second) => format!("{first}, or {}", words(second)),
        Remedy::Noting(first, beside) => format!("{}; {beside}", words(first)),
        other => of_page(other).map_or_else(|| of_command_line(other), str::to_owned),
    }
}

/// The words of the command line, which say that they are where they name a flag.
fn of_command_line(remedy: &Remedy) -> String {
    let words = remedies::words(remedy);
    let names_flag = !matches!(remedy, Remedy::Advice(_)) && words.contains("--");
    if names_flag { format!("on the command line: {words}") } else { words }
}

/// Where the page has other words than the command line.
fn of_page(remedy: &Remedy) -> Option<&'static str> {
    Some(match remedy {
        Remedy::AllowMemory | Remedy::SayMemory => "give the model less to read",
        Remedy::HeadCount => "start the server again with --heads N: shapes of attention depend on it",
        Remedy::TokenIds | Remedy::Tokenizer | Remedy::TokenizerAgain => {
            "put the model's tokenizer.json beside the weights, and start the server again"
        }
        Remedy::TokenizerOrStart | Remedy::DecoderStart | Remedy::DecoderInput | Remedy::StartToken => {
            "put the model's documents (config.json, tokenizer.json) beside the weights, and start the server again"
        }
        Remedy::TargetLanguage => {
            "type a target, or use `attnscope report` on the command line, which is told the languages"
        }
        Remedy::AudioOnly | Remedy::Recording => "choose a recording: wav, flac or mp3",
        Remedy::TextOnly | Remedy::SourceText | Remedy::SourceInstead => "type a source",
        Remedy::PromptText | Remedy::PromptInstead => "type a prompt",
        Remedy::WordsOfBothSides => "type at least one word of each side",
        Remedy::Sample | Remedy::InputForCell => "type a text, or choose a recording, and run it",
        Remedy::TraceInstead(_) => "the page shows what it makes of a text",
        Remedy::RealSentences | Remedy::RealText | Remedy::SentencePairs | Remedy::ClipPairs => {
            "start the server again with --doctor-pairs FILE: one source, a tab and its target per line, 50 lines or more of \
             the kind that the model was trained on"
        }
        Remedy::DifferentPairs => {
            "start the server again with --doctor-pairs and pairs of different sentences"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_asked_for_in_the_words_of_the_page() {
        for remedy in [Remedy::SourceText, Remedy::PromptText, Remedy::Recording, Remedy::Tokenizer] {
            let words = words(&Remedy::Or("shorten it", Box::new(remedy)));
            assert!(words.starts_with("shorten it, or "), "{words}");
            assert!(!words.contains("--"), "{words}");
        }
        assert_eq!(words(&Remedy::Advice("send less".into())), "send less");
        assert!(words(&Remedy::NoTimes).starts_with("on the command line: leave --timestamps out"));
        assert_eq!(
            words(&Remedy::WiringForm),
            "on the command line: write it as in --wiring norm_place=pre,activation=gelu"
        );
    }
}

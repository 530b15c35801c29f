//! Numbers of things in words.

/// `1 node`, `2 nodes`.
pub fn counted(n: usize, word: &str) -> String {
    if n == 1 { format!("1 {word}") } else { format!("{n} {word}s") }
}

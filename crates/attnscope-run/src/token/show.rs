//! A token as text for a reader, for every tokenizer's encoding of spaces and bytes.

/// The character shown for a space at either end of a token.
pub(super) const SPACE: char = '▁';

/// A text with spaces, tabs and line ends made visible.
pub(super) fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            ' ' => out.push(SPACE),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// Bytes as text; those of an incomplete character are written as `<0xE2>`.
pub(super) fn bytes(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        out.push_str(&visible(chunk.valid()));
        chunk.invalid().iter().for_each(|byte| out.push_str(&format!("<0x{byte:02X}>")));
    }
    out
}

/// The bytes behind a token of GPT-2's alphabet, in which each byte is a printable character: `Ġ` is a space. None
/// where a character is not of that alphabet.
pub(super) fn from_byte_alphabet(token: &str) -> Option<Vec<u8>> {
    token.chars().map(byte_of).collect()
}

/// Printable bytes stand for themselves; the others follow from U+0100 on, in order.
fn byte_of(c: char) -> Option<u8> {
    let stands_for_itself = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let code = u32::from(c);
    match u8::try_from(code) {
        Ok(byte) => stands_for_itself(byte).then_some(byte),
        Err(_) => {
            let nth = usize::try_from(code.checked_sub(0x100)?).ok()?;
            (0..=u8::MAX).filter(|&b| !stands_for_itself(b)).nth(nth)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_readable() {
        let shown = |token| from_byte_alphabet(token).map(|b| bytes(&b));
        assert_eq!(shown("Ġthe").as_deref(), Some("▁the"));
        assert_eq!(shown("Ã©").as_deref(), Some("é"));
        assert_eq!(shown("ĠâĢ").as_deref(), Some("▁<0xE2><0x80>"));
        assert_eq!(shown("Ċ").as_deref(), Some("\\n"));
        assert_eq!(shown("▁the"), None);
        assert_eq!(visible("▁a b\u{7}"), "▁a▁b\\u{7}");
    }

    #[test]
    fn the_byte_alphabet_has_every_byte_once() {
        let mut all: Vec<u8> = (0..0x200).filter_map(char::from_u32).filter_map(byte_of).collect();
        all.sort_unstable();
        assert_eq!(all, (0..=u8::MAX).collect::<Vec<_>>());
    }
}

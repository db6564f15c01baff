//! Decodes and limits strings of the protocol: names, descriptions and messages.

use bytes::Bytes;

/// Largest length of a string, bytes (NBD, "Conventions").
pub const MAX_STRING: usize = 4096;

/// Decodes a string of the peer; returns `None` if it is not UTF-8, contains a NUL or is too long.
pub(crate) fn string(bytes: &Bytes) -> Option<String> {
    if bytes.len() > MAX_STRING || bytes.contains(&0) {
        return None;
    }
    str::from_utf8(bytes).ok().map(str::to_owned)
}

/// Decodes a message of the peer as printable text: control characters, line separators and direction marks
/// are escaped. Bytes after the first 4096 are dropped if the message is longer.
pub(crate) fn message(bytes: &[u8]) -> String {
    let shown = bytes.get(..MAX_STRING).unwrap_or(bytes);
    let mut message = String::new();
    for character in String::from_utf8_lossy(shown).chars() {
        let is_direction = matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if character.is_control() || is_direction {
            message.extend(character.escape_unicode());
        } else {
            message.push(character);
        }
    }
    message
}

/// Returns the text of this side, cut to the largest length of a string.
pub(crate) fn limited(text: &str) -> &str {
    if text.len() <= MAX_STRING {
        return text;
    }
    (0..=MAX_STRING).rev().find_map(|len| text.get(..len)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_shown_and_not_obeyed() {
        assert_eq!(
            message("no 磁盘\n\u{1b}[1A\u{202e}".as_bytes()),
            "no 磁盘\\u{a}\\u{1b}[1A\\u{202e}"
        );
    }

    #[test]
    fn a_string_is_text_without_nul_of_limited_length() {
        assert_eq!(string(&Bytes::from_static(b"disk")).as_deref(), Some("disk"));
        assert_eq!(string(&Bytes::from_static(b"di\0sk")), None);
        assert_eq!(string(&Bytes::from_static(b"\xff")), None);
        assert_eq!(string(&Bytes::from(vec![b'a'; MAX_STRING + 1])), None);
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let long = "é".repeat(MAX_STRING);
        assert_eq!(limited(&long).len(), MAX_STRING);
        let odd = format!("a{long}");
        assert_eq!(limited(&odd).len(), MAX_STRING - 1);
    }
}

//! Makes texts of the peer printable.

/// Escapes the control characters, line separators and direction marks of a text, for example as `\u{1b}`. So
/// the text cannot move a cursor, start a line or reverse the text after it on a terminal. All other
/// characters, of any script, are unchanged.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() || is_direction(character) {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Returns whether the character separates lines or sets the writing direction (Unicode UAX #9).
const fn is_direction(character: char) -> bool {
    matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_cannot_be_seen_is_escaped() {
        for text in ["", "disk", "Bob's dïsk \"7\" \\ 磁盘", "a=b"] {
            assert_eq!(printable(text), text);
        }
        let hostile = "a\u{1b}[2J\r\n\u{7f}\u{9b}\u{202e}z";
        assert_eq!(printable(hostile), "a\\u{1b}[2J\\u{d}\\u{a}\\u{7f}\\u{9b}\\u{202e}z");
    }
}

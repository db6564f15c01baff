//! Big-endian fields at fixed offsets of parameter data.

use super::FormatError;

/// Parameter data of a target; bytes beyond the end read as zero.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Wraps data that must have at least `needed` bytes.
    pub(super) fn new(
        data: &'a [u8],
        format: &'static str,
        needed: usize,
    ) -> Result<Self, FormatError> {
        if data.len() < needed {
            return Err(FormatError::TooShort { format, len: data.len(), needed });
        }
        Ok(Self(data))
    }

    /// Returns the first `len` bytes of the data.
    pub(super) fn cut(self, len: usize) -> Self {
        Self(self.0.get(..len).unwrap_or(self.0))
    }

    /// Returns all bytes from `at` on; empty beyond the end.
    pub(super) fn tail(self, at: usize) -> &'a [u8] {
        self.0.get(at..).unwrap_or_default()
    }

    /// Returns the `len` bytes at `at`; fewer if the data are shorter.
    pub(super) fn range(self, at: usize, len: usize) -> &'a [u8] {
        let tail = self.tail(at);
        tail.get(..len).unwrap_or(tail)
    }

    /// Returns the `N` bytes at `at`.
    pub(super) fn array<const N: usize>(self, at: usize) -> [u8; N] {
        let mut array = [0; N];
        array.iter_mut().zip(self.tail(at)).for_each(|(to, from)| *to = *from);
        array
    }

    pub(super) fn u8(self, at: usize) -> u8 {
        self.0.get(at).copied().unwrap_or_default()
    }

    pub(super) fn u16(self, at: usize) -> u16 {
        u16::from_be_bytes(self.array(at))
    }

    pub(super) fn u32(self, at: usize) -> u32 {
        u32::from_be_bytes(self.array(at))
    }

    pub(super) fn u64(self, at: usize) -> u64 {
        u64::from_be_bytes(self.array(at))
    }

    /// Returns whether any of the bits of `mask` is set in the byte at `at`.
    pub(super) fn bit(self, at: usize, mask: u8) -> bool {
        self.u8(at) & mask != 0
    }

    /// Returns an ASCII field of `len` bytes at `at`, decoded by [`text_of`].
    pub(super) fn text(self, at: usize, len: usize) -> String {
        text_of(self.range(at, len))
    }
}

/// Returns the ASCII text of a target without the blanks and NULs around it. A byte outside printable ASCII is
/// written as, for example, `\x81`, and a `\` that would look like the start of such an escape is escaped too.
/// So different texts stay different, which is necessary because callers distinguish units by these texts.
pub(super) fn text_of(bytes: &[u8]) -> String {
    let content = trimmed(bytes);
    let mut text = String::with_capacity(content.len());
    for (at, &byte) in content.iter().enumerate() {
        let looks_escaped = byte == b'\\' && content.get(at + 1) == Some(&b'x');
        if (byte == b' ' || byte.is_ascii_graphic()) && !looks_escaped {
            text.push(char::from(byte));
        } else {
            push_escape(&mut text, byte);
        }
    }
    text
}

/// Returns the UTF-8 text of a target without the blanks and NULs around it. Each `\` in it is escaped, as are
/// characters that cannot be displayed.
pub(super) fn utf8_of(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in trimmed(bytes).utf8_chunks() {
        text.extend(chunk.valid().escape_debug());
        chunk.invalid().iter().for_each(|byte| push_escape(&mut text, *byte));
    }
    text
}

/// Returns the bytes without the blanks and NULs that fill a field up.
fn trimmed(bytes: &[u8]) -> &[u8] {
    let padding = |byte: &u8| *byte == 0 || *byte == b' ';
    let start = bytes.iter().position(|byte| !padding(byte)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|byte| !padding(byte)).map_or(0, |last| last + 1);
    bytes.get(start..end).unwrap_or_default()
}

fn push_escape(text: &mut String, byte: u8) {
    text.push_str(&format!("\\x{byte:02x}"));
}

/// Converts a 32-bit list length to a length in memory.
pub(super) fn to_usize(len: u32) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}

//! Big-endian fields at fixed offsets of parameter data.

use super::FormatError;

/// Parameter data as a target sent it; bytes past its end read as zero.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Takes data of which at least `needed` bytes must be there.
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

    /// The same data without what lies behind its first `len` bytes.
    pub(super) fn cut(self, len: usize) -> Self {
        Self(self.0.get(..len).unwrap_or(self.0))
    }

    /// All bytes from `at` on; empty past the end.
    pub(super) fn tail(self, at: usize) -> &'a [u8] {
        self.0.get(at..).unwrap_or_default()
    }

    /// As many of the `len` bytes at `at` as there are.
    pub(super) fn range(self, at: usize, len: usize) -> &'a [u8] {
        let tail = self.tail(at);
        tail.get(..len).unwrap_or(tail)
    }

    /// The `N` bytes at `at`.
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

    /// Whether any of the bits of `mask` is set in the byte at `at`.
    pub(super) fn bit(self, at: usize, mask: u8) -> bool {
        self.u8(at) & mask != 0
    }

    /// An ASCII field of `len` bytes at `at`, without the blanks and NULs around it; bytes outside
    /// printable ASCII become `?`.
    pub(super) fn text(self, at: usize, len: usize) -> String {
        text_of(self.range(at, len))
    }
}

/// ASCII as targets send it: padded with blanks or NULs, sometimes with rubbish inside.
pub(super) fn text_of(bytes: &[u8]) -> String {
    let printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    let padding = |byte: &u8| *byte == 0 || *byte == b' ';
    let start = bytes.iter().position(|byte| !padding(byte)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|byte| !padding(byte)).map_or(0, |last| last + 1);
    let content = bytes.get(start..end).unwrap_or_default();
    content.iter().map(|&byte| if printable(byte) { char::from(byte) } else { '?' }).collect()
}

/// A list length that travels in 32 bits, as a length of memory.
pub(super) fn to_usize(len: u32) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}

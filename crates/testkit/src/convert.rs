//! Conversions between the widths of numbers on the wire and in memory.

/// Converts a length to the 32 bits of the wire; a larger one is clamped.
pub(crate) fn len32(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// Converts a byte count to an index into memory; a larger one is clamped, and then fails the bounds check.
pub(crate) fn index(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Clamps a 64-bit count to 32 bits.
pub(crate) fn clamp32(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Returns the low two bytes of a number.
pub(crate) fn low16(value: u32) -> u16 {
    let [_, _, high, low] = value.to_be_bytes();
    u16::from_be_bytes([high, low])
}

/// Returns whether serial number `a` is before `b` (RFC 1982, RFC 7143 §4.2.2.1).
pub(crate) fn before(a: u32, b: u32) -> bool {
    let distance = b.wrapping_sub(a);
    distance != 0 && distance < 1 << 31
}

/// Reads up to eight bytes from the start of `bytes`, big-endian.
pub(crate) fn be(bytes: &[u8], width: usize) -> u64 {
    bytes.iter().take(width).fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Reads four bytes, big-endian.
pub(crate) fn be32(bytes: &[u8]) -> u32 {
    clamp32(be(bytes, 4))
}

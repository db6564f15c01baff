//! Formats amounts of bytes for sentences that compare them.

use iscsi_tuner::{Size, SizeError};

/// Returns `shown` as text for a sentence that compares it with `other`. If both would be the same rounded
/// text, the text has the exact bytes.
#[must_use]
pub fn beside(shown: Size, other: Size) -> String {
    let text = shown.to_string();
    let is_rounded_equal = shown != other && rounded(&text) == rounded(&other.to_string());
    if is_rounded_equal { format!("{text} ({} bytes)", shown.0) } else { text }
}

/// Removes the fraction ".0" only for exact values: 1 MiB is shown as "1 MiB", and a few bytes more as "1.0
/// MiB".
fn rounded(text: &str) -> String {
    text.replace(".0 ", " ")
}

/// Returns a size without rounding: in the largest unit of which it is a multiple, otherwise in bytes.
#[must_use]
pub fn exact(size: Size) -> String {
    let text = size.to_string();
    if text.contains('.') { format!("{} bytes", size.0) } else { text }
}

/// Returns the sentence about a range that goes beyond the end of a source or unit. The sentence names the size
/// of the source or unit, and the option to reduce.
#[must_use]
pub fn beyond_the_end(offset: Size, length: Option<Size>, has: Size) -> String {
    let Some(length) = length.filter(|_| offset < has) else {
        let (offset, has) = (exact(offset), beside(has, offset));
        return format!(
            "it has {has}, and --offset {offset} leaves nothing of it; choose a smaller --offset"
        );
    };
    let end = Size(offset.0.saturating_add(length.0));
    let asked = match offset.0 {
        0 => format!("--length {}", exact(length)),
        _ => format!("--offset {} with --length {}", exact(offset), exact(length)),
    };
    let (has, end) = (beside(has, end), beside(end, has));
    format!("it has {has}, and {asked} ends at {end}; choose a smaller --length")
}

/// Reads the length of a range on the command line.
///
/// # Errors
/// A sentence with the expected form of a length. A length of 0 is an error.
pub fn parse_length(text: &str) -> Result<Size, String> {
    let size: Size = text.parse().map_err(|error: SizeError| error.to_string())?;
    let is_any = size.0 > 0;
    is_any.then_some(size).ok_or_else(|| "no bytes are in that range; write 1 or more".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn bytes_are_shown_where_two_amounts_would_read_equal() {
        for (shown, other, text) in [
            (64 * MIB, 65 * MIB, "64 MiB"),
            (MIB, MIB + 1, "1 MiB (1048576 bytes)"),
            (MIB + 1, MIB, "1.0 MiB (1048577 bytes)"),
            (MIB + 2, MIB + 1, "1.0 MiB (1048578 bytes)"),
            (512, 513, "512 bytes"),
            (0, MIB, "0 bytes"),
        ] {
            assert_eq!(beside(Size(shown), Size(other)), text);
        }
    }

    #[test]
    fn the_option_that_asks_for_too_much_is_named() {
        for (offset, length, text) in [
            (65 * MIB, None, "--offset 65 MiB leaves nothing of it; choose a smaller --offset"),
            (64 * MIB, Some(1), "--offset 64 MiB leaves nothing of it; choose a smaller --offset"),
            (0, Some(65 * MIB), "--length 65 MiB ends at 65 MiB; choose a smaller --length"),
            (
                60 * MIB,
                Some(10 * MIB),
                "--offset 60 MiB with --length 10 MiB ends at 70 MiB; choose a smaller --length",
            ),
            (
                1,
                Some(u64::MAX),
                "--offset 1 bytes with --length 18446744073709551615 bytes ends at 16777215.9 TiB; choose a smaller --length",
            ),
        ] {
            let told = beyond_the_end(Size(offset), length.map(Size), Size(64 * MIB));
            assert_eq!(told, format!("it has 64 MiB, and {text}"));
        }
    }

    #[test]
    fn a_length_is_one_byte_or_more() {
        assert_eq!(parse_length("4K"), Ok(Size(4096)));
        assert!(parse_length("0").unwrap_err().contains("write 1 or more"));
        assert!(parse_length("-1").is_err());
    }
}

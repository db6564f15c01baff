//! Amounts of bytes in sentences that compare them.

use iscsi_initiator::tuning::Size;

/// An amount, as it is written in a sentence that compares it with another one. Its bytes are added only where both amounts would
/// read equal.
pub(crate) fn beside(shown: Size, other: Size) -> String {
    let text = shown.to_string();
    let is_rounded_equal = shown != other && rounded(&text) == rounded(&other.to_string());
    if is_rounded_equal { format!("{text} ({} bytes)", shown.0) } else { text }
}

/// One MiB reads as "1 MiB", and a few bytes more as "1.0 MiB".
fn rounded(text: &str) -> String {
    text.replace(".0 ", " ")
}

/// What a source has, what is asked of it, and which option asks for too much.
pub(crate) fn out_of_source(offset: Size, length: Option<Size>, has: Size) -> String {
    let end = Size(offset.0.saturating_add(length.map_or(0, |length| length.0)));
    let Some(length) = length.filter(|_| offset <= has) else {
        let (has, offset) = (beside(has, offset), beside(offset, has));
        return format!(
            "{has}, and --offset {offset} is beyond its end; choose a smaller --offset"
        );
    };
    let (has, end) = (beside(has, end), beside(end, has));
    let asked = match offset.0 {
        0 => format!("--length {length}"),
        _ => format!("--offset {offset} with --length {length}"),
    };
    format!("{has}, and {asked} ends at {end}; leave --length out to copy up to the end")
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
            (
                65 * MIB,
                None,
                "64 MiB, and --offset 65 MiB is beyond its end; choose a smaller --offset",
            ),
            (
                65 * MIB,
                Some(1),
                "64 MiB, and --offset 65 MiB is beyond its end; choose a smaller --offset",
            ),
            (
                0,
                Some(65 * MIB),
                "64 MiB, and --length 65 MiB ends at 65 MiB; leave --length out to copy up to the end",
            ),
            (
                60 * MIB,
                Some(10 * MIB),
                "64 MiB, and --offset 60 MiB with --length 10 MiB ends at 70 MiB; leave --length out to copy up to the end",
            ),
            (
                u64::MAX,
                Some(u64::MAX),
                "64 MiB, and --offset 16777215.9 TiB is beyond its end; choose a smaller --offset",
            ),
        ] {
            let told = out_of_source(Size(offset), length.map(Size), Size(64 * MIB));
            assert_eq!(told, text);
        }
    }
}

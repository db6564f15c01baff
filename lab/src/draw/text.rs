//! Formats numbers for readers.

/// Formats a number without needless digits: `0.3`, `40`, `0.001`.
pub(super) fn plain(value: f64) -> String {
    format!("{}", (value * 1e6).round() / 1e6)
}

/// Formats a rate in 10^6 bits per second with its significant digits: `8.1`, `95.4`, `947`.
pub(super) fn rate(mbit_per_s: f64) -> String {
    if mbit_per_s < 99.95 { format!("{mbit_per_s:.1}") } else { format!("{mbit_per_s:.0}") }
}

/// Formats seconds: `0.42`, `12.3`.
pub(super) fn seconds(seconds: f64) -> String {
    if seconds.abs() < 9.995 { format!("{seconds:.2}") } else { format!("{seconds:.1}") }
}

/// Formats a number of bytes in the largest unit in which it is whole or at least ten: `512 KiB`, `1152 KiB`,
/// `2 GiB`.
pub(super) fn bytes(bytes: f64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let units = units.map(|(name, bits)| (name, bytes / f64::from(1_u32 << bits)));
    let fits = |count: f64| count >= 10.0 || (count >= 1.0 && count.fract() == 0.0);
    let unit = units.into_iter().find(|(_, count)| fits(*count));
    let (name, count) = unit.unwrap_or(("B", bytes));
    format!("{} {name}", count.round())
}

/// Returns a file name: lower case, with dashes for all characters except letters, digits and dots.
pub(super) fn slug(text: &str) -> String {
    let dashed = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    let all: String = text.chars().map(|c| dashed(c.to_ascii_lowercase())).collect();
    all.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_the_digits_that_mean_something() {
        assert_eq!([0.3, 40.0, 0.001, 0.1 + 0.2].map(plain), ["0.3", "40", "0.001", "0.3"]);
        assert_eq!([8.06, 95.44, 99.97, 946.6].map(rate), ["8.1", "95.4", "100", "947"]);
        assert_eq!([0.417, 9.999, 12.34].map(seconds), ["0.42", "10.0", "12.3"]);
    }

    #[test]
    fn bytes_take_the_largest_unit_that_fits() {
        let sizes = [0.0, 5_000.0, 131_072.0, 500_000.0, 1_179_648.0, 2_147_483_648.0];
        assert_eq!(sizes.map(bytes), ["0 B", "5000 B", "128 KiB", "488 KiB", "1152 KiB", "2 GiB"]);
    }

    #[test]
    fn a_slug_is_safe_as_a_file_name() {
        assert_eq!(slug("../Writes over 100 Mbit/s, RTT 0.3"), "..-writes-over-100-mbit-s-rtt-0.3");
        assert_eq!(slug("  "), "");
    }
}

//! Numbers of bytes, for people.

use std::fmt;

/// A number of bytes that prints as `512 bytes`, `256 KiB` or `1.5 MiB`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shift, unit) = match self.0 {
            0x100_0000_0000.. => (40, "TiB"),
            0x4000_0000.. => (30, "GiB"),
            0x10_0000.. => (20, "MiB"),
            0x400.. => (10, "KiB"),
            bytes => return write!(f, "{bytes} bytes"),
        };
        let tenths = (u128::from(self.0) * 10) >> shift;
        match (tenths / 10, tenths % 10) {
            (whole, 0) => write!(f, "{whole} {unit}"),
            (whole, tenth) => write!(f, "{whole}.{tenth} {unit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_people_write_it() {
        for (bytes, text) in [
            (1023, "1023 bytes"),
            (1024, "1 KiB"),
            (212_992, "208 KiB"),
            (3 << 19, "1.5 MiB"),
            (64 << 30, "64 GiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }
}

//! Byte counts for people.

use std::fmt;

/// A number of bytes that prints as people write it: whole or with one decimal, in KiB, MiB, GiB.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Size(pub(crate) u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0x4000_0000.. => (30, "GiB"),
            0x10_0000.. => (20, "MiB"),
            0x400.. => (10, "KiB"),
            bytes => return write!(f, "{bytes} bytes"),
        };
        let tenths = (u128::from(self.0) * 10) >> unit;
        match (tenths / 10, tenths % 10) {
            (whole, 0) => write!(f, "{whole} {name}"),
            (whole, tenth) => write!(f, "{whole}.{tenth} {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_people_write_it() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1536, "1.5 KiB"),
            (212_992, "208 KiB"),
            (4 << 20, "4 MiB"),
            (u64::MAX, "17179869183.9 GiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }
}

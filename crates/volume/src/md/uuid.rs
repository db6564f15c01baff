//! UUIDs of arrays and of their members.

use std::fmt;
use std::io;
use std::str::FromStr;

/// A name of 16 bytes, as mdadm writes it: `01234567:89abcdef:01234567:89abcdef`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// Creates a random UUID.
    ///
    /// # Errors
    /// When the system provides no random bytes.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Self(bytes))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, byte) in self.0.iter().enumerate() {
            let colon = if place > 0 && place.is_multiple_of(4) { ":" } else { "" };
            write!(f, "{colon}{byte:02x}")?;
        }
        Ok(())
    }
}

impl FromStr for Uuid {
    type Err = &'static str;

    /// Parses 32 hexadecimal digits; colons and hyphens between them are ignored.
    fn from_str(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "a UUID is 32 hexadecimal digits";
        let mut digits = text.chars().filter(|char| !matches!(char, ':' | '-'));
        let mut bytes = [0; 16];
        for byte in &mut bytes {
            let mut digit = || digits.next().and_then(|digit| digit.to_digit(16));
            let (high, low) = (digit().ok_or(EXPECTED)?, digit().ok_or(EXPECTED)?);
            *byte = u8::try_from(high << 4 | low).map_err(|_| EXPECTED)?;
        }
        if digits.next().is_some() { Err(EXPECTED) } else { Ok(Self(bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let uuid = Uuid::random().unwrap();
        assert_eq!(uuid.to_string().parse(), Ok(uuid));
        let text = "01234567:89abcdef:00112233:44556677";
        let uuid: Uuid = text.parse().unwrap();
        assert_eq!(uuid.to_string(), text);
        assert_eq!("01234567-89ab-cdef-0011-223344556677".parse(), Ok(uuid));
        for text in [
            "",
            "0",
            "01234567:89abcdef:00112233:4455667",
            "01234567:89abcdef:00112233:445566778",
            "g".repeat(32).as_str(),
        ] {
            assert!(text.parse::<Uuid>().is_err(), "{text}");
        }
        assert_ne!(Uuid::random().unwrap(), Uuid::random().unwrap());
    }
}

//! Defines which lengths and offsets requests may have.

/// The largest payload of a request, in bytes, unless another size was negotiated: 32 MiB (NBD, "Block size
/// constraints").
pub const MAX_PAYLOAD: u32 = 1 << 25;

/// The block sizes of an export, in bytes: requests are multiples of them, up to a limit (NBD, "Block size
/// constraints").
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct BlockSizes {
    /// Every offset and length is a multiple of this size: a power of two, 1 to 65,536.
    pub minimum: u32,
    /// Writes of multiples of this size need no data to be read first: a power of two, at least 512 and at
    /// least [`Self::minimum`].
    pub preferred: u32,
    /// The largest length of a read or write: a multiple of [`Self::minimum`], or `u32::MAX` if the export
    /// sets no limit.
    pub maximum: u32,
}

impl BlockSizes {
    const MAX_MINIMUM: u32 = 1 << 16;
    const MIN_PREFERRED: u32 = 512;

    /// Returns whether the sizes follow the rules of the protocol.
    pub const fn is_valid(&self) -> bool {
        self.minimum.is_power_of_two()
            && self.minimum <= Self::MAX_MINIMUM
            && self.preferred.is_power_of_two()
            && self.preferred >= self.minimum
            && self.preferred >= Self::MIN_PREFERRED
            && (self.maximum == u32::MAX || self.maximum.is_multiple_of(self.minimum))
            && self.maximum >= self.minimum
    }

    /// Returns the sizes that a server reports, rounded if they are slightly wrong; `None` if they allow no
    /// request.
    pub(crate) fn reported(minimum: u32, preferred: u32, maximum: u32) -> Option<Self> {
        let preferred = preferred.max(minimum).max(Self::MIN_PREFERRED);
        let preferred = preferred.checked_next_power_of_two()?;
        if minimum == 0 {
            return None;
        }
        let maximum = match maximum {
            u32::MAX => maximum,
            _ => maximum - maximum % minimum,
        };
        Some(Self { minimum, preferred, maximum }).filter(Self::is_valid)
    }

    /// Returns the sizes to assume for an export of `size` bytes whose server has reported none: a minimum of
    /// 512 if that divides `size`, otherwise 1.
    pub(crate) fn unreported(size: u64) -> Self {
        let minimum = if size.is_multiple_of(512) { 512 } else { 1 };
        Self { minimum, ..Self::default() }
    }

    /// Returns the largest length of a payload, bytes: `maximum`, or `MAX_PAYLOAD` if that is smaller.
    pub(crate) fn max_payload(&self) -> u32 {
        self.maximum.min(MAX_PAYLOAD)
    }
}

/// Returns the sizes that apply without a negotiation.
impl Default for BlockSizes {
    fn default() -> Self {
        Self { minimum: 1, preferred: 4096, maximum: MAX_PAYLOAD }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_understood_that_is_not_exact() {
        let sizes = |minimum, preferred, maximum| Some(BlockSizes { minimum, preferred, maximum });
        assert_eq!(BlockSizes::reported(1, 1, u32::MAX), sizes(1, 512, u32::MAX));
        assert_eq!(BlockSizes::reported(512, 5000, 1_000_000), sizes(512, 8192, 999_936));
        assert_eq!(BlockSizes::reported(0, 4096, MAX_PAYLOAD), None);
        assert_eq!(BlockSizes::reported(3, 4096, MAX_PAYLOAD), None);
        assert_eq!(BlockSizes::reported(512, 4096, 100), None);
        assert_eq!(BlockSizes::reported(512, u32::MAX, MAX_PAYLOAD), None);
    }

    #[test]
    fn blocks_that_nobody_told_are_of_512_bytes_where_the_export_is_of_such() {
        assert_eq!(BlockSizes::unreported(1 << 20).minimum, 512);
        assert_eq!(BlockSizes::unreported(1000).minimum, 1);
    }

    #[test]
    fn sizes_keep_to_the_rules() {
        assert!(BlockSizes::default().is_valid());
        let sizes = |minimum, preferred, maximum| BlockSizes { minimum, preferred, maximum };
        assert!(sizes(512, 4096, u32::MAX).is_valid());
        for bad in [
            sizes(0, 4096, MAX_PAYLOAD),
            sizes(3, 4096, MAX_PAYLOAD),
            sizes(1 << 17, 1 << 17, MAX_PAYLOAD),
            sizes(512, 256, MAX_PAYLOAD),
            sizes(4096, 512, MAX_PAYLOAD),
            sizes(512, 4096, 1000),
            sizes(1, 512, 0),
        ] {
            assert!(!bad.is_valid(), "{bad:?}");
        }
    }
}

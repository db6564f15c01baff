//! Describes the exports that a server offers.

use crate::block_sizes::BlockSizes;
use crate::transmission_flags::TransmissionFlags;

/// An export as its server describes it (NBD, "`NBD_INFO_EXPORT`" and the other information types).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Export {
    /// The name that the server uses for the export; the empty name means the default export.
    pub name: String,
    /// Description of the export, as readable text.
    pub description: Option<String>,
    /// Size in bytes.
    pub size: u64,
    /// Flags: the commands that the server supports, and properties of the export.
    pub flags: TransmissionFlags,
    /// The block sizes that requests must keep, even if the client does not know them. A server accepts no
    /// payload above [`MAX_PAYLOAD`](crate::MAX_PAYLOAD), and reports that limit.
    pub block_sizes: BlockSizes,
    /// The names of the metadata contexts that clients can select, such as
    /// [`BASE_ALLOCATION`](crate::BASE_ALLOCATION).
    pub contexts: Vec<String>,
}

impl Export {
    /// Returns the flags to report to a client, without flags that require structured replies (if not
    /// `structured`) or another flag that is not set.
    pub(crate) fn offered_flags(&self, structured: bool) -> TransmissionFlags {
        let mut flags = self.flags | TransmissionFlags::HAS_FLAGS;
        if !structured {
            flags = flags.without(TransmissionFlags::DONT_FRAGMENT);
        }
        if !flags.contains(TransmissionFlags::WRITE_ZEROES) {
            flags = flags.without(TransmissionFlags::FAST_ZERO);
        }
        flags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_need_something_else_are_offered_with_it_only() {
        let needy = TransmissionFlags::DONT_FRAGMENT | TransmissionFlags::FAST_ZERO;
        let mut export = Export { flags: needy, ..Export::default() };
        assert_eq!(export.offered_flags(false), TransmissionFlags::HAS_FLAGS);
        assert!(export.offered_flags(true).contains(TransmissionFlags::DONT_FRAGMENT));
        export.flags |= TransmissionFlags::WRITE_ZEROES;
        assert!(export.offered_flags(false).contains(TransmissionFlags::FAST_ZERO));
    }
}

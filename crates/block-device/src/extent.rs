//! Extents: which bytes of a device hold data, known without reading them.

/// A run of bytes of a device that are in one state.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Extent {
    /// Offset of the first byte.
    pub offset: u64,
    /// Length, in bytes.
    pub len: u64,
    /// State of these bytes.
    pub state: ExtentState,
}

/// State of the bytes of an [`Extent`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ExtentState {
    /// Holds data, which must be read.
    Data,
    /// Has no storage, and reads as zeros.
    Deallocated,
    /// Has storage but no data, and reads as zeros.
    Anchored,
    /// Holds no data; a read may return any bytes.
    Unknown,
}

impl Extent {
    /// Maximum number of extents in one result. It bounds the memory and the time of a request for extents.
    pub const MAX_REPORTED: usize = 4096;

    /// Creates an extent of `len` bytes from `offset` on.
    pub const fn new(offset: u64, len: u64, state: ExtentState) -> Self {
        Self { offset, len, state }
    }

    /// Returns the offset after the last byte, where the next extent begins.
    pub const fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    /// Returns the extents of a range whose state is not known: one extent of data, or none if the range is
    /// empty.
    pub fn all_data(offset: u64, len: u64) -> Vec<Self> {
        if len == 0 { Vec::new() } else { vec![Self::new(offset, len, ExtentState::Data)] }
    }
}

impl ExtentState {
    /// Returns whether the bytes read as zeros, so that they need not be read.
    pub const fn reads_zeros(self) -> bool {
        matches!(self, Self::Deallocated | Self::Anchored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_what_is_said_to_be() {
        let zeros = [ExtentState::Deallocated, ExtentState::Anchored];
        assert!(zeros.into_iter().all(ExtentState::reads_zeros));
        assert!(!ExtentState::Data.reads_zeros() && !ExtentState::Unknown.reads_zeros());
    }
}

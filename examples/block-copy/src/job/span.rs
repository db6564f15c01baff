//! The range of the source to copy, and its offset in the destination.

use std::ops::Range;

use iscsi_copy::{Destination, Identity, Source};
use iscsi_examples_common::program::ProgramError;
use iscsi_tuner::Size;

use crate::args::ContentArgs;
use crate::error::Error;

/// The range of the source to copy, and its offset in the destination.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Span {
    offset: u64,
    length: Option<u64>,
    destination: Option<u64>,
}

impl Span {
    pub(crate) fn new(args: &ContentArgs) -> Self {
        Self {
            offset: args.offset.0,
            length: args.length.map(|length| length.0),
            destination: args.destination_offset.map(|offset| offset.0),
        }
    }

    /// Returns whether an offset or a length is set. A stream cannot have them.
    const fn is_part(self) -> bool {
        self.offset > 0 || self.length.is_some()
    }

    /// Returns the offset of the first written byte in the destination.
    pub(crate) fn place(self) -> u64 {
        self.destination.unwrap_or_default()
    }

    /// Checks that the source has the range, and the destination the room for it.
    pub(crate) fn check(self, source: &Source, destination: &Destination) -> Result<(), Error> {
        let Self { offset, length, .. } = self;
        if let Some(has) = source.length()
            && (offset.checked_add(length.unwrap_or(0)).is_none_or(|end| end > has)
                || (self.is_part() && offset >= has))
        {
            let (offset, length) = (Size(offset), length.map(Size));
            return Err(Error::OutOfSource { offset, length, has: Size(has) });
        }
        let (needed, capacity) = (self.of_source(source.clone()).length(), destination.capacity());
        match (needed, capacity) {
            (Some(needed), Some(capacity)) if self.place() > 0 => {
                let rest = capacity.saturating_sub(self.place());
                let (place, rest, needed) = (Size(self.place()), Size(rest), Size(needed));
                if needed > rest { Err(Error::NoRoom { place, rest, needed }) } else { Ok(()) }
            }
            (Some(needed), Some(capacity)) if needed > capacity => {
                Err(Error::TooSmall { capacity: Size(capacity), needed: Size(needed) })
            }
            _ => Ok(()),
        }
    }

    /// Checks that no offset or length is set for a stream.
    pub(crate) fn check_streams(self, is_source: bool, is_destination: bool) -> Result<(), Error> {
        if is_source && self.is_part() {
            return Err(ProgramError::usage(
                "a stream has no --offset and no --length; leave them out, or copy from a file or a unit",
            ).into());
        }
        if is_destination && self.destination.is_some() {
            return Err(ProgramError::usage(
                "a stream has no --destination-offset; leave it out, or copy to a file or a unit",
            )
            .into());
        }
        Ok(())
    }

    /// Returns the range of the source to copy.
    pub(crate) fn of_source(self, source: Source) -> Source {
        if self.is_part() { source.part(self.range(self.offset)) } else { source }
    }

    /// Returns the destination from the offset of the copy on.
    pub(crate) fn of_destination(self, destination: Destination) -> Destination {
        match self.destination {
            Some(place) => destination.from_byte(place),
            None => destination,
        }
    }

    /// Returns the identity of the source's range: copies of another range have another identity.
    pub(crate) fn of_source_identity(self, source: Identity) -> Identity {
        if self.is_part() { source.part(self.range(self.offset)) } else { source }
    }

    /// Returns the identity of the destination's part: copies to another offset have another identity.
    pub(crate) fn of_destination_identity(self, destination: Identity) -> Identity {
        match self.destination {
            Some(place) => destination.part(self.range(place)),
            None => destination,
        }
    }

    fn range(self, start: u64) -> Range<u64> {
        start..self.length.map_or(u64::MAX, |length| start.saturating_add(length))
    }
}

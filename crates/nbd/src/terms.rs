//! Checks requests against the negotiated terms, on either side.
//!
//! Design: `docs/design/nbd.md`.

use thiserror::Error;

use crate::block_sizes::BlockSizes;
use crate::errno::Errno;
use crate::negotiated::Negotiated;
use crate::request::{Command, RequestHeader, flag, kind};
use crate::transmission_flags::TransmissionFlags;

/// A request that violates the negotiated terms.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("{reason}")]
#[non_exhaustive]
pub struct Breach {
    /// The error that a server sends in its reply.
    pub errno: Errno,
    /// The reason, as readable text.
    pub reason: &'static str,
}

impl Breach {
    pub(crate) const fn new(errno: Errno, reason: &'static str) -> Self {
        Self { errno, reason }
    }
}

/// The negotiated terms: requests that break them are refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    size: u64,
    flags: TransmissionFlags,
    block_sizes: BlockSizes,
    has_contexts: bool,
}

impl Terms {
    pub(crate) const fn new(negotiated: &Negotiated) -> Self {
        let export = &negotiated.export;
        Self {
            size: export.size,
            flags: export.flags,
            block_sizes: export.block_sizes,
            has_contexts: !negotiated.contexts.is_empty(),
        }
    }

    /// Returns the command of a request, if the terms allow it.
    pub(crate) fn check(&self, header: &RequestHeader) -> Result<Command, Breach> {
        if matches!(header.kind, kind::WRITE | kind::WRITE_ZEROES | kind::TRIM) {
            // This check comes first, because a read-only export may not offer trims and writes of zeros
            // either: "read-only" is the more exact reason.
            self.check_writable()?;
        }
        let command = self.command(header)?;
        match command {
            Command::Flush => {}
            Command::Write { .. } => {
                self.check_range(header, Errno::NoSpace)?;
                self.check_payload(header)?;
            }
            Command::WriteZeroes { .. } => self.check_range(header, Errno::NoSpace)?,
            Command::Trim { .. } => self.check_range(header, Errno::Invalid)?,
            Command::Read { .. } => {
                self.check_range(header, Errno::Invalid)?;
                self.check_payload(header)?;
            }
            Command::Cache => self.check_range(header, Errno::Invalid)?,
            Command::BlockStatus { .. } => {
                self.check_range(header, Errno::Invalid)?;
                if !self.has_contexts {
                    return Err(Breach::new(Errno::Invalid, "no metadata context was selected"));
                }
            }
        }
        Ok(command)
    }

    /// Returns the command for the type and the flags of a request.
    fn command(&self, header: &RequestHeader) -> Result<Command, Breach> {
        let has = |flag| header.flags & flag != 0;
        let fua = has(flag::FUA);
        let (needed, allowed, command) = match header.kind {
            kind::READ => {
                let command = Command::Read { dont_fragment: has(flag::DF) };
                (TransmissionFlags::NONE, flag::DF, command)
            }
            kind::WRITE => (TransmissionFlags::NONE, 0, Command::Write { fua }),
            kind::FLUSH => (TransmissionFlags::FLUSH, 0, Command::Flush),
            kind::TRIM => (TransmissionFlags::TRIM, 0, Command::Trim { fua }),
            kind::CACHE => (TransmissionFlags::CACHE, 0, Command::Cache),
            kind::WRITE_ZEROES => {
                let (no_hole, fast) = (has(flag::NO_HOLE), has(flag::FAST_ZERO));
                let command = Command::WriteZeroes { fua, no_hole, fast };
                (TransmissionFlags::WRITE_ZEROES, flag::NO_HOLE | flag::FAST_ZERO, command)
            }
            kind::BLOCK_STATUS => {
                let command = Command::BlockStatus { one: has(flag::REQ_ONE) };
                (TransmissionFlags::NONE, flag::REQ_ONE, command)
            }
            _ => return Err(Breach::new(Errno::Invalid, "the request is unknown")),
        };
        if !self.flags.contains(needed) {
            return Err(Breach::new(Errno::Invalid, "the request was not offered"));
        }
        // Clients also set FUA on requests that write nothing, where it has no effect.
        if header.flags & !(allowed | flag::FUA) != 0 {
            return Err(Breach::new(Errno::Invalid, "a flag does not belong to the request"));
        }
        let offered = |flag, feature| !has(flag) || self.flags.contains(feature);
        if !offered(flag::FUA, TransmissionFlags::FUA)
            || !offered(flag::DF, TransmissionFlags::DONT_FRAGMENT)
            || !offered(flag::FAST_ZERO, TransmissionFlags::FAST_ZERO)
        {
            return Err(Breach::new(Errno::Invalid, "a flag of the request was not offered"));
        }
        Ok(command)
    }

    const fn check_writable(&self) -> Result<(), Breach> {
        if self.flags.contains(TransmissionFlags::READ_ONLY) {
            return Err(Breach::new(Errno::Permission, "the export is read-only"));
        }
        Ok(())
    }

    fn check_range(&self, header: &RequestHeader, beyond: Errno) -> Result<(), Breach> {
        if header.length == 0 {
            return Err(Breach::new(Errno::Invalid, "the range is empty"));
        }
        let end = header.offset.checked_add(header.length.into());
        if end.is_none_or(|end| end > self.size) {
            return Err(Breach::new(beyond, "the range goes beyond the end of the export"));
        }
        let minimum = self.block_sizes.minimum;
        let is_whole = header.offset.is_multiple_of(minimum.into());
        if !is_whole || !header.length.is_multiple_of(minimum) {
            return Err(Breach::new(Errno::Invalid, "the range is not of whole blocks"));
        }
        Ok(())
    }

    fn check_payload(&self, header: &RequestHeader) -> Result<(), Breach> {
        if header.length > self.block_sizes.max_payload() {
            return Err(Breach::new(Errno::Invalid, "the range is longer than a request may be"));
        }
        Ok(())
    }
}

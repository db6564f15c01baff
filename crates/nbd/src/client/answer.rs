//! Decodes the server's replies to options.

use bytes::{Buf, Bytes, BytesMut};

use crate::block_sizes::BlockSizes;
use crate::error::ProtocolError;
use crate::export::Export;
use crate::negotiated::MetaContext;
use crate::option::{REPLY_LEN, REPLY_MAGIC, info};
use crate::text;
use crate::transmission_flags::TransmissionFlags;

/// Largest option reply that is accepted, bytes: two strings and some numbers, with room for extensions.
const MAX_ANSWER: usize = 64 * 1024;

/// A reply to an option (NBD, "Fixed newstyle negotiation").
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) option: u32,
    pub(crate) kind: u32,
    pub(crate) data: Bytes,
}

impl Answer {
    /// Removes the next option reply from the input; returns `None` while the reply is not complete.
    pub(crate) fn take(input: &mut BytesMut) -> Result<Option<Self>, ProtocolError> {
        let Some(mut head) = input.get(..REPLY_LEN) else { return Ok(None) };
        let magic = head.get_u64();
        if magic != REPLY_MAGIC {
            return Err(ProtocolError::Magic { message: "answer to an option", value: magic });
        }
        let (option, kind, len) = (head.get_u32(), head.get_u32(), head.get_u32());
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > MAX_ANSWER {
            return Err(ProtocolError::Answer { option, problem: "it is too long" });
        }
        if input.len() < REPLY_LEN + len {
            return Ok(None);
        }
        input.advance(REPLY_LEN);
        Ok(Some(Self { option, kind, data: input.split_to(len).freeze() }))
    }

    /// Returns the length of the reply on the wire, bytes.
    pub(crate) const fn wire_len(&self) -> usize {
        REPLY_LEN + self.data.len()
    }

    pub(crate) const fn malformed(&self) -> ProtocolError {
        ProtocolError::Answer { option: self.option, problem: "it is malformed" }
    }

    /// Returns the name and the description in an NBD_REP_SERVER.
    pub(crate) fn server(&self) -> Option<(String, String)> {
        let mut data = self.data.clone();
        let len = usize::try_from(data.try_get_u32().ok()?).ok()?;
        if len > data.len() {
            return None;
        }
        let name = text::string(&data.split_to(len))?;
        Some((name, text::message(&data)))
    }

    /// Returns the context in an NBD_REP_META_CONTEXT.
    pub(crate) fn context(&self) -> Option<MetaContext> {
        let mut data = self.data.clone();
        let id = data.try_get_u32().ok()?;
        Some(MetaContext { id, name: text::string(&data)? })
    }

    /// Returns the information on an export in an NBD_REP_INFO.
    pub(crate) fn information(&self) -> Option<Information> {
        let mut data = self.data.clone();
        match data.try_get_u16().ok()? {
            info::EXPORT => {
                let size = data.try_get_u64().ok()?;
                let flags = TransmissionFlags::from_bits(data.try_get_u16().ok()?);
                data.is_empty().then_some(Information::Export { size, flags })
            }
            info::NAME => Some(Information::Name(text::string(&data)?)),
            info::DESCRIPTION => Some(Information::Description(text::message(&data))),
            info::BLOCK_SIZE => {
                let mut next = || data.try_get_u32().ok();
                let sizes = BlockSizes::reported(next()?, next()?, next()?)?;
                data.is_empty().then_some(Information::BlockSizes(sizes))
            }
            _ => Some(Information::Unknown),
        }
    }
}

/// Information on an export in an NBD_REP_INFO.
#[derive(Debug)]
pub(crate) enum Information {
    Export { size: u64, flags: TransmissionFlags },
    Name(String),
    Description(String),
    BlockSizes(BlockSizes),
    Unknown,
}

impl Information {
    /// Copies the information into `export`.
    pub(crate) fn copy_to(self, export: &mut Export) {
        match self {
            Self::Export { size, flags } => (export.size, export.flags) = (size, flags),
            Self::Name(name) => export.name = name,
            Self::Description(description) => export.description = Some(description),
            Self::BlockSizes(sizes) => export.block_sizes = sizes,
            Self::Unknown => {}
        }
    }
}

//! Decodes the reply to a request for block status.

use bytes::Buf;

use crate::extent::Extent;
use crate::request::{Command, Request};

/// The status of a range in one metadata context.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ContextStatus {
    /// The id of the context, as in [`Negotiated::contexts`](super::Negotiated::contexts).
    pub context: u32,
    /// Extents that follow each other from the offset of the request on. There is at least one, and no two
    /// neighbours have the same status. They may cover less or more than the request, but never exceed the
    /// export.
    pub extents: Vec<Extent>,
}

impl ContextStatus {
    /// Largest number of descriptors that is accepted in a chunk; the protocol needs fewer (NBD,
    /// "`NBD_CMD_BLOCK_STATUS`").
    const MAX_DESCRIPTORS: usize = 1 << 20;
    /// Largest payload of a chunk, in bytes.
    pub(crate) const MAX_LEN: usize = 4 + Self::MAX_DESCRIPTORS * Extent::WIRE_LEN;

    /// Decodes the payload of a chunk; returns `None` if it is malformed. Extents are cut at the end of the
    /// export, and at the end of the request if it asks for a single extent.
    pub(crate) fn decode(request: &Request, size: u64, mut payload: &[u8]) -> Option<Self> {
        let context = payload.try_get_u32().ok()?;
        if payload.is_empty() || !payload.len().is_multiple_of(Extent::WIRE_LEN) {
            return None;
        }
        let one = matches!(request.command, Command::BlockStatus { one: true });
        let to_end = size.saturating_sub(request.offset);
        let mut left = if one { to_end.min(request.length.into()) } else { to_end };
        let mut extents: Vec<Extent> = Vec::new();
        while payload.has_remaining() {
            let length = u64::from(payload.try_get_u32().ok()?).min(left);
            let status = payload.try_get_u32().ok()?;
            match extents.last_mut() {
                Some(last) if last.status == status => last.length += length,
                _ if length > 0 => extents.push(Extent { length, status }),
                _ => {}
            }
            left -= length;
        }
        (!extents.is_empty()).then_some(Self { context, extents })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cookie::Cookie;

    fn decode(one: bool, descriptors: &[(u32, u32)]) -> Option<Vec<(u64, u32)>> {
        let command = Command::BlockStatus { one };
        let request = Request { cookie: Cookie(1), command, offset: 4096, length: 4096 };
        let mut payload = vec![0, 0, 0, 7];
        for (length, status) in descriptors {
            payload.extend([length.to_be_bytes(), status.to_be_bytes()].concat());
        }
        let status = ContextStatus::decode(&request, 16384, &payload)?;
        assert_eq!(status.context, 7);
        Some(status.extents.iter().map(|extent| (extent.length, extent.status)).collect())
    }

    #[test]
    fn extents_follow_each_other() {
        let extents = decode(false, &[(1024, 0), (1024, 3), (512, 3), (512, 1)]);
        assert_eq!(extents, Some(vec![(1024, 0), (1536, 3), (512, 1)]));
    }

    #[test]
    fn extents_end_with_the_export_or_with_a_request_for_one() {
        let long = [(2048, 0), (u32::MAX, 3), (512, 0)];
        assert_eq!(decode(false, &long), Some(vec![(2048, 0), (10240, 3)]));
        assert_eq!(decode(true, &long), Some(vec![(2048, 0), (2048, 3)]));
    }

    #[test]
    fn a_status_of_nothing_is_malformed() {
        assert_eq!(decode(false, &[]), None);
        assert_eq!(decode(false, &[(0, 0)]), None);
        let command = Command::BlockStatus { one: false };
        let request = Request { cookie: Cookie(1), command, offset: 0, length: 4096 };
        assert_eq!(ContextStatus::decode(&request, 4096, &[0; 3]), None);
        assert_eq!(ContextStatus::decode(&request, 4096, &[1; 15]), None);
    }
}

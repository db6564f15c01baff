//! Converts extents to the descriptors of a block-status reply.

use crate::extent::Extent;
use crate::request::{Command, Request};

/// Largest number of descriptors in one reply; a client sends another request for the rest.
const MAX_DESCRIPTORS: usize = 1 << 16;

/// Returns descriptors of length and status (NBD, "`NBD_REPLY_TYPE_BLOCK_STATUS`"). There is at most one if
/// the request wants only one, and none begins beyond the range. Neighbours with the same status are merged.
pub(crate) fn descriptors(
    request: &Request,
    extents: impl IntoIterator<Item = Extent>,
) -> Vec<(u32, u32)> {
    let wanted = u64::from(request.length);
    let one = matches!(request.command, Command::BlockStatus { one: true });
    let most = if one { 1 } else { MAX_DESCRIPTORS };
    let mut found: Vec<(u32, u32)> = Vec::new();
    let mut covered = 0;
    for extent in merged(extents) {
        let mut left = if one { extent.length.min(wanted) } else { extent.length };
        while left > 0 && covered < wanted && found.len() < most {
            let length = u32::try_from(left).unwrap_or(Extent::MAX_DESCRIPTOR);
            found.push((length, extent.status));
            covered += u64::from(length);
            left -= u64::from(length);
        }
        if covered >= wanted || found.len() == most {
            break;
        }
    }
    found
}

/// Merges neighbours with the same status, and drops empty extents.
fn merged(extents: impl IntoIterator<Item = Extent>) -> impl Iterator<Item = Extent> {
    let mut extents = extents.into_iter().filter(|extent| extent.length > 0).peekable();
    std::iter::from_fn(move || {
        let mut merged = extents.next()?;
        while let Some(next) = extents.next_if(|next| next.status == merged.status) {
            merged.length = merged.length.saturating_add(next.length);
        }
        Some(merged)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cookie::Cookie;

    fn request(length: u32, one: bool) -> Request {
        let command = Command::BlockStatus { one };
        Request { cookie: Cookie(1), command, offset: 0, length }
    }

    fn extents(of: &[(u64, u32)]) -> Vec<Extent> {
        of.iter().map(|&(length, status)| Extent { length, status }).collect()
    }

    #[test]
    fn one_extent_ends_with_the_range() {
        let found = descriptors(&request(4096, true), extents(&[(1024, 3), (1 << 40, 3)]));
        assert_eq!(found, [(4096, 3)]);
        let found = descriptors(&request(4096, true), extents(&[(512, 0), (512, 3)]));
        assert_eq!(found, [(512, 0)]);
    }

    #[test]
    fn the_last_extent_may_go_beyond_the_range_and_none_begins_there() {
        let given = extents(&[(1024, 0), (0, 1), (8192, 3), (512, 0)]);
        assert_eq!(descriptors(&request(4096, false), given), [(1024, 0), (8192, 3)]);
    }

    #[test]
    fn a_long_extent_is_cut_where_any_block_ends() {
        let found = descriptors(&request(u32::MAX, false), extents(&[(1 << 33, 3)]));
        assert_eq!(found, [(0xffff_0000, 3), (0xffff_0000, 3)]);
    }

    #[test]
    fn there_is_a_limit_of_descriptors() {
        let many = (0..1 << 20).map(|at| Extent { length: 512, status: at & 1 });
        assert_eq!(descriptors(&request(1 << 30, false), many).len(), MAX_DESCRIPTORS);
    }
}

//! Layout of a volume: RAID-0 over members of one size.

use std::ops::Range;

use crate::error::Error;

/// Chunk size: the number of consecutive bytes of a volume that lie on one member, before the next member
/// follows.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Chunk(u64);

impl Chunk {
    /// The shortest chunk, in bytes. With shorter chunks, one request would become many short ones.
    pub const MIN: u64 = 64 << 10;
    /// The longest chunk, in bytes. With longer chunks, one member may have much to do while others are idle.
    pub const MAX: u64 = 4 << 20;

    /// Creates a chunk size of `bytes`: a power of two, 64 KiB to 4 MiB.
    ///
    /// # Errors
    /// [`Error::Chunk`] for any other size.
    pub const fn new(bytes: u64) -> Result<Self, Error> {
        if bytes.is_power_of_two() && Self::MIN <= bytes && bytes <= Self::MAX {
            Ok(Self(bytes))
        } else {
            Err(Error::Chunk(bytes))
        }
    }

    /// Returns the chunk size in bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl Default for Chunk {
    /// Returns 512 KiB, the default of mdadm.
    fn default() -> Self {
        Self(512 << 10)
    }
}

/// Maximum number of members of a volume.
pub const MAX_MEMBERS: usize = 64;

/// The geometry of a volume: its chunks go to the members in turn. Offsets on a member are relative to the
/// start of its data.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stripe {
    chunk: Chunk,
    members: u64,
    /// Number of chunks on each member, called rows: a row is one chunk of each member.
    rows: u64,
}

/// Consecutive bytes that lie in one chunk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Piece {
    /// The member, counted from 0.
    pub member: usize,
    /// Offset of the first byte on the member.
    pub offset: u64,
    /// The length, in bytes.
    pub len: u64,
}

impl Stripe {
    /// Creates the layout of chunks over 2 to [`MAX_MEMBERS`] members, each of which has room for `room` bytes.
    /// A remainder of less than a chunk stays unused.
    ///
    /// # Errors
    /// [`Error::MemberCount`], [`Error::NoRoom`], or [`Error::TooLarge`].
    pub fn new(chunk: Chunk, members: usize, room: u64) -> Result<Self, Error> {
        if !(2..=MAX_MEMBERS).contains(&members) {
            return Err(Error::MemberCount(members));
        }
        let rows = room / chunk.bytes();
        if rows == 0 {
            return Err(Error::NoRoom { room, chunk: chunk.bytes() });
        }
        let stripe = Self { chunk, members: members as u64, rows };
        match stripe.width().checked_mul(rows) {
            Some(_) => Ok(stripe),
            None => Err(Error::TooLarge),
        }
    }

    /// Returns the chunk size.
    pub const fn chunk(&self) -> Chunk {
        self.chunk
    }

    /// Returns the length of a row in bytes: one chunk of each member.
    pub const fn width(&self) -> u64 {
        self.chunk.bytes().saturating_mul(self.members)
    }

    /// Returns the capacity of the volume, in bytes.
    pub const fn capacity(&self) -> u64 {
        self.width() * self.rows
    }

    /// Returns the number of bytes of the volume that each member holds.
    pub const fn member_len(&self) -> u64 {
        self.chunk.bytes() * self.rows
    }

    /// Returns the member and the offset at which a byte of the volume lies; `len` counts the bytes from
    /// there to the end of the chunk.
    pub fn place(&self, offset: u64) -> Piece {
        let (number, within) = (offset / self.chunk.bytes(), offset % self.chunk.bytes());
        Piece {
            member: usize::try_from(number % self.members).unwrap_or(usize::MAX),
            offset: number / self.members * self.chunk.bytes() + within,
            len: self.chunk.bytes() - within,
        }
    }

    /// Returns the offset in the volume of a byte of a member; the inverse of [`place`](Self::place).
    pub const fn offset_of(&self, member: usize, offset: u64) -> u64 {
        let (row, within) = (offset / self.chunk.bytes(), offset % self.chunk.bytes());
        row * self.width() + member as u64 * self.chunk.bytes() + within
    }

    /// Returns the range of a member that holds its part of a range of the volume; empty if the range does
    /// not reach the member.
    pub fn part(&self, range: &Range<u64>, member: usize) -> Range<u64> {
        self.before(range.start, member)..self.before(range.end, member)
    }

    /// Returns the pieces of a range, in order.
    pub fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = Piece> + use<> {
        let (stripe, mut at) = (*self, range.start);
        std::iter::from_fn(move || {
            let left = range.end.checked_sub(at).filter(|left| *left > 0)?;
            let mut piece = stripe.place(at);
            piece.len = piece.len.min(left);
            at += piece.len;
            Some(piece)
        })
    }

    /// Returns how many bytes of a member come before the byte `offset` of the volume.
    fn before(&self, offset: u64, member: usize) -> u64 {
        let (row, within) = (offset / self.width(), offset % self.width());
        let own = within.saturating_sub(member as u64 * self.chunk.bytes());
        row * self.chunk.bytes() + own.min(self.chunk.bytes())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns stripes of few chunks, with a remainder of less than a chunk on each member.
    fn stripes() -> impl Strategy<Value = Stripe> {
        (0u32..3, 2usize..7, 1u64..9, 0u64..Chunk::MIN).prop_map(|(power, members, rows, rest)| {
            let chunk = Chunk::new(Chunk::MIN << power).unwrap();
            Stripe::new(chunk, members, rows * chunk.bytes() + rest).unwrap()
        })
    }

    /// Returns the member and the offset at which a byte lies, by counting chunks.
    fn naive(stripe: &Stripe, offset: u64) -> (usize, u64) {
        let (mut member, mut row, mut at) = (0, 0, 0);
        while at + stripe.chunk.bytes() <= offset {
            at += stripe.chunk.bytes();
            member += 1;
            if member == stripe.members {
                (member, row) = (0, row + 1);
            }
        }
        (usize::try_from(member).unwrap(), row * stripe.chunk.bytes() + offset - at)
    }

    proptest! {
        #[test]
        fn a_byte_lies_where_counting_says(stripe in stripes(), share in 0.0f64..1.0) {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of the whole")]
            let offset = (stripe.capacity() as f64 * share) as u64;
            let offset = offset.min(stripe.capacity() - 1);
            let piece = stripe.place(offset);
            prop_assert_eq!((piece.member, piece.offset), naive(&stripe, offset));
            prop_assert_eq!(stripe.offset_of(piece.member, piece.offset), offset);
            prop_assert!(piece.offset + piece.len <= stripe.member_len());
        }

        #[test]
        fn the_pieces_of_a_range_are_one_range_on_each_member(
            stripe in stripes(),
            ends in (0.0f64..1.0, 0.0f64..1.0),
        ) {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of the whole")]
            let offset = |share: f64| (stripe.capacity() as f64 * share) as u64;
            let (one, other) = (offset(ends.0), offset(ends.1));
            let range = one.min(other)..one.max(other);
            let mut at: Vec<_> =
                (0..6).map(|member| stripe.part(&range, member).start).collect();
            let mut next = range.start;
            for piece in stripe.pieces(range.clone()) {
                prop_assert_eq!(stripe.offset_of(piece.member, piece.offset), next);
                prop_assert_eq!(piece.offset, at[piece.member], "no gap on a member");
                prop_assert!(piece.len > 0 && piece.len <= stripe.chunk.bytes());
                at[piece.member] += piece.len;
                next += piece.len;
            }
            prop_assert_eq!(next, range.end);
            let members = usize::try_from(stripe.members).unwrap();
            for (member, at) in at.iter().enumerate().take(members) {
                prop_assert_eq!(*at, stripe.part(&range, member).end, "all of its part");
            }
        }
    }

    #[test]
    fn what_is_no_volume_is_refused() {
        for bytes in [0, 1, 4096, 32 << 10, 96 << 10, 8 << 20, u64::MAX] {
            assert!(matches!(Chunk::new(bytes), Err(Error::Chunk(found)) if found == bytes));
        }
        let chunk = Chunk::default();
        for members in [0, 1, 65] {
            let error = Stripe::new(chunk, members, 1 << 30).unwrap_err();
            assert!(matches!(error, Error::MemberCount(found) if found == members), "{error}");
        }
        let error = Stripe::new(chunk, 2, chunk.bytes() - 1).unwrap_err();
        assert!(matches!(error, Error::NoRoom { .. }), "{error}");
        let error = Stripe::new(chunk, 64, u64::MAX).unwrap_err();
        assert!(matches!(error, Error::TooLarge), "{error}");
        let stripe = Stripe::new(chunk, 2, chunk.bytes() * 3 + 1).unwrap();
        assert_eq!((stripe.capacity(), stripe.width()), (chunk.bytes() * 6, chunk.bytes() * 2));
    }
}

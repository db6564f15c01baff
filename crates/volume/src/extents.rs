//! Combines the extents that members report into extents of the volume.

use std::ops::Range;

use iscsi_block_device::{Extent, ExtentState};

use crate::stripe::Stripe;

/// Maximum number of extents in one result, whatever the members report.
const MAX_EXTENTS: usize = 2048;
const _: () = assert!(MAX_EXTENTS <= Extent::MAX_REPORTED);

/// Combines the extents that each member has reported for its part of a range into the extents of that range of
/// the volume. The result ends at the first byte that its member has not reported, or after `MAX_EXTENTS`
/// extents. If the first byte was not reported, the result is one extent of data for the whole range.
pub(crate) fn interleave(
    stripe: &Stripe,
    range: Range<u64>,
    data_offset: u64,
    reported: Vec<Vec<Extent>>,
) -> Vec<Extent> {
    let cursors = reported.into_iter().map(|extents| Cursor { extents, next: 0, data_offset });
    let mut reported = ReportedExtents { stripe, members: cursors.collect() };
    let mut extents: Vec<Extent> = Vec::new();
    let mut at = range.start;
    while at < range.end && extents.len() <= MAX_EXTENTS {
        let Some((len, state)) = reported.run(at, &range) else { break };
        match extents.last_mut() {
            Some(last) if last.state == state => last.len += len,
            _ => extents.push(Extent::new(at, len, state)),
        }
        at += len;
    }
    // The loop may begin one extent more than the maximum, so that all extents before it have their full
    // length. This last extent may continue beyond the bytes examined, and is dropped.
    extents.truncate(MAX_EXTENTS);
    if extents.is_empty() && !range.is_empty() {
        extents.push(Extent::new(range.start, range.end - range.start, ExtentState::Data));
    }
    extents
}

/// The extents that all members have reported.
struct ReportedExtents<'a> {
    stripe: &'a Stripe,
    members: Vec<Cursor>,
}

/// The extents that one member has reported, read in order.
struct Cursor {
    extents: Vec<Extent>,
    next: usize,
    data_offset: u64,
}

impl ReportedExtents<'_> {
    /// Returns how many bytes from `at` on are in one state, and the state; `None` if the member that holds the
    /// byte `at` has not reported it.
    fn run(&mut self, at: u64, range: &Range<u64>) -> Option<(u64, ExtentState)> {
        if let Some(run) = self.rows(at, range) {
            return Some(run);
        }
        let piece = self.stripe.place(at);
        let (left, state) = self.members.get_mut(piece.member)?.at(piece.offset)?;
        Some((left.min(piece.len).min(range.end - at), state))
    }

    /// Returns how many bytes of the volume from `at` on are in one state, in whole chunks of all members,
    /// and the state. `None` if `at` is not the start of a row, or the members do not all have a chunk in the
    /// same state there. So a hole of any size takes one step.
    fn rows(&mut self, at: u64, range: &Range<u64>) -> Option<(u64, ExtentState)> {
        let (width, chunk) = (self.stripe.width(), self.stripe.chunk().bytes());
        if !at.is_multiple_of(width) {
            return None;
        }
        let mut rows = (range.end - at) / width;
        let mut common = None;
        for member in &mut self.members {
            let (left, state) = member.at(at / width * chunk)?;
            rows = rows.min(left / chunk);
            if rows == 0 || *common.get_or_insert(state) != state {
                return None;
            }
        }
        common.map(|state| (rows * width, state))
    }
}

impl Cursor {
    /// Returns how many bytes of the member from `offset` on are in one state, and the state; `None` if the
    /// member has not reported the byte at `offset`. `offset` must not decrease from call to call.
    fn at(&mut self, offset: u64) -> Option<(u64, ExtentState)> {
        let place = offset + self.data_offset;
        while self.extents.get(self.next)?.end() <= place {
            self.next += 1;
        }
        let extent = self.extents.get(self.next).filter(|extent| extent.offset <= place)?;
        Some((extent.end() - place, extent.state))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stripe::Chunk;

    const CHUNK: u64 = Chunk::MIN;
    const ROWS: u64 = 6;
    const STATES: [ExtentState; 4] =
        [ExtentState::Data, ExtentState::Deallocated, ExtentState::Anchored, ExtentState::Unknown];

    /// Returns the extents of a member, as a device reports them; `states` has the state of each grain.
    fn reported_extents(
        states: &[usize],
        part: Range<u64>,
        data_offset: u64,
        grain: u64,
    ) -> Vec<Extent> {
        let mut extents: Vec<Extent> = Vec::new();
        let mut at = part.start;
        while at < part.end {
            let end = ((at / grain + 1) * grain).min(part.end);
            let state = STATES[states[usize::try_from(at / grain).unwrap()]];
            match extents.last_mut() {
                Some(last) if last.state == state => last.len += end - at,
                _ => extents.push(Extent::new(at + data_offset, end - at, state)),
            }
            at = end;
        }
        extents
    }

    proptest! {
        #[test]
        fn each_byte_is_in_the_state_of_its_place(
            states in prop::collection::vec(prop::collection::vec(prop_oneof![3 => Just(0usize), 1 => 0usize..4], 12), 2..5),
            ends in (0..CHUNK * ROWS * 4, 0..CHUNK * ROWS * 4),
            data_offset in prop_oneof![Just(0), Just(1u64 << 20)],
            keeps in prop::collection::vec(1usize..9, 5),
        ) {
            let stripe = Stripe::new(Chunk::new(CHUNK).unwrap(), states.len(), CHUNK * ROWS).unwrap();
            let grain = CHUNK / 2;
            let [one, other] = [ends.0, ends.1].map(|end| end.min(stripe.capacity()));
            let range = one.min(other)..one.max(other);
            let mut all: Vec<_> = states
                .iter()
                .enumerate()
                .map(|(number, states)| reported_extents(states, stripe.part(&range, number), data_offset, grain))
                .collect();
            // Each member may report less than was requested.
            let known: Vec<_> = all.iter_mut().zip(&keeps).map(|(extents, keep)| {
                extents.truncate(*keep);
                extents.last().map_or(0, |last| last.end() - data_offset)
            }).collect();
            let extents = interleave(&stripe, range.clone(), data_offset, all);
            prop_assert_eq!(extents.is_empty(), range.is_empty());
            let mut at = range.start;
            let mut before = None;
            for extent in &extents {
                prop_assert_eq!(extent.offset, at);
                prop_assert!(extent.len > 0 && before != Some(extent.state));
                before = Some(extent.state);
                let mut seen = extent.offset;
                for piece in stripe.pieces(extent.offset..extent.end()) {
                    let mut place = piece.offset;
                    while place < piece.offset + piece.len {
                        let index = usize::try_from(place / grain).unwrap();
                        prop_assert_eq!(STATES[states[piece.member][index]], extent.state, "byte {}", seen);
                        let next = ((place / grain + 1) * grain).min(piece.offset + piece.len);
                        seen += next - place;
                        place = next;
                    }
                    prop_assert!(place <= known[piece.member], "no more than was told");
                }
                at = extent.end();
            }
            if at < range.end && !range.is_empty() {
                let next = stripe.place(at);
                prop_assert_eq!(next.offset, known[next.member], "all that was told");
            }
        }
    }

    #[test]
    fn a_hole_of_any_size_is_one_step() {
        let stripe = Stripe::new(Chunk::new(CHUNK).unwrap(), 64, 1 << 50).unwrap();
        let hole = vec![Extent::new(0, 1 << 50, ExtentState::Deallocated)];
        let extents = interleave(&stripe, 0..stripe.capacity(), 0, vec![hole; 64]);
        assert_eq!(extents, [Extent::new(0, stripe.capacity(), ExtentState::Deallocated)]);
    }

    #[test]
    fn an_answer_has_a_bound() {
        let stripe = Stripe::new(Chunk::new(CHUNK).unwrap(), 2, CHUNK * 10_000).unwrap();
        let one = |state| vec![Extent::new(0, CHUNK * 10_000, state)];
        let reported = vec![one(ExtentState::Data), one(ExtentState::Deallocated)];
        let extents = interleave(&stripe, 0..stripe.capacity(), 0, reported);
        assert_eq!(extents.len(), MAX_EXTENTS);
        assert_eq!(extents.last().map(Extent::end), Some(CHUNK * MAX_EXTENTS as u64));
    }

    #[test]
    fn a_member_that_tells_nothing_holds_data() {
        let stripe = Stripe::new(Chunk::new(CHUNK).unwrap(), 2, CHUNK).unwrap();
        let extents = interleave(&stripe, 5..CHUNK, 0, vec![Vec::new(), Vec::new()]);
        assert_eq!(extents, [Extent::new(5, CHUNK - 5, ExtentState::Data)]);
    }
}

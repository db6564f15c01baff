//! Divides and joins write data, which are lists of shared pages, without a copy.

use bytes::Bytes;
use iscsi_session::Payload;

/// Returns `head`, the payload and `tail` as one payload.
pub(crate) fn enclose(head: Bytes, data: &Payload, tail: Bytes) -> Payload {
    Payload::from_pages([head].into_iter().chain(data.pages().cloned()).chain([tail]))
}

/// Divides a payload into parts, from its beginning on.
pub(crate) struct Cutter<I> {
    pages: I,
    /// The part of the current page that is left.
    rest: Bytes,
}

impl<'a, I: Iterator<Item = &'a Bytes>> Cutter<I> {
    /// Creates a cutter that begins with the first of these pages.
    pub(crate) const fn new(pages: I) -> Self {
        Self { pages, rest: Bytes::new() }
    }

    /// Returns the next part: `most` bytes (at least 1), or fewer if it is the last part; `None` after the last
    /// part.
    pub(crate) fn next(&mut self, most: usize) -> Option<Payload> {
        let (mut part, mut room) = (Vec::new(), most);
        while room > 0 {
            if self.rest.is_empty() {
                let Some(page) = self.pages.next() else { break };
                self.rest = page.clone();
            }
            let piece = self.rest.split_to(self.rest.len().min(room));
            room -= piece.len();
            part.push(piece);
        }
        (room < most).then(|| Payload::from_pages(part))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn joined(payload: &Payload) -> Vec<u8> {
        payload.pages().flatten().copied().collect()
    }

    fn parts(data: &Payload, most: usize) -> Vec<Payload> {
        let mut cutter = Cutter::new(data.pages());
        std::iter::from_fn(|| cutter.next(most)).collect()
    }

    proptest! {
        #[test]
        fn parts_make_up_the_whole(
            lens in prop::collection::vec(0usize..9, 0..9),
            most in 1usize..20,
        ) {
            let mut byte = 0u8;
            let pages = lens.iter().map(|len| {
                (0..*len).map(|_| { byte += 1; byte }).collect::<Vec<_>>().into()
            });
            let data = Payload::from_pages(pages);
            let parts = parts(&data, most);
            prop_assert_eq!(parts.iter().flat_map(joined).collect::<Vec<_>>(), joined(&data));
            let Some((last, others)) = parts.split_last() else { return Ok(()) };
            prop_assert!(others.iter().all(|part| part.len() == most));
            prop_assert!((1..=most).contains(&last.len()));
        }
    }

    #[test]
    fn pages_are_shared() {
        let page = Bytes::from(vec![7; 100]);
        let parts = parts(&enclose(Bytes::new(), &page.clone().into(), Bytes::new()), 30);
        let inside = page.as_ptr_range();
        for part in parts {
            for piece in part.pages() {
                assert!(inside.contains(&piece.as_ptr()));
            }
        }
    }
}

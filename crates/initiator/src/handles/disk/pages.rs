//! Write data as lists of shared pages: cut and put together without a copy.

use bytes::Bytes;
use iscsi_session::Payload;

/// `head`, the payload, and `tail`, one behind the other.
pub(crate) fn enclose(head: Bytes, data: &Payload, tail: Bytes) -> Payload {
    Payload::from_pages([head].into_iter().chain(data.pages().cloned()).chain([tail]))
}

/// The payload in parts of at most `most` bytes, in order; only the last is shorter.
pub(crate) fn split(data: &Payload, most: usize) -> Vec<Payload> {
    if data.len() <= most {
        return vec![data.clone()];
    }
    let mut parts = Vec::with_capacity(data.len().div_ceil(most));
    let mut part = Vec::new();
    let mut room = most;
    for page in data.pages() {
        let mut page = page.clone();
        while page.len() >= room {
            part.push(page.split_to(room));
            parts.push(Payload::from_pages(part.drain(..)));
            room = most;
        }
        room -= page.len();
        part.push(page);
    }
    if room < most {
        parts.push(Payload::from_pages(part));
    }
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn joined(payload: &Payload) -> Vec<u8> {
        payload.pages().flatten().copied().collect()
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
            let parts = split(&data, most);
            prop_assert_eq!(parts.iter().flat_map(joined).collect::<Vec<_>>(), joined(&data));
            let (last, others) = parts.split_last().unwrap();
            prop_assert!(others.iter().all(|part| part.len() == most));
            prop_assert!(last.len() <= most);
        }
    }

    #[test]
    fn pages_are_shared() {
        let page = Bytes::from(vec![7; 100]);
        let parts = split(&enclose(Bytes::new(), &page.clone().into(), Bytes::new()), 30);
        let inside = page.as_ptr_range();
        for part in parts {
            for piece in part.pages() {
                assert!(inside.contains(&piece.as_ptr()));
            }
        }
    }
}

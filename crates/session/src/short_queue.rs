//! A queue that mostly holds one element.

use std::collections::VecDeque;

/// A first-in, first-out queue. The oldest element is stored inline, so that a queue of one element needs no
/// separate memory. With 1,000 sessions in a process, separate memory would not be in the processor's cache.
#[derive(Debug)]
pub(crate) struct ShortQueue<T> {
    /// The oldest element; `None` if the queue is empty.
    first: Option<T>,
    /// The other elements, oldest first; empty if `first` is `None`.
    rest: VecDeque<T>,
}

impl<T> ShortQueue<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn push_back(&mut self, element: T) {
        if self.first.is_none() {
            self.first = Some(element);
        } else {
            self.rest.push_back(element);
        }
    }

    /// Puts an element before all others.
    pub(crate) fn push_front(&mut self, element: T) {
        if let Some(second) = self.first.replace(element) {
            self.rest.push_front(second);
        }
    }

    pub(crate) fn pop_front(&mut self) -> Option<T> {
        let popped = self.first.take();
        self.advance();
        popped
    }

    pub(crate) const fn front(&self) -> Option<&T> {
        self.first.as_ref()
    }

    pub(crate) const fn front_mut(&mut self) -> Option<&mut T> {
        self.first.as_mut()
    }

    /// Returns all elements, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.rest)
    }

    /// Removes the elements for which `is_kept` returns `false`. `is_kept` is called once for each element,
    /// oldest first.
    pub(crate) fn retain(&mut self, mut is_kept: impl FnMut(&T) -> bool) {
        self.first.take_if(|first| !is_kept(first));
        self.rest.retain(is_kept);
        self.advance();
    }

    /// Moves the next element to the first place, if the first place is empty.
    fn advance(&mut self) {
        // Elements are large, so they are moved only if necessary.
        if self.first.is_none() && !self.rest.is_empty() {
            self.first = self.rest.pop_front();
        }
    }
}

impl<T> Default for ShortQueue<T> {
    fn default() -> Self {
        Self { first: None, rest: VecDeque::new() }
    }
}

impl<T> IntoIterator for ShortQueue<T> {
    type Item = T;
    type IntoIter =
        std::iter::Chain<std::option::IntoIter<T>, std::collections::vec_deque::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.rest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The queue under test, and a queue of the standard library to which the same operations are applied.
    #[derive(Default)]
    struct Pair(ShortQueue<u8>, VecDeque<u8>);

    impl Pair {
        fn act(&mut self, act: u8, element: u8) {
            let Self(short, plain) = self;
            match act {
                0 | 1 => {
                    short.push_back(element);
                    plain.push_back(element);
                }
                2 => {
                    short.push_front(element);
                    plain.push_front(element);
                }
                3 | 4 => assert_eq!(short.pop_front(), plain.pop_front()),
                5 => {
                    short.retain(|kept| kept % 3 != element % 3);
                    plain.retain(|kept| kept % 3 != element % 3);
                }
                _ => {
                    let change = |front: &mut u8| *front = element;
                    assert_eq!(short.front_mut().map(change), plain.front_mut().map(change));
                }
            }
            assert_eq!((short.front(), short.is_empty()), (plain.front(), plain.is_empty()));
            assert!(short.iter().eq(&*plain));
        }
    }

    proptest! {
        #[test]
        fn it_does_what_a_queue_does(acts in prop::collection::vec((0..7u8, any::<u8>()), 0..60)) {
            let mut pair = Pair::default();
            acts.into_iter().for_each(|(act, element)| pair.act(act, element));
            prop_assert!(pair.0.into_iter().eq(pair.1));
        }
    }

    #[test]
    fn a_lone_element_takes_no_memory_of_its_own() {
        let mut queue = ShortQueue::default();
        for element in 0..100 {
            queue.push_back(element);
            assert_eq!(queue.pop_front(), Some(element));
        }
        assert_eq!(queue.rest.capacity(), 0);
    }
}

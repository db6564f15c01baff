//! Stores values by keys that are never used twice.

use std::collections::VecDeque;
use std::fmt;

/// Identifies a value of a [`Slab`]. After the value is removed, its key is not found, even if the place is
/// used again. So the late end of an attempt has no effect.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Key {
    place: u32,
    generation: u32,
}

impl Key {
    pub(crate) const fn place(self) -> u32 {
        self.place
    }
}

/// Stores values in places that are used again, so that a constant number of values needs no allocation. The
/// place that has been free for the longest time is used first.
#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Place<T>>,
    free: VecDeque<u32>,
}

#[derive(Clone, Debug)]
struct Place<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: VecDeque::new() }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, value: T) -> Key {
        if let Some(place) = self.free.pop_front()
            && let Some(free) = self.places.get_mut(place as usize)
        {
            free.value = Some(value);
            return Key { place, generation: free.generation };
        }
        // Memory cannot hold more than `u32::MAX` values, so the conversion does not fail.
        let place = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        self.places.push(Place { generation: 0, value: Some(value) });
        Key { place, generation: 0 }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let value = self.place_mut(key)?.value.take()?;
        self.free(key);
        Some(value)
    }

    /// Drops a value in place, without a move.
    pub(crate) fn discard(&mut self, key: Key) {
        if let Some(place) = self.place_mut(key)
            && place.value.is_some()
        {
            place.value = None;
            self.free(key);
        }
    }

    fn free(&mut self, key: Key) {
        let Some(place) = self.place_mut(key) else { return };
        place.generation = place.generation.wrapping_add(1);
        // A place whose generations are used up stays empty, so that no key occurs twice.
        if place.generation != 0 {
            self.free.push_back(key.place);
        }
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let place = self.places.get(key.place as usize)?;
        place.value.as_ref().filter(|_| place.generation == key.generation)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.place_mut(key)?.value.as_mut()
    }

    /// Returns the keys of all values, in the order of their places.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> {
        self.iter().map(|(key, _)| key)
    }

    /// Returns all values with their keys, in the order of their places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.places.iter().zip(0..).filter_map(|(place, at)| {
            Some((Key { place: at, generation: place.generation }, place.value.as_ref()?))
        })
    }

    fn place_mut(&mut self, key: Key) -> Option<&mut Place<T>> {
        let place = self.places.get_mut(key.place as usize)?;
        (place.generation == key.generation).then_some(place)
    }
}

/// Stores additional values by the keys of a [`Slab`]. Each value stays until it is removed here, or until
/// its place is used by another key.
#[derive(Clone, Debug)]
pub(crate) struct Secondary<T> {
    places: Vec<Option<(u32, T)>>,
    len: usize,
}

impl<T> Default for Secondary<T> {
    fn default() -> Self {
        Self { places: Vec::new(), len: 0 }
    }
}

impl<T> Secondary<T> {
    pub(crate) fn insert(&mut self, key: Key, value: T) {
        let at = key.place as usize;
        if at >= self.places.len() {
            self.places.resize_with(at + 1, || None);
        }
        if let Some(place) = self.places.get_mut(at) {
            self.len += usize::from(place.is_none());
            *place = Some((key.generation, value));
        }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let place = self.places.get_mut(key.place as usize)?;
        let (_, value) = place.take_if(|(generation, _)| *generation == key.generation)?;
        self.len -= 1;
        Some(value)
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let (generation, value) = self.places.get(key.place as usize)?.as_ref()?;
        (*generation == key.generation).then_some(value)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let (generation, value) = self.places.get_mut(key.place as usize)?.as_mut()?;
        (*generation == key.generation).then_some(value)
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Returns all values with their keys, in the order of their places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.places.iter().zip(0..).filter_map(|(used, place)| {
            let (generation, value) = used.as_ref()?;
            Some((Key { place, generation: *generation }, value))
        })
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.place, self.generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_finds_its_value_only() {
        let mut slab = Slab::default();
        let [first, second] = ["first", "second"].map(|value| slab.insert(value));
        assert_eq!(slab.remove(first), Some("first"));
        let third = slab.insert("third");
        assert_eq!((slab.get(first), slab.get(third)), (None, Some(&"third")));
        assert_eq!(slab.remove(first), None, "the place is used by another value");
        assert_eq!(slab.get_mut(second), Some(&mut "second"));
        assert_eq!(slab.keys().collect::<Vec<_>>(), [third, second]);
        assert_ne!(first, third);
    }

    #[test]
    fn a_steady_number_of_values_takes_a_steady_number_of_places() {
        let mut slab = Slab::default();
        let mut keys: Vec<_> = (0..4).map(|value| slab.insert(value)).collect();
        for value in 0..1000 {
            slab.remove(keys.remove(0));
            keys.push(slab.insert(value));
        }
        assert_eq!(slab.places.len(), 4);
    }

    #[test]
    fn a_secondary_value_is_of_one_key_only() {
        let (mut slab, mut secondary) = (Slab::default(), Secondary::default());
        let [first, second] = [(); 2].map(|()| slab.insert(()));
        secondary.insert(second, "second");
        assert_eq!((secondary.get(first), secondary.len()), (None, 1));
        secondary.insert(first, "first");
        slab.remove(first);
        let third = slab.insert(());
        assert_eq!((secondary.get(first), secondary.get(third)), (Some(&"first"), None));
        assert_eq!(secondary.get_mut(third), None);
        assert_eq!(secondary.remove(third), None);
        secondary.insert(third, "third");
        assert_eq!(secondary.get(first), None);
        assert_eq!((secondary.remove(first), secondary.len()), (None, 2));
        let all: Vec<_> = secondary.iter().collect();
        assert_eq!(all, [(third, &"third"), (second, &"second")]);
        assert_eq!((secondary.remove(third), secondary.len()), (Some("third"), 1));
        assert_eq!(secondary.get_mut(second), Some(&mut "second"));
    }
}

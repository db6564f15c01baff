//! Values by keys that are never used twice.

use std::fmt;

/// Identifies a value of a [`Slab`]. The key of a value that was removed finds nothing, also where the place is used again: the
/// late end of an attempt ends there.
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

/// Values in places that are used again, so that a steady number of values needs no allocation.
#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Place<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, value: T) -> Key {
        if let Some(place) = self.free.pop()
            && let Some(free) = self.places.get_mut(place as usize)
        {
            free.value = Some(value);
            return Key { place, generation: free.generation };
        }
        // More values than a u32 counts do not fit into memory.
        let place = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        self.places.push(Place { generation: 0, value: Some(value) });
        Key { place, generation: 0 }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let place = self.place_mut(key)?;
        let value = place.value.take()?;
        place.generation = place.generation.wrapping_add(1);
        // A place whose generations are used up stays empty, so that no key comes again.
        if place.generation != 0 {
            self.free.push(key.place);
        }
        Some(value)
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let place = self.places.get(key.place as usize)?;
        place.value.as_ref().filter(|_| place.generation == key.generation)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.place_mut(key)?.value.as_mut()
    }

    /// The keys of all values, in the order of their places.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> {
        let used = self.places.iter().zip(0..).filter(|(place, _)| place.value.is_some());
        used.map(|(place, at)| Key { place: at, generation: place.generation })
    }

    fn place_mut(&mut self, key: Key) -> Option<&mut Place<T>> {
        let place = self.places.get_mut(key.place as usize)?;
        (place.generation == key.generation).then_some(place)
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
}

//! One record for each path.

use smallvec::SmallVec;

use crate::ids::PathId;

/// The records of the paths, in the order of their numbers. A unit has few paths, so that a list is shorter and faster than
/// a map. Up to two lie within the unit: of many units none is in a cache when its turn comes.
#[derive(Clone, Debug)]
pub(crate) struct ByPath<T>(SmallVec<[(PathId, T); 2]>);

impl<T> ByPath<T> {
    pub(crate) fn insert(&mut self, path: PathId, record: T) {
        match self.place(path) {
            Ok(at) => {
                if let Some(entry) = self.0.get_mut(at) {
                    entry.1 = record;
                }
            }
            Err(at) => self.0.insert(at, (path, record)),
        }
    }

    pub(crate) fn remove(&mut self, path: PathId) {
        if let Ok(at) = self.place(path) {
            self.0.remove(at);
        }
    }

    pub(crate) fn get(&self, path: PathId) -> Option<&T> {
        let at = self.place(path).ok()?;
        self.0.get(at).map(|(_, record)| record)
    }

    pub(crate) fn get_mut(&mut self, path: PathId) -> Option<&mut T> {
        let at = self.place(path).ok()?;
        self.0.get_mut(at).map(|(_, record)| record)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, record)| record)
    }

    fn place(&self, path: PathId) -> Result<usize, usize> {
        // Mostly there is one, and then nothing is searched.
        match self.0.as_slice() {
            [(only, _)] if *only == path => Ok(0),
            records => records.binary_search_by_key(&path, |(id, _)| *id),
        }
    }
}

impl<T> Default for ByPath<T> {
    fn default() -> Self {
        Self(SmallVec::new())
    }
}

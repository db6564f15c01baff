//! One record for each path.

use smallvec::SmallVec;

use crate::ids::PathId;

/// The records of the paths, in the order of their numbers. A unit has few paths, so a list is smaller and
/// faster than a map. Up to two records are stored in the unit itself, because with many units, each access
/// to a separate allocation would be a cache miss.
#[derive(Clone, Debug)]
pub(crate) struct ByPath<T>(SmallVec<[(PathId, T); 2]>);

impl<T> ByPath<T> {
    pub(crate) fn insert(&mut self, path: PathId, record: T) {
        match place(&self.0, path) {
            Ok(at) => {
                if let Some(entry) = self.0.get_mut(at) {
                    entry.1 = record;
                }
            }
            Err(at) => self.0.insert(at, (path, record)),
        }
    }

    pub(crate) fn remove(&mut self, path: PathId) {
        if let Ok(at) = place(&self.0, path) {
            self.0.remove(at);
        }
    }

    pub(crate) fn get(&self, path: PathId) -> Option<&T> {
        // Most units have one path, which needs no search.
        match self.0.as_slice() {
            [(only, record)] if *only == path => Some(record),
            records => records.get(place(records, path).ok()?).map(|(_, record)| record),
        }
    }

    pub(crate) fn get_mut(&mut self, path: PathId) -> Option<&mut T> {
        let records = self.0.as_mut_slice();
        let at = match records {
            [(only, _)] if *only == path => 0,
            _ => place(records, path).ok()?,
        };
        records.get_mut(at).map(|(_, record)| record)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, record)| record)
    }
}

fn place<T>(records: &[(PathId, T)], path: PathId) -> Result<usize, usize> {
    records.binary_search_by_key(&path, |(id, _)| *id)
}

impl<T> Default for ByPath<T> {
    fn default() -> Self {
        Self(SmallVec::new())
    }
}

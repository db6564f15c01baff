//! Finds circles between files, and floors: the height of each file above the files that use no other file.

use std::collections::{BTreeMap, BTreeSet};

use crate::modules::Arrow;

/// The files of a crate, and which files each of them uses.
#[derive(Debug)]
pub(crate) struct Graph<'a> {
    below: BTreeMap<&'a str, BTreeSet<&'a str>>,
}

impl<'a> Graph<'a> {
    pub(crate) fn new(files: &'a BTreeSet<String>, arrows: &'a BTreeSet<Arrow>) -> Self {
        let mut below: BTreeMap<_, BTreeSet<_>> =
            files.iter().map(|file| (file.as_str(), BTreeSet::new())).collect();
        for arrow in arrows {
            below.entry(&arrow.from).or_default().insert(arrow.to.as_str());
        }
        Self { below }
    }

    /// Returns the circles: sets of files of which each leads to all others.
    pub(crate) fn circles(&self) -> Vec<BTreeSet<&'a str>> {
        let reach: BTreeMap<_, _> =
            self.below.keys().map(|file| (*file, self.reach(file))).collect();
        let mut circles = BTreeSet::new();
        for (file, reached) in &reach {
            if reached.contains(file) {
                let together = reached.iter().filter(|other| reach[*other].contains(file));
                circles.insert(together.copied().collect::<BTreeSet<_>>());
            }
        }
        circles.into_iter().collect()
    }

    /// Returns the floor of each file: one above the highest floor that the file uses. The files of a circle
    /// have the same floor.
    pub(crate) fn floors(&self) -> BTreeMap<&'a str, usize> {
        let circles = self.circles();
        let mut floors: BTreeMap<&str, usize> = self.below.keys().map(|file| (*file, 0)).collect();
        // The longest path down visits each file at most once, so this number of rounds is enough.
        for _ in 0..self.below.len() {
            for (file, below) in &self.below {
                let circle = circles.iter().find(|circle| circle.contains(file));
                let apart = |other: &&&str| !circle.is_some_and(|circle| circle.contains(**other));
                let lowest = below.iter().filter(apart).map(|other| floors[other] + 1).max();
                let together = circle.into_iter().flatten().map(|other| floors[other]).max();
                floors.insert(file, floors[file].max(lowest.max(together).unwrap_or(0)));
            }
        }
        floors
    }

    /// Returns all files to which arrows lead from a file.
    fn reach(&self, from: &str) -> BTreeSet<&'a str> {
        let mut reached = BTreeSet::new();
        let mut next: Vec<&str> = self.below[from].iter().copied().collect();
        while let Some(file) = next.pop() {
            if reached.insert(file) {
                next.extend(self.below[file].iter().copied());
            }
        }
        reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrows(pairs: &[(&str, &str)]) -> (BTreeSet<String>, BTreeSet<Arrow>) {
        let arrow = |(from, to): &(&str, &str)| Arrow {
            from: (*from).to_owned(),
            to: (*to).to_owned(),
            name: String::new(),
            line: 1,
        };
        let files = pairs.iter().flat_map(|(from, to)| [(*from).to_owned(), (*to).to_owned()]);
        (files.collect(), pairs.iter().map(arrow).collect())
    }

    #[test]
    fn a_circle_is_found_whole_and_what_leads_to_it_is_not_in_it() {
        let (files, arrows) = arrows(&[
            ("top", "a"),
            ("a", "b"),
            ("b", "c"),
            ("c", "a"),
            ("c", "low"),
            ("x", "y"),
            ("y", "x"),
        ]);
        let circles = Graph::new(&files, &arrows).circles();
        assert_eq!(circles, [BTreeSet::from(["a", "b", "c"]), BTreeSet::from(["x", "y"])]);
    }

    #[test]
    fn a_house_without_circles_has_none() {
        let (files, arrows) = arrows(&[("a", "b"), ("a", "c"), ("b", "c")]);
        assert!(Graph::new(&files, &arrows).circles().is_empty());
    }

    #[test]
    fn a_floor_is_the_longest_way_down() {
        let (files, arrows) =
            arrows(&[("a", "b"), ("a", "c"), ("b", "c"), ("d", "e"), ("e", "d"), ("d", "b")]);
        let floors = Graph::new(&files, &arrows).floors();
        assert_eq!(floors, BTreeMap::from([("a", 2), ("b", 1), ("c", 0), ("d", 2), ("e", 2)]));
    }
}

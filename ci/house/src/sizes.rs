//! Limits the sizes of types: the methods of a type are in few files, and a struct has few fields.

use std::collections::BTreeMap;

use crate::exceptions::{Entry, Exception, What};
use crate::modules::Type;

/// Largest number of files with methods of one type.
const MOST_FILES: usize = 3;
/// Largest number of fields of one struct.
const MOST_FIELDS: usize = 12;
/// File of the exceptions.
const LIST: &str = "ci/house/src/exceptions.rs";

/// A type that exceeds a limit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Large {
    pub(crate) file: String,
    pub(crate) name: String,
    pub(crate) what: What,
    pub(crate) count: usize,
}

/// Returns the types of a crate that exceed a limit.
pub(crate) fn large(types: &BTreeMap<(String, String), Type>) -> Vec<Large> {
    let counts = |((file, name), of): (&(String, String), &Type)| {
        let large = |what, count, most| {
            (count > most).then(|| Large { file: file.clone(), name: name.clone(), what, count })
        };
        [
            large(What::Files, of.files.len(), MOST_FILES),
            large(What::Fields, of.fields, MOST_FIELDS),
        ]
    };
    types.iter().flat_map(counts).flatten().collect()
}

/// Returns the entry of a type, with the reason why it may be large.
pub(crate) fn entry<'a>(
    folder: &str,
    large: &Large,
    exceptions: &'a [Exception],
) -> Option<(&'a Entry, &'a str)> {
    let entries = exceptions
        .iter()
        .flat_map(|Exception { reason, types }| types.iter().map(move |entry| (entry, *reason)));
    entries.into_iter().find(|(entry, _)| fits(folder, large, entry))
}

fn fits(folder: &str, large: &Large, (path, name, what, _): &Entry) -> bool {
    let file = path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
    file == Some(&large.file) && *name == large.name && *what == large.what
}

/// Returns what is wrong with the large types of the crate in `folder`: types that no exception lists, and
/// exceptions with another count. So each exception shrinks with its type, and is removed with it.
pub(crate) fn complaints(folder: &str, large: &[Large], exceptions: &[Exception]) -> Vec<String> {
    let wrong = |large: &Large| {
        let Large { file, name, what, count } = large;
        let listed = entry(folder, large, exceptions).map(|((.., listed), _)| *listed);
        let what_to_do = match listed {
            None => "is it one noun?".to_owned(),
            Some(listed) if listed < *count => format!("more than the {listed} of {LIST}"),
            Some(listed) if listed > *count => format!("lower the {listed} in {LIST}"),
            Some(_) => return None,
        };
        Some(format!("{folder}/{file}: {name} has {}: {what_to_do}", measured(*what, *count)))
    };
    let is_idle = |listed: &&Entry| {
        let is_here = listed.0.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        is_here && !large.iter().any(|large| fits(folder, large, listed))
    };
    let listed = exceptions.iter().flat_map(|exception| exception.types);
    let idle = listed.filter(is_idle);
    let idle = idle.map(|(path, name, ..)| format!("{path}: {name} needs no exception in {LIST}"));
    large.iter().filter_map(wrong).chain(idle).collect()
}

fn measured(what: What, count: usize) -> String {
    match what {
        What::Files => format!("its methods in {count} files (at most {MOST_FILES})"),
        What::Fields => format!("{count} fields (at most {MOST_FIELDS})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types_with(fields: usize) -> BTreeMap<(String, String), Type> {
        let a = Type { fields, files: ["a.rs".to_owned()].into() };
        [(("a.rs".to_owned(), "A".to_owned()), a)].into()
    }

    #[test]
    fn a_type_is_large_above_a_limit() {
        assert!(large(&types_with(12)).is_empty());
        assert_eq!(large(&types_with(13)).len(), 1);
        let files = ["a", "b", "c", "d"].map(str::to_owned).into();
        let spread = [(("a".to_owned(), "A".to_owned()), Type { fields: 0, files })].into();
        assert_eq!(large(&spread)[0].what, What::Files);
    }

    #[test]
    fn an_exception_allows_its_count_and_shrinks_with_the_type() {
        let complaint = |fields, types| {
            let exceptions = [Exception { reason: "it is one", types }];
            complaints("lab", &large(&types_with(fields)), &exceptions).join("\n")
        };
        assert_eq!(complaint(14, &[]), "lab/a.rs: A has 14 fields (at most 12): is it one noun?");
        assert_eq!(complaint(14, &[("lab/a.rs", "A", What::Fields, 14)]), "");
        assert!(complaint(14, &[("lab/a.rs", "A", What::Fields, 13)]).contains("more than the 13"));
        assert!(complaint(14, &[("lab/a.rs", "A", What::Fields, 15)]).contains("lower the 15"));
        assert!(complaint(12, &[("lab/a.rs", "A", What::Fields, 13)]).contains("no exception"));
        assert!(complaint(14, &[("lab/b.rs", "A", What::Fields, 14)]).contains("is it one noun"));
        assert_eq!(complaint(12, &[("labs/a.rs", "A", What::Fields, 13)]), "");
    }

    #[test]
    fn the_files_of_the_exceptions_are_there() {
        let project = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (path, ..) in crate::exceptions::EXCEPTIONS.iter().flat_map(|exception| exception.types)
        {
            assert!(project.join(path).is_file(), "{path} is not there");
        }
    }
}

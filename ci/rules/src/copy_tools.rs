//! Checks the table of copy tools, `docs/copy-tools.md`: each statement about our own tool needs an existing test.

use std::collections::BTreeSet;

/// The column of our own tool.
const OWN: &str = "block-copy";

/// Tests, by file and name.
pub(crate) type Tests = BTreeSet<(String, String)>;

/// Returns everything that is wrong with the page, as sentences.
pub(crate) fn complaints(page: &str, tests: &Tests) -> Vec<String> {
    let mut complaints = vec![];
    let (mut column, mut rows): (Option<usize>, _) = (None, 0);
    for line in page.lines() {
        let links = links(line);
        complaints.extend(links.iter().filter_map(|link| link.complaint(tests)));
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if !line.starts_with('|') {
            column = None;
        } else if let Some(at) = column {
            let answer = cells.get(at).copied().unwrap_or_default();
            if answer.starts_with("---") {
                continue;
            }
            rows += 1;
            let feature = cells.get(1).copied().unwrap_or_default();
            match answer {
                "y" | "p" if links.is_empty() => {
                    complaints.push(format!("{feature}: no test is named for the answer {answer}"));
                }
                "y" | "p" | "-" => {}
                _ => complaints.push(format!("{feature}: the answer is none of y, p and -")),
            }
        } else {
            column = cells.iter().position(|cell| *cell == OWN);
        }
    }
    if rows == 0 {
        complaints.push(format!("there is no table with a column {OWN}"));
    }
    complaints
}

/// A link to a test: `[FILE::NAME](../PATH)`.
struct Link<'a> {
    file: &'a str,
    name: &'a str,
    path: &'a str,
}

impl Link<'_> {
    fn complaint(&self, tests: &Tests) -> Option<String> {
        let Link { file, name, path } = self;
        let is_there = tests.contains(&((*path).to_owned(), (*name).to_owned()));
        let is_of_file = path.rsplit('/').next() == Some(file);
        (!is_there || !is_of_file).then(|| format!("{file}::{name} is no test of {path}"))
    }
}

/// Returns the links to tests in a line.
fn links(line: &str) -> Vec<Link<'_>> {
    let parts = line.split('[').skip(1);
    let link = |part: &str| -> Option<(usize, usize, usize)> {
        let (colons, middle) = (part.find("::")?, part.find("](../")?);
        (colons < middle).then_some((colons, middle, part.find(')')?))
    };
    let found = parts.filter_map(|part| {
        let (colons, middle, end) = link(part)?;
        let (file, name) = (part.get(..colons)?, part.get(colons + 2..middle)?);
        Some(Link { file, name, path: part.get(middle + "](../".len()..end)? })
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "Words.\n\n| feature | other | block-copy | tests |\n|---|---|---|---|\n";

    fn complaints_about(rows: &str) -> Vec<String> {
        let test = |file: &str, name: &str| (file.to_owned(), name.to_owned());
        let tests = [test("crates/a/tests/b.rs", "one"), test("crates/a/tests/b.rs", "two")];
        complaints(&format!("{HEAD}{rows}"), &tests.into())
    }

    #[test]
    fn a_yes_needs_a_test_that_is_there() {
        let one = "[b.rs::one](../crates/a/tests/b.rs)";
        let two = "[b.rs::two](../crates/a/tests/b.rs)";
        assert_eq!(
            complaints_about(&format!("| x | y | y | {one}, {two} |\n| z | y | - | |\n")),
            [""; 0]
        );
        assert_eq!(complaints_about("| x | - | y | |\n"), ["x: no test is named for the answer y"]);
        assert_eq!(
            complaints_about("| x | - | p | b.rs |\n"),
            ["x: no test is named for the answer p"]
        );
        assert_eq!(
            complaints_about("| x | y | yes | |\n"),
            ["x: the answer is none of y, p and -"]
        );
        assert_eq!(complaints_about("| x | y |\n"), ["x: the answer is none of y, p and -"]);
    }

    #[test]
    fn a_test_that_is_not_there_is_told() {
        for (link, why) in [
            (
                "[b.rs::three](../crates/a/tests/b.rs)",
                "b.rs::three is no test of crates/a/tests/b.rs",
            ),
            ("[b.rs::one](../crates/a/tests/c.rs)", "b.rs::one is no test of crates/a/tests/c.rs"),
            ("[c.rs::one](../crates/a/tests/b.rs)", "c.rs::one is no test of crates/a/tests/b.rs"),
        ] {
            assert_eq!(complaints_about(&format!("| x | - | y | {link} |\n")), [why]);
            assert_eq!(complaints_about(&format!("| x | - | - | |\n\nAs {link} shows.\n")), [why]);
        }
    }

    #[test]
    fn a_page_without_the_table_is_told() {
        assert_eq!(
            complaints("Words.\n", &Tests::new()),
            ["there is no table with a column block-copy"]
        );
        assert_eq!(complaints_about(""), ["there is no table with a column block-copy"]);
    }
}

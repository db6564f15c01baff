//! Makes the table of rules and tests, and finds its errors.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::list::{List, Rule};
use crate::named::Named;
use crate::source::Test;

/// The tests of each rule.
#[derive(Debug)]
pub(crate) struct Page<'a> {
    list: &'a List,
    /// Files and names of tests, by the id of the rule.
    holders: BTreeMap<String, BTreeSet<(String, String)>>,
    /// Complaints about ids that tests name and the list lacks.
    unknown: Vec<String>,
}

const HEAD: &str = "# Rules and the tests that hold them

Written by `cargo run -p rules -- --write` from [rules.txt](rules.txt) and from what the tests name in their own names, doc
comments and strings; not to be changed by hand.

`SEQ-01` and the like are rules of RFC 7143 and RFC 7144, of care for data, or peculiarities of targets to live with; `UNH` is
an item of the test suites of UNH-IOL for initiators (FFP: full feature phase). What `checker.rs` names, the checker of the test
target watches in every scenario. Levels: M must, N must not, S should, Z should not, m may, E no rule of the standard but good
engineering.
";

impl<'a> Page<'a> {
    pub(crate) fn new(list: &'a List) -> Self {
        Self { list, holders: BTreeMap::new(), unknown: vec![] }
    }

    /// Adds the tests of a file.
    pub(crate) fn add(&mut self, file: &str, tests: &[Test]) {
        for test in tests {
            let mut named = Named::default();
            named.read(&test.text, self.list);
            for id in named.known {
                let holder = (file.to_owned(), test.name.clone());
                self.holders.entry(id).or_default().insert(holder);
            }
            let unknown = named.unknown.into_iter();
            self.unknown.extend(
                unknown.map(|id| {
                    format!("{file}: {} names {id}, which docs/rules.txt lacks", test.name)
                }),
            );
        }
    }

    /// Returns everything that is wrong with the rules and their tests, as sentences.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let of_rules = self.list.rules.iter().filter_map(|rule| {
            match (self.holders.get(&rule.id), &rule.untested) {
                (None, None) => Some(format!(
                    "{}: no test names it, and docs/rules.txt does not say why",
                    rule.id
                )),
                (Some(_), Some(_)) => Some(format!(
                    "{}: tests name it, and docs/rules.txt says why there is none",
                    rule.id
                )),
                (Some(_), None) | (None, Some(_)) => None,
            }
        });
        self.unknown.iter().cloned().chain(of_rules).collect()
    }

    /// Returns the table as a page in Markdown, for the folder `docs/`.
    pub(crate) fn markdown(&self) -> String {
        let mut page = HEAD.to_owned();
        let mut section = "";
        for rule in &self.list.rules {
            if rule.section != section {
                section = &rule.section;
                let _ = write!(
                    page,
                    "\n## {section}\n\n| id | level | rule | tests |\n|---|---|---|---|\n"
                );
            }
            let Rule { id, level, text, .. } = rule;
            let _ = writeln!(page, "| {id} | {level} | {text} | {} |", self.tests(rule));
        }
        page
    }

    fn tests(&self, rule: &Rule) -> String {
        let holders = self.holders.get(&rule.id).into_iter().flatten();
        let links = holders.map(|(file, name)| {
            let short = file.rsplit('/').next().unwrap_or(file);
            format!("[{short}::{name}](../{file})")
        });
        let none = rule.untested.iter().map(|why| format!("none: {why}"));
        links.chain(none).collect::<Vec<_>>().join("<br>")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> List {
        List::read("[One]\nSEQ-01 | M | First.\nSEQ-02 | m | Second. | Not offered.\n[Two]\nNOP-01 | E | Third.").unwrap()
    }

    fn test(name: &str, text: &str) -> Test {
        Test { name: name.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_row_has_all_tests_or_the_reason_for_none() {
        let list = list();
        let mut page = Page::new(&list);
        page.add("crates/a/tests/b.rs", &[test("two", "SEQ-01"), test("one", "NOP-01 and SEQ-01")]);
        assert_eq!(page.complaints(), [""; 0]);
        let rows = "
## One

| id | level | rule | tests |
|---|---|---|---|
| SEQ-01 | M | First. | [b.rs::one](../crates/a/tests/b.rs)<br>[b.rs::two](../crates/a/tests/b.rs) |
| SEQ-02 | m | Second. | none: Not offered. |

## Two

| id | level | rule | tests |
|---|---|---|---|
| NOP-01 | E | Third. | [b.rs::one](../crates/a/tests/b.rs) |
";
        assert_eq!(page.markdown(), HEAD.to_owned() + rows);
    }

    #[test]
    fn rules_without_a_test_and_reasons_without_need_are_told() {
        let list = list();
        let mut page = Page::new(&list);
        page.add("b.rs", &[test("one", "SEQ-01, SEQ-02, SEQ-03")]);
        assert_eq!(
            page.complaints(),
            [
                "b.rs: one names SEQ-03, which docs/rules.txt lacks",
                "SEQ-02: tests name it, and docs/rules.txt says why there is none",
                "NOP-01: no test names it, and docs/rules.txt does not say why",
            ]
        );
    }
}

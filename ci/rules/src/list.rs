//! Parses the list of rules, `docs/rules.txt`.

use std::collections::BTreeSet;

/// The rules in the order of the file.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) rules: Vec<Rule>,
}

/// A line of the list: `id | level | text`. If the rule has no test, a further bar and the reason follow.
#[derive(Debug, PartialEq)]
pub(crate) struct Rule {
    /// The heading above the rule.
    pub(crate) section: String,
    pub(crate) id: String,
    pub(crate) level: String,
    pub(crate) text: String,
    pub(crate) untested: Option<String>,
}

/// Valid levels of a rule.
const LEVELS: [&str; 6] = ["M", "N", "S", "Z", "m", "E"];

impl List {
    /// Parses the list.
    ///
    /// # Errors
    /// A line that is no comment, heading or rule, or an id that occurs twice.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let mut section = String::new();
        let mut rules: Vec<Rule> = vec![];
        let mut ids = BTreeSet::new();
        for (number, line) in (1..).zip(text.lines()) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(heading) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                heading.clone_into(&mut section);
                continue;
            }
            let rule = Rule::read(line, &section)
                .ok_or_else(|| format!("line {number} is no rule: {line}"))?;
            if !ids.insert(rule.id.clone()) {
                return Err(format!("line {number}: {} comes twice", rule.id));
            }
            rules.push(rule);
        }
        Ok(Self { rules })
    }

    /// Returns the position of an id in the list.
    pub(crate) fn position(&self, id: &str) -> Option<usize> {
        self.rules.iter().position(|rule| rule.id == id)
    }

    /// Returns the ids from `first` to `last`, which are of the same family, both included.
    pub(crate) fn between(&self, first: &str, last: &str) -> Option<Vec<&str>> {
        let (from, to) = (self.position(first)?, self.position(last)?);
        let between = self.rules.get(from..=to)?;
        let whole =
            !between.is_empty() && between.iter().all(|rule| family(&rule.id) == family(first));
        whole.then(|| between.iter().map(|rule| rule.id.as_str()).collect())
    }

    /// Returns whether a word has the form of an id of a family that the list has.
    pub(crate) fn is_family(&self, id: &str) -> bool {
        self.rules.iter().any(|rule| family(&rule.id) == family(id))
    }
}

impl Rule {
    fn read(line: &str, section: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split(" | ").map(str::trim).collect();
        let (id, level, text, untested) = match fields.as_slice() {
            [id, level, text] => (id, level, text, None),
            [id, level, text, untested] => (id, level, text, Some(*untested)),
            _ => return None,
        };
        let whole = !id.is_empty() && !text.is_empty() && untested != Some("");
        (whole && LEVELS.contains(level)).then(|| Self {
            section: section.to_owned(),
            id: (*id).to_owned(),
            level: (*level).to_owned(),
            text: (*text).to_owned(),
            untested: untested.map(str::to_owned),
        })
    }
}

/// Returns an id without its number: `SEQ` of `SEQ-01`, `UNH CHAP` of `UNH CHAP 2.1`.
fn family(id: &str) -> &str {
    id.rfind(['-', ' ']).and_then(|end| id.get(..end)).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_have_the_heading_above_them() {
        let text = "# Comment.\n\n[One]\nA-01 | M | First.\n[Two]\nB-01 | m | Second. | Why not.\n";
        let rules = List::read(text).unwrap().rules;
        let told: Vec<_> = rules
            .iter()
            .map(|rule| (&*rule.section, &*rule.id, &*rule.level, rule.untested.as_deref()))
            .collect();
        assert_eq!(told, [("One", "A-01", "M", None), ("Two", "B-01", "m", Some("Why not."))]);
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for line in
            ["A-01 | M", "A-01 | X | Text.", "A-01 | M | Text. | ", "A-01", "A-01 | M |  | b"]
        {
            assert!(List::read(line).unwrap_err().starts_with("line 1 is no rule"), "{line}");
        }
        let twice = List::read("A-01 | M | Text.\nA-01 | M | Text.").unwrap_err();
        assert_eq!(twice, "line 2: A-01 comes twice");
    }

    #[test]
    fn a_range_stays_within_its_family() {
        let list = List::read("A-01 | M | T\nA-02 | M | T\nA-03 | M | T\nB-01 | M | T").unwrap();
        assert_eq!(list.between("A-01", "A-03").unwrap(), ["A-01", "A-02", "A-03"]);
        for (first, last) in
            [("A-02", "A-01"), ("A-01", "B-01"), ("A-01", "A-04"), ("C-01", "A-01")]
        {
            assert_eq!(list.between(first, last), None, "{first} to {last}");
        }
    }
}

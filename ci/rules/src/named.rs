//! Finds the rules that a text names: `SEQ-01`, `DIG-01..03`, `KEY-14 to KEY-18`, `UNH login 6.1 to 6.3, 7.6`.

use std::collections::BTreeSet;

use crate::list::List;

/// The ids in a text.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Named {
    pub(crate) known: BTreeSet<String>,
    /// Ids of the right form that the list of rules lacks, and invalid ranges.
    pub(crate) unknown: BTreeSet<String>,
}

/// The test suites of UNH-IOL. Their numbers overlap.
const SUITES: [&str; 3] = ["FFP", "login", "CHAP"];

impl Named {
    /// Adds the ids that `text` names.
    pub(crate) fn read(&mut self, text: &str, list: &List) {
        let mut reader = Reader { list, named: self, suite: None, last: None, range: false };
        let mut words = text.split_whitespace().peekable();
        while let Some(word) = words.next() {
            let bare = trimmed(word);
            if bare == "UNH" {
                let suite = words.next_if(|next| SUITES.contains(next));
                if let Some(number) =
                    words.next_if(|next| suite.is_none() && is_number(trimmed(next)))
                {
                    reader.named.unknown.insert(format!("UNH {}", trimmed(number)));
                }
                reader.begin(suite);
            } else if let Some((first, last)) = bare.split_once("..") {
                reader.word(first);
                reader.range = true;
                let family = first.rfind('-').and_then(|end| first.get(..=end)).unwrap_or_default();
                let is_number = last.starts_with(|first: char| first.is_ascii_digit());
                reader.word(&if is_number { format!("{family}{last}") } else { last.to_owned() });
            } else {
                reader.word(bare);
            }
            if word.ends_with([':', ';']) {
                reader.begin(None);
            }
        }
    }
}

/// The state of parsing a text.
struct Reader<'a> {
    list: &'a List,
    named: &'a mut Named,
    /// The test suite that numbers without a suite's name belong to.
    suite: Option<&'a str>,
    /// The id just read. A range may begin with it.
    last: Option<String>,
    /// Whether the next id is the end of a range.
    range: bool,
}

impl<'a> Reader<'a> {
    /// Forgets the last id, and sets the suite of the numbers that follow. `None` for numbers that belong to
    /// no suite.
    fn begin(&mut self, suite: Option<&'a str>) {
        self.suite = suite;
        self.last = None;
        self.range = false;
    }

    fn word(&mut self, word: &str) {
        let id = match self.suite {
            Some(suite) if is_number(word) => Some(format!("UNH {suite} {word}")),
            _ if is_id(word) && self.list.is_family(word) => {
                self.suite = None;
                Some(word.to_owned())
            }
            _ => None,
        };
        match id {
            Some(id) => self.id(id),
            None if word == "to" && self.last.is_some() => self.range = true,
            None if word == "and" => {}
            None => self.begin(None),
        }
    }

    fn id(&mut self, id: String) {
        let range = std::mem::take(&mut self.range);
        if let Some(first) = self.last.as_ref().filter(|_| range) {
            match self.list.between(first, &id) {
                Some(ids) => self.named.known.extend(ids.into_iter().map(str::to_owned)),
                None => _ = self.named.unknown.insert(format!("{first} to {id}")),
            }
        } else if self.list.position(&id).is_some() {
            self.named.known.insert(id.clone());
        } else {
            self.named.unknown.insert(id.clone());
        }
        self.last = Some(id);
    }
}

/// Returns a word without the punctuation around it.
fn trimmed(word: &str) -> &str {
    word.trim_matches(|character: char| !character.is_ascii_alphanumeric())
}

/// Returns whether a word is a number of a suite: `16.4.1`.
fn is_number(word: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    word.contains('.') && word.split('.').all(digits)
}

/// Returns whether a word is a family in capitals and a number of two digits: `SEQ-01`, `MC-I-08`.
fn is_id(word: &str) -> bool {
    let Some((family, number)) = word.rsplit_once('-') else { return false };
    let is_capital = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'-';
    number.len() == 2
        && number.bytes().all(|byte| byte.is_ascii_digit())
        && family.bytes().all(is_capital)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> List {
        let ids = [
            "SEQ-01",
            "SEQ-02",
            "SEQ-03",
            "DIG-01",
            "DIG-02",
            "DIG-03",
            "MC-I-08",
            "UNH FFP 1.1",
            "UNH login 1.1",
            "UNH login 6.1",
            "UNH login 6.2",
            "UNH login 6.3",
            "UNH CHAP 3.6.1",
        ];
        List::read(&ids.map(|id| format!("{id} | M | Text.\n")).concat()).unwrap()
    }

    /// Returns the known ids in `text`, then a bar, then the unknown ids.
    fn named(text: &str) -> String {
        let mut named = Named::default();
        named.read(text, &list());
        let join = |ids: BTreeSet<String>| ids.into_iter().collect::<Vec<_>>().join(", ");
        format!("{} | {}", join(named.known), join(named.unknown))
    }

    #[test]
    fn ids_and_lists_and_ranges_of_them() {
        assert_eq!(named("SEQ-01: text."), "SEQ-01 | ");
        assert_eq!(named("as (SEQ-01, MC-I-08) and SEQ-03."), "MC-I-08, SEQ-01, SEQ-03 | ");
        assert_eq!(
            named("DIG-01..03, SEQ-01 to SEQ-02"),
            "DIG-01, DIG-02, DIG-03, SEQ-01, SEQ-02 | "
        );
        assert_eq!(named("DIG-01..DIG-02"), "DIG-01, DIG-02 | ");
        assert_eq!(named("from SEQ-01 on to SEQ-03"), "SEQ-01, SEQ-03 | ");
    }

    #[test]
    fn numbers_belong_to_the_suite_before_them() {
        assert_eq!(named("UNH FFP 1.1: 6.1 is no item of it"), "UNH FFP 1.1 | ");
        assert_eq!(
            named("UNH login 1.1, 6.1 to 6.3, SEQ-01, 1.1"),
            "SEQ-01, UNH login 1.1, UNH login 6.1, UNH login 6.2, UNH login 6.3 | "
        );
        assert_eq!(named("UNH CHAP 3.6.1 and UNH login 6.2"), "UNH CHAP 3.6.1, UNH login 6.2 | ");
        assert_eq!(named("1.1 alone, UNH login 6.x"), " | ");
    }

    #[test]
    fn ids_that_nobody_knows_are_told() {
        assert_eq!(named("SEQ-04, SHA-256, XYZ-01, EUI-64, UNH FFP 6.1"), " | SEQ-04, UNH FFP 6.1");
        assert_eq!(named("UNH 1.1, without its suite"), " | UNH 1.1");
        assert_eq!(named("SEQ-03 to SEQ-01"), "SEQ-03 | SEQ-03 to SEQ-01");
        assert_eq!(named("SEQ-01 to DIG-02"), "SEQ-01 | SEQ-01 to DIG-02");
    }
}

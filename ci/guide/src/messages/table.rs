//! A table of the page: the errors of one type.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug, Display};

use super::source::{self, Variant};

/// Text in place of an advice if there is none.
const NO_ADVICE: &str = "The message says all that is known.";

/// A message with its cause and its advice.
#[derive(Clone, Debug)]
pub struct Row {
    variant: String,
    fact: String,
    advice: Option<String>,
}

impl Row {
    /// Returns the row of an error, whose debug output shows the variant.
    pub fn new(error: &(impl Debug + Display), advice: Option<impl Display>) -> Self {
        Self::of(error, error, advice)
    }

    /// Returns the row of `error`, whose variant is shown by the debug output of `cause`.
    pub fn of(cause: &impl Debug, error: &impl Display, advice: Option<impl Display>) -> Self {
        let shown = format!("{cause:?}");
        let name = shown.split(|c: char| !c.is_alphanumeric()).next();
        let advice = advice.map(|advice| advice.to_string());
        Self { variant: name.unwrap_or_default().to_owned(), fact: error.to_string(), advice }
    }
}

/// The messages of one type of errors.
#[derive(Clone, Debug)]
pub struct Table {
    heading: &'static str,
    variants: Vec<(&'static str, Variant)>,
    rows: Vec<Row>,
    elsewhere: &'static [&'static str],
}

impl Table {
    /// Makes the table of the type `name`, which the source file `text` defines.
    pub fn new(heading: &'static str, (name, text): (&'static str, &str), rows: Vec<Row>) -> Self {
        Self { heading, variants: Vec::new(), rows, elsewhere: &[] }.and((name, text))
    }

    /// Adds the variants of a further type `name`, which the source file `text` defines.
    #[must_use]
    pub fn and(mut self, (name, text): (&'static str, &str)) -> Self {
        let more = source::variants(text, name).into_iter().map(|variant| (name, variant));
        self.variants.extend(more);
        self
    }

    /// Sets the variants that have no row, since they show the errors of another table.
    #[must_use]
    pub fn elsewhere(self, elsewhere: &'static [&'static str]) -> Self {
        Self { elsewhere, ..self }
    }

    /// Returns the missing and the superfluous rows.
    pub fn complaints(&self) -> Vec<String> {
        let known: BTreeMap<_, _> =
            self.variants.iter().map(|(name, variant)| (variant.name.as_str(), *name)).collect();
        let rows = self.rows.iter().map(|row| row.variant.as_str());
        let shown: BTreeSet<_> = rows.chain(self.elsewhere.iter().copied()).collect();
        let missing = known.iter().filter(|(variant, _)| !shown.contains(*variant));
        let missing = missing.map(|(variant, name)| {
            format!("{name}::{variant} has no row: add an example of it to ci/guide/src/messages")
        });
        let strange = shown.iter().filter(|variant| !known.contains_key(*variant));
        let heading = self.heading;
        missing
            .chain(strange.map(|row| format!("\"{heading}\" has a row of no variant: {row}")))
            .collect()
    }

    fn cause(&self, row: &Row) -> &str {
        let variant = self.variants.iter().find(|(_, variant)| variant.name == row.variant);
        variant.map_or("", |(_, variant)| &variant.cause)
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## {}\n\n| message | cause | what to do |\n|---|---|---|", self.heading)?;
        for row in &self.rows {
            let advice = row.advice.as_deref().map_or_else(|| NO_ADVICE.to_owned(), sentence);
            writeln!(
                f,
                "| `{}` | {} | {} |",
                cell(&row.fact),
                cell(self.cause(row)),
                cell(&advice)
            )?;
        }
        Ok(())
    }
}

/// Returns the text of a cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

/// Returns a part of a sentence as a whole sentence.
fn sentence(part: &str) -> String {
    let mut rest = part.chars();
    let is_command = part.starts_with("iscsi-util") || part.starts_with("redirects=");
    match rest.next() {
        Some(first) if !is_command => format!("{}{}.", first.to_uppercase(), rest.as_str()),
        _ => format!("{part}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Sample {
        #[error("one")]
        One,
        #[error("two of {0} | <x>")]
        Two(u8),
    }

    const SOURCE: &str = "/// Why.\npub enum Sample {\n/// First. More.\nOne,\n/// The\n/// [`second`](crate::X).\nTwo(u8),\n}";

    #[test]
    fn each_variant_needs_a_row() {
        let one = || Row::new(&Sample::One, None::<&str>);
        let table = Table::new("Samples", ("Sample", SOURCE), vec![one()]);
        assert_eq!(table.complaints().len(), 1);
        assert!(table.complaints()[0].starts_with("Sample::Two has no row"));
        assert_eq!(table.clone().elsewhere(&["Two"]).complaints(), [""; 0]);
        let table = table.elsewhere(&["Two", "Three"]);
        assert_eq!(table.complaints(), ["\"Samples\" has a row of no variant: Three"]);
    }

    #[test]
    fn a_row_has_message_cause_and_cure() {
        let two = Row::new(&Sample::Two(2), Some("take one"));
        let table = Table::new("Samples", ("Sample", SOURCE), vec![two]).to_string();
        assert!(
            table.ends_with("| `two of 2 \\| &lt;x>` | The second. | Take one. |\n"),
            "{table}"
        );
    }
}

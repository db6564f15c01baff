//! Prints tables on a terminal.

use std::fmt;

/// A row of a printed table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Row {
    /// The subject of the row.
    pub name: &'static str,
    /// The value.
    pub value: String,
    /// The reason for the value, or the remedy.
    pub reason: String,
}

/// Writes rows with aligned names and values, one line each.
pub(crate) fn write(f: &mut fmt::Formatter<'_>, rows: &[Row]) -> fmt::Result {
    let width = |part: fn(&Row) -> &str| rows.iter().map(|row| part(row).chars().count()).max();
    let name = width(|row| row.name).unwrap_or(0);
    let value = width(|row| &row.value).unwrap_or(0);
    for (number, row) in rows.iter().enumerate() {
        if number > 0 {
            writeln!(f)?;
        }
        write!(f, "  {:name$}  {:value$}  {}", row.name, row.value, row.reason)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fmt::Display;

    use super::*;

    struct Table(Vec<Row>);

    impl Display for Table {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write(f, &self.0)
        }
    }

    #[test]
    fn columns_are_aligned() {
        let row = |name, value: &str, reason: &str| Row {
            name,
            value: value.to_owned(),
            reason: reason.to_owned(),
        };
        let table = Table(vec![row("one", "1", "a"), row("eleven", "11 MiB", "b")]);
        assert_eq!(table.to_string(), "  one     1       a\n  eleven  11 MiB  b");
        assert_eq!(Table(Vec::new()).to_string(), "");
    }
}

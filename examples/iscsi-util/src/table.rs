//! Formats tables as readable text.

use std::fmt;

/// Rows of cells. Each row is a line. Columns are aligned and two spaces apart.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Table(Vec<Vec<String>>);

impl Table {
    /// Adds a row.
    pub fn push<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.0.push(cells.into_iter().map(Into::into).collect());
    }

    /// Returns the width of a column in characters. The last cell of each row does not count.
    fn width(&self, column: usize) -> usize {
        let rows = self.0.iter().filter(|row| column + 1 < row.len());
        rows.filter_map(|row| Some(row.get(column)?.chars().count())).max().unwrap_or(0)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.0 {
            let cells = row.iter().enumerate();
            let cells: Vec<_> =
                cells.map(|(column, cell)| format!("{cell:0$}", self.width(column))).collect();
            writeln!(f, "{}", cells.join("  ").trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_nothing_trails() {
        let mut table = Table::default();
        table.push(["1", "one", "a"]);
        table.push(["11", "eleven", ""]);
        table.push(["a line that ends early"]);
        assert_eq!(table.to_string(), "1   one     a\n11  eleven\na line that ends early\n");
    }
}

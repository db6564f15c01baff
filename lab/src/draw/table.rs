//! Tables in Markdown, with numbered notes below them.

use std::fmt::{self, Display};

use super::cell::{Cell, Quantity};

/// A table with names at the left, figures at the right, and notes.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    corner: String,
    columns: Vec<String>,
    rows: Vec<(String, Vec<String>)>,
    notes: Vec<String>,
}

impl Table {
    /// Returns an empty table. `corner` is the heading of the row names.
    pub(super) fn new(corner: &str, columns: Vec<String>) -> Self {
        Self { corner: corner.into(), columns, ..Self::default() }
    }

    /// Adds a row. `ours` says whether it is this project's row, which is bold.
    pub(super) fn row(&mut self, name: &str, ours: bool, cells: Vec<String>) {
        let name = escape(name);
        let name = if ours { format!("**{name}**") } else { name };
        self.rows.push((name, cells));
    }

    /// Returns the text of a cell, with the number of its note if it has one.
    pub(super) fn cell(&mut self, cell: Option<&Cell>, quantity: Quantity) -> String {
        let Some(cell) = cell else { return "-".into() };
        match cell.note() {
            Some(note) => self.with_note(&cell.text(quantity), note),
            None => cell.text(quantity),
        }
    }

    /// Returns a text, followed by the number of its note.
    pub(super) fn with_note(&mut self, text: &str, note: String) -> String {
        format!("{text}<sup>{}</sup>", self.note(note))
    }

    /// Returns the number of a note. Equal notes share a number.
    fn note(&mut self, note: String) -> usize {
        let known = self.notes.iter().position(|other| *other == note);
        let place = known.unwrap_or(self.notes.len());
        if known.is_none() {
            self.notes.push(note);
        }
        place + 1
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| {} | {} |", self.corner, self.columns.join(" | "))?;
        writeln!(f, "|---|{}", "---:|".repeat(self.columns.len()))?;
        for (name, cells) in &self.rows {
            writeln!(f, "| {name} | {} |", cells.join(" | "))?;
        }
        for (index, note) in self.notes.iter().enumerate() {
            writeln!(f, "\n<sup>{}</sup> {}", index + 1, escape(note))?;
        }
        Ok(())
    }
}

/// Returns the text on one line, with the special characters of Markdown escaped.
pub(super) fn escape(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut escaped = String::with_capacity(line.len());
    for c in line.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '|' | '*' | '`' | '[' | '\\' => escaped.extend(['\\', c]),
            plain => escaped.push(plain),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::sample::{figure, outcome};
    use super::*;
    use crate::result::Outcome;

    #[test]
    fn a_table_with_a_note_used_twice() {
        let failed = Cell::of(&[&outcome("iperf3", 4.0, Outcome::Failed("a | b\nc".into()))]);
        let good = Cell::of(&[&figure("block-copy", 4.0, 95.44)]);
        let mut table = Table::new("Mbit/s", vec!["4 ms".into(), "40 ms".into()]);
        let cells = [&good, &None].map(|c| table.cell(c.as_ref(), Quantity::Goodput));
        table.row("block-copy", true, cells.to_vec());
        let cells = [&failed, &failed].map(|c| table.cell(c.as_ref(), Quantity::Goodput));
        table.row("iperf3", false, cells.to_vec());
        insta::assert_snapshot!(table.to_string(), @r"
        | Mbit/s | 4 ms | 40 ms |
        |---|---:|---:|
        | **block-copy** | 95.4 | - |
        | iperf3 | failed<sup>1</sup> | failed<sup>1</sup> |

        <sup>1</sup> failed: a \| b c
        ");
    }
}

//! Formats tables as readable text.

use std::fmt;

/// A line of a table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Line {
    /// The subject of the line.
    pub name: String,
    /// The value of the subject.
    pub value: String,
    /// The reason for the value, or its meaning. It may be empty.
    pub note: String,
}

impl Line {
    /// Creates a line with this name, value and note.
    pub fn new(name: impl Into<String>, value: impl Into<String>, note: impl Into<String>) -> Self {
        Self { name: name.into(), value: value.into(), note: note.into() }
    }
}

/// Lines with aligned names and values. Each line ends with a line feed.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a>(pub &'a [Line]);

/// Maximum width to which values are padded. Longer values do not move the notes of other lines.
const WIDEST: usize = 30;

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = width(self.0, usize::MAX, |line| &line.name);
        let values = width(self.0, WIDEST, |line| &line.value);
        for Line { name, value, note } in self.0 {
            let line = format!("  {name:names$}  {value:values$}  {note}");
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

fn width(lines: &[Line], widest: usize, part: impl Fn(&Line) -> &str) -> usize {
    let lengths = lines.iter().map(|line| part(line).chars().count());
    lengths.filter(|length| *length <= widest).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_nothing_trails() {
        let long = "x".repeat(WIDEST + 1);
        let lines = [
            Line::new("one", "1", "a"),
            Line::new("eleven", "11 MiB", ""),
            Line::new("long", long.as_str(), "b"),
        ];
        let expected = format!("  one     1       a\n  eleven  11 MiB\n  long    {long}  b\n");
        assert_eq!(Table(&lines).to_string(), expected);
    }
}

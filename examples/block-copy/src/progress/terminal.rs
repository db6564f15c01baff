//! Draws bars on the terminal of standard error, which may be closed meanwhile.

use std::io::{self, IsTerminal, stderr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use console::{Term, measure_text_width};
use indicatif::{ProgressDrawTarget, TermLike};

/// Most times per second that a bar is drawn.
const RATE: u8 = 20;

/// Returns the target of the bars. Without a terminal it hides them.
pub(crate) fn draw_target() -> ProgressDrawTarget {
    if !stderr().is_terminal() {
        return ProgressDrawTarget::hidden();
    }
    ProgressDrawTarget::term_like_with_hz(Box::new(Terminal::new(Term::buffered_stderr())), RATE)
}

/// Returns the current number of columns of the terminal; `None` without a terminal.
pub(crate) fn columns() -> Option<usize> {
    Term::stderr().size_checked().map(|(_, columns)| usize::from(columns))
}

/// A terminal that gets no more output after it has returned an error. The library of the bar expects no errors
/// of its terminal, and would end the program.
///
/// The bar is one line. A terminal that becomes narrower wraps the line into several rows. The library would
/// clear only the last row, so this type clears all rows.
#[derive(Debug)]
struct Terminal {
    terminal: Term,
    is_gone: AtomicBool,
    /// Columns that were written since the line was cleared.
    shown: AtomicUsize,
}

impl Terminal {
    const fn new(terminal: Term) -> Self {
        Self { terminal, is_gone: AtomicBool::new(false), shown: AtomicUsize::new(0) }
    }

    fn unless_gone(&self, write: impl FnOnce(&Term) -> io::Result<()>) -> io::Result<()> {
        if !self.is_gone.load(Ordering::Relaxed) && write(&self.terminal).is_err() {
            self.is_gone.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl TermLike for Terminal {
    fn width(&self) -> u16 {
        self.terminal.width()
    }

    fn height(&self) -> u16 {
        self.terminal.height()
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.unless_gone(|terminal| terminal.move_cursor_up(n))
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.unless_gone(|terminal| terminal.move_cursor_down(n))
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.unless_gone(|terminal| terminal.move_cursor_right(n))
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.unless_gone(|terminal| terminal.move_cursor_left(n))
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.shown.store(0, Ordering::Relaxed);
        self.unless_gone(|terminal| terminal.write_line(text))
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        // On a narrower terminal, the spaces up to the last column would wrap into further rows, so they are
        // omitted.
        if text.chars().all(|character| character == ' ') {
            return Ok(());
        }
        self.shown.fetch_add(measure_text_width(text), Ordering::Relaxed);
        self.unless_gone(|terminal| terminal.write_str(text))
    }

    fn clear_line(&self) -> io::Result<()> {
        let rows = rows(self.shown.swap(0, Ordering::Relaxed), self.width());
        self.unless_gone(|terminal| {
            for _ in 1..rows {
                terminal.clear_line()?;
                terminal.move_cursor_up(1)?;
            }
            terminal.clear_line()
        })
    }

    fn flush(&self) -> io::Result<()> {
        self.unless_gone(Term::flush)
    }
}

/// Returns the number of rows that a line takes on a terminal of this width.
fn rows(shown: usize, columns: u16) -> usize {
    shown.div_ceil(usize::from(columns).max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_row_for_each_part_that_fits() {
        for (shown, columns, expected) in
            [(0, 80, 1), (1, 80, 1), (80, 80, 1), (80, 79, 2), (80, 40, 2), (81, 40, 3), (5, 0, 5)]
        {
            assert_eq!(rows(shown, columns), expected, "{shown} {columns}");
        }
    }
}

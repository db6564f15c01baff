//! The terminal on standard error, which may go away while a bar is on it.

use std::io::{self, IsTerminal, stderr};
use std::sync::atomic::{AtomicBool, Ordering};

use console::Term;
use indicatif::{ProgressDrawTarget, TermLike};

/// How often a bar is drawn in a second at most.
const RATE: u8 = 20;

/// Where bars are drawn. Without a terminal they are not.
pub(crate) fn draw_target() -> ProgressDrawTarget {
    if !stderr().is_terminal() {
        return ProgressDrawTarget::hidden();
    }
    let terminal = Terminal { terminal: Term::buffered_stderr(), is_gone: AtomicBool::new(false) };
    ProgressDrawTarget::term_like_with_hz(Box::new(terminal), RATE)
}

/// The columns of the terminal by now; `None` where there is none.
pub(crate) fn columns() -> Option<usize> {
    Term::stderr().size_checked().map(|(_, columns)| usize::from(columns))
}

/// A terminal to which nothing more is written once it has refused something. The bar would end the program otherwise:
/// it takes an error of its terminal for impossible.
#[derive(Debug)]
struct Terminal {
    terminal: Term,
    is_gone: AtomicBool,
}

impl Terminal {
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
        self.unless_gone(|terminal| terminal.write_line(text))
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.unless_gone(|terminal| terminal.write_str(text))
    }

    fn clear_line(&self) -> io::Result<()> {
        self.unless_gone(Term::clear_line)
    }

    fn flush(&self) -> io::Result<()> {
        self.unless_gone(Term::flush)
    }
}

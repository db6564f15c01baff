//! Writes to standard output and standard error, which another program may read, or may close.
//!
//! The output may contain text of targets and servers. So all control characters except line feeds are escaped
//! here, in addition to the places where such text is received. No control character can then move the cursor
//! of a terminal, change a colour or reverse the text that follows.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, IsTerminal, Write};

use iscsi_pdu::keys::printable;
use serde_json::Value;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{block_in_place, spawn_blocking};

use crate::failure::plain;
use crate::log::time_stamp;
use crate::stop::Stop;

/// Prefix of a line with a warning.
const WARNING: &str = "warning: ";

/// Writes text to standard output. After a request to stop, does not wait for a reader that takes nothing.
///
/// # Errors
/// The error of the system, or [`ErrorKind::Interrupted`] if a stop was requested before the text was taken.
pub async fn print(text: String, stop: &Stop) -> io::Result<()> {
    write_all(printable_lines(&plain(&text)), stop).await
}

/// Writes an object to standard output, as one line of JSON.
///
/// # Errors
/// The errors of [`print()`].
pub async fn print_object(object: &Value, stop: &Stop) -> io::Result<()> {
    write_all(json_line(object), stop).await
}

/// Returns an object as a line of JSON, with the line feed. Control characters are escaped as in JSON.
#[must_use]
pub fn json_line(object: &Value) -> String {
    let mut line = String::new();
    // Outside of strings JSON has only ASCII characters, and control characters below 0x20 are escaped already.
    for character in plain(&object.to_string()).chars() {
        let mut bytes = [0; 4];
        let text = character.encode_utf8(&mut bytes);
        if printable(text) == *text {
            line.push(character);
        } else {
            // Writing to a string cannot fail.
            _ = write!(line, "\\u{:04x}", u32::from(character));
        }
    }
    line + "\n"
}

/// Escapes all control characters except line feeds.
fn printable_lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

async fn write_all(text: String, stop: &Stop) -> io::Result<()> {
    let write = spawn_blocking(move || {
        let mut output = io::stdout().lock();
        output.write_all(text.as_bytes())?;
        output.flush()
    });
    match stop.hurry(write).await {
        Some(result) => result?,
        None => Err(io::Error::new(ErrorKind::Interrupted, "interrupted while no program read it")),
    }
}

/// Writes whole lines to standard error. An error is ignored, so a closed standard error does not end the
/// program. While this waits for a slow reader, sessions continue; see [`aside`].
pub fn eprint_lines(lines: &str) {
    // Lines get time stamps if standard error is no terminal: it is probably a log file.
    let is_terminal = io::stderr().is_terminal();
    let lines =
        stamped(&printable_lines(&plain(lines)), (!is_terminal).then(time_stamp).as_deref());
    aside(|| drop(io::stderr().lock().write_all(lines.as_bytes())));
}

/// Runs work that may block the thread. On a multi-threaded runtime, the other tasks of this worker first move
/// to another thread, so that sessions continue.
///
/// # Panics
/// In a `LocalSet` on a multi-threaded runtime, because its tasks cannot move to another thread.
pub fn aside<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => block_in_place(work),
        _ => work(),
    }
}

/// Adds the time stamp, if there is one, before each warning.
fn stamped(lines: &str, time_stamp: Option<&str>) -> String {
    let Some(time_stamp) = time_stamp else { return lines.to_owned() };
    let stamp = |line: &str| match line.strip_prefix(WARNING) {
        Some(text) => format!("{time_stamp} {WARNING}{text}"),
        None => line.to_owned(),
    };
    lines.split('\n').map(stamp).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const HOSTILE: &str = "a\u{1b}[2J\r\t\0\u{7f}\u{9b}\u{202e}\u{2028}b";

    #[test]
    fn of_all_that_a_terminal_obeys_only_line_feeds_stay() {
        let lines = printable_lines(&format!("one\n{HOSTILE}\n\nlast \u{78c1}\u{76d8}\n"));
        assert!(lines.chars().all(|shown| !shown.is_control() || shown == '\n'), "{lines:?}");
        assert_eq!(lines.lines().count(), 4);
        assert!(lines.ends_with("\n\nlast \u{78c1}\u{76d8}\n") && lines.contains("\\u{1b}[2J"));
        assert_eq!(printable_lines(&lines), lines);
    }

    #[test]
    fn warnings_have_a_time_stamp_in_a_log_file() {
        let lines =
            "copied 1 MiB\nwarning: the source was changed\na warning: no line of its own\n";
        assert_eq!(stamped(lines, None), lines);
        let expected = lines.replace("\nwarning", "\n2026-01-31T12:00:00Z warning");
        assert_eq!(stamped(lines, Some("2026-01-31T12:00:00Z")), expected);
    }

    #[test]
    fn an_object_is_read_back_as_it_was() {
        let object = json!({ "a": HOSTILE, HOSTILE: ["\u{78c1}\u{10348}", "\\", 1.5] });
        let line = json_line(&object);
        let (last, rest) = line.as_bytes().split_last().unwrap();
        assert_eq!(*last, b'\n');
        assert!(rest.iter().all(|byte| !byte.is_ascii_control()), "{line}");
        assert!(line.contains("\\u009b\\u202e\\u2028b") && line.contains('\u{10348}'), "{line}");
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), object);
    }
}

//! Writes the log of the libraries to standard error.
//!
//! `RUST_LOG` selects levels and modules, as in `RUST_LOG=warn,iscsi_initiator=debug`. Without it the log has
//! warnings only, one line each.
//!
//! The driver of a session must not wait until its messages are read, so a separate thread writes them. While
//! the queue is full, messages are omitted and counted.

mod filter;
mod job;

use std::env;
use std::fmt;
use std::io::{self, Write};
use std::mem;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use iscsi_pdu::keys::printable;
use tracing::Event;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::{Writer, format};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, layer};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use filter::Filter;
use job::{Jobs, OfJob};

pub use job::job;

/// A function that writes text to standard error, and leaves a bar that is shown there intact.
pub type Show = fn(&str);

/// The log entries that are shown if `RUST_LOG` is not set.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Usually {
    /// Warnings and errors.
    Warnings,
    /// Warnings, errors and the activity of sessions and copies, with time stamps.
    Details,
    /// No lines.
    Silence,
}

/// The filter for [`Usually::Details`].
const DETAILS: &str = "warn,iscsi_initiator=debug,iscsi_session=debug,iscsi_copy=debug";
/// Maximum number of lines in the queue.
const ROOM: usize = 1024;
/// Time limit to write the last lines at the end of the program.
const LAST: Duration = Duration::from_millis(300);

/// The running log. Dropping it ends its thread.
#[derive(Debug)]
pub struct Log(Option<Queue>);

impl Log {
    /// Waits until all messages so far are written, at most 300 ms.
    pub fn flush(&self) {
        let (done, told) = mpsc::channel();
        let Some(queue) = &self.0 else { return };
        if queue.lines.try_send(Item::Mark(done)).is_ok() {
            // The time limit expires only if standard error is not read, so the result is ignored.
            let _ = told.recv_timeout(LAST);
        }
    }
}

/// Returns whether warnings of sessions are shown, by this log or by another subscriber of the process.
#[must_use]
pub fn has_warnings() -> bool {
    tracing::enabled!(target: "iscsi_initiator", tracing::Level::WARN)
}

/// Starts the log. If `RUST_LOG` cannot be parsed, that is reported, and the default is used.
pub fn start(usually: Usually, show: Show) -> Log {
    let Ok(queue) = Queue::start(show) else { return Log(None) };
    let log = Log(Some(queue.clone()));
    let asked = env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty());
    let asked = asked.map(|filter| filter.parse::<Filter>());
    if let Some(Err(error)) = &asked {
        queue.put(&format!("warning: RUST_LOG is ignored: {error}\n"));
    }
    let usual = || (usually == Usually::Details).then(|| DETAILS.parse().ok()).flatten();
    let result = match asked.and_then(Result::ok).or_else(usual) {
        Some(Filter(targets)) => {
            let lines = layer().with_ansi(false).event_format(OfJob(format()));
            let lines = lines.with_writer(move || queue.clone());
            tracing_subscriber::registry().with(lines).with(targets).with(Jobs).try_init()
        }
        None => {
            let level = match usually {
                Usually::Warnings | Usually::Details => LevelFilter::WARN,
                Usually::Silence => LevelFilter::OFF,
            };
            let warnings = Warnings { queue, latest: Arc::default() };
            let lines = layer().with_ansi(false).event_format(OfJob(Plain));
            let lines = lines.with_writer(move || warnings.clone());
            tracing_subscriber::registry().with(lines).with(level).with(Jobs).try_init()
        }
    };
    // A program that uses this library may have set a subscriber already. Then that one stays.
    drop(result);
    log
}

/// Returns the time by the system's clock, UTC, in whole seconds: `2026-01-31T12:00:00Z`.
#[must_use]
pub fn time_stamp() -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    _ = SystemTime.format_time(&mut Writer::new(&mut text));
    let seconds = text.split_once('.').map(|(seconds, _)| format!("{seconds}Z"));
    seconds.unwrap_or(text)
}

/// Formats an event without its spans. The spans would differ for each session of a disk, and so equal events
/// of several sessions would not be recognised as equal.
struct Plain;

impl<S, N> FormatEvent<S, N> for Plain
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

/// The queue of lines that the thread of the log has to show. Clones share the queue.
#[derive(Clone, Debug)]
struct Queue {
    lines: SyncSender<Item>,
    left_out: Arc<Mutex<u64>>,
}

#[derive(Debug)]
enum Item {
    Line(String),
    /// A mark, which is dropped when all lines before it have been shown.
    Mark(mpsc::Sender<()>),
}

impl Queue {
    fn start(show: impl Fn(&str) + Send + 'static) -> io::Result<Self> {
        let (lines, items) = sync_channel(ROOM);
        let left_out = Arc::new(Mutex::new(0));
        let queue = Self { lines, left_out: Arc::clone(&left_out) };
        thread::Builder::new().name("log".to_owned()).spawn(move || {
            for item in items {
                match item {
                    Item::Line(line) => show(&line),
                    Item::Mark(sender) => drop(sender),
                }
                let lost = mem::take(&mut *left_out.lock().unwrap_or_else(PoisonError::into_inner));
                if lost > 0 {
                    show(&format!("warning: {lost} lines that no reader took are omitted\n"));
                }
            }
        })?;
        Ok(queue)
    }

    /// Queues a line without blocking. The line may contain text of a target or server, so control characters
    /// are escaped.
    fn put(&self, line: &str) {
        let line = printable(line.strip_suffix('\n').unwrap_or(line)) + "\n";
        if let Err(TrySendError::Full(_)) = self.lines.try_send(Item::Line(line)) {
            *self.left_out.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        }
    }
}

/// Writes lines unchanged.
impl Write for Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.put(&String::from_utf8_lossy(line));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Equal lines within this time are shown once: many sessions may report the same event.
const AT_ONCE: Duration = Duration::from_secs(1);

/// A line, and the time at which it was shown.
struct LoggedLine {
    at: Instant,
    line: Vec<u8>,
}

/// Writes each line with the prefix "warning: ".
#[derive(Clone)]
struct Warnings {
    queue: Queue,
    latest: Arc<Mutex<Vec<LoggedLine>>>,
}

impl Warnings {
    /// Returns whether an equal line was shown less than [`AT_ONCE`] ago.
    fn was_logged(&self, line: &[u8], now: Instant) -> bool {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.retain(|logged| now < logged.at + AT_ONCE);
        let was_logged = latest.iter().any(|logged| logged.line == line);
        if !was_logged {
            latest.push(LoggedLine { at: now, line: line.to_vec() });
        }
        was_logged
    }
}

impl Write for Warnings {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if !self.was_logged(line, Instant::now()) {
            self.queue.put(&format!("warning: {}", String::from_utf8_lossy(line)));
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_stamp_has_date_time_and_zone() {
        let shape: String = time_stamp()
            .chars()
            .map(|shown| if shown.is_ascii_digit() { '0' } else { shown })
            .collect();
        assert_eq!(shape, "0000-00-00T00:00:00Z");
    }

    #[test]
    fn the_details_are_a_filter_that_makes_sense() {
        assert!(DETAILS.parse::<Filter>().is_ok());
    }

    #[test]
    fn what_many_say_at_once_is_said_once() {
        let warnings = Warnings { queue: Queue::start(|_| {}).unwrap(), latest: Arc::default() };
        let now = Instant::now();
        let logged = |line: &[u8], after| warnings.was_logged(line, now + after);
        assert!(!logged(b"lost", Duration::ZERO));
        assert!(!logged(b"refused", AT_ONCE / 2));
        assert!(logged(b"lost", AT_ONCE / 2), "of two jobs, each says its own");
        assert!(!logged(b"refused", 2 * AT_ONCE), "it has happened again");
    }

    /// A standard error that nothing reads does not block the tasks that log. Lines are omitted and counted.
    #[test]
    fn what_nobody_takes_is_left_out_and_counted() {
        let (release, stuck) = mpsc::channel::<()>();
        let (told, lines) = mpsc::channel();
        let queue = Queue::start(move |line| {
            let _ = stuck.recv();
            told.send(line.to_owned()).unwrap();
        })
        .unwrap();
        let all = 2 * ROOM;
        (0..all).for_each(|number| queue.put(&number.to_string()));
        let log = Log(Some(queue));
        log.flush();
        assert!(lines.try_recv().is_err(), "it was told before anybody took it");
        drop(release);
        drop(log);
        let lines: Vec<_> = lines.iter().collect();
        let (counts, lines): (Vec<_>, Vec<_>) =
            lines.iter().partition(|line| line.starts_with("warning: "));
        assert_eq!(
            counts,
            [&format!("warning: {} lines that no reader took are omitted\n", all - lines.len())]
        );
        assert_eq!(lines[ROOM - 1], &format!("{}\n", ROOM - 1), "they come in order");
    }

    #[test]
    fn what_others_have_sent_makes_no_line_of_its_own() {
        let (told, lines) = mpsc::channel();
        let queue = Queue::start(move |line| told.send(line.to_owned()).unwrap()).unwrap();
        queue.put("the target says a\nwarning: all is well\u{1b}[2K\n");
        drop(queue);
        let line = "the target says a\\u{a}warning: all is well\\u{1b}[2K\n";
        assert_eq!(lines.iter().collect::<Vec<_>>(), [line]);
    }
}

//! What the crates below have to tell, on standard error.
//!
//! `RUST_LOG` says what of it, by level and by module, as in `RUST_LOG=iscsi_initiator=debug`
//! (the `Directives` of `tracing_subscriber::EnvFilter`). Without it there are warnings, each as a
//! line for people.

use std::env;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::Subscriber;

/// Puts text on standard error, whatever else is there.
pub type Show = fn(&str);

/// Whether there are warnings where `RUST_LOG` does not say what to tell.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Usually {
    /// Warnings, and worse.
    Warnings,
    /// Nothing.
    Silence,
}

/// Begins to tell. A `RUST_LOG` that makes no sense is told, and counts for nothing.
pub fn start(usually: Usually, show: Show) {
    let asked = env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty());
    let result = match asked.map(|filter| EnvFilter::builder().parse(filter)) {
        Some(Ok(filter)) => Subscriber::builder()
            .with_env_filter(filter)
            .with_ansi(false)
            .with_writer(move || Lines(show))
            .try_init(),
        wrong => {
            if let Some(Err(error)) = wrong {
                show(&format!("warning: RUST_LOG is ignored: {error}\n"));
            }
            let warnings = Warnings { show, latest: Arc::default() };
            Subscriber::builder()
                .with_max_level(match usually {
                    Usually::Warnings => LevelFilter::WARN,
                    Usually::Silence => LevelFilter::OFF,
                })
                .with_ansi(false)
                .without_time()
                .with_level(false)
                .with_target(false)
                .with_writer(move || warnings.clone())
                .try_init()
        }
    };
    // Whoever calls the program from within another one has a subscriber of its own.
    drop(result);
}

/// Lines as they are.
struct Lines(Show);

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        (self.0)(&String::from_utf8_lossy(line));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What many sessions have to say at once is said once.
const AT_ONCE: Duration = Duration::from_secs(1);

/// A line, and when it was said.
struct Said {
    at: Instant,
    line: Vec<u8>,
}

/// Lines that say what they are.
#[derive(Clone)]
struct Warnings {
    show: Show,
    latest: Arc<Mutex<Option<Said>>>,
}

impl Warnings {
    /// Whether another line has just said the same.
    fn is_said(&self, line: &[u8], now: Instant) -> bool {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let is_said =
            latest.as_ref().is_some_and(|said| said.line == line && now < said.at + AT_ONCE);
        if !is_said {
            *latest = Some(Said { at: now, line: line.to_vec() });
        }
        is_said
    }
}

impl Write for Warnings {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if !self.is_said(line, Instant::now()) {
            (self.show)(&format!("warning: {}", String::from_utf8_lossy(line)));
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
    fn what_many_say_at_once_is_said_once() {
        let warnings = Warnings { show: |_| {}, latest: Arc::default() };
        let now = Instant::now();
        let said = |line: &[u8], after| warnings.is_said(line, now + after);
        assert!(!said(b"lost", Duration::ZERO));
        assert!(said(b"lost", AT_ONCE / 2));
        assert!(!said(b"refused", AT_ONCE / 2));
        assert!(!said(b"refused", 2 * AT_ONCE), "it has happened again");
    }
}

//! What happened in an episode, in order: a hash of all of it, and the words if they are wanted.

use std::fmt::Write as _;

use tokio::time::Instant;

use crate::rng::mix;

/// The events of an episode, each with its virtual time.
#[derive(Debug)]
pub(crate) struct Trace {
    start: Instant,
    hash: u64,
    /// One line for each event; `None` if only the hash is wanted.
    lines: Option<Vec<String>>,
}

impl Trace {
    /// Begins now, by the runtime's clock.
    pub(crate) fn new(keep_lines: bool) -> Self {
        Self { start: Instant::now(), hash: 0, lines: keep_lines.then(Vec::new) }
    }

    /// An event, with the numbers that belong to it.
    pub(crate) fn note(&mut self, what: &str, numbers: &[u64]) {
        let elapsed = self.start.elapsed();
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        self.add(micros);
        what.bytes().for_each(|byte| self.add(byte.into()));
        numbers.iter().for_each(|number| self.add(*number));
        if let Some(lines) = &mut self.lines {
            let mut line = format!("{:>12.6} {what}", elapsed.as_secs_f64());
            for number in numbers {
                let _ = write!(line, " {number}");
            }
            lines.push(line);
        }
    }

    fn add(&mut self, word: u64) {
        self.hash = mix(self.hash.rotate_left(5) ^ word);
    }

    pub(crate) const fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn take_lines(&mut self) -> Vec<String> {
        self.lines.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

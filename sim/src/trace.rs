//! Records the events of an episode, in order: a hash of all events, and their lines if the settings ask for them.

mod pdu_line;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bytes::BytesMut;
use tokio::time::Instant;

use crate::clock;
use crate::rng::mix;

/// The events of an episode, each with its virtual time.
#[derive(Debug)]
pub(crate) struct Trace {
    start: Instant,
    hash: u64,
    /// One line for each event; `None` if only the hash is wanted.
    lines: Option<Vec<String>>,
    /// The received beginning of an incomplete PDU, per connection and direction.
    streams: BTreeMap<(u64, &'static str), BytesMut>,
}

impl Trace {
    /// Returns an empty trace that begins at the current time.
    pub(crate) fn new(keep_lines: bool) -> Self {
        let lines = keep_lines.then(Vec::new);
        Self { start: clock::now(), hash: 0, lines, streams: BTreeMap::new() }
    }

    /// Adds an event with its numbers.
    pub(crate) fn record(&mut self, what: &str, numbers: &[u64]) {
        let elapsed = clock::now().duration_since(self.start);
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

    /// Adds bytes that have arrived over a connection, with the PDUs that they complete.
    pub(crate) fn arrived(&mut self, way: &'static str, connection: u64, bytes: &[u8]) {
        self.record(way, &[connection, bytes.len() as u64]);
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.add(u64::from_le_bytes(*word)));
        rest.iter().for_each(|byte| self.add((*byte).into()));
        let Some(lines) = &mut self.lines else { return };
        let stream = self.streams.entry((connection, way)).or_default();
        stream.extend_from_slice(bytes);
        lines.extend(pdu_line::taken(stream).map(|line| format!("{:14}{line}", "")));
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

//! A simulated link in virtual time: latency, rate, segments, and faults.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

/// The properties of one direction of a link. Offsets count the bytes that were ever sent, from 0.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Properties {
    /// Time from the departure of a byte to its arrival.
    pub latency: Duration,
    /// Bytes per second; `None` is no limit.
    pub rate: Option<u64>,
    /// Longest piece that arrives together, in bytes; `None` keeps pieces as they were sent.
    pub segment: Option<usize>,
    /// Offset of the first byte that is lost. All later bytes are lost too, and the direction is closed.
    pub cut: Option<u64>,
    /// Offset of the first byte that waits for [`Pipe::resume`]. All later bytes wait too.
    pub stall: Option<u64>,
    /// Bits that arrive inverted: byte offset times 8, plus the number of the bit, from the lowest.
    pub flips: Vec<u64>,
}

/// One direction of a link.
#[derive(Debug)]
pub struct Pipe {
    properties: Properties,
    sent: u64,
    free_at: Option<Instant>,
    flying: VecDeque<(Instant, Bytes)>,
    stalled: BytesMut,
    cut: bool,
}

/// A link: two directions, each with its own properties.
#[derive(Debug)]
pub struct Link {
    /// From the initiator to the target.
    pub to_target: Pipe,
    /// From the target to the initiator.
    pub to_initiator: Pipe,
}

impl Link {
    /// Creates a link with these properties in both directions.
    #[must_use]
    pub fn new(properties: Properties) -> Self {
        Self { to_target: Pipe::new(properties.clone()), to_initiator: Pipe::new(properties) }
    }

    /// Returns when the next piece arrives, in either direction.
    #[must_use]
    pub fn next_arrival(&self) -> Option<Instant> {
        let both = [self.to_target.next_arrival(), self.to_initiator.next_arrival()];
        both.into_iter().flatten().min()
    }
}

impl Pipe {
    /// Creates an empty direction.
    #[must_use]
    pub fn new(properties: Properties) -> Self {
        Self {
            properties,
            sent: 0,
            free_at: None,
            flying: VecDeque::new(),
            stalled: BytesMut::new(),
            cut: false,
        }
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: &[u8], now: Instant) {
        let mut bytes = BytesMut::from(bytes);
        self.flip(&mut bytes);
        let start = self.sent;
        self.sent += bytes.len() as u64;
        if self.cut {
            return;
        }
        if let Some(cut) = self.properties.cut.filter(|cut| *cut < self.sent) {
            bytes.truncate(crate::convert::index(cut - start));
            self.cut = true;
        }
        if let Some(stall) = self.properties.stall.filter(|stall| *stall < self.sent) {
            let keep = crate::convert::index(stall.saturating_sub(start)).min(bytes.len());
            self.stalled.unsplit(bytes.split_off(keep));
        }
        self.launch(bytes.freeze(), now);
    }

    /// Releases the stalled bytes, and removes the stall.
    pub fn resume(&mut self, now: Instant) {
        self.properties.stall = None;
        let stalled = std::mem::take(&mut self.stalled);
        self.launch(stalled.freeze(), now);
    }

    /// Removes and returns the oldest piece that has arrived by `now`; `None` if there is none.
    pub fn receive(&mut self, now: Instant) -> Option<Bytes> {
        let (at, _) = self.flying.front()?;
        if *at > now {
            return None;
        }
        self.flying.pop_front().map(|(_, bytes)| bytes)
    }

    /// Returns when the next piece arrives.
    #[must_use]
    pub fn next_arrival(&self) -> Option<Instant> {
        self.flying.front().map(|(at, _)| *at)
    }

    /// Returns whether the direction was cut, and everything that was sent before the cut has been received.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.cut && self.flying.is_empty() && self.stalled.is_empty()
    }

    /// Returns the number of bytes that were ever sent, including lost ones.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    fn flip(&self, bytes: &mut [u8]) {
        for flip in &self.properties.flips {
            let place = (flip / 8).checked_sub(self.sent).map(crate::convert::index);
            if let Some(byte) = place.and_then(|place| bytes.get_mut(place)) {
                *byte ^= 1 << (flip % 8);
            }
        }
    }

    fn launch(&mut self, mut bytes: Bytes, now: Instant) {
        let segment = self.properties.segment.unwrap_or(usize::MAX).max(1);
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(segment));
            let start = self.free_at.map_or(now, |free| free.max(now));
            let left = start + self.time_for(piece.len());
            self.free_at = Some(left);
            self.flying.push_back((left + self.properties.latency, piece));
        }
    }

    fn time_for(&self, length: usize) -> Duration {
        let Some(rate) = self.properties.rate.filter(|rate| *rate > 0) else {
            return Duration::ZERO;
        };
        let nanos = (length as u64).saturating_mul(1_000_000_000) / rate;
        Duration::from_nanos(nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(
        clippy::disallowed_methods,
        reason = "an Instant comes from a clock; all later ones are reckoned"
    )]
    fn start() -> Instant {
        Instant::now()
    }

    fn all(pipe: &mut Pipe, now: Instant) -> Vec<Bytes> {
        std::iter::from_fn(|| pipe.receive(now)).collect()
    }

    #[test]
    fn rate_and_latency_add_up() {
        let now = start();
        let latency = Duration::from_millis(50);
        let properties =
            Properties { latency, rate: Some(1000), segment: Some(10), ..Properties::default() };
        let mut pipe = Pipe::new(properties);
        pipe.send(&[7; 20], now);
        assert_eq!(pipe.next_arrival(), Some(now + Duration::from_millis(60)));
        assert_eq!(all(&mut pipe, now + Duration::from_millis(69)).len(), 1);
        assert_eq!(all(&mut pipe, now + Duration::from_millis(70)).len(), 1);
    }

    #[test]
    fn a_cut_loses_the_rest_wherever_it_falls() {
        let now = start();
        for cut in 0..10 {
            let mut pipe = Pipe::new(Properties { cut: Some(cut), ..Properties::default() });
            for byte in 0..10 {
                pipe.send(&[byte], now);
            }
            let got = all(&mut pipe, now).concat();
            assert_eq!(got.len() as u64, cut);
            assert!(pipe.is_cut());
        }
    }

    #[test]
    fn a_stall_keeps_the_rest_until_it_resumes() {
        let now = start();
        let mut pipe =
            Pipe::new(Properties { stall: Some(3), flips: vec![4 * 8], ..Properties::default() });
        pipe.send(&[0; 2], now);
        pipe.send(&[0; 4], now);
        assert_eq!(all(&mut pipe, now).concat(), [0; 3]);
        pipe.resume(now);
        pipe.send(&[9], now);
        assert_eq!(all(&mut pipe, now).concat(), [0, 1, 0, 9]);
    }
}

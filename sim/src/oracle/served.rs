//! Writes that a server acknowledges before the unit has them, and lost connections to the server.

use std::ops::Range;

use super::version::Version;
use super::{Oracle, Write};

/// A write whose connection was lost before its response.
#[derive(Clone, Debug)]
pub(crate) struct Unanswered {
    number: usize,
    grains: Range<usize>,
}

impl Oracle {
    /// Prepares the oracle for a server that acknowledges writes before the unit has them.
    pub(crate) const fn answer_early(&mut self) {
        self.answers_early = true;
    }

    /// Begins to send the data of a write again, whatever happens to the first copy.
    pub(crate) fn begin_again(&mut self, disk: usize, write: &Write) -> Write {
        let begun = self.now();
        self.numbers += 1;
        let (number, grains, content) = (self.numbers, write.grains.clone(), write.content);
        for grain in &mut self.grains[grains.clone()] {
            grain.push(Version::begun(content, number, begun, disk));
        }
        Write { number, grains, content }
    }

    /// Notes that the connection of a write was lost before its response. The server may still take the
    /// request.
    pub(crate) fn end_unanswered(&mut self, write: &Write) -> Unanswered {
        let now = self.now();
        let unanswered = Unanswered { number: write.number, grains: write.grains.clone() };
        for version in self.of(&unanswered) {
            version.ended = Some(now);
            (version.settled, version.was_orphan, version.is_unanswered) = (None, true, true);
        }
        unanswered
    }

    /// Notes that the server has finished with the connection. The writes that it took from this connection
    /// precede all writes that it takes later.
    pub(crate) fn connection_gone(&mut self, unanswered: &Unanswered) {
        let now = self.now();
        for version in self.of(unanswered).filter(|version| version.is_unanswered) {
            version.is_unanswered = false;
            version.settled.get_or_insert(now);
        }
    }

    /// Notes that the server has shut down cleanly: no request that was sent to it is in flight.
    pub(crate) fn server_gone(&mut self, disk: usize) {
        let now = self.now();
        let is_left = |version: &&mut Version| version.disk == disk && version.is_unanswered;
        for version in self.grains.iter_mut().flatten().filter(is_left) {
            version.is_unanswered = false;
            version.settled.get_or_insert(now);
        }
    }

    /// Notes that the writes of a server that no flush has covered may be lost, in part or entirely: the
    /// server was killed, or one of these writes has failed after its acknowledgement.
    pub(crate) fn may_be_lost(&mut self, disk: usize) {
        let now = self.now();
        self.crashed = Some(now);
        for version in self.grains.iter_mut().flatten() {
            version.covered = None;
            if version.disk == disk && !version.is_durable {
                version.crashed = Some(now);
            }
        }
    }

    fn of(&mut self, unanswered: &Unanswered) -> impl Iterator<Item = &mut Version> {
        let number = unanswered.number;
        let grains = self.grains[unanswered.grains.clone()].iter_mut().flatten();
        grains.filter(move |version| version.write == number)
    }
}

//! Rules of write data (RFC 7143 §11.3, §11.7, §11.8, §13.10 to §13.14).

use super::session::SessionWatch;
use super::{Faults, Watch, demand};
use crate::convert::{before, len32};
use crate::pdu::{NO_TAG, Pdu};

/// A range that an R2T asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) itt: u32,
    offset: u32,
    length: u32,
    data_sn: u32,
    /// Place among the R2Ts of the task.
    number: u32,
}

impl Ask {
    pub(super) fn new(r2t: &Pdu) -> Self {
        Self {
            number: r2t.data_sn(),
            itt: r2t.itt(),
            offset: r2t.buffer_offset(),
            length: r2t.desired_length(),
            data_sn: 0,
        }
    }
}

/// Unsolicited data that a command announced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Burst {
    pub(super) itt: u32,
    offset: u32,
    /// Where it has to end.
    end: u32,
    data_sn: u32,
    /// Whether the task is being aborted: the data need not come any more.
    pub(super) abandoned: bool,
}

impl SessionWatch {
    pub(super) fn command(&self, watch: &mut Watch, faults: &mut Faults, pdu: &Pdu) {
        let attribute = pdu.header[1] & 7;
        demand(faults, attribute <= 4, "WR-23", || format!("attribute {attribute}: {pdu:?}"));
        let still = pdu.reads() || pdu.writes() || pdu.edtl() == 0;
        demand(faults, still, "WR-23", || format!("EDTL without direction: {pdu:?}"));
        let priority = self.values.protocol_level >= 2 || pdu.u8_at(2) == 0;
        demand(faults, priority && pdu.u8_at(2) & 0x0f == 0, "PL2-02", || format!("{pdu:?}"));
        if pdu.writes() {
            self.check_first_burst(watch, faults, pdu);
        } else {
            let plain = pdu.is_final() && pdu.data.is_empty();
            demand(faults, plain, "WR-01", || format!("data, or no F, without W: {pdu:?}"));
        }
    }

    fn check_first_burst(&self, watch: &mut Watch, faults: &mut Faults, pdu: &Pdu) {
        let immediate = len32(pdu.data.len());
        let end = self.values.first_burst.min(pdu.edtl());
        let allowed = immediate == 0 || self.values.immediate_data;
        demand(faults, allowed, "WR-03", || format!("immediate data: {pdu:?}"));
        demand(faults, immediate <= end, "WR-04", || format!("more than {end} bytes: {pdu:?}"));
        if pdu.is_final() {
            return;
        }
        demand(faults, !self.values.initial_r2t, "WR-03", || {
            format!("unsolicited data in spite of InitialR2T: {pdu:?}")
        });
        demand(faults, immediate < end, "WR-01", || format!("F is missing: {pdu:?}"));
        watch.bursts.push(Burst {
            itt: pdu.itt(),
            offset: immediate,
            end,
            data_sn: 0,
            abandoned: false,
        });
    }

    pub(super) fn data_out(&self, watch: &mut Watch, faults: &mut Faults, pdu: &Pdu) {
        if pdu.ttt() == NO_TAG {
            watch.unsolicited(faults, pdu);
        } else {
            // What the R2T said is no matter: some targets leave the field at zero there.
            let own = self.tags.get(pdu.itt()).is_none_or(|command| command.lun == pdu.lun());
            demand(faults, own, "WR-10", || format!("LUN not that of the command: {pdu:?}"));
            watch.solicited(faults, pdu);
        }
        let max = self.values.max_burst;
        let length = pdu.data.len();
        demand(faults, length <= max as usize, "WR-11", || format!("over {max} bytes: {pdu:?}"));
    }
}

impl Watch {
    fn unsolicited(&mut self, faults: &mut Faults, pdu: &Pdu) {
        let Some(at) = self.bursts.iter().position(|burst| burst.itt == pdu.itt()) else {
            return faults
                .push(("WR-06", format!("unsolicited data that nobody announced: {pdu:?}")));
        };
        let earlier = self.bursts[..at].iter().any(|burst| !burst.abandoned);
        demand(faults, !earlier, "WR-07", || format!("overtakes an earlier burst: {pdu:?}"));
        let burst = &mut self.bursts[at];
        let start = burst.offset;
        demand(faults, pdu.buffer_offset() == start, "WR-06", || {
            format!("not at {start}: {pdu:?}")
        });
        check_data_sn(faults, pdu, burst.data_sn);
        let (end, stop) = (burst.end, start.saturating_add(len32(pdu.data.len())));
        demand(faults, stop <= end, "WR-05", || format!("runs beyond {end}: {pdu:?}"));
        let whole = pdu.is_final() == (stop >= end) || pdu.is_final() && burst.abandoned;
        demand(faults, whole, "WR-06", || format!("F, and {stop} of {end} bytes: {pdu:?}"));
        burst.offset = stop;
        burst.data_sn += 1;
        if pdu.is_final() {
            self.bursts.remove(at);
        }
    }

    fn solicited(&mut self, faults: &mut Faults, pdu: &Pdu) {
        let Some(ask) = self.asks.get_mut(&pdu.ttt()) else {
            return faults.push(("WR-10", format!("data that no R2T asked for: {pdu:?}")));
        };
        let (itt, number) = (ask.itt, ask.number);
        let copied = ask.itt == pdu.itt();
        demand(faults, copied, "WR-10", || format!("ITT not that of the R2T: {pdu:?}"));
        let start = ask.offset;
        demand(faults, pdu.buffer_offset() == start, "WR-12", || {
            format!("not at {start}: {pdu:?}")
        });
        check_data_sn(faults, pdu, ask.data_sn);
        let (left, length) = (ask.length, len32(pdu.data.len()));
        demand(faults, length <= left, "WR-08", || format!("more than the {left} left: {pdu:?}"));
        let whole = pdu.is_final() == (length >= left);
        demand(faults, whole, "WR-12", || format!("F, and {length} of {left} bytes: {pdu:?}"));
        ask.offset = start.saturating_add(length);
        ask.length = left.saturating_sub(length);
        ask.data_sn += 1;
        if pdu.is_final() {
            self.asks.remove(&pdu.ttt());
        }
        let mut others = self.asks.values();
        let overtaken = others.any(|other| other.itt == itt && before(other.number, number));
        demand(faults, !overtaken, "WR-09", || format!("an earlier R2T waits: {pdu:?}"));
    }
}

fn check_data_sn(faults: &mut Faults, pdu: &Pdu, expected: u32) {
    let given = pdu.data_sn();
    demand(faults, given == expected, "SEQ-23", || format!("DataSN is not {expected}: {pdu:?}"));
}

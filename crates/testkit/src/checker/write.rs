//! Rules of write data (RFC 7143 §11.3, §11.7, §11.8, §13.10 to §13.14).

use super::burst::Burst;
use super::connection::Watch;
use super::session::SessionWatch;
use super::violation::{Breaches, demand};
use crate::convert::{before, len32};
use crate::pdu::{NO_TAG, Pdu};

impl SessionWatch {
    pub(super) fn command(&self, watch: &mut Watch, breaches: &mut Breaches, pdu: &Pdu) {
        let attribute = pdu.header[1] & 7;
        demand(breaches, attribute <= 4, "WR-23", || format!("attribute {attribute}: {pdu:?}"));
        let still = pdu.reads() || pdu.writes() || pdu.edtl() == 0;
        demand(breaches, still, "WR-23", || format!("EDTL without direction: {pdu:?}"));
        let priority = self.values.protocol_level >= 2 || pdu.u8_at(2) == 0;
        demand(breaches, priority && pdu.u8_at(2) & 0x0f == 0, "PL2-02", || format!("{pdu:?}"));
        if pdu.writes() {
            self.check_first_burst(watch, breaches, pdu);
        } else {
            let plain = pdu.is_final() && pdu.data.is_empty();
            demand(breaches, plain, "WR-01", || format!("data, or no F, without W: {pdu:?}"));
        }
    }

    fn check_first_burst(&self, watch: &mut Watch, breaches: &mut Breaches, pdu: &Pdu) {
        let immediate = len32(pdu.data.len());
        let end = self.values.first_burst.min(pdu.edtl());
        let allowed = immediate == 0 || self.values.immediate_data;
        demand(breaches, allowed, "WR-03", || format!("immediate data: {pdu:?}"));
        demand(breaches, immediate <= end, "WR-04", || format!("more than {end} bytes: {pdu:?}"));
        if pdu.is_final() {
            return;
        }
        demand(breaches, !self.values.initial_r2t, "WR-03", || {
            format!("unsolicited data in spite of InitialR2T: {pdu:?}")
        });
        demand(breaches, immediate < end, "WR-01", || format!("F is missing: {pdu:?}"));
        watch.bursts.push(Burst {
            itt: pdu.itt(),
            offset: immediate,
            end,
            data_sn: 0,
            abandoned: false,
        });
    }

    pub(super) fn data_out(&self, watch: &mut Watch, breaches: &mut Breaches, pdu: &Pdu) {
        // After a function for many tasks the initiator serves R2Ts until the response (RFC 7143 §4.2.3.3). After
        // the ABORT TASK of a single task it must not.
        let is_aborted = self.tags.get(pdu.itt()).is_some_and(|task| task.aborts > 0);
        demand(breaches, !is_aborted, "WR-20", || format!("behind its ABORT TASK: {pdu:?}"));
        if pdu.ttt() == NO_TAG {
            watch.unsolicited(breaches, pdu);
        } else {
            // The Data-Out must have the LUN of the command, even if the R2T has not: some targets leave that
            // field at zero.
            let own = self.tags.get(pdu.itt()).is_none_or(|command| command.lun == pdu.lun());
            demand(breaches, own, "WR-10", || format!("LUN not that of the command: {pdu:?}"));
            watch.solicited(breaches, pdu);
        }
        let max = self.values.max_burst;
        let length = pdu.data.len();
        demand(breaches, length <= max as usize, "WR-11", || format!("over {max} bytes: {pdu:?}"));
    }
}

impl Watch {
    fn unsolicited(&mut self, breaches: &mut Breaches, pdu: &Pdu) {
        let Some(at) = self.bursts.iter().position(|burst| burst.itt == pdu.itt()) else {
            return breaches
                .push(("WR-06", format!("unsolicited data that no command announced: {pdu:?}")));
        };
        let earlier = self.bursts[..at].iter().any(|burst| !burst.abandoned);
        demand(breaches, !earlier, "WR-07", || format!("overtakes an earlier burst: {pdu:?}"));
        let burst = &mut self.bursts[at];
        let start = burst.offset;
        demand(breaches, pdu.buffer_offset() == start, "WR-06", || {
            format!("not at {start}: {pdu:?}")
        });
        check_data_sn(breaches, pdu, burst.data_sn);
        let (end, stop) = (burst.end, start.saturating_add(len32(pdu.data.len())));
        demand(breaches, stop <= end, "WR-05", || format!("runs beyond {end}: {pdu:?}"));
        let whole = pdu.is_final() == (stop >= end) || pdu.is_final() && burst.abandoned;
        demand(breaches, whole, "WR-06", || format!("F, and {stop} of {end} bytes: {pdu:?}"));
        burst.offset = stop;
        burst.data_sn += 1;
        if pdu.is_final() {
            self.bursts.remove(at);
        }
    }

    fn solicited(&mut self, breaches: &mut Breaches, pdu: &Pdu) {
        let Some(burst) = self.r2t_bursts.get_mut(&pdu.ttt()) else {
            return breaches.push(("WR-10", format!("data that no R2T asked for: {pdu:?}")));
        };
        let (itt, number) = (burst.itt, burst.number);
        let copied = burst.itt == pdu.itt();
        demand(breaches, copied, "WR-10", || format!("ITT not that of the R2T: {pdu:?}"));
        let start = burst.offset;
        demand(breaches, pdu.buffer_offset() == start, "WR-12", || {
            format!("not at {start}: {pdu:?}")
        });
        check_data_sn(breaches, pdu, burst.data_sn);
        let (left, length) = (burst.length, len32(pdu.data.len()));
        demand(breaches, length <= left, "WR-08", || format!("more than the {left} left: {pdu:?}"));
        let whole = pdu.is_final() == (length >= left);
        demand(breaches, whole, "WR-12", || format!("F, and {length} of {left} bytes: {pdu:?}"));
        burst.offset = start.saturating_add(length);
        burst.length = left.saturating_sub(length);
        burst.data_sn += 1;
        if pdu.is_final() {
            self.r2t_bursts.remove(&pdu.ttt());
        }
        let mut others = self.r2t_bursts.values();
        let overtaken = others.any(|other| other.itt == itt && before(other.number, number));
        demand(breaches, !overtaken, "WR-09", || format!("an earlier R2T waits: {pdu:?}"));
    }
}

fn check_data_sn(breaches: &mut Breaches, pdu: &Pdu, expected: u32) {
    let given = pdu.data_sn();
    demand(breaches, given == expected, "SEQ-23", || format!("DataSN is not {expected}: {pdu:?}"));
}

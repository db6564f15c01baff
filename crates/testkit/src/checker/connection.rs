//! State of one connection, from the PDUs that the checker has seen.

use std::collections::BTreeMap;

use super::burst::{Burst, R2tBurst};
use super::login::LoginWatch;
use super::violation::{Breaches, demand};
use crate::convert::before;
use crate::opcode::Opcode;
use crate::pdu::Pdu;

/// A text exchange in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextWatch {
    pub(super) itt: u32,
    pub(super) immediate: bool,
    /// Whether the response of the target is outstanding.
    pub(super) awaiting: bool,
    pub(super) ttt: u32,
    pub(super) lun: u64,
}

impl TextWatch {
    /// Returns whether a text request continues this exchange.
    pub(super) fn goes_on(&self, pdu: &Pdu) -> bool {
        pdu.is(Opcode::TextRequest) && pdu.itt() == self.itt
    }
}

/// State of one connection, from the PDUs that the checker has seen.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) login: Option<Box<LoginWatch>>,
    pub(super) session: Option<usize>,
    pub(super) cid: u16,
    /// The target's `MaxRecvDataSegmentLength`, bytes.
    pub(super) segment: u32,
    pub(super) next_stat_sn: Option<u32>,
    pub(super) acknowledged: Option<u32>,
    pub(super) last_cmd_sn: Option<u32>,
    pub(super) logged_out: bool,
    pub(super) text: Option<TextWatch>,
    pub(super) pings: Vec<(u32, u64)>,
    pub(super) r2t_bursts: BTreeMap<u32, R2tBurst>,
    pub(super) bursts: Vec<Burst>,
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            login: Some(Box::default()),
            session: None,
            cid: 0,
            segment: 8192,
            next_stat_sn: None,
            acknowledged: None,
            last_cmd_sn: None,
            logged_out: false,
            text: None,
            pings: Vec::new(),
            r2t_bursts: BTreeMap::new(),
            bursts: Vec::new(),
        }
    }
}

impl Watch {
    /// Checks that `ExpStatSN` never decreases, and never exceeds what the target sent.
    pub(super) fn check_exp_stat_sn(&mut self, breaches: &mut Breaches, pdu: &Pdu) {
        let given = pdu.exp_stat_sn();
        let Some(next) = self.next_stat_sn else { return };
        let beyond = before(next, given);
        let back = self.acknowledged.is_some_and(|old| before(given, old));
        demand(breaches, !beyond, "SEQ-13", || format!("ExpStatSN {given} is beyond {next}"));
        demand(breaches, !back, "SEQ-13", || format!("ExpStatSN goes back to {given}"));
        let lockstep = self.login.is_none() || given == next;
        demand(breaches, lockstep, "SEQ-13", || format!("login: ExpStatSN {given}, not {next}"));
        if !beyond && !back {
            self.acknowledged = Some(given);
        }
    }

    pub(super) fn record_stat_sn(&mut self, pdu: &Pdu) {
        let failed_login = pdu.is(Opcode::LoginResponse) && pdu.login_status() >= 0x100;
        if !pdu.uses_stat_sn() || failed_login {
            return;
        }
        let next = pdu.stat_sn().wrapping_add(1);
        if self.next_stat_sn.is_none_or(|known| before(known, next)) {
            self.next_stat_sn = Some(next);
        }
    }

    /// Updates the exchange from a text response, and returns whether the exchange is over.
    pub(super) fn update_text(&mut self, pdu: &Pdu) -> bool {
        if pdu.is_final() {
            self.text = None;
            return true;
        }
        if let Some(text) = &mut self.text {
            text.awaiting = false;
            text.ttt = pdu.ttt();
            text.lun = pdu.lun();
        }
        false
    }
}

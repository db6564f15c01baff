//! Rules of a session in full feature phase: numbers, window, tags (RFC 7143 §4.2.2).

use std::collections::{BTreeMap, BTreeSet};

use super::burst::R2tBurst;
use super::connection::Watch;
use super::login::LoginOutcome;
use super::negotiation::Values;
use super::tags::{ABORT_TASK, Tag, Tags};
use super::violation::{Breaches, demand};
use crate::conn_id::ConnId;
use crate::convert::before;
use crate::opcode::Opcode;
use crate::pdu::{NO_TAG, Pdu};

/// State of a session, from the PDUs that the checker has seen.
#[derive(Debug)]
pub(super) struct SessionWatch {
    pub(super) isid: u64,
    pub(super) tsih: u16,
    pub(super) values: Values,
    pub(super) discovery: bool,
    /// Whether the session ever had more than one connection. Then PDUs may overtake each other, and gaps in
    /// `CmdSN` are not checked.
    pub(super) joined: bool,
    pub(super) tags: Tags,
    /// The logout that closes the session: its connection and its `CmdSN`; `None` until it is sent.
    pub(super) closing: Option<(ConnId, u32)>,
    numbers: CommandNumbers,
    /// CIDs of connections that the initiator has asked to close, by the tag of the request.
    logouts: BTreeMap<u32, u16>,
    /// Whether a connection was cleaned up. Then commands that the target never received may be sent again
    /// over another connection, with a `CmdSN` below the last one of that connection.
    cleaned: bool,
}

/// The `CmdSN`s of a session.
#[derive(Debug, Default)]
struct CommandNumbers {
    /// The next `CmdSN` that the initiator must use.
    next: u32,
    /// `ExpCmdSN` and `MaxCmdSN`, as last reported by the target.
    exp: u32,
    max: u32,
    /// `CmdSN`s that arrived before lower ones, because PDUs overtake each other on several connections.
    ahead: BTreeSet<u32>,
    /// `CmdSN`s of requests that the target rejected, so that they may be used again.
    refused: BTreeSet<u32>,
    /// `CmdSN`s that were used on closed connections, by CID.
    lost: BTreeMap<u16, Vec<u32>>,
}

impl SessionWatch {
    pub(super) fn new(outcome: &LoginOutcome, response: &Pdu) -> Self {
        Self {
            isid: outcome.isid,
            tsih: outcome.tsih,
            values: outcome.values.clone(),
            discovery: outcome.discovery,
            joined: false,
            tags: Tags::default(),
            closing: None,
            numbers: CommandNumbers {
                next: outcome.cmd_sn,
                exp: response.exp_cmd_sn(),
                max: response.max_cmd_sn(),
                ..CommandNumbers::default()
            },
            logouts: BTreeMap::new(),
            cleaned: false,
        }
    }

    /// Returns whether a login added its connection to this session.
    pub(super) fn is_joined_by(&self, login: &LoginOutcome) -> bool {
        login.added && self.isid == login.isid && self.tsih == login.tsih
    }

    /// Records the final login response of a further connection.
    pub(super) fn join(&mut self, response: &Pdu) {
        self.joined = true;
        self.update_window(response);
    }

    /// Records that a connection is gone.
    pub(super) fn closed(&mut self, id: ConnId, cid: u16) {
        let numbers = self.tags.forget_connection(id);
        self.numbers.lost.entry(cid).or_default().extend(numbers);
    }

    /// Records that the initiator sent a logout request for one connection.
    pub(super) fn asks_to_close(&mut self, itt: u32, cid: u16) {
        self.logouts.insert(itt, cid);
    }

    /// Checks a request of the initiator.
    pub(super) fn request(
        &mut self,
        id: ConnId,
        watch: &mut Watch,
        breaches: &mut Breaches,
        pdu: &Pdu,
    ) {
        for itt in self.tags.acknowledge(id, pdu.exp_stat_sn()) {
            watch.r2t_bursts.retain(|_, burst| burst.itt != itt);
            watch.bursts.retain(|burst| burst.itt != itt);
        }
        match pdu.opcode() {
            Some(Opcode::DataOut) => return self.data_out(watch, breaches, pdu),
            Some(Opcode::Snack) => return self.snack(breaches, pdu),
            Some(Opcode::LoginRequest) => {
                return breaches.push(("ERR-10", format!("login in full feature phase: {pdu:?}")));
            }
            _ => {}
        }
        self.check_logged_out(id, watch, breaches, pdu);
        self.check_number(watch, breaches, pdu);
        match pdu.opcode() {
            Some(Opcode::ScsiCommand) => self.command(watch, breaches, pdu),
            Some(Opcode::TaskManagementRequest) => self.management(id, watch, breaches, pdu),
            Some(Opcode::TextRequest) => self.text(watch, breaches, pdu),
            Some(Opcode::LogoutRequest) => self.logout(id, watch, breaches, pdu),
            Some(Opcode::NopOut) => self.nop_out(watch, breaches, pdu),
            _ => {}
        }
        self.begin_tag(id, watch, breaches, pdu);
    }

    fn check_logged_out(&self, id: ConnId, watch: &Watch, breaches: &mut Breaches, pdu: &Pdu) {
        let reply = pdu.is(Opcode::NopOut) && pdu.itt() == NO_TAG;
        let late = watch.logged_out || self.is_behind_closing(id, pdu);
        demand(breaches, !late || reply, "LGO-01", || format!("after the logout: {pdu:?}"));
        let fits = !self.discovery || pdu.is(Opcode::TextRequest) || pdu.is(Opcode::LogoutRequest);
        demand(breaches, fits || reply, "DSC-01", || format!("in a discovery session: {pdu:?}"));
    }

    /// Returns whether a request was sent after the logout that closes the session. Connections overtake each
    /// other, so for a request on another connection only its `CmdSN` can show this.
    fn is_behind_closing(&self, id: ConnId, pdu: &Pdu) -> bool {
        self.closing.is_some_and(|(over, cmd_sn)| {
            let is_numbered_behind = if pdu.immediate() {
                before(cmd_sn, pdu.cmd_sn())
            } else {
                !before(pdu.cmd_sn(), cmd_sn)
            };
            over == id || is_numbered_behind
        })
    }

    /// Checks that `CmdSN` is in order, without gaps and within the window. An immediate request must have the
    /// next `CmdSN`; this is not checked once the session has had several connections.
    fn check_number(&mut self, watch: &mut Watch, breaches: &mut Breaches, pdu: &Pdu) {
        let (cmd_sn, next) = (pdu.cmd_sn(), self.numbers.next);
        if pdu.immediate() {
            let current = self.joined || cmd_sn == next;
            return demand(breaches, current, "SEQ-03", || {
                format!("immediate with CmdSN {cmd_sn}, the next is {next}: {pdu:?}")
            });
        }
        let open = !before(self.numbers.max, cmd_sn);
        let max = self.numbers.max;
        demand(breaches, open, "SEQ-06", || format!("CmdSN {cmd_sn} is beyond MaxCmdSN {max}"));
        if self.numbers.refused.remove(&cmd_sn) {
            return;
        }
        let rising = watch.last_cmd_sn.is_none_or(|last| before(last, cmd_sn));
        demand(breaches, rising || self.cleaned, "SEQ-04", || {
            format!("CmdSN {cmd_sn} is not above the last one")
        });
        if rising {
            watch.last_cmd_sn = Some(cmd_sn);
        }
        self.take_number(breaches, cmd_sn);
    }

    fn take_number(&mut self, breaches: &mut Breaches, cmd_sn: u32) {
        let next = self.numbers.next;
        let used = before(cmd_sn, next) || self.numbers.ahead.contains(&cmd_sn);
        demand(breaches, !used, "SEQ-02", || format!("CmdSN {cmd_sn} was used before"));
        let gapless = self.joined || used || cmd_sn == next;
        demand(breaches, gapless, "SEQ-02", || format!("CmdSN {cmd_sn} follows {next} unused"));
        if used {
            return;
        }
        self.numbers.ahead.insert(cmd_sn);
        if !self.joined {
            self.numbers.next = cmd_sn;
        }
        while self.numbers.ahead.remove(&self.numbers.next) {
            self.numbers.next = self.numbers.next.wrapping_add(1);
        }
    }

    fn begin_tag(&mut self, id: ConnId, watch: &Watch, breaches: &mut Breaches, pdu: &Pdu) {
        let itt = pdu.itt();
        if itt == NO_TAG {
            let reply = pdu.is(Opcode::NopOut);
            return demand(breaches, reply, "SEQ-21", || format!("the reserved tag: {pdu:?}"));
        }
        let goes_on = watch.text.as_ref().is_some_and(|text| text.goes_on(pdu));
        let fresh = self.tags.begin(itt, Tag::new(id, pdu));
        demand(breaches, fresh || goes_on, "SEQ-21", || format!("tag {itt:#x} is in use: {pdu:?}"));
    }

    fn snack(&self, breaches: &mut Breaches, pdu: &Pdu) {
        let level = self.values.error_recovery;
        demand(breaches, level > 0, "SNK-01", || format!("SNACK at level 0: {pdu:?}"));
    }

    /// Updates the session from a PDU of the target.
    pub(super) fn record_response(&mut self, id: ConnId, watch: &mut Watch, pdu: &Pdu) {
        self.update_window(pdu);
        let (itt, stat_sn) = (pdu.itt(), pdu.stat_sn());
        match pdu.opcode() {
            Some(Opcode::R2t) => {
                watch.r2t_bursts.insert(pdu.ttt(), R2tBurst::new(pdu));
            }
            Some(Opcode::NopIn) if itt == NO_TAG && pdu.ttt() != NO_TAG => {
                watch.pings.push((pdu.ttt(), pdu.lun()));
            }
            Some(Opcode::DataIn) if !pdu.has_status() => {}
            Some(Opcode::TaskManagementResponse) => self.record_abort(id, pdu),
            Some(Opcode::TextResponse) => {
                if watch.update_text(pdu) {
                    self.tags.end(itt, id, stat_sn);
                }
            }
            Some(Opcode::Reject) => self.record_reject(watch, pdu),
            Some(Opcode::LogoutResponse) => {
                self.record_logout(pdu);
                self.tags.end(itt, id, stat_sn);
            }
            _ => self.tags.end(itt, id, stat_sn),
        }
    }

    fn update_window(&mut self, pdu: &Pdu) {
        let (exp, max) = (pdu.exp_cmd_sn(), pdu.max_cmd_sn());
        if before(max, exp.wrapping_sub(1)) {
            return;
        }
        if before(self.numbers.exp, exp) {
            self.numbers.exp = exp;
        }
        if before(self.numbers.max, max) {
            self.numbers.max = max;
        }
    }

    /// Ends the tasks that a task management response reports as ended.
    fn record_abort(&mut self, id: ConnId, pdu: &Pdu) {
        let stat_sn = pdu.stat_sn();
        let request = self.tags.get(pdu.itt()).copied();
        self.tags.end(pdu.itt(), id, stat_sn);
        let Some(Tag { refers: Some((tag, function)), lun, cmd_sn, .. }) = request else { return };
        // A command that waits for its turn is not ended by the function, so the tasks from `ExpCmdSN` on
        // continue.
        let first_left = if before(self.numbers.exp, cmd_sn) { self.numbers.exp } else { cmd_sn };
        match (function, pdu.response()) {
            (ABORT_TASK, 1) if self.is_early(tag) => self.tags.abort_refused(tag),
            (ABORT_TASK, 0 | 1) => self.tags.end(tag, id, stat_sn),
            (2..=5, 0) => self.tags.end_all(Some(lun), first_left, id, stat_sn),
            (6 | 7, 0) => self.tags.end_all(None, first_left, id, stat_sn),
            (ABORT_TASK, _) => self.tags.abort_refused(tag),
            _ => {}
        }
    }

    /// Returns whether a command waits for its turn in the command order.
    fn is_early(&self, itt: u32) -> bool {
        let is_early = |tag: &Tag| !tag.immediate && !before(tag.cmd_sn, self.numbers.exp);
        self.tags.get(itt).is_some_and(is_early)
    }

    /// Allows commands of a closed connection to be sent again over another one, with their number and tag, if
    /// `ExpCmdSN` does not cover them (RFC 7143 §7.2.1, §11.14).
    fn record_logout(&mut self, pdu: &Pdu) {
        let closed = self.logouts.remove(&pdu.itt()).filter(|_| pdu.response() <= 1);
        let Some(numbers) = closed.map(|cid| self.numbers.lost.remove(&cid).unwrap_or_default())
        else {
            return;
        };
        self.cleaned = true;
        let next = self.numbers.exp;
        self.numbers.refused.extend(numbers.into_iter().filter(|number| !before(*number, next)));
    }

    /// Allows a refused request to be sent again with its number and tag (RFC 7143 §11.17.1).
    fn record_reject(&mut self, watch: &mut Watch, pdu: &Pdu) {
        let word = |at: usize| {
            let bytes = pdu.data.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u32::from_be_bytes)
        };
        let (Some(first), Some(itt), Some(cmd_sn)) = (word(0), word(16), word(24)) else { return };
        match Opcode::of(first.to_be_bytes()[0]) {
            Some(Opcode::DataOut | Opcode::Snack) | None => return,
            Some(_) => {}
        }
        watch.text = None;
        watch.bursts.retain(|burst| burst.itt != itt);
        if let Some(Tag { refers: Some((tag, ABORT_TASK)), .. }) = self.tags.get(itt).copied() {
            self.tags.abort_refused(tag);
        }
        self.tags.forget(itt);
        if first.to_be_bytes()[0] & 0x40 == 0 {
            self.numbers.refused.insert(cmd_sn);
        }
    }
}

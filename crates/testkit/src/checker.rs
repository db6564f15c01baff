//! A passive observer that knows the rules: it sees the PDUs of both sides, learns from those of the
//! target what is negotiated, asked for and allowed, and notes what the initiator does against it.
//!
//! The name of a rule starts with its subject: `SEQ` numbers and tags, `LOG` login, `TXT` text, `KEY`
//! limits, `WR` write data, `TMF` task management, `NOP` pings, `LGO` logout, `SNK` SNACK, `DSC`
//! discovery, `DIG` digests and padding, `ERR` and `LAY` the layout of a PDU.

mod format;
mod login;
mod negotiation;
mod requests;
mod session;
mod tags;
mod write;

use std::collections::BTreeMap;
use std::fmt;

use crate::convert::before;
use crate::frame::FrameError;
use crate::opcode::Opcode;
use crate::pdu::Pdu;
use crate::target::ConnId;
use login::LoginWatch;
use session::SessionWatch;
use write::{Ask, Burst};

/// A breach of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: &'static str,
    /// Where it happened.
    pub connection: ConnId,
    /// What happened.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} on connection {}: {}", self.rule, self.connection.0, self.text)
    }
}

/// What one PDU did wrong.
type Faults = Vec<(&'static str, String)>;

/// Notes a breach unless `good`.
fn demand(faults: &mut Faults, good: bool, rule: &'static str, text: impl FnOnce() -> String) {
    if !good {
        faults.push((rule, text()));
    }
}

/// One connection as the observer sees it.
#[derive(Debug)]
struct Watch {
    login: Option<Box<LoginWatch>>,
    session: Option<usize>,
    cid: u16,
    /// The target's `MaxRecvDataSegmentLength`.
    segment: u32,
    next_stat_sn: Option<u32>,
    acknowledged: Option<u32>,
    last_cmd_sn: Option<u32>,
    logged_out: bool,
    text: Option<requests::TextWatch>,
    pings: Vec<(u32, u64)>,
    asks: BTreeMap<u32, Ask>,
    bursts: Vec<Burst>,
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
            asks: BTreeMap::new(),
            bursts: Vec::new(),
        }
    }
}

/// The observer of all connections of a target.
#[derive(Debug, Default)]
pub struct Checker {
    violations: Vec<Violation>,
    watches: BTreeMap<ConnId, Watch>,
    sessions: Vec<SessionWatch>,
    blind: bool,
}

impl Checker {
    /// An observer that looks away: for streams that do not start with a login.
    #[must_use]
    pub fn blind() -> Self {
        Self { blind: true, ..Self::default() }
    }

    /// What the initiators did wrong so far.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Pings of the target that are not answered: transfer tag and LUN.
    #[must_use]
    pub fn unanswered_pings(&self, id: ConnId) -> &[(u32, u64)] {
        self.watches.get(&id).map_or(&[], |watch| &watch.pings)
    }

    /// Sees a PDU of the initiator.
    pub fn from_initiator(&mut self, id: ConnId, pdu: &Pdu) {
        if self.blind {
            return;
        }
        let mut faults = Faults::new();
        let watch = self.watches.entry(id).or_default();
        format::check(&mut faults, pdu, watch.segment);
        watch.check_exp_stat_sn(&mut faults, pdu);
        if let Some(login) = &mut watch.login {
            login.request(&mut faults, pdu);
        } else if let Some(session) = watch.session.and_then(|at| self.sessions.get_mut(at)) {
            session.request(id, watch, &mut faults, pdu);
        }
        let found = faults.into_iter();
        self.violations.extend(found.map(|(rule, text)| Violation { rule, connection: id, text }));
    }

    /// Sees a PDU of the target.
    pub fn from_target(&mut self, id: ConnId, pdu: &Pdu) {
        if self.blind {
            return;
        }
        let watch = self.watches.entry(id).or_default();
        watch.learn_stat_sn(pdu);
        if watch.login.is_some() {
            self.learn_login(id, pdu);
        } else if let Some(session) = watch.session.and_then(|at| self.sessions.get_mut(at)) {
            session.learn(id, watch, pdu);
        }
    }

    /// Sees that a stream of the initiator cannot be read on.
    pub fn frame_error(&mut self, id: ConnId, error: &FrameError) {
        let rule = match error {
            FrameError::HeaderDigest | FrameError::DataDigest(_) => "DIG-05",
            FrameError::TooLong(_) => "KEY-13",
        };
        self.violations.push(Violation { rule, connection: id, text: error.to_string() });
    }

    /// Sees that a connection is gone.
    pub fn closed(&mut self, id: ConnId) {
        let Some(watch) = self.watches.remove(&id) else { return };
        if let Some(session) = watch.session.and_then(|at| self.sessions.get_mut(at)) {
            session.closed(id, watch.cid);
        }
    }

    fn learn_login(&mut self, id: ConnId, pdu: &Pdu) {
        let Some(watch) = self.watches.get_mut(&id) else { return };
        let Some(login) = &mut watch.login else { return };
        let Some(outcome) = login.response(pdu) else { return };
        watch.segment = outcome.segment;
        watch.cid = outcome.cid;
        watch.login = None;
        let known = self.sessions.iter().position(|session| outcome.joins(session));
        let at = known.unwrap_or(self.sessions.len());
        watch.session = Some(at);
        match self.sessions.get_mut(at) {
            Some(session) => session.join(pdu),
            None => self.sessions.push(SessionWatch::new(&outcome, pdu)),
        }
    }
}

impl Watch {
    /// `ExpStatSN` never goes back, and never beyond what the target sent.
    fn check_exp_stat_sn(&mut self, faults: &mut Faults, pdu: &Pdu) {
        let given = pdu.exp_stat_sn();
        let Some(next) = self.next_stat_sn else { return };
        let beyond = before(next, given);
        let back = self.acknowledged.is_some_and(|old| before(given, old));
        demand(faults, !beyond, "SEQ-13", || format!("ExpStatSN {given} is beyond {next}"));
        demand(faults, !back, "SEQ-13", || format!("ExpStatSN goes back to {given}"));
        let lockstep = self.login.is_none() || given == next;
        demand(faults, lockstep, "SEQ-13", || format!("login: ExpStatSN {given}, not {next}"));
        if !beyond && !back {
            self.acknowledged = Some(given);
        }
    }

    fn learn_stat_sn(&mut self, pdu: &Pdu) {
        let failed_login = pdu.is(Opcode::LoginResponse) && pdu.login_status() >= 0x100;
        if !crate::target::uses_stat_sn(pdu) || failed_login {
            return;
        }
        let next = pdu.stat_sn().wrapping_add(1);
        if self.next_stat_sn.is_none_or(|known| before(known, next)) {
            self.next_stat_sn = Some(next);
        }
    }
}

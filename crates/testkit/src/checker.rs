//! The checker: an observer that knows the rules of the standard and sends nothing. It sees the PDUs of both
//! sides, derives from the PDUs of the target what is negotiated, requested and allowed, and records each PDU
//! of the initiator that breaks a rule.
//!
//! The name of a rule starts with its subject: `SEQ` numbers and tags, `LOG` login, `TXT` text, `KEY`
//! limits, `WR` write data, `TMF` task management, `NOP` pings, `LGO` logout, `SNK` SNACK, `DSC`
//! discovery, `DIG` digests and padding, `ERR` and `LAY` the layout of a PDU.

mod burst;
mod connection;
mod format;
mod login;
mod negotiation;
mod requests;
mod session;
mod tags;
mod violation;
mod write;

use std::collections::BTreeMap;

use crate::conn_id::ConnId;
use crate::frame::FrameError;
use crate::pdu::Pdu;
use connection::Watch;
use session::SessionWatch;
use violation::Breaches;

pub use violation::Violation;

/// The observer of all connections of a target.
#[derive(Debug, Default)]
pub struct Checker {
    violations: Vec<Violation>,
    watches: BTreeMap<ConnId, Watch>,
    sessions: Vec<SessionWatch>,
    blind: bool,
}

impl Checker {
    /// Creates an observer that checks nothing, for streams that do not start with a login.
    #[must_use]
    pub fn blind() -> Self {
        Self { blind: true, ..Self::default() }
    }

    /// Returns the violations of the initiators so far.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Returns the pings of the target without a response from the initiator: transfer tag and LUN.
    #[must_use]
    pub fn unanswered_pings(&self, id: ConnId) -> &[(u32, u64)] {
        self.watches.get(&id).map_or(&[], |watch| &watch.pings)
    }

    /// Checks a PDU of the initiator.
    pub fn from_initiator(&mut self, id: ConnId, pdu: &Pdu) {
        if self.blind {
            return;
        }
        let mut breaches = Breaches::new();
        let watch = self.watches.entry(id).or_default();
        format::check(&mut breaches, pdu, watch.segment);
        watch.check_exp_stat_sn(&mut breaches, pdu);
        if let Some(login) = &mut watch.login {
            login.request(&mut breaches, pdu);
        } else if let Some(session) = watch.session.and_then(|at| self.sessions.get_mut(at)) {
            session.request(id, watch, &mut breaches, pdu);
        }
        let found = breaches.into_iter();
        self.violations.extend(found.map(|(rule, text)| Violation { rule, connection: id, text }));
    }

    /// Updates the state from a PDU of the target.
    pub fn from_target(&mut self, id: ConnId, pdu: &Pdu) {
        if self.blind {
            return;
        }
        let watch = self.watches.entry(id).or_default();
        watch.record_stat_sn(pdu);
        if watch.login.is_some() {
            self.record_login(id, pdu);
        } else if let Some(session) = watch.session.and_then(|at| self.sessions.get_mut(at)) {
            session.record_response(id, watch, pdu);
        }
    }

    /// Records that a stream of the initiator cannot be read further.
    pub fn frame_error(&mut self, id: ConnId, error: &FrameError) {
        let rule = match error {
            FrameError::HeaderDigest | FrameError::DataDigest(_) => "DIG-05",
            FrameError::TooLong(_) => "KEY-13",
        };
        self.violations.push(Violation { rule, connection: id, text: error.to_string() });
    }

    /// Records that a connection is gone.
    pub fn closed(&mut self, id: ConnId) {
        let Some(watch) = self.watches.remove(&id) else { return };
        if let Some(session) = watch.session.and_then(|at| self.sessions.get_mut(at)) {
            session.closed(id, watch.cid);
        }
    }

    fn record_login(&mut self, id: ConnId, pdu: &Pdu) {
        let Some(watch) = self.watches.get_mut(&id) else { return };
        let Some(login) = &mut watch.login else { return };
        let Some(outcome) = login.response(pdu) else { return };
        watch.segment = outcome.segment;
        watch.cid = outcome.cid;
        watch.login = None;
        let known = self.sessions.iter().position(|session| session.is_joined_by(&outcome));
        let at = known.unwrap_or(self.sessions.len());
        watch.session = Some(at);
        match self.sessions.get_mut(at) {
            Some(session) => session.join(pdu),
            None => self.sessions.push(SessionWatch::new(&outcome, pdu)),
        }
    }
}

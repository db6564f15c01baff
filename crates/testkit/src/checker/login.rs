//! Rules of the login phase (RFC 7143 §6.3, §11.12).

use std::collections::BTreeSet;

use super::negotiation::{Negotiation, Side, Values};
use super::violation::{Breaches, demand};
use crate::opcode::Opcode;
use crate::pdu::Pdu;
use crate::text::Pairs;

/// Keys that are allowed in the security stage.
const SECURITY_KEYS: [&str; 11] = [
    "SessionType",
    "InitiatorName",
    "InitiatorAlias",
    "TargetName",
    "AuthMethod",
    "CHAP_A",
    "CHAP_I",
    "CHAP_C",
    "CHAP_N",
    "CHAP_R",
    "TargetAddress",
];

/// A login in progress.
#[derive(Debug, Default)]
pub(super) struct LoginWatch {
    first: Option<Pdu>,
    awaiting: bool,
    split_answer: bool,
    stage: Option<u8>,
    request_text: Vec<u8>,
    response_text: Vec<u8>,
    initiator_keys: BTreeSet<String>,
    target_keys: BTreeSet<String>,
    discovery: bool,
    negotiation: Negotiation,
}

/// The result of a login.
#[derive(Debug)]
pub(super) struct LoginOutcome {
    pub(super) segment: u32,
    pub(super) cid: u16,
    pub(super) isid: u64,
    pub(super) tsih: u16,
    pub(super) cmd_sn: u32,
    pub(super) discovery: bool,
    pub(super) values: Values,
    /// Whether the connection joins a session that exists already.
    pub(super) added: bool,
}

impl LoginWatch {
    pub(super) fn request(&mut self, breaches: &mut Breaches, pdu: &Pdu) {
        if !pdu.is(Opcode::LoginRequest) {
            return breaches.push(("LOG-01", format!("in the login phase: {pdu:?}")));
        }
        demand(breaches, !self.awaiting, "LOG-02", || format!("a second login request: {pdu:?}"));
        demand(breaches, pdu.immediate(), "LOG-03", || format!("I is not set: {pdu:?}"));
        demand(breaches, pdu.u16_at(2) == 0, "LOG-04", || format!("version is not 0: {pdu:?}"));
        demand(breaches, pdu.isid() >> 46 != 3, "ISI-01", || format!("ISID of type 11: {pdu:?}"));
        self.check_constant(breaches, pdu);
        self.check_stages(breaches, pdu);
        self.check_text(breaches, pdu);
        self.awaiting = true;
        if self.first.is_none() {
            self.first = Some(pdu.clone());
        }
    }

    /// Checks the fields that are the same in all requests of a login.
    fn check_constant(&self, breaches: &mut Breaches, pdu: &Pdu) {
        let Some(first) = &self.first else { return };
        let same = first.itt() == pdu.itt()
            && first.isid() == pdu.isid()
            && first.tsih() == pdu.tsih()
            && first.cid() == pdu.cid();
        demand(breaches, same, "LOG-03", || format!("ITT, ISID, TSIH or CID changed: {pdu:?}"));
        let number = first.cmd_sn() == pdu.cmd_sn();
        demand(breaches, number, "SEQ-01", || format!("CmdSN changed: {pdu:?}"));
    }

    fn check_stages(&mut self, breaches: &mut Breaches, pdu: &Pdu) {
        let (csg, nsg) = (pdu.csg(), pdu.nsg());
        let legal = csg < 2 && if pdu.is_final() { nsg > csg && nsg != 2 } else { nsg == 0 };
        demand(breaches, legal, "LOG-07", || format!("stages {csg} to {nsg}: {pdu:?}"));
        let follows = self.stage.is_none_or(|stage| stage == csg);
        demand(breaches, follows, "LOG-07", || {
            format!("stage {csg} is not the current one: {pdu:?}")
        });
        demand(breaches, !(pdu.is_final() && pdu.continues()), "LOG-08", || {
            format!("T and C together: {pdu:?}")
        });
        self.stage = Some(csg);
    }

    fn check_text(&mut self, breaches: &mut Breaches, pdu: &Pdu) {
        demand(breaches, !self.split_answer || pdu.data.is_empty(), "LOG-11", || {
            format!("text in answer to C: {pdu:?}")
        });
        self.request_text.extend_from_slice(&pdu.data);
        if pdu.continues() {
            return;
        }
        match Pairs::split(&std::mem::take(&mut self.request_text)) {
            Ok(pairs) => self.check_pairs(breaches, pdu, &pairs),
            Err(error) => breaches.push(("TXT-01", error.to_string())),
        }
    }

    fn check_pairs(&mut self, breaches: &mut Breaches, pdu: &Pdu, pairs: &Pairs) {
        if self.initiator_keys.is_empty() && !self.split_answer {
            self.check_names(breaches, pairs);
        }
        for (key, value) in &pairs.0 {
            let fresh = self.initiator_keys.insert(key.clone());
            demand(breaches, fresh, "LOG-05", || format!("{key} is said twice"));
            let answer = self.target_keys.contains(key) || value == "NotUnderstood";
            let fits = pdu.csg() != 0 || answer || SECURITY_KEYS.contains(&key.as_str());
            demand(breaches, fits, "LOG-22", || format!("{key} in the security stage"));
            demand(breaches, is_key(key), "TXT-03", || format!("{key:?} is no key"));
            let method = key == "AuthMethod" && pdu.csg() == 1;
            demand(breaches, !method, "LOG-22", || "AuthMethod in the operational stage".into());
            self.negotiation.record_key(Side::Initiator, key, value);
        }
    }

    /// Checks that the first login request has the names of the initiator and the target.
    fn check_names(&mut self, breaches: &mut Breaches, pairs: &Pairs) {
        self.discovery = pairs.get("SessionType") == Some("Discovery");
        let named = pairs.get("InitiatorName").is_some();
        demand(breaches, named, "LOG-05", || "no InitiatorName in the first request".into());
        let aimed = self.discovery || pairs.get("TargetName").is_some();
        demand(breaches, aimed, "LOG-05", || "no TargetName in the first request".into());
    }

    /// Updates the login from a response, and returns the outcome if the response ends the login with success.
    pub(super) fn response(&mut self, pdu: &Pdu) -> Option<LoginOutcome> {
        self.awaiting = false;
        self.split_answer = pdu.continues();
        self.response_text.extend_from_slice(&pdu.data);
        if !pdu.continues() {
            let pairs = Pairs::split(&std::mem::take(&mut self.response_text)).unwrap_or_default();
            for (key, value) in pairs.0 {
                self.negotiation.record_key(Side::Target, &key, &value);
                self.target_keys.insert(key);
            }
        }
        if pdu.is_final() {
            self.stage = Some(pdu.nsg());
        }
        let done = pdu.is_final() && pdu.nsg() == 3 && pdu.login_status() == 0;
        self.first.take_if(|_| done).map(|first| self.outcome(&first, pdu))
    }

    fn outcome(&self, first: &Pdu, pdu: &Pdu) -> LoginOutcome {
        let values = self.negotiation.values.clone();
        LoginOutcome {
            segment: values.target_segment,
            cid: first.cid(),
            isid: first.isid(),
            tsih: pdu.tsih(),
            cmd_sn: first.cmd_sn(),
            discovery: self.discovery,
            values,
            added: first.tsih() != 0,
        }
    }
}

/// Returns whether a name is a key: at most 63 bytes, with a capital first ("iSCSIProtocolLevel" is the one
/// exception).
fn is_key(key: &str) -> bool {
    let capital = key.starts_with(|letter: char| letter.is_ascii_uppercase());
    key.len() <= 63 && (capital || key == "iSCSIProtocolLevel")
}

//! Tests of the login phase: the test plays the target, response by response.
//!
//! The rig checks every request against the rules for all login requests, so each test also tests those
//! rules.

mod chap;
mod chap_faults;
mod keys;
mod properties;
mod stages;
mod text;

use std::collections::HashSet;

use bytes::Bytes;
use iscsi_pdu::{
    Cid, CmdSn, IscsiName, Isid, Itt, LoginRequest, LoginResponse, LoginStatus, Stage, StatSn, Tsih,
};

use super::{LoggedIn, Login, LoginError, LoginIdentity, Progress};
use crate::config::{Chap, Config, SessionKind, TargetCredentials};
use crate::params::Negotiated;

const INITIATOR: &str = "iqn.2026-01.org.example:host";
const TARGET: &str = "iqn.2026-01.org.example:disk";
const ISID: [u8; 6] = [0x80, 1, 2, 3, 0, 4];
/// The TSIH that the target assigns.
const TSIH: Tsih = Tsih(0x1234);
/// The user and secret of the initiator, and of the target.
const USER: &str = "alice";
const SECRET: &str = "alice knows this";
const TARGET_USER: &str = "bob";
const TARGET_SECRET: &str = "only bob knows that";

fn normal() -> Config {
    let target_name = IscsiName::parse(TARGET).unwrap();
    config(SessionKind::Normal { target_name })
}

fn discovery() -> Config {
    config(SessionKind::Discovery)
}

fn config(kind: SessionKind) -> Config {
    let mut config =
        Config::new(IscsiName::parse(INITIATOR).unwrap(), Isid::from_bytes(ISID), kind);
    config.first_cmd_sn = CmdSn::new(0xffff_fffe);
    config
}

/// Adds one-way CHAP to a configuration.
fn with_chap(mut config: Config) -> Config {
    config.chap = Some(Chap::new(USER, SECRET.into()));
    config
}

/// Adds mutual CHAP to a configuration.
fn with_mutual_chap(config: Config) -> Config {
    let mut config = with_chap(config);
    let credentials = TargetCredentials::new(TARGET_SECRET.into()).with_user(TARGET_USER);
    config.chap.as_mut().unwrap().target = Some(credentials);
    config
}

fn identity(config: &Config) -> LoginIdentity {
    LoginIdentity {
        cid: Cid(7),
        tsih: Tsih::NEW_SESSION,
        itt: Itt::new(0).unwrap(),
        cmd_sn: config.first_cmd_sn,
        leading: true,
        session: None,
        single_chap_algorithm: false,
    }
}

/// Returns text from pairs that are separated by blanks.
fn pairs(text: &str) -> Vec<u8> {
    text.split_whitespace().flat_map(|pair| [pair.as_bytes(), b"\0"].concat()).collect()
}

/// An initiator in login, and the target that the test controls.
struct Rig {
    config: Config,
    login: Login,
    identity: LoginIdentity,
    /// The outstanding request and its data segment.
    request: LoginRequest,
    data: Bytes,
    /// The StatSN of the next response.
    stat_sn: StatSn,
    responses: u32,
    /// Every key that the initiator has sent.
    sent_keys: HashSet<String>,
    next_random: u8,
}

impl Rig {
    fn new(config: Config) -> Self {
        let identity = identity(&config);
        Self::with_identity(config, identity)
    }

    fn with_identity(config: Config, identity: LoginIdentity) -> Self {
        let mut login = Login::new(&config, identity.clone());
        let mut next_random = 1;
        let (request, data) = login.poll_request(&config, &mut counter(&mut next_random)).unwrap();
        let mut rig = Self {
            config,
            login,
            identity,
            request,
            data,
            stat_sn: StatSn::new(100),
            responses: 0,
            sent_keys: HashSet::new(),
            next_random,
        };
        rig.check_request();
        rig.check_keys();
        rig
    }

    /// Returns a login in the operational stage, after the configured authentication, if there is one.
    fn at_operational_stage(config: Config) -> Self {
        let mut rig = Self::new(config);
        if rig.config.chap.is_some() {
            chap::authenticate(&mut rig);
        }
        assert_eq!(rig.request.current_stage, Stage::OperationalNegotiation);
        rig
    }

    /// Returns a response that agrees with the outstanding request.
    fn response(&self) -> LoginResponse {
        LoginResponse {
            transit: self.request.transit,
            is_continued: false,
            current_stage: self.request.current_stage,
            next_stage: self.request.transit.then_some(self.request.next_stage),
            version_max: 0,
            version_active: 0,
            isid: self.request.isid,
            tsih: if self.is_last() { TSIH } else { self.request.tsih },
            itt: self.request.itt,
            stat_sn: self.stat_sn,
            exp_cmd_sn: self.request.cmd_sn,
            max_cmd_sn: self.request.cmd_sn.plus(31),
            status: LoginStatus { class: 0, detail: 0 },
        }
    }

    fn is_last(&self) -> bool {
        self.request.transit && self.request.next_stage == Stage::FullFeature
    }

    /// Sends a response with `text`, which agrees to a transition if one was proposed.
    fn reply(&mut self, text: &str) -> Result<Progress, LoginError> {
        let response = self.response();
        self.send(&response, &pairs(text))
    }

    /// Sends a response with `text` that stays in the stage.
    fn stay(&mut self, text: &str) -> Result<Progress, LoginError> {
        let response = LoginResponse { transit: false, next_stage: None, ..self.response() };
        self.send(&response, &pairs(text))
    }

    /// Sends a response with a part of a text (C = 1).
    fn reply_part(&mut self, data: &[u8]) -> Result<Progress, LoginError> {
        let response = LoginResponse {
            transit: false,
            next_stage: None,
            is_continued: true,
            ..self.response()
        };
        self.send(&response, data)
    }

    /// Sends a response that refuses the login.
    fn refuse(&mut self, class: u8, detail: u8, text: &str) -> Result<Progress, LoginError> {
        let status = LoginStatus { class, detail };
        let response =
            LoginResponse { status, transit: false, next_stage: None, ..self.response() };
        self.send(&response, &pairs(text))
    }

    /// Passes a response to the initiator. If the login continues, takes and checks the next request.
    fn send(&mut self, response: &LoginResponse, data: &[u8]) -> Result<Progress, LoginError> {
        let progress = self.login.handle_response(&self.config, response, data);
        if !matches!(progress, Ok(Progress::Pending)) {
            let polled = self.login.poll_request(&self.config, &mut |_: &mut [u8]| {});
            assert!(polled.is_none(), "LOG-20: a login that is over says no more");
        } else {
            self.stat_sn = response.stat_sn.next();
            self.responses += 1;
            let continues = self.request.is_continued;
            let polled = self.login.poll_request(&self.config, &mut counter(&mut self.next_random));
            (self.request, self.data) = polled.expect("a request is due");
            self.check_request();
            if !continues {
                self.check_keys();
            }
        }
        progress
    }

    /// LOG-01 to LOG-08, LOG-13, LOG-29, SEQ-01, SEQ-13, TXT-01, UNH login 2.1, 5.1 and 7.1: checks the rules
    /// for every login request.
    fn check_request(&mut self) {
        let request = &self.request;
        assert_eq!((request.version_max, request.version_min), (0, 0), "LOG-04");
        assert_eq!(request.isid, Isid::from_bytes(ISID), "LOG-03");
        assert_eq!(
            (request.tsih, request.itt, request.cid, request.cmd_sn),
            (self.identity.tsih, self.identity.itt, self.identity.cid, self.identity.cmd_sn),
            "LOG-03, LOG-13, SEQ-01"
        );
        let acknowledged = if self.responses == 0 { StatSn::default() } else { self.stat_sn };
        assert_eq!(request.exp_stat_sn, acknowledged, "SEQ-13, UNH login 5.1");
        assert!(!(request.transit && request.is_continued), "LOG-08");
        assert_ne!(request.current_stage, Stage::FullFeature, "LOG-07");
        assert!(self.data.len() <= 8192, "LOG-29");
        assert!(request.is_continued || self.data.last().is_none_or(|&last| last == 0), "TXT-01");
        let polled = self.login.poll_request(&self.config, &mut |_: &mut [u8]| {});
        assert!(polled.is_none(), "LOG-02: one outstanding request");
    }

    /// UNH login 7.1, LOG-05, TXT-18: checks that no key is sent twice in a login. Only texts that are
    /// complete in one request are checked.
    fn check_keys(&mut self) {
        if self.request.is_continued {
            return;
        }
        for (key, _) in self.sent() {
            assert!(self.sent_keys.insert(key.clone()), "UNH login 7.1: {key} was sent twice");
        }
    }

    /// Returns the pairs of the outstanding request.
    fn sent(&self) -> Vec<(String, String)> {
        let text = std::str::from_utf8(&self.data).unwrap();
        let split = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap();
            (key.to_owned(), value.to_owned())
        };
        text.split_terminator('\0').map(split).collect()
    }

    /// Returns the pairs of the outstanding request as one line.
    fn line(&self) -> String {
        let pairs: Vec<_> =
            self.sent().iter().map(|(key, value)| format!("{key}={value}")).collect();
        pairs.join(" ")
    }

    /// Returns the value of a key in the outstanding request.
    fn value(&self, key: &str) -> String {
        let pair = self.sent().into_iter().find(|(sent, _)| sent == key);
        pair.unwrap_or_else(|| panic!("{key} is not in {}", self.line())).1
    }

    /// Returns the stage and the T bit of the outstanding request.
    fn stage(&self) -> (Stage, bool) {
        (self.request.current_stage, self.request.transit)
    }

    /// Answers the operational keys with `text` and expects the login to be complete.
    fn conclude(&mut self, text: &str) -> LoggedIn {
        match self.reply(text).unwrap() {
            Progress::FullFeature(outcome) => *outcome,
            Progress::Pending | Progress::Redirected(_) => panic!("the login is not complete"),
        }
    }
}

/// Returns a source of bytes that counts up, so that a test knows the bytes in advance.
fn counter(next: &mut u8) -> impl FnMut(&mut [u8]) + '_ {
    move |bytes| {
        for byte in bytes {
            *byte = *next;
            *next = next.wrapping_add(1);
        }
    }
}

/// Returns the agreed parameters if the target answers the operational keys of a normal session with `text`.
fn negotiated(text: &str) -> Negotiated {
    Rig::new(normal()).conclude(text).negotiated
}

//! The login phase of one connection (RFC 7143 §6.3): requests and responses in turn, through
//! SecurityNegotiation (only with credentials) and OperationalNegotiation, to full feature phase.
//!
//! ```text
//!             with credentials                    without
//!                    │                               │
//!                    ▼                               │
//!          SecurityNegotiation ── T=1 NSG=1 ──►      ▼
//!            chap_exchange.rs             OperationalNegotiation ── T=1 NSG=3 ──► full feature
//!                                             negotiate.rs
//! ```
//! Without credentials the login starts in the second stage and so takes a single round trip.

mod chap_exchange;
mod error;
pub(crate) mod logins;
mod negotiate;
mod parameter;
mod response;
#[cfg(test)]
mod tests;
mod text;

pub use error::{AuthenticationError, LoginError, LoginViolation, NegotiationFault};
pub(crate) use response::Redirect;

use bytes::Bytes;
use iscsi_pdu::keys::{
    DEFAULT_MAX_RECV_DATA_SEGMENT_LENGTH, DISCOVERY, Key, Kind, MAX_VALUE_LEN, NORMAL, TextBuilder,
    decode_pairs,
};
use iscsi_pdu::{
    Cid, CmdSn, Isid, Itt, LOGIN_VERSION, LoginRequest, LoginResponse, LoginStatus, Stage, StatSn,
    Tsih,
};

use crate::config::{Config, SessionKind};
use crate::entropy::Entropy;
use crate::params::Negotiated;
use chap_exchange::{AuthenticationKeys, ChapExchange};
use negotiate::Negotiation;
use response::{Expected, check_acknowledgement, next_stage, read_redirect};
use text::{Incoming, Outgoing, SeenKeys};

/// The most exchanges of a login. A reasonable login has about ten at most.
const MAX_EXCHANGES: u32 = 64;

/// The fields that identify a login. They are the same in all its requests (RFC 7143 §11.12).
#[derive(Clone, Debug)]
pub(crate) struct LoginIdentity {
    pub(crate) cid: Cid,
    /// TSIH: zero for a new session; the TSIH of the session for an added connection.
    pub(crate) tsih: Tsih,
    pub(crate) itt: Itt,
    pub(crate) cmd_sn: CmdSn,
    /// Whether this is the first connection of its session.
    pub(crate) leading: bool,
    /// The agreed parameters of the session, if the connection is added to one.
    pub(crate) session: Option<Negotiated>,
    /// Whether to propose only one CHAP algorithm.
    pub(crate) single_chap_algorithm: bool,
}

/// The result of a login response.
#[derive(Debug)]
pub(crate) enum Progress {
    /// The next request is due.
    Pending,
    /// The target redirects the login to another address; the connection must be closed.
    Redirected(Redirect),
    /// The login is complete.
    FullFeature(Box<LoggedIn>),
}

/// The result of a successful login.
#[derive(Debug)]
pub(crate) struct LoggedIn {
    pub(crate) tsih: Tsih,
    pub(crate) negotiated: Negotiated,
    pub(crate) exp_stat_sn: StatSn,
    pub(crate) exp_cmd_sn: CmdSn,
    pub(crate) max_cmd_sn: CmdSn,
}

/// Next step of the login.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// The text of the initiator's next step must be written.
    Write,
    /// The text is written. The part that is not sent yet, which may be empty, must be sent.
    Send,
    /// A request is outstanding.
    Receive(Sent),
}

/// Flags of the outstanding request that decide which responses are allowed.
#[derive(Clone, Copy, Debug)]
struct Sent {
    transit: bool,
    continued: bool,
}

/// The keys, other than answers and CHAP, that the initiator has not sent yet.
#[derive(Clone, Copy, Debug)]
struct Unsent {
    names: bool,
    /// Whether the operational keys that the initiator proposes must still be sent.
    proposals: bool,
}

/// One login, request by request.
#[derive(Debug)]
pub(crate) struct Login {
    identity: LoginIdentity,
    isid: Isid,
    stage: Stage,
    turn: Turn,
    unsent: Unsent,
    outgoing: Outgoing,
    incoming: Incoming,
    exp_stat_sn: Option<StatSn>,
    exchanges: u32,
    seen: SeenKeys,
    chap: Option<ChapExchange>,
    negotiation: Negotiation,
}

impl Login {
    pub(crate) fn new(config: &Config, identity: LoginIdentity) -> Self {
        let single = identity.single_chap_algorithm;
        let chap = config.chap.as_ref();
        let chap = chap.map(|chap| ChapExchange::new(chap, &config.issued_challenges, single));
        let stage = match chap {
            Some(_) => Stage::SecurityNegotiation,
            None => Stage::OperationalNegotiation,
        };
        Self {
            negotiation: Negotiation::new(config, identity.session.as_ref()),
            identity,
            isid: config.isid,
            stage,
            turn: Turn::Write,
            unsent: Unsent { names: true, proposals: true },
            outgoing: Outgoing::default(),
            incoming: Incoming::default(),
            exp_stat_sn: None,
            exchanges: 0,
            seen: SeenKeys::default(),
            chap,
        }
    }

    /// Returns the next request with its data segment; `None` while a response is outstanding.
    pub(crate) fn poll_request(
        &mut self,
        config: &Config,
        entropy: &mut dyn Entropy,
    ) -> Option<(LoginRequest, Bytes)> {
        match self.turn {
            Turn::Write => self.write_step(config, entropy),
            Turn::Send => {}
            Turn::Receive(_) => return None,
        }
        let declared = self.negotiation.target_max_recv_data_segment_length();
        let limit = usize::try_from(declared.min(DEFAULT_MAX_RECV_DATA_SEGMENT_LENGTH))
            .unwrap_or(usize::MAX);
        let (segment, continued) = self.outgoing.next(limit);
        let sent = Sent { transit: self.outgoing.proposes_transit() && !continued, continued };
        self.turn = Turn::Receive(sent);
        Some((self.request(sent), segment))
    }

    /// Handles the response to the outstanding request, with the data segment `data`.
    ///
    /// # Errors
    ///
    /// The login has failed and the connection must be closed.
    pub(crate) fn handle_response(
        &mut self,
        config: &Config,
        response: &LoginResponse,
        data: &[u8],
    ) -> Result<Progress, LoginError> {
        let Turn::Receive(sent) = self.turn else { return Err(LoginViolation::Unsolicited.into()) };
        match response.status.class {
            LoginStatus::CLASS_SUCCESS => self.check_header(sent, response)?,
            LoginStatus::CLASS_REDIRECTION => {
                return Ok(Progress::Redirected(read_redirect(response.status, data)?));
            }
            _ => return Err(LoginError::Status(response.status)),
        }
        if sent.continued {
            check_acknowledgement(response, data)?;
            return Ok(self.go_on(Turn::Send));
        }
        self.incoming.push(data)?;
        if response.is_continued {
            return Ok(self.go_on(Turn::Send));
        }
        self.receive_step(config)?;
        if response.transit { self.leave_stage(response) } else { Ok(self.go_on(Turn::Write)) }
    }

    /// Returns whether a failed login is worth one retry with
    /// [`single_chap_algorithm`](LoginIdentity::single_chap_algorithm).
    pub(crate) fn may_retry_with_single_algorithm(&self, error: &LoginError) -> bool {
        self.chap.as_ref().is_some_and(|chap| chap.may_have_stumbled_over_list(error))
    }

    /// Returns whether to retry with [`single_chap_algorithm`](LoginIdentity::single_chap_algorithm), after
    /// the target has closed the connection without a response.
    pub(crate) fn may_retry_after_close(&self) -> bool {
        let is_outstanding = matches!(self.turn, Turn::Receive(_));
        is_outstanding && self.chap.as_ref().is_some_and(ChapExchange::may_have_closed_over_list)
    }

    fn request(&self, sent: Sent) -> LoginRequest {
        LoginRequest {
            transit: sent.transit,
            is_continued: sent.continued,
            current_stage: self.stage,
            next_stage: next_stage(self.stage),
            version_max: LOGIN_VERSION,
            version_min: LOGIN_VERSION,
            isid: self.isid,
            tsih: self.identity.tsih,
            itt: self.identity.itt,
            cid: self.identity.cid,
            cmd_sn: self.identity.cmd_sn,
            exp_stat_sn: self.exp_stat_sn.unwrap_or_default(),
        }
    }

    fn write_step(&mut self, config: &Config, entropy: &mut dyn Entropy) {
        let mut text = TextBuilder::new();
        if std::mem::take(&mut self.unsent.names) {
            write_names(config, self.identity.leading, &mut text);
        }
        let mut transit = true;
        if self.stage == Stage::SecurityNegotiation {
            if let (Some(exchange), Some(chap)) = (&mut self.chap, &config.chap) {
                transit = exchange.wants_transit();
                exchange.write(chap, entropy, &mut text);
            }
        } else if std::mem::take(&mut self.unsent.proposals) {
            self.negotiation.write_proposals(&mut text);
        }
        self.negotiation.write_replies(&mut text);
        self.outgoing = Outgoing::new(text.finish(), transit);
    }

    fn check_header(&mut self, sent: Sent, response: &LoginResponse) -> Result<(), LoginError> {
        let expected = Expected {
            itt: self.identity.itt,
            stage: self.stage,
            transit: sent.transit,
            stat_sn: self.exp_stat_sn,
        };
        expected.check(response)?;
        self.exp_stat_sn = Some(response.stat_sn.next());
        self.exchanges += 1;
        if self.exchanges > MAX_EXCHANGES {
            return Err(LoginError::TooManyExchanges(MAX_EXCHANGES));
        }
        Ok(())
    }

    /// Continues the login with `turn`. A login that has failed or ended does not call this, and sends no
    /// more requests.
    fn go_on(&mut self, turn: Turn) -> Progress {
        self.turn = turn;
        Progress::Pending
    }

    /// Processes the complete text of one step of the target.
    fn receive_step(&mut self, config: &Config) -> Result<(), LoginError> {
        let text = self.incoming.take();
        let mut authentication = AuthenticationKeys::default();
        for (name, value) in decode_pairs(&text)? {
            self.seen.record_key(name)?;
            match Key::from_name(name) {
                None => self.negotiation.receive_unknown(name, value)?,
                Some(key) if is_authentication(key) => authentication.push(key, value),
                Some(key) => self.negotiation.receive(self.stage, key, value)?,
            }
        }
        self.receive_authentication(config, authentication)
    }

    fn receive_authentication(
        &mut self,
        config: &Config,
        keys: AuthenticationKeys<'_>,
    ) -> Result<(), LoginError> {
        match (&mut self.chap, &config.chap) {
            (Some(exchange), Some(chap)) if self.stage == Stage::SecurityNegotiation => {
                exchange.receive(chap, keys)?;
            }
            _ => keys.check_idle(self.chap.is_none())?,
        }
        Ok(())
    }

    fn leave_stage(&mut self, response: &LoginResponse) -> Result<Progress, LoginError> {
        if self.stage != Stage::SecurityNegotiation {
            return self.finish(response);
        }
        if !self.chap.as_ref().is_some_and(ChapExchange::is_complete) {
            return Err(AuthenticationError::Incomplete.into());
        }
        self.stage = Stage::OperationalNegotiation;
        Ok(self.go_on(Turn::Write))
    }

    fn finish(&mut self, response: &LoginResponse) -> Result<Progress, LoginError> {
        self.check_tsih(response.tsih)?;
        Ok(Progress::FullFeature(Box::new(LoggedIn {
            tsih: response.tsih,
            negotiated: self.negotiation.finish()?,
            exp_stat_sn: response.stat_sn.next(),
            exp_cmd_sn: response.exp_cmd_sn,
            max_cmd_sn: response.max_cmd_sn,
        })))
    }

    /// Checks the TSIH of the last response, which assigns the handle of a new session, or repeats the handle
    /// of an existing one. In earlier responses the field has no meaning (RFC 7143 §11.13.3). A new session
    /// may lack a handle: then no connection can join it.
    fn check_tsih(&self, tsih: Tsih) -> Result<(), LoginViolation> {
        if self.identity.tsih != Tsih::NEW_SESSION && self.identity.tsih != tsih {
            return Err(LoginViolation::Mismatch("TSIH"));
        }
        Ok(())
    }
}

fn is_authentication(key: Key) -> bool {
    key == Key::AuthMethod || key.definition().kind == Kind::Authentication
}

/// Writes names and session type, which are only in the first request (RFC 7143 §6.3, §13.4-13.7, §13.21).
fn write_names(config: &Config, leading: bool, text: &mut TextBuilder) {
    text.pair(Key::InitiatorName.name(), config.initiator_name.as_str());
    let session_type = match &config.kind {
        SessionKind::Discovery => DISCOVERY,
        SessionKind::Normal { target_name } => {
            text.pair(Key::TargetName.name(), target_name.as_str());
            NORMAL
        }
    };
    if leading {
        text.pair(Key::SessionType.name(), session_type);
    }
    match &config.initiator_alias {
        Some(alias) if alias.len() <= MAX_VALUE_LEN => {
            text.pair(Key::InitiatorAlias.name(), alias);
        }
        Some(_) => tracing::warn!("InitiatorAlias is longer than 255 bytes and is not sent"),
        None => {}
    }
}

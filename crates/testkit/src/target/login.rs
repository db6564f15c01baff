//! The login phase (RFC 7143 §6.3, §11.12, §11.13).

pub(super) mod state;

use bytes::Bytes;

use super::connection::{Outgoing, Phase};
use super::node::Target;
use super::params::{Response, respond};
use super::session::{Nexus, Session};
use crate::config::{Answer, Stage};
use crate::conn_id::ConnId;
use crate::frame::Framing;
use crate::opcode::Opcode;
use crate::pdu::{CONTINUE, FINAL, Pdu};
use crate::text::Pairs;
use state::{Login, Progress, Refusal};

const SECURITY: u8 = 0;
const FULL_FEATURE: u8 = 3;

impl Target {
    /// Handles one login request.
    pub(super) fn login(&mut self, id: ConnId, pdu: &Pdu) {
        if self.config.login.silent {
            return;
        }
        let Phase::Login(login) = &mut self.connections[id.0].phase else { return };
        let mut login = std::mem::take(login);
        self.connections[id.0].login_cmd_sn = pdu.cmd_sn();
        match self.converse(&mut login, pdu).and_then(|()| self.answer_part(id, &mut login, pdu)) {
            Ok(response) => {
                let done = response.is_final() && response.nsg() == FULL_FEATURE;
                self.connections[id.0].phase =
                    if done { Phase::FullFeature } else { Phase::Login(login) };
                self.enqueue(id, Outgoing::Pdu(response));
            }
            Err(refusal) => self.refuse(id, &login, pdu, refusal),
        }
    }

    /// Collects the text of a request. Once the text is complete, prepares the text of the response.
    fn converse(&mut self, login: &mut Login, pdu: &Pdu) -> Result<(), Refusal> {
        if !pdu.is(Opcode::LoginRequest) || pdu.csg() > 1 {
            return Err(Refusal::INVALID);
        }
        if pdu.u8_at(3) != 0 {
            return Err(Refusal::VERSION);
        }
        login.request.extend_from_slice(&pdu.data);
        if pdu.continues() || login.answer.is_some() {
            return Ok(());
        }
        let request = std::mem::take(&mut login.request);
        let pairs = Pairs::split(&request).map_err(|_| Refusal::INITIATOR_ERROR)?;
        let answer = self.answer_login(login, pdu, &pairs)?;
        login.answer = Some(Bytes::from(answer.join()));
        Ok(())
    }

    fn answer_login(
        &mut self,
        login: &mut Login,
        pdu: &Pdu,
        pairs: &Pairs,
    ) -> Result<Pairs, Refusal> {
        let mut answer = Pairs::default();
        if !login.identified {
            self.identify(login, pdu, pairs)?;
        }
        self.redirect(login, false)?;
        self.declare(login, pdu, &mut answer);
        if pdu.csg() == SECURITY {
            self.security(login, pdu, pairs, &mut answer)?;
        } else {
            self.require_authentication(login)?;
            self.redirect(login, true)?;
            self.negotiate(login, pairs, &mut answer)?;
        }
        Ok(answer)
    }

    /// Reads the names of initiator and target from the first request, and refuses a login with wrong names.
    fn identify(&mut self, login: &mut Login, pdu: &Pdu, pairs: &Pairs) -> Result<(), Refusal> {
        self.refuse_by_configuration()?;
        login.discovery = pairs.get("SessionType") == Some("Discovery");
        login.rounds = self.config.login.extra_rounds;
        login.nexus = Nexus {
            initiator: pairs.get("InitiatorName").ok_or(Refusal::MISSING)?.into(),
            isid: pdu.isid(),
            target: pairs.get("TargetName").unwrap_or_default().into(),
        };
        let name = &login.nexus.target;
        if !login.discovery && name.is_empty() {
            return Err(Refusal::MISSING);
        }
        if !login.discovery && !self.config.names.contains(name) {
            return Err(Refusal::NOT_FOUND);
        }
        login.identified = true;
        self.check_tsih(login, pdu)
    }

    fn refuse_by_configuration(&mut self) -> Result<(), Refusal> {
        let behavior = &self.config.login;
        let Some((class, detail)) = behavior.refuse else { return Ok(()) };
        if behavior.refuse_times > 0 && self.counts.refused >= behavior.refuse_times {
            return Ok(());
        }
        self.counts.refused += 1;
        Err(Refusal(class, detail))
    }

    /// Checks the TSIH. A value other than 0 requests a further connection of that session.
    fn check_tsih(&mut self, login: &Login, pdu: &Pdu) -> Result<(), Refusal> {
        if pdu.tsih() == 0 {
            return Ok(());
        }
        let session = self.sessions.get(&pdu.tsih());
        let session = session.filter(|session| session.nexus == login.nexus);
        let session = session.ok_or(Refusal::NO_SESSION)?;
        let mut others = session.connections.iter().map(|other| &self.connections[other.0]);
        let replaces = others.any(|other| other.cid == pdu.cid());
        let full = session.connections.len() >= session.params.max_connections as usize;
        if full && !replaces { Err(Refusal::TOO_MANY) } else { Ok(()) }
    }

    fn redirect(&self, login: &mut Login, authenticated: bool) -> Result<(), Refusal> {
        match &self.config.login.redirect {
            Some(redirect) if redirect.after_authentication == authenticated => {
                login.redirected = Some(redirect.address.clone());
                Err(Refusal(1, if redirect.permanent { 2 } else { 1 }))
            }
            _ => Ok(()),
        }
    }

    /// Appends the keys that the target declares without an offer: some once per login, others once per
    /// stage.
    fn declare(&self, login: &mut Login, pdu: &Pdu, answer: &mut Pairs) {
        if !login.declared && !login.discovery {
            let group = self.config.portal_group.map(|group| group.to_string());
            self.append_pair(answer, "TargetPortalGroupTag", group);
            self.append_pair(answer, "TargetAlias", self.config.alias.clone());
        }
        login.declared = true;
        if std::mem::replace(&mut login.visited[usize::from(pdu.csg())], true) {
            return;
        }
        if pdu.csg() != SECURITY {
            let segment = self.config.keys.max_recv_data_segment_length;
            self.append_pair(
                answer,
                "MaxRecvDataSegmentLength",
                segment.map(|value| value.to_string()),
            );
        }
        let stage = if pdu.csg() == SECURITY { Stage::Security } else { Stage::Operational };
        for pair in self.config.keys.originate.iter().filter(|pair| pair.stage == stage) {
            answer.push(&pair.key, &pair.value);
            login.originated.insert(pair.key.clone());
        }
    }

    /// Appends a pair, unless the configuration omits it or replaces its value.
    fn append_pair(&self, answer: &mut Pairs, key: &str, value: Option<String>) {
        let value = match self.config.keys.answers.get(key) {
            Some(Answer::Omit) => None,
            Some(Answer::Literal(literal)) => Some(literal.clone()),
            None => value,
        };
        if let Some(value) = value {
            answer.push(key, value);
        }
    }

    fn security(
        &mut self,
        login: &mut Login,
        pdu: &Pdu,
        pairs: &Pairs,
        answer: &mut Pairs,
    ) -> Result<(), Refusal> {
        if let Some(offer) = pairs.get("AuthMethod") {
            let method = self.choose_method(login, offer)?;
            self.append_pair(answer, "AuthMethod", Some(method.into()));
        } else if pairs.0.iter().any(|(key, _)| key.starts_with("CHAP_")) {
            let mut progress = std::mem::take(&mut login.progress);
            let step = self.chap_step(&mut progress, pairs)?;
            login.progress = progress;
            for (key, value) in step.0 {
                self.append_pair(answer, &key, Some(value));
            }
        } else if pdu.is_final() {
            self.require_authentication(login)?;
        }
        for (key, _) in pairs.0.iter().filter(|(key, _)| is_foreign(key)) {
            self.append_pair(answer, key, Some("NotUnderstood".into()));
        }
        Ok(())
    }

    /// Returns the authentication method: CHAP if it is required, otherwise None.
    fn choose_method(&self, login: &mut Login, offer: &str) -> Result<&'static str, Refusal> {
        let offers = |method| offer.split(',').any(|offered| offered == method);
        if self.wants_chap(login) {
            if !offers("CHAP") {
                return Err(Refusal::AUTHENTICATION);
            }
            login.progress = Progress::Chosen;
            return Ok("CHAP");
        }
        Ok(if offers("None") { "None" } else { "Reject" })
    }

    fn wants_chap(&self, login: &Login) -> bool {
        self.config.chap.as_ref().is_some_and(|chap| chap.discovery || !login.discovery)
    }

    fn require_authentication(&self, login: &Login) -> Result<(), Refusal> {
        let proven = matches!(login.progress, Progress::Done) || !self.wants_chap(login);
        if proven { Ok(()) } else { Err(Refusal::AUTHENTICATION) }
    }

    fn negotiate(
        &self,
        login: &mut Login,
        pairs: &Pairs,
        answer: &mut Pairs,
    ) -> Result<(), Refusal> {
        for (key, value) in &pairs.0 {
            if login.originated.contains(key) {
                login.params.apply(key, value);
                continue;
            }
            match respond(&self.config.keys, key, value) {
                Response::Declared => login.params.apply(key, value),
                Response::Refused => return Err(Refusal::INITIATOR_ERROR),
                Response::Value(result) => {
                    let before = answer.0.len();
                    self.append_pair(answer, key, Some(result));
                    if let Some((key, value)) = answer.0.get(before) {
                        login.params.apply(key, value);
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the next part of the response text. Only the last part may agree to leave the stage.
    fn answer_part(&mut self, id: ConnId, login: &mut Login, pdu: &Pdu) -> Result<Pdu, Refusal> {
        let mut response = response_to(pdu, self.config.login.version_active);
        let mut rest = login.answer.take().unwrap_or_default();
        let limit = self.config.login.split.unwrap_or(usize::MAX).clamp(1, 8192);
        response.data = rest.split_to(rest.len().min(limit));
        if !rest.is_empty() {
            response.header[1] |= CONTINUE;
            login.answer = Some(rest);
        } else if pdu.is_final() && self.may_leave(login, pdu) {
            self.leave(id, login, pdu, &mut response)?;
        }
        Ok(response)
    }

    fn may_leave(&self, login: &mut Login, pdu: &Pdu) -> bool {
        if pdu.csg() == SECURITY && self.require_authentication(login).is_err() {
            return false;
        }
        let ready = login.rounds == 0;
        login.rounds = login.rounds.saturating_sub(1);
        ready
    }

    fn leave(
        &mut self,
        id: ConnId,
        login: &mut Login,
        pdu: &Pdu,
        response: &mut Pdu,
    ) -> Result<(), Refusal> {
        response.header[1] |= FINAL | pdu.nsg();
        if pdu.nsg() == FULL_FEATURE {
            self.redirect(login, true)?;
            let tsih = self.establish(id, login, pdu);
            let shown = self.config.login.tsih.unwrap_or(tsih);
            response.set(14, &shown.to_be_bytes());
        }
        Ok(())
    }

    /// Starts a session, or adds a connection to one.
    fn establish(&mut self, id: ConnId, login: &Login, pdu: &Pdu) -> u16 {
        let tsih = if pdu.tsih() == 0 { self.start_session(login, pdu) } else { pdu.tsih() };
        self.drop_connection_with(tsih, pdu.cid());
        if let Some(session) = self.sessions.get_mut(&tsih) {
            session.connections.push(id);
        }
        let connection = &mut self.connections[id.0];
        connection.session = tsih;
        connection.cid = pdu.cid();
        connection.segment = login.params.initiator_segment;
        connection.framing = Framing {
            header_digest: login.params.header_digest,
            data_digest: login.params.data_digest,
        };
        tsih
    }

    /// Starts a session. An old session of the same nexus is reinstated, that is, dropped (RFC 7143 §6.3.5).
    fn start_session(&mut self, login: &Login, pdu: &Pdu) -> u16 {
        let old = self.sessions.values().find(|session| session.nexus == login.nexus);
        for id in old.map(|session| session.connections.clone()).unwrap_or_default() {
            self.close(id);
        }
        self.give_up(|late| late.nexus == login.nexus);
        let tsih = self.next_tsih;
        self.next_tsih = tsih.checked_add(1).unwrap_or(1);
        let (params, nexus) = (login.params.clone(), login.nexus.clone());
        let first_tag = self.config.r2t.first_tag;
        let mut session = Session::new(nexus, params, pdu.cmd_sn(), self.config.window, first_tag);
        session.discovery = login.discovery;
        self.prepare_attentions(&mut session);
        self.sessions.insert(tsih, session);
        tsih
    }

    /// Drops the connection that a new one with the same CID replaces (RFC 7143 §6.3.4).
    fn drop_connection_with(&mut self, tsih: u16, cid: u16) {
        let Some(session) = self.sessions.get(&tsih) else { return };
        let old = session.connections.iter().find(|old| self.connections[old.0].cid == cid);
        let Some(old) = old.copied() else { return };
        self.give_up(|late| late.connection == old);
        self.connections[old.0].cut();
        self.checker.closed(old);
        if let Some(session) = self.sessions.get_mut(&tsih) {
            session.forget_connection(old);
        }
    }

    fn refuse(&mut self, id: ConnId, login: &Login, pdu: &Pdu, refusal: Refusal) {
        let mut response = response_to(pdu, self.config.login.version_active);
        response.set(36, &[refusal.0, refusal.1]);
        if let Some(address) = &login.redirected {
            response.data =
                [("TargetAddress", address)].into_iter().collect::<Pairs>().join().into();
        }
        self.enqueue(id, Outgoing::Pdu(response));
        self.close_after_transmit(id);
    }
}

/// Returns whether a key does not belong in the security stage.
fn is_foreign(key: &str) -> bool {
    let known = ["SessionType", "InitiatorName", "InitiatorAlias", "TargetName", "AuthMethod"];
    !known.contains(&key) && !key.starts_with("CHAP_")
}

/// Creates a response in the stage of the request, with T=0.
fn response_to(pdu: &Pdu, version_active: u8) -> Pdu {
    let mut response = Pdu::new(Opcode::LoginResponse);
    response.header[1] = pdu.csg() << 2;
    response.set(3, &[version_active]);
    response.set(8, &pdu.header[8..16]);
    response.set_u32(16, pdu.itt());
    response
}

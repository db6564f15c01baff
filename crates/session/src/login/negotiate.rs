//! Operational parameters: proposals, answers, and the results (RFC 7143 §6.2, §13).

use iscsi_pdu::keys::{
    CRC32C, IRRELEVANT, Key, Kind, MAX_VALUE_LEN, NOT_UNDERSTOOD, REJECT, Sender, TextBuilder, Use,
    printable,
};
use iscsi_pdu::{Digest, Stage};

use super::error::{LoginError, NegotiationFault};
use super::parameter::{Parameter, Value, is_reserved_answer, parameters};
use crate::config::{Config, SessionKind};
use crate::params::Negotiated;

/// The negotiation of one login.
#[derive(Debug)]
pub(super) struct Negotiation {
    parameters: Vec<Parameter>,
    /// The values that apply if nothing is negotiated, and the declarations of the target.
    base: Negotiated,
    discovery: bool,
    expected_portal_group: Option<u16>,
    /// Answers to keys of the target, not sent yet.
    replies: Vec<(String, String)>,
}

impl Negotiation {
    /// Creates a negotiation. The leading connection negotiates the parameters of the session. An added
    /// connection negotiates only its own parameters; `session` holds the agreed parameters of the session.
    pub(super) fn new(config: &Config, session: Option<&Negotiated>) -> Self {
        let base = session.map_or_else(Negotiated::default, of_added_connection);
        Self {
            parameters: parameters(config, session.is_none()),
            expected_portal_group: config
                .expected_portal_group_tag
                .or(base.target_portal_group_tag),
            base,
            discovery: config.kind == SessionKind::Discovery,
            replies: Vec::new(),
        }
    }

    /// Writes the proposals.
    pub(super) fn write_proposals(&self, text: &mut TextBuilder) {
        for parameter in self.parameters.iter().filter(|parameter| parameter.proposed) {
            text.pair(parameter.key.name(), &parameter.own.to_string());
        }
    }

    /// Writes the answers to keys that the target proposed; each answer is written once.
    pub(super) fn write_replies(&mut self, text: &mut TextBuilder) {
        for (key, value) in self.replies.drain(..) {
            text.pair(&key, &value);
        }
    }

    /// Processes a key that is in neither standard (RFC 7143, RFC 7144).
    pub(super) fn receive_unknown(&mut self, name: &str, value: &str) -> Result<(), LoginError> {
        if is_reserved_answer(value) {
            return Err(LoginError::negotiation(name, NegotiationFault::AnswerWithoutProposal));
        }
        self.reply(name, NOT_UNDERSTOOD);
        Ok(())
    }

    /// Processes a key of the target that is not part of an authentication.
    pub(super) fn receive(
        &mut self,
        stage: Stage,
        key: Key,
        value: &str,
    ) -> Result<(), LoginError> {
        let fault = |why| LoginError::negotiation(key.name(), why);
        check_place(stage, key).map_err(fault)?;
        if value.len() > MAX_VALUE_LEN {
            return Err(fault(NegotiationFault::TooLong(value.len())));
        }
        if key == Key::TargetPortalGroupTag {
            return self.receive_portal_group(value);
        }
        self.receive_value(key, value).map_err(fault)
    }

    fn receive_portal_group(&mut self, value: &str) -> Result<(), LoginError> {
        let key = Key::TargetPortalGroupTag;
        let number = key.definition().kind.check_number(value);
        let found = number.map_err(|why| LoginError::negotiation(key.name(), why))?;
        let found = saturate(found);
        self.base.target_portal_group_tag = Some(found);
        match self.expected_portal_group {
            Some(expected) if expected != found => Err(LoginError::PortalGroup { expected, found }),
            _ => Ok(()),
        }
    }

    fn receive_value(&mut self, key: Key, value: &str) -> Result<(), NegotiationFault> {
        let Some(parameter) = self.parameters.iter_mut().find(|parameter| parameter.key == key)
        else {
            return self.receive_other(key, value);
        };
        if parameter.proposed {
            return parameter.take_answer(value);
        }
        check_proposal(value)?;
        let reply = if self.discovery && key.definition().irrelevant_in_discovery {
            IRRELEVANT.to_owned()
        } else {
            let outcome = parameter.take_proposal(value)?;
            outcome.map_or_else(|| REJECT.to_owned(), |value| value.to_string())
        };
        self.reply(key.name(), &reply);
        Ok(())
    }

    /// Processes a key for which the initiator has no value.
    fn receive_other(&mut self, key: Key, value: &str) -> Result<(), NegotiationFault> {
        let reply = match key.definition().kind {
            Kind::Declaration => {
                self.declare(key, value);
                return Ok(());
            }
            Kind::Obsolete { reply } => reply,
            // A key of the whole session on an added connection: the agreed value stays.
            Kind::List
            | Kind::Minimum { .. }
            | Kind::Maximum { .. }
            | Kind::DeclaredNumber { .. }
            | Kind::And { .. }
            | Kind::Or { .. }
            | Kind::Authentication => REJECT,
        };
        check_proposal(value)?;
        self.reply(key.name(), reply);
        Ok(())
    }

    fn declare(&mut self, key: Key, value: &str) {
        if key == Key::TargetAlias {
            self.base.target_alias = Some(printable(value));
        }
    }

    fn reply(&mut self, name: &str, value: &str) {
        self.replies.push((name.to_owned(), value.to_owned()));
    }

    /// Returns the longest data segment that the target accepts, bytes: the declared one, else the default.
    pub(super) fn target_max_recv_data_segment_length(&self) -> u32 {
        let declared = self.number(Key::MaxRecvDataSegmentLength);
        declared.unwrap_or(self.base.target_max_recv_data_segment_length)
    }

    /// Returns the parameters in force if the login is complete at this point.
    ///
    /// # Errors
    ///
    /// A combination that the standard or the configuration forbids. It can be checked only here, where all keys
    /// are known.
    pub(super) fn finish(&mut self) -> Result<Negotiated, LoginError> {
        self.forget_unanswered();
        let negotiated = self.negotiated();
        self.check_digest(Key::HeaderDigest, negotiated.header_digest)?;
        self.check_digest(Key::DataDigest, negotiated.data_digest)?;
        self.check_bursts(negotiated)
    }

    /// Discards the results of the target's proposals to which the initiator had no chance to answer.
    fn forget_unanswered(&mut self) {
        for (name, _) in self.replies.drain(..) {
            let mut parameters = self.parameters.iter_mut();
            if let Some(parameter) = parameters.find(|parameter| parameter.key.name() == name) {
                parameter.outcome = None;
            }
        }
    }

    fn negotiated(&self) -> Negotiated {
        let base = &self.base;
        Negotiated {
            header_digest: self.digest(Key::HeaderDigest),
            data_digest: self.digest(Key::DataDigest),
            initiator_max_recv_data_segment_length: self.declared_receive_length(),
            target_max_recv_data_segment_length: self.target_max_recv_data_segment_length(),
            max_connections: self.short(Key::MaxConnections, base.max_connections),
            initial_r2t: self.boolean(Key::InitialR2T, base.initial_r2t),
            immediate_data: self.boolean(Key::ImmediateData, base.immediate_data),
            max_burst_length: self.number(Key::MaxBurstLength).unwrap_or(base.max_burst_length),
            first_burst_length: self
                .number(Key::FirstBurstLength)
                .unwrap_or(base.first_burst_length),
            default_time2wait: self.short(Key::DefaultTime2Wait, base.default_time2wait),
            default_time2retain: self.short(Key::DefaultTime2Retain, base.default_time2retain),
            max_outstanding_r2t: self.short(Key::MaxOutstandingR2T, base.max_outstanding_r2t),
            data_pdu_in_order: self.boolean(Key::DataPDUInOrder, base.data_pdu_in_order),
            data_sequence_in_order: self
                .boolean(Key::DataSequenceInOrder, base.data_sequence_in_order),
            error_recovery_level: self.byte(Key::ErrorRecoveryLevel, base.error_recovery_level),
            protocol_level: self.byte(Key::ISCSIProtocolLevel, base.protocol_level),
            target_portal_group_tag: base.target_portal_group_tag,
            target_alias: base.target_alias.clone(),
        }
    }

    fn check_digest(&self, key: Key, digest: Digest) -> Result<(), LoginError> {
        let insists = self.own(key) == Some(Value::List(CRC32C));
        if insists && digest == Digest::None {
            return Err(LoginError::negotiation(key.name(), NegotiationFault::Required(CRC32C)));
        }
        Ok(())
    }

    /// Checks that FirstBurstLength does not exceed MaxBurstLength. If writes never start without an R2T,
    /// FirstBurstLength has no meaning, and a default or an old answer must not fail the login.
    fn check_bursts(&self, mut negotiated: Negotiated) -> Result<Negotiated, LoginError> {
        let first = negotiated.first_burst_length;
        let max = negotiated.max_burst_length;
        let in_use = !negotiated.initial_r2t || negotiated.immediate_data;
        let answered = self.outcome(Key::FirstBurstLength).is_some();
        if first > max && (in_use || answered) && !self.discovery {
            let why = NegotiationFault::ExceedsMaxBurstLength { first, max };
            return Err(LoginError::negotiation(Key::FirstBurstLength.name(), why));
        }
        negotiated.first_burst_length = first.min(max);
        Ok(negotiated)
    }

    fn find(&self, key: Key) -> Option<&Parameter> {
        self.parameters.iter().find(|parameter| parameter.key == key)
    }

    fn own(&self, key: Key) -> Option<Value> {
        self.find(key).map(|parameter| parameter.own)
    }

    fn outcome(&self, key: Key) -> Option<Value> {
        self.find(key).and_then(|parameter| parameter.outcome)
    }

    fn number(&self, key: Key) -> Option<u32> {
        match self.outcome(key) {
            Some(Value::Number(number)) => Some(number),
            Some(Value::Boolean(_) | Value::List(_)) | None => None,
        }
    }

    fn short(&self, key: Key, base: u16) -> u16 {
        self.number(key).map_or(base, saturate)
    }

    fn byte(&self, key: Key, base: u8) -> u8 {
        self.number(key).map_or(base, |number| u8::try_from(number).unwrap_or(u8::MAX))
    }

    /// Returns the value of a boolean key. Without an answer it is the result of the initiator's proposal and
    /// the default: the answer may be omitted if the proposal alone decides (RFC 7143 §6.2.2).
    fn boolean(&self, key: Key, base: bool) -> bool {
        let Some(parameter) = self.find(key) else { return base };
        match (parameter.outcome, parameter.own) {
            (Some(Value::Boolean(outcome)), _) => outcome,
            (None, Value::Boolean(own)) if parameter.proposed => {
                key.definition().kind.boolean_result(own, base)
            }
            _ => base,
        }
    }

    fn digest(&self, key: Key) -> Digest {
        match self.outcome(key) {
            Some(Value::List(CRC32C)) => Digest::Crc32c,
            _ => Digest::None,
        }
    }

    fn declared_receive_length(&self) -> u32 {
        match self.own(Key::MaxRecvDataSegmentLength) {
            Some(Value::Number(own)) => own,
            _ => self.base.initiator_max_recv_data_segment_length,
        }
    }
}

/// Returns the initial parameters of an added connection: the parameters of the session, without those that
/// belong to the connection on which they were agreed.
fn of_added_connection(session: &Negotiated) -> Negotiated {
    let default = Negotiated::default();
    Negotiated {
        header_digest: default.header_digest,
        data_digest: default.data_digest,
        initiator_max_recv_data_segment_length: default.initiator_max_recv_data_segment_length,
        target_max_recv_data_segment_length: default.target_max_recv_data_segment_length,
        ..session.clone()
    }
}

/// Checks that a target may send the key in this stage of the login.
fn check_place(stage: Stage, key: Key) -> Result<(), NegotiationFault> {
    let definition = key.definition();
    // A target sends names of targets only in a response to SendTargets (RFC 7143 §13.4).
    if definition.sender == Sender::Initiator || key == Key::TargetName {
        return Err(NegotiationFault::WrongDirection);
    }
    let wrong_stage = stage == Stage::SecurityNegotiation && !definition.security_stage;
    if wrong_stage || definition.phase == Use::FullFeature {
        return Err(NegotiationFault::WrongStage);
    }
    Ok(())
}

fn check_proposal(value: &str) -> Result<(), NegotiationFault> {
    if is_reserved_answer(value) {
        return Err(NegotiationFault::AnswerWithoutProposal);
    }
    Ok(())
}

/// Converts a number to 16 bits. The keys that are kept in 16 bits have a range up to 65535 at most.
fn saturate(number: u32) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

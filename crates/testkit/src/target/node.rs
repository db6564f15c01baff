//! The target node: its connections, its sessions, and methods for tests to inspect it.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};

use super::connection::{Connection, Delayed, Outgoing, Phase};
use super::session::{Late, Nexus, Session};
use super::tally::Tallies;
use super::task::Outcome;
use crate::checker::{Checker, Violation};
use crate::config::TargetConfig;
use crate::conn_id::ConnId;
use crate::disk::RamDisk;
use crate::frame::FrameError;
use crate::opcode::Opcode;
use crate::pdu::{NO_TAG, Pdu};
use crate::scsi::Seen;

/// A command as the target received it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommandRecord {
    /// The connection on which the command arrived.
    pub connection: ConnId,
    /// The LUN field.
    pub lun: u64,
    /// Initiator task tag.
    pub itt: u32,
    /// `CmdSN`.
    pub cmd_sn: u32,
    /// Command descriptor block.
    pub cdb: [u8; 16],
    /// Expected data transfer length in bytes.
    pub edtl: u32,
}

/// A target with its sessions and connections.
#[derive(Debug)]
pub struct Target {
    pub(super) config: TargetConfig,
    pub(super) connections: Vec<Connection>,
    pub(super) sessions: BTreeMap<u16, Session>,
    pub(super) next_tsih: u16,
    pub(super) checker: Checker,
    pub(super) record: Record,
    pub(super) outcomes: VecDeque<Outcome>,
    pub(super) kept_back: KeptBack,
    pub(super) late: Vec<Late>,
    pub(super) reported: Reported,
    pub(super) counts: Counts,
    pub(super) seen_challenge: Option<Vec<u8>>,
}

/// Records that a test can query afterwards.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) commands: Vec<CommandRecord>,
    pub(super) received: Vec<(ConnId, Pdu)>,
    /// Number of task management functions that were executed.
    pub(super) functions: u32,
    /// Counters over all connections.
    pub(super) tallies: Tallies,
}

/// Responses that are sent later.
#[derive(Debug, Default)]
pub(super) struct KeptBack {
    pub(super) holding: bool,
    /// Responses that wait until the test releases them.
    pub(super) held: Vec<(ConnId, Outgoing)>,
    /// Responses that wait until a time has passed.
    pub(super) delayed: Vec<Delayed>,
}

/// The conditions that were already reported to each nexus, and the events that were already applied, by unit.
#[derive(Debug, Default)]
pub(super) struct Reported {
    /// Number of losses of power that were reported.
    pub(super) power_losses: BTreeMap<(Nexus, u16), u64>,
    /// Number of deferred errors that were reported.
    pub(super) deferred_errors: BTreeMap<(Nexus, u16), u64>,
    /// For each unit, the position up to which the target has applied the events that end commands.
    pub(super) ends: BTreeMap<u16, Seen>,
}

/// Counters that settings of the configuration need.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Number of commands that have taken one of the configured execution delays.
    pub(super) put_off: usize,
    /// Number of commands since the last ping.
    pub(super) since_ping: u32,
    /// Number of logins that were refused by the configuration.
    pub(super) refused: u32,
}

impl Target {
    /// Creates a target without connections.
    #[must_use]
    pub fn new(config: TargetConfig) -> Self {
        Self {
            next_tsih: config.first_tsih.max(1),
            config,
            connections: Vec::new(),
            sessions: BTreeMap::new(),
            checker: Checker::default(),
            record: Record::default(),
            outcomes: VecDeque::new(),
            kept_back: KeptBack::default(),
            late: Vec::new(),
            reported: Reported::default(),
            counts: Counts::default(),
            seen_challenge: None,
        }
    }

    /// Accepts a new TCP connection.
    pub fn accept(&mut self) -> ConnId {
        self.connections.push(Connection::new(self.config.first_stat_sn));
        ConnId(self.connections.len() - 1)
    }

    /// Receives bytes of the initiator, which may be split anywhere.
    pub fn receive(&mut self, id: ConnId, bytes: &[u8]) {
        let Some(connection) = self.connections.get_mut(id.0) else { return };
        let mut stream = std::mem::take(&mut connection.inbox);
        stream.extend_from_slice(bytes);
        self.receive_from(id, &mut stream);
        if let Some(connection) = self.connections.get_mut(id.0) {
            connection.inbox = stream;
        }
    }

    /// Removes the complete PDUs from the front of `stream` and processes them. The rest stays for the next
    /// call. The data of the PDUs are not copied.
    pub fn receive_from(&mut self, id: ConnId, stream: &mut BytesMut) {
        let mut rest = stream.len();
        while let Some(pdu) = self.next_pdu(id, stream) {
            self.connections[id.0].tallies.received.bytes += (rest - stream.len()) as u64;
            rest = stream.len();
            self.cut_after_received(id, 0);
            self.handle(id, pdu);
        }
        self.cut_after_received(id, stream.len());
    }

    /// Informs the target that the initiator or the network has closed the TCP connection.
    pub fn disconnected(&mut self, id: ConnId) {
        self.close(id);
    }

    /// Returns whether the target has closed the connection, and everything that it sent has been transmitted.
    #[must_use]
    pub fn is_closed(&self, id: ConnId) -> bool {
        let connection = self.connections.get(id.0);
        connection.is_none_or(|connection| connection.is_closed() && connection.outbox.is_empty())
    }

    /// Returns whether there is nothing to transmit and nothing to close.
    #[must_use]
    pub fn is_idle(&self, id: ConnId) -> bool {
        self.connections.get(id.0).is_none_or(|connection| {
            let silent = connection.waiting.queue.is_empty() && connection.outbox.is_empty();
            silent && matches!(connection.phase, Phase::Login(_) | Phase::FullFeature)
        })
    }

    /// Returns the violations of the initiators.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        self.checker.violations()
    }

    /// Returns the pings of [`Target::ping`] without a response from the initiator: transfer tag and LUN.
    #[must_use]
    pub fn unanswered_pings(&self, id: ConnId) -> &[(u32, u64)] {
        self.checker.unanswered_pings(id)
    }

    /// Returns the SCSI commands in the order in which they were started.
    #[must_use]
    pub fn commands(&self) -> &[CommandRecord] {
        &self.record.commands
    }

    /// Returns the PDUs of the initiators, if the configuration records them.
    #[must_use]
    pub fn received(&self) -> &[(ConnId, Pdu)] {
        &self.record.received
    }

    /// Returns the number of PDUs with this operation code that have been sent on all connections. The next
    /// such PDU has this number in [`Fault::sending`](crate::fault::Fault::sending).
    #[must_use]
    pub fn sent(&self, opcode: Opcode) -> u32 {
        self.record.tallies.sent.of(opcode)
    }

    /// Returns the number of task management functions that the target has executed, whether or not it sent a
    /// response.
    #[must_use]
    pub const fn functions_carried_out(&self) -> u32 {
        self.record.functions
    }

    /// Returns the disk of the unit with this number.
    #[must_use]
    pub fn disk(&self, number: u16) -> Option<RamDisk> {
        self.config.units.get(&number).map(|unit| unit.disk.clone())
    }

    /// Returns the configuration. Changes to keys and to the behavior of a login apply from the next login;
    /// changes to units and faults apply immediately.
    pub fn config_mut(&mut self) -> &mut TargetConfig {
        &mut self.config
    }

    /// Returns the number of connections that were ever accepted.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.connections.len()
    }

    /// Returns the number of sessions in full feature phase.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Returns the number of SCSI commands in flight.
    #[must_use]
    pub fn active_tasks(&self) -> usize {
        self.sessions.values().map(|session| session.tasks.len()).sum()
    }

    /// Returns whether a SCSI command of this connection is in flight.
    #[must_use]
    pub fn has_task_on(&self, id: ConnId) -> bool {
        let mut tasks = self.sessions.values().flat_map(|session| session.tasks.values());
        tasks.any(|task| task.connection == id)
    }

    /// Makes the next SCSI command end with this outcome instead of being executed. Several calls queue up,
    /// one command each.
    pub fn end_next_with(&mut self, outcome: Outcome) {
        self.outcomes.push_back(outcome);
    }

    /// Keeps read data and SCSI responses back until [`Target::release`].
    pub fn hold(&mut self) {
        self.kept_back.holding = true;
    }

    /// Stops holding responses back. Responses that are already held wait for [`Self::release`].
    pub fn resume(&mut self) {
        self.kept_back.holding = false;
    }

    /// Sends the responses that were held back, and stops holding responses.
    pub fn release(&mut self) {
        self.catch_up();
        self.kept_back.holding = false;
        for (id, outgoing) in std::mem::take(&mut self.kept_back.held) {
            self.enqueue(id, outgoing);
        }
    }

    /// Sets the command window of every session. `MaxCmdSN` never decreases.
    pub fn set_window(&mut self, window: u32) {
        self.config.window = window;
        self.sessions.values_mut().for_each(|session| session.window = window);
    }

    /// Sends a PDU unchanged, except for `StatSN`, `ExpCmdSN` and `MaxCmdSN`.
    pub fn inject(&mut self, id: ConnId, pdu: Pdu) {
        self.enqueue(id, Outgoing::Pdu(pdu));
    }

    /// Closes a connection without sending anything.
    pub fn drop_connection(&mut self, id: ConnId) {
        self.close(id);
    }

    fn next_pdu(&mut self, id: ConnId, stream: &mut BytesMut) -> Option<Pdu> {
        let connection = self.connections.get(id.0)?;
        if connection.is_closed() {
            stream.clear();
            return None;
        }
        match connection.framing.take(stream, self.segment_limit()) {
            Ok(pdu) => pdu,
            Err(error) => self.broken_frame(id, &error),
        }
    }

    /// Returns the longest data segment that is accepted, bytes. It is above the declared limit, so that the
    /// checker can report segments that exceed the limit.
    fn segment_limit(&self) -> usize {
        let declared = self.config.keys.max_recv_data_segment_length.unwrap_or(8192);
        (declared as usize).max(8192) * 2
    }

    fn broken_frame(&mut self, id: ConnId, error: &FrameError) -> Option<Pdu> {
        self.checker.frame_error(id, error);
        self.close(id);
        None
    }

    fn handle(&mut self, id: ConnId, pdu: Pdu) {
        if self.connections[id.0].is_closed() {
            return;
        }
        self.catch_up();
        let Some(pdu) = self.receiving_faults(id, pdu) else { return };
        self.checker.from_initiator(id, &pdu);
        if self.config.record {
            self.record.received.push((id, pdu.clone()));
        }
        match &self.connections[id.0].phase {
            Phase::Login(_) => self.login(id, &pdu),
            Phase::FullFeature => self.full_feature(id, pdu),
            Phase::Closing | Phase::Closed => {}
        }
    }

    fn full_feature(&mut self, id: ConnId, pdu: Pdu) {
        match pdu.opcode() {
            Some(Opcode::DataOut) => self.data_out(id, &pdu),
            Some(
                Opcode::ScsiCommand
                | Opcode::TaskManagementRequest
                | Opcode::TextRequest
                | Opcode::LogoutRequest
                | Opcode::NopOut,
            ) => self.arrive(id, pdu),
            Some(Opcode::Snack) => self.reject(id, &pdu, 0x03),
            _ => self.reject(id, &pdu, 0x04),
        }
    }

    /// Closes a connection and ends its tasks (RFC 7143 §6.3.5, ErrorRecoveryLevel 0).
    pub(super) fn close(&mut self, id: ConnId) {
        let Some(connection) = self.connections.get_mut(id.0) else { return };
        let tsih = connection.session;
        connection.cut();
        self.kept_back.held.retain(|(held, _)| *held != id);
        self.kept_back.delayed.retain(|waiting| waiting.connection != id);
        self.checker.closed(id);
        let Some(session) = self.sessions.get_mut(&tsih) else { return };
        session.forget_connection(id);
        if session.connections.is_empty() {
            self.sessions.remove(&tsih);
        }
    }

    pub(super) fn session_of(&mut self, id: ConnId) -> Option<&mut Session> {
        let tsih = self.connections.get(id.0)?.session;
        self.sessions.get_mut(&tsih)
    }

    pub(super) fn enqueue(&mut self, id: ConnId, outgoing: Outgoing) {
        if let Some(connection) = self.connections.get_mut(id.0)
            && !connection.is_closed()
        {
            connection.waiting.queue.push_back(outgoing);
        }
    }

    /// Sends a Reject of a PDU (RFC 7143 §11.17).
    pub(super) fn reject(&mut self, id: ConnId, pdu: &Pdu, reason: u8) {
        let mut reject = Pdu::new(Opcode::Reject);
        reject.set(2, &[reason]);
        reject.set_u32(16, NO_TAG);
        reject.data = Bytes::copy_from_slice(&pdu.header);
        self.enqueue(id, Outgoing::Pdu(reject));
    }
}

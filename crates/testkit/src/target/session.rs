//! A session: the order of its commands, its window and its tasks (RFC 7143 §4.2.2.1).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use super::params::Params;
use super::task::Task;
use super::write::WriteTransfer;
use crate::conn_id::ConnId;
use crate::convert::{before, len32};
use crate::disk::Changes;
use crate::pdu::{NO_TAG, Pdu};
use crate::scsi::{Registrant, Sense, Source, Unit};

/// A command that arrived before its turn, with the write data that followed it.
#[derive(Debug)]
pub(crate) struct Early {
    pub(crate) connection: ConnId,
    pub(crate) pdu: Pdu,
    pub(crate) data: Vec<Pdu>,
}

/// The nexus of a session. Two sessions never have the same nexus (RFC 7143 §4.4.3).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Nexus {
    pub(crate) initiator: String,
    pub(crate) isid: u64,
    pub(crate) target: String,
}

impl Nexus {
    /// Returns the nexus with a target port, in the form that the reservations of a unit use.
    pub(crate) fn registrant(&self, target_port: u16) -> Registrant {
        Registrant { initiator: self.initiator.clone(), isid: self.isid, target_port }
    }
}

/// The work of a command that waits to be executed.
#[derive(Debug)]
pub(crate) enum LateWork {
    /// A read; nothing has been read yet.
    Read(Source),
    /// A write whose data have arrived.
    Write(WriteTransfer),
}

impl LateWork {
    /// Returns the number of R2Ts that were sent for the command.
    pub(crate) fn r2t_count(&self) -> u32 {
        match self {
            Self::Read(_) => 0,
            Self::Write(write) => write.r2t_count(),
        }
    }
}

/// A command that waits to be executed.
#[derive(Debug)]
pub(crate) struct Late {
    pub(crate) nexus: Nexus,
    pub(crate) connection: ConnId,
    pub(crate) itt: u32,
    pub(crate) lun: u64,
    pub(crate) cdb: [u8; 16],
    /// The unit that executes the command, even if another unit has replaced it meanwhile.
    pub(crate) unit: Unit,
    pub(crate) work: LateWork,
    pub(crate) delay: Duration,
    /// When the command is executed; unknown until the next call of `Target::advance`.
    pub(crate) due: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) nexus: Nexus,
    pub(crate) discovery: bool,
    pub(crate) params: Params,
    pub(crate) exp_cmd_sn: u32,
    max_cmd_sn: u32,
    /// Number of commands that the target accepts concurrently.
    pub(crate) window: u32,
    early: BTreeMap<u32, Early>,
    plugged: BTreeSet<u32>,
    pub(crate) tasks: BTreeMap<u32, Task>,
    pub(crate) connections: Vec<ConnId>,
    pub(crate) attentions: Attentions,
    next_ttt: u32,
}

/// The unit attentions of a session, and the changes that the session already knows.
#[derive(Debug, Default)]
pub(crate) struct Attentions {
    /// Unit attentions that wait to be reported, by unit.
    pub(crate) waiting: BTreeMap<u16, VecDeque<Sense>>,
    /// For each unit, the counters of the changes that the session already knows.
    known: BTreeMap<u16, Changes>,
    /// The number of changes of the array's ports that the session already knows.
    pub(crate) known_changes: u64,
}

impl Attentions {
    /// Queues a unit attention for the next command to a unit, unless the same one waits already.
    pub(crate) fn add(&mut self, number: u16, sense: Sense) {
        let waiting = self.waiting.entry(number).or_default();
        if !waiting.contains(&sense) {
            waiting.push_back(sense);
        }
    }

    pub(crate) fn take(&mut self, number: u16) -> Option<Sense> {
        self.waiting.get_mut(&number)?.pop_front()
    }

    /// Records that the session knows the present state of a unit, or will query it. Earlier changes are
    /// then not reported.
    pub(crate) fn know(&mut self, number: u16, unit: &Unit) {
        self.known.insert(number, unit.disk.changes());
    }

    /// Queues unit attentions for the changes of a unit that the session does not know yet.
    pub(crate) fn queue_unit_changes(&mut self, number: u16, unit: &Unit) {
        let now = unit.disk.changes();
        let Some(known) = self.known.insert(number, now) else { return };
        if known.modes != now.modes {
            self.add(number, Sense::MODE_CHANGED);
        }
        if known.resizes != now.resizes {
            self.add(number, Sense::CAPACITY_CHANGED);
        }
    }
}

impl Session {
    pub(crate) fn new(nexus: Nexus, params: Params, cmd_sn: u32, window: u32, ttt: u32) -> Self {
        Self {
            nexus,
            discovery: false,
            params,
            exp_cmd_sn: cmd_sn,
            max_cmd_sn: cmd_sn.wrapping_sub(1),
            window,
            early: BTreeMap::new(),
            plugged: BTreeSet::new(),
            tasks: BTreeMap::new(),
            connections: Vec::new(),
            attentions: Attentions::default(),
            next_ttt: ttt,
        }
    }

    /// Returns MaxCmdSN: the last `CmdSN` that the target accepts. It never decreases.
    pub(crate) fn max_cmd_sn(&mut self) -> u32 {
        let active = self.tasks.values().filter(|task| !task.immediate).count();
        let free = self.window.saturating_sub(len32(active));
        let allowed = self.exp_cmd_sn.wrapping_add(free).wrapping_sub(1);
        if before(self.max_cmd_sn, allowed) {
            self.max_cmd_sn = allowed;
        }
        self.max_cmd_sn
    }

    /// Returns whether a command with this number is neither old nor beyond the window.
    pub(crate) fn in_window(&mut self, cmd_sn: u32) -> bool {
        let last = self.max_cmd_sn();
        !before(cmd_sn, self.exp_cmd_sn) && !before(last, cmd_sn)
    }

    /// Keeps a command until all earlier `CmdSN`s were delivered.
    pub(crate) fn keep(&mut self, connection: ConnId, pdu: Pdu) {
        let cmd_sn = pdu.cmd_sn();
        self.early.entry(cmd_sn).or_insert_with(|| Early { connection, pdu, data: Vec::new() });
    }

    /// Removes and returns the next command in order, if it has arrived.
    pub(crate) fn next_in_order(&mut self) -> Option<Early> {
        while self.plugged.remove(&self.exp_cmd_sn) {
            self.exp_cmd_sn = self.exp_cmd_sn.wrapping_add(1);
        }
        let early = self.early.remove(&self.exp_cmd_sn)?;
        self.exp_cmd_sn = self.exp_cmd_sn.wrapping_add(1);
        Some(early)
    }

    /// Returns a command that waits for its turn, by its task tag.
    pub(crate) fn early_by_tag(&mut self, itt: u32) -> Option<&mut Early> {
        self.early.values_mut().find(|early| early.pdu.itt() == itt)
    }

    /// Removes a closed connection, its tasks, and its commands that wait for their turn: those count as
    /// never received (RFC 7143 §11.14).
    pub(crate) fn forget_connection(&mut self, id: ConnId) {
        self.early.retain(|_, early| early.connection != id);
        self.tasks.retain(|_, task| task.connection != id);
        self.connections.retain(|other| *other != id);
    }

    /// Marks a `CmdSN` as used, because its command never arrived, or is aborted before its turn.
    pub(crate) fn plug(&mut self, cmd_sn: u32) {
        self.early.remove(&cmd_sn);
        self.plugged.insert(cmd_sn);
    }

    /// Returns the next target transfer tag, and skips the reserved one.
    pub(crate) fn take_ttt(&mut self) -> u32 {
        if self.next_ttt == NO_TAG {
            self.next_ttt = 0;
        }
        let ttt = self.next_ttt;
        self.next_ttt = ttt.wrapping_add(1);
        ttt
    }
}

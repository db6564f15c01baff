//! A session: the order of its commands, its window and its tasks (RFC 7143 §4.2.2.1).

use std::collections::{BTreeMap, BTreeSet};

use super::params::Params;
use super::task::Task;
use crate::conn_id::ConnId;
use crate::convert::{before, len32};
use crate::pdu::{NO_TAG, Pdu};

/// A command that came before its turn, with the write data that followed it.
#[derive(Debug)]
pub(crate) struct Early {
    pub(crate) connection: ConnId,
    pub(crate) pdu: Pdu,
    pub(crate) data: Vec<Pdu>,
}

/// Whose session it is: two sessions never share it (RFC 7143 §4.4.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nexus {
    pub(crate) initiator: String,
    pub(crate) isid: u64,
    pub(crate) target: String,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) nexus: Nexus,
    pub(crate) discovery: bool,
    pub(crate) params: Params,
    pub(crate) exp_cmd_sn: u32,
    max_cmd_sn: u32,
    /// Commands taken at once.
    pub(crate) window: u32,
    early: BTreeMap<u32, Early>,
    plugged: BTreeSet<u32>,
    pub(crate) tasks: BTreeMap<u32, Task>,
    pub(crate) connections: Vec<ConnId>,
    /// Units whose first command meets a unit attention.
    pub(crate) attention: BTreeSet<u16>,
    next_ttt: u32,
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
            attention: BTreeSet::new(),
            next_ttt: ttt,
        }
    }

    /// The last `CmdSN` allowed. It never goes back.
    pub(crate) fn max_cmd_sn(&mut self) -> u32 {
        let active = self.tasks.values().filter(|task| !task.immediate).count();
        let free = self.window.saturating_sub(len32(active));
        let allowed = self.exp_cmd_sn.wrapping_add(free).wrapping_sub(1);
        if before(self.max_cmd_sn, allowed) {
            self.max_cmd_sn = allowed;
        }
        self.max_cmd_sn
    }

    /// Whether a command with this number is neither old nor beyond the window.
    pub(crate) fn in_window(&mut self, cmd_sn: u32) -> bool {
        let last = self.max_cmd_sn();
        !before(cmd_sn, self.exp_cmd_sn) && !before(last, cmd_sn)
    }

    /// Keeps a command until its turn.
    pub(crate) fn keep(&mut self, connection: ConnId, pdu: Pdu) {
        let cmd_sn = pdu.cmd_sn();
        self.early.entry(cmd_sn).or_insert_with(|| Early { connection, pdu, data: Vec::new() });
    }

    /// The command whose turn it is, if it has come.
    pub(crate) fn next_in_order(&mut self) -> Option<Early> {
        while self.plugged.remove(&self.exp_cmd_sn) {
            self.exp_cmd_sn = self.exp_cmd_sn.wrapping_add(1);
        }
        let early = self.early.remove(&self.exp_cmd_sn)?;
        self.exp_cmd_sn = self.exp_cmd_sn.wrapping_add(1);
        Some(early)
    }

    /// A command that waits for its turn, by its task tag.
    pub(crate) fn early_by_tag(&mut self, itt: u32) -> Option<&mut Early> {
        self.early.values_mut().find(|early| early.pdu.itt() == itt)
    }

    /// Throws away what came before its turn on a connection that is closed: it never came
    /// (RFC 7143 §11.14).
    pub(crate) fn forget_connection(&mut self, id: ConnId) {
        self.early.retain(|_, early| early.connection != id);
        self.tasks.retain(|_, task| task.connection != id);
        self.connections.retain(|other| *other != id);
    }

    /// Gives up a command number: the command never came, or is aborted before its turn.
    pub(crate) fn plug(&mut self, cmd_sn: u32) {
        self.early.remove(&cmd_sn);
        self.plugged.insert(cmd_sn);
    }

    /// A target transfer tag; the reserved one is left out.
    pub(crate) fn take_ttt(&mut self) -> u32 {
        if self.next_ttt == NO_TAG {
            self.next_ttt = 0;
        }
        let ttt = self.next_ttt;
        self.next_ttt = ttt.wrapping_add(1);
        ttt
    }
}

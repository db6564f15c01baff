//! Settings of the target: everything that a test may want to vary.

mod behavior;
mod chap;
mod keys;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::disk::RamDisk;
use crate::fault::Fault;
use crate::scsi::{AccessState, LunForm, TargetPort, Unit};

pub use behavior::{
    DataInBehavior, Discovery, LoginBehavior, Portal, Presence, R2tBehavior, R2tOrder, Redirect,
};
pub use chap::{Chap, ChapIdentity, Encoding, Reflection};
pub use keys::{Answer, DigestPolicy, Keys, Origination, Stage};

/// The whole behaviour of a [`Target`](crate::target::Target). A configuration of [`TargetConfig::new`] is
/// well-behaved; each field changes one part of the behaviour.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TargetConfig {
    /// Names under which initiators can log in to the target; the first is its own.
    pub names: Vec<String>,
    /// `TargetAlias`, declared when present.
    pub alias: Option<String>,
    /// `TargetPortalGroupTag`, declared in the first login response when present.
    pub portal_group: Option<u16>,
    /// The access state of the target's ports; [`Target::set_access`](crate::target::Target::set_access)
    /// reports a change to the sessions.
    pub access: AccessState,
    /// The port of an array that this target is; its access state is the state of its group. `None`: the
    /// target's ports have no groups.
    pub port: Option<TargetPort>,
    /// Logical units by number, 0 to 16383.
    pub units: BTreeMap<u16, Unit>,
    /// Whether the units are present.
    pub presence: Presence,
    /// How unit numbers are encoded in LUN fields.
    pub lun_form: LunForm,
    /// Operational keys.
    pub keys: Keys,
    /// CHAP; `None` requires no authentication.
    pub chap: Option<Chap>,
    /// Number of commands that the target accepts concurrently: `MaxCmdSN` is at most `ExpCmdSN` + `window` -
    /// 1. 0 keeps the window closed.
    pub window: u32,
    /// How the target requests write data.
    pub r2t: R2tBehavior,
    /// How the target sends read data.
    pub data_in: DataInBehavior,
    /// How the target behaves during a login.
    pub login: LoginBehavior,
    /// The response to SendTargets.
    pub discovery: Discovery,
    /// `StatSN` of the first login response of each connection.
    pub first_stat_sn: u32,
    /// TSIH of the first session, not 0; later ones count up.
    pub first_tsih: u16,
    /// Number of SCSI commands between two pings (NOP-In); 0 never pings.
    pub ping_every: u32,
    /// Response code of every task management response; `None` sends the right one.
    pub task_management_response: Option<u8>,
    /// Whether task management requests are executed without a response.
    pub silent_task_management: bool,
    /// Whether ABORT TASK does not find a command that waits for an earlier `CmdSN`, so that the command is
    /// executed later, as LIO does.
    pub early_tasks_unknown: bool,
    /// Response code of every logout response.
    pub logout_response: u8,
    /// Delays between the arrival and the execution of reads and writes with the attribute SIMPLE. Each
    /// command takes the next delay; after the last delay, the first one is used again. If the list is empty,
    /// each command is executed immediately. Delays change the order of execution (SAM-5 §8.6). The time is
    /// the time that is passed to [`Target::advance`](crate::target::Target::advance).
    pub execution_delays: Vec<Duration>,
    /// Seed that selects which blocks are written by a command that is ended while it waits to be executed:
    /// by a task management function, a logout, a new login or a restart. WRITE SAME and UNMAP are included.
    /// `None`: such a command writes nothing.
    pub torn_commands: Option<u64>,
    /// The faults.
    pub faults: Vec<Fault>,
    /// Whether to keep the PDUs of the initiator, for [`Target::received`](crate::target::Target::received).
    pub record: bool,
}

impl TargetConfig {
    /// Creates the configuration of a well-behaved target that offers `disk` as LUN 0.
    #[must_use]
    pub fn new(name: impl Into<String>, disk: RamDisk) -> Self {
        Self {
            names: vec![name.into()],
            alias: None,
            portal_group: Some(1),
            access: AccessState::default(),
            port: None,
            units: BTreeMap::from([(0, Unit::new(disk))]),
            presence: Presence::default(),
            lun_form: LunForm::default(),
            keys: Keys::default(),
            chap: None,
            window: 64,
            r2t: R2tBehavior::default(),
            data_in: DataInBehavior::default(),
            login: LoginBehavior::default(),
            discovery: Discovery::default(),
            first_stat_sn: 1,
            first_tsih: 1,
            ping_every: 0,
            task_management_response: None,
            silent_task_management: false,
            early_tasks_unknown: false,
            logout_response: 0,
            execution_delays: Vec::new(),
            torn_commands: None,
            faults: Vec::new(),
            record: false,
        }
    }

    /// Adds a unit, or replaces the unit of this number.
    #[must_use]
    pub fn with_unit(mut self, number: u16, unit: Unit) -> Self {
        self.units.insert(number, unit);
        self
    }

    /// Makes the target a port of an array. Its portal group tag is the relative target port identifier.
    #[must_use]
    pub fn with_port(mut self, port: TargetPort) -> Self {
        self.portal_group = Some(port.port);
        self.port = Some(port);
        self
    }

    /// Requires CHAP of initiators.
    #[must_use]
    pub fn with_chap(mut self, chap: Chap) -> Self {
        self.chap = Some(chap);
        self
    }

    /// Adds a fault.
    #[must_use]
    pub fn with_fault(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }
}

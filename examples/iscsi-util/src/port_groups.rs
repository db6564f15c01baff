//! Shows the ports of a target and their states for a unit, and changes the states: REPORT and SET TARGET PORT
//! GROUPS (SPC-4 §6.37, §6.45).

use clap::{Args, ValueEnum};
use iscsi_examples_common::help::heading;
use iscsi_examples_common::program::ProgramError;
use iscsi_initiator::{Error as InitiatorError, LogicalUnit};
use iscsi_pdu::scsi::{
    AccessState, SetTargetPortGroups, StateChange, TargetPortGroup, TargetPortGroupSupport,
    TargetPortGroups,
};
use serde_json::{Value, json};

use crate::connector::{self, Connector};
use crate::error::Error;
use crate::report::Report;
use crate::table::Table;

/// The options of `port-groups`.
#[derive(Clone, Debug, Args)]
pub struct PortGroups {
    /// Unit: iscsi://HOST/TARGET/LUN.
    pub url: String,
}

/// The options of `set-port-group`.
#[derive(Clone, Debug, Args)]
pub struct SetPortGroup {
    /// Unit: iscsi://HOST/TARGET/LUN.
    pub url: String,
    /// Number of the group.
    pub group: u16,
    /// New state of its ports.
    pub state: State,
    /// Agree that initiators may lose their paths to the unit.
    ///
    /// Without it nothing is done.
    #[arg(long, help_heading = heading::CONFIRMATION)]
    pub yes: bool,
}

/// The states that can be asked for, as they are written on the command line.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum State {
    /// Takes all commands, at full speed.
    ActiveOptimized,
    /// Takes all commands, more slowly.
    ActiveNonOptimized,
    /// Takes no reads or writes, but can become active soon.
    Standby,
    /// Takes no reads or writes, and needs longer to become active.
    Unavailable,
}

impl From<State> for AccessState {
    fn from(state: State) -> Self {
        match state {
            State::ActiveOptimized => Self::ActiveOptimized,
            State::ActiveNonOptimized => Self::ActiveNonOptimized,
            State::Standby => Self::Standby,
            State::Unavailable => Self::Unavailable,
        }
    }
}

/// Report of the unit about its ports, and about the port of the session.
#[derive(Debug)]
struct Answers {
    support: TargetPortGroupSupport,
    /// The relative target port identifier of the session's port.
    port: Option<u16>,
    group: Option<u16>,
    groups: Option<TargetPortGroups>,
}

impl PortGroups {
    /// Requests the port groups from the unit.
    ///
    /// # Errors
    /// If the unit does not respond, or if it has groups and does not report them.
    pub async fn run(&self, connector: &Connector) -> Result<Report, Error> {
        let work = async |unit: &_| Ok(connector.unless(Answers::of(unit)).await??);
        let answers = connector.unit(&self.url, work).await?;
        Ok(Report::new(answers.to_text(), answers.to_json()))
    }
}

impl SetPortGroup {
    /// Requests another state for a group of ports.
    ///
    /// # Errors
    /// Without the user's consent; if the unit does not respond, or refuses.
    pub async fn run(&self, connector: &Connector) -> Result<Report, Error> {
        connector::parse(&self.url)?;
        if !self.yes {
            return Err(ProgramError::usage(
                "this changes the ways of all initiators to the unit; add --yes if that is meant",
            )
            .into());
        }
        let mut states = SetTargetPortGroups::new();
        let command = "SET TARGET PORT GROUPS";
        let set = states.set_group(self.group, self.state.into());
        set.map_err(|why| InitiatorError::malformed_answer(command, why))?;
        let work = async |unit: &LogicalUnit| {
            let work = connector.stop.hurry(unit.set_target_port_groups(&states)).await;
            work.ok_or(Error::Abandoned("a change of port groups"))??;
            Ok(Answers::of(unit).await?)
        };
        let answers = connector.unit(&self.url, work).await?;
        Ok(Report::new(answers.to_text(), answers.to_json()))
    }
}

impl Answers {
    async fn of(unit: &LogicalUnit) -> Result<Self, InitiatorError> {
        let support = unit.check_present().await?.target_port_group_support;
        let port = unit.target_port().await.unwrap_or_default();
        let (port, group) = (port.relative_id, port.group);
        let groups =
            if support.is_supported() { Some(unit.target_port_groups().await?) } else { None };
        Ok(Self { support, port, group, groups })
    }

    fn to_text(&self) -> String {
        let Some(groups) = &self.groups else {
            return "the unit has no target port groups: all ways to it are alike\n".to_owned();
        };
        let mut table = Table::default();
        table.push(["states change", &self.support.to_string()]);
        if let Some(seconds) = groups.implicit_transition_time {
            table.push(["transition", &format!("up to {seconds} s")]);
        }
        table.push(["this session", &self.place()]);
        for group in &groups.groups {
            table.push([format!("group {}", group.id), row(group)]);
        }
        table.to_string()
    }

    /// Returns the port and the group of the session as text.
    fn place(&self) -> String {
        let port = self.port.map(|port| format!("port {port}"));
        let group = self.group.map(|group| format!("group {group}"));
        match (port, group) {
            (Some(port), Some(group)) => format!("{port} of {group}"),
            (Some(name), None) | (None, Some(name)) => name,
            (None, None) => "not reported".to_owned(),
        }
    }

    fn to_json(&self) -> Value {
        let groups = self.groups.as_ref();
        json!({
            "support": self.support.to_string(),
            "port": self.port,
            "group": self.group,
            "transition_seconds": groups.and_then(|groups| groups.implicit_transition_time),
            "groups": groups.map(|it| it.groups.iter().map(group_to_json).collect::<Vec<_>>()),
        })
    }
}

fn row(group: &TargetPortGroup) -> String {
    let preferred = if group.preferred { ", preferred" } else { "" };
    let ports: Vec<_> = group.ports.iter().map(ToString::to_string).collect();
    let ports = match ports.as_slice() {
        [] => "no ports".to_owned(),
        [port] => format!("port {port}"),
        ports => format!("ports {}", ports.join(", ")),
    };
    let why = match group.status {
        StateChange::Explicit => "; set by an initiator",
        StateChange::Implicit => "; set by the target",
        StateChange::NotReported | StateChange::Reserved(_) => "",
    };
    format!("{}{preferred}: {ports}{why}", group.state)
}

fn group_to_json(group: &TargetPortGroup) -> Value {
    json!({
        "group": group.id,
        "state": group.state.to_string(),
        "preferred": group.preferred,
        "ports": group.ports,
    })
}

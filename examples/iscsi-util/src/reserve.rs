//! Changes registrations and reservations: PERSISTENT RESERVE OUT (SPC-4 §6.16).
//!
//! A registration belongs to a nexus: the initiator's name and an ISID, through one port of the target. All runs have
//! the same ISID by default, so that one run can end the registration of another.

use clap::{Args, ValueEnum};
use iscsi_examples_common::help::heading;
use iscsi_examples_common::program::ProgramError;
use iscsi_initiator::scsi::Status;
use iscsi_initiator::scsi::{ReservationKey, ReservationType};
use iscsi_initiator::{Advanced, Error as InitiatorError, Options, Session, Url};
use iscsi_pdu::scsi::reservation::PersistentReserveOut;
use serde_json::json;

use crate::connector::{self, Connector};
use crate::error::Error;
use crate::report::Report;

/// The random part of the ISID of all runs, unless `--isid` sets another.
const ISID: [u8; 3] = *b"utl";

/// The arguments that all changes share.
#[derive(Clone, Debug, Args)]
pub struct Change {
    /// Unit: iscsi://HOST/TARGET/LUN.
    pub url: String,
    /// Key of this initiator: 0x, and 1 to 16 hexadecimal digits.
    ///
    /// For `register`, the key 0x0 ends the registration.
    #[arg(long, value_name = "KEY", help_heading = heading::RESERVATION)]
    pub key: ReservationKey,
    /// Random part of the session's ISID, 6 hexadecimal digits.
    ///
    /// A registration belongs to the name of the initiator, the ISID of its session, and the port of the target. By
    /// default all runs have the same ISID, so that one run can end what another has begun.
    #[arg(long, value_name = "HEX", value_parser = isid, help_heading = heading::RESERVATION)]
    pub isid: Option<[u8; 3]>,
    /// Agree that other initiators may lose, or gain, access to the unit.
    ///
    /// Without it nothing is done.
    #[arg(long, help_heading = heading::CONFIRMATION)]
    pub yes: bool,
}

/// The options of `register`.
#[derive(Clone, Debug, Args)]
pub struct Register {
    /// What all changes have in common. The key 0x0 ends the registration.
    #[command(flatten)]
    pub change: Change,
    /// Keep registrations over a loss of power (APTPL).
    ///
    /// A unit that does not support this refuses the registration.
    #[arg(long, help_heading = heading::RESERVATION)]
    pub persist: bool,
}

/// The options of `reserve` and `release`.
#[derive(Clone, Debug, Args)]
pub struct Reserve {
    /// What all changes have in common.
    #[command(flatten)]
    pub change: Change,
    /// Type of the reservation.
    #[arg(long = "type", value_name = "TYPE", help_heading = heading::RESERVATION)]
    pub kind: Type,
}

/// The options of `preempt`.
#[derive(Clone, Debug, Args)]
pub struct Preempt {
    /// What all changes have in common, and the type from then on.
    #[command(flatten)]
    pub reserve: Reserve,
    /// Key of the registrations to end.
    #[arg(long, value_name = "KEY", help_heading = heading::RESERVATION)]
    pub victim: ReservationKey,
    /// Abort their commands in flight as well.
    #[arg(long, help_heading = heading::RESERVATION)]
    pub abort: bool,
}

/// The options of `clear`.
#[derive(Clone, Debug, Args)]
pub struct Clear {
    /// What all changes have in common.
    #[command(flatten)]
    pub change: Change,
}

/// The types of reservations, as they are written on the command line.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Type {
    /// Only the holder may write.
    WriteExclusive,
    /// Only the holder may read and write.
    ExclusiveAccess,
    /// Registered initiators may write.
    WriteExclusiveRegistrantsOnly,
    /// Registered initiators may read and write.
    ExclusiveAccessRegistrantsOnly,
    /// Registered initiators may write, and all of them hold the reservation.
    WriteExclusiveAllRegistrants,
    /// Registered initiators may read and write, and all of them hold the reservation.
    ExclusiveAccessAllRegistrants,
}

impl From<Type> for ReservationType {
    fn from(kind: Type) -> Self {
        match kind {
            Type::WriteExclusive => Self::WriteExclusive,
            Type::ExclusiveAccess => Self::ExclusiveAccess,
            Type::WriteExclusiveRegistrantsOnly => Self::WriteExclusiveRegistrantsOnly,
            Type::ExclusiveAccessRegistrantsOnly => Self::ExclusiveAccessRegistrantsOnly,
            Type::WriteExclusiveAllRegistrants => Self::WriteExclusiveAllRegistrants,
            Type::ExclusiveAccessAllRegistrants => Self::ExclusiveAccessAllRegistrants,
        }
    }
}

impl Change {
    /// Sends the change to the unit. On success, returns a report with the text `done`.
    async fn carry_out(
        &self,
        connector: &Connector,
        change: PersistentReserveOut,
        done: String,
    ) -> Result<Report, Error> {
        connector::parse(&self.url)?;
        if !self.yes {
            return Err(ProgramError::usage(
                "this changes which initiators may use the unit; add --yes if that is meant",
            )
            .into());
        }
        let work = async |session: &Session, url: &Url| {
            let unit = connector.unless(connector::named(session, url)).await??;
            let work = unit.persistent_reserve_out(&change);
            let work = connector.stop.hurry(work).await;
            work.ok_or(Error::Abandoned("a change of reservations"))?.map_err(advised)?;
            Ok(unit.registered_keys().await?)
        };
        let advanced = Advanced::default().with_isid(Some(self.isid.unwrap_or(ISID)));
        let options = Options::default().with_advanced(advanced);
        let keys = connector.session_with(&self.url, options, work).await?;
        let members = json!({
            "key": self.key.to_string(),
            "generation": keys.generation,
            "keys": keys.keys.iter().map(ToString::to_string).collect::<Vec<_>>(),
        });
        Ok(Report::new(format!("{done}\n"), members))
    }
}

/// Returns the error to report. The error for a RESERVATION CONFLICT names the possible reasons: the key of
/// this initiator is wrong, or another initiator holds the reservation.
fn advised(error: InitiatorError) -> Error {
    match (error.status(), error.command()) {
        (Some(Status::RESERVATION_CONFLICT), Some(command)) => Error::Conflict { command },
        _ => error.into(),
    }
}

impl Register {
    /// Registers the nexus of this run (initiator name, ISID and target port) with the unit, or ends its
    /// registration.
    ///
    /// # Errors
    /// Without the user's consent; if the unit does not respond, or refuses.
    pub async fn run(&self, connector: &Connector) -> Result<Report, Error> {
        let new_key = self.change.key;
        let change = PersistentReserveOut::RegisterAndIgnoreExistingKey {
            new_key,
            persist_through_power_loss: self.persist,
            all_target_ports: false,
        };
        let done = if new_key.is_none() {
            "no longer registered".to_owned()
        } else {
            format!("registered by the key {new_key}")
        };
        self.change.carry_out(connector, change, done).await
    }
}

impl Reserve {
    /// Reserves the unit.
    ///
    /// # Errors
    /// The errors of [`Register::run`].
    pub async fn reserve(&self, connector: &Connector) -> Result<Report, Error> {
        let (key, reservation_type) = (self.change.key, self.kind.into());
        let change = PersistentReserveOut::Reserve { key, reservation_type };
        self.change.carry_out(connector, change, format!("reserved: {reservation_type}")).await
    }

    /// Releases the reservation, if the nexus of this run holds it.
    ///
    /// # Errors
    /// The errors of [`Register::run`].
    pub async fn release(&self, connector: &Connector) -> Result<Report, Error> {
        let (key, reservation_type) = (self.change.key, self.kind.into());
        let change = PersistentReserveOut::Release { key, reservation_type };
        let done = "released, if this initiator held it".to_owned();
        self.change.carry_out(connector, change, done).await
    }
}

impl Preempt {
    /// Ends the registrations with another key, and takes over their reservation.
    ///
    /// # Errors
    /// The errors of [`Register::run`].
    pub async fn run(&self, connector: &Connector) -> Result<Report, Error> {
        let Reserve { change, kind } = &self.reserve;
        let (key, victim, reservation_type) = (change.key, self.victim, (*kind).into());
        let out = if self.abort {
            PersistentReserveOut::PreemptAndAbort { key, victim, reservation_type }
        } else {
            PersistentReserveOut::Preempt { key, victim, reservation_type }
        };
        let done = format!("no nexus is registered by the key {victim} any more");
        change.carry_out(connector, out, done).await
    }
}

impl Clear {
    /// Ends the reservation and all registrations.
    ///
    /// # Errors
    /// The errors of [`Register::run`].
    pub async fn run(&self, connector: &Connector) -> Result<Report, Error> {
        let change = PersistentReserveOut::Clear { key: self.change.key };
        let done = "no reservation and no registration is left".to_owned();
        self.change.carry_out(connector, change, done).await
    }
}

/// Parses six hexadecimal digits as three bytes.
fn isid(text: &str) -> Result<[u8; 3], String> {
    let is_hex = text.len() == 6 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u32::from_str_radix(text, 16).ok().filter(|_| is_hex);
    let bytes = number.map(u32::to_be_bytes).map(|[_, a, b, c]| [a, b, c]);
    bytes.ok_or_else(|| "give 6 hexadecimal digits, such as 0a1b2c".to_owned())
}

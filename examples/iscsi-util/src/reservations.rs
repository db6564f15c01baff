//! Shows the reservations of a unit: PERSISTENT RESERVE IN (SPC-4 §6.15).

use clap::Args;
use iscsi_initiator::scsi::ReservationType;
use iscsi_initiator::{Error as InitiatorError, LogicalUnit};
use iscsi_pdu::scsi::reservation::{
    FullStatus, HeldReservation, RegisteredKeys, Registrant, ReservationCapabilities, TransportId,
};
use serde_json::{Value, json};

use crate::connector::Connector;
use crate::error::Error;
use crate::report::Report;
use crate::table::Table;

/// The options of `reservations`.
#[derive(Clone, Debug, Args)]
pub struct Reservations {
    /// Unit: iscsi://HOST/TARGET/LUN.
    pub url: String,
}

/// Reservation and registrations as the unit reports them. `capabilities` and `status` are `None` if the unit
/// does not support the service action.
#[derive(Debug)]
struct Answers {
    keys: RegisteredKeys,
    held: HeldReservation,
    capabilities: Option<ReservationCapabilities>,
    status: Option<FullStatus>,
}

impl Reservations {
    /// Requests the registrations and the reservation from the unit.
    ///
    /// # Errors
    /// If the unit does not respond, or does not support persistent reservations.
    pub async fn run(&self, connector: &Connector) -> Result<Report, Error> {
        let work = async |unit: &_| Ok(connector.unless(Answers::of(unit)).await??);
        let answers = connector.unit(&self.url, work).await?;
        Ok(Report::new(answers.to_text(), answers.to_json()))
    }
}

impl Answers {
    async fn of(unit: &LogicalUnit) -> Result<Self, InitiatorError> {
        let keys = unit.registered_keys().await?;
        let held = unit.reservation().await?;
        let capabilities = known(unit.reservation_capabilities().await)?;
        let status = known(unit.reservation_full_status().await)?;
        Ok(Self { keys, held, capabilities, status })
    }

    fn to_text(&self) -> String {
        let mut table = Table::default();
        table.push(["reservation", &self.reservation()]);
        table.push(["generation", &self.keys.generation.to_string()]);
        if let Some(capabilities) = &self.capabilities {
            table.push(["loss of power", persistence(capabilities)]);
            table.push(["types", &types(capabilities).join("; ")]);
        }
        let rows = match &self.status {
            Some(status) => status.registrants.iter().map(row).collect::<Vec<_>>(),
            None => self.keys.keys.iter().map(ToString::to_string).collect(),
        };
        let none = if rows.is_empty() { Some("none".to_owned()) } else { None };
        for (place, row) in rows.into_iter().chain(none).enumerate() {
            table.push([if place == 0 { "registered" } else { "" }, &row]);
        }
        table.to_string()
    }

    fn reservation(&self) -> String {
        match self.held.reservation {
            None => "none".to_owned(),
            Some(held) if held.key.is_none() => held.reservation_type.to_string(),
            Some(held) => format!("{}, held by {}", held.reservation_type, held.key),
        }
    }

    fn to_json(&self) -> Value {
        let registrations = self
            .status
            .as_ref()
            .map(|status| status.registrants.iter().map(registration_to_json).collect::<Vec<_>>());
        json!({
            "generation": self.keys.generation,
            "keys": self.keys.keys.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "reservation": self.held.reservation.map(|held| json!({
                "key": (!held.key.is_none()).then(|| held.key.to_string()),
                "type": held.reservation_type.to_string(),
            })),
            "registrations": registrations,
            "types": self.capabilities.as_ref().map(types),
            "persists_through_power_loss": self.capabilities.map(|it| {
                it.persist_through_power_loss_activated
            }),
            "can_persist_through_power_loss": self.capabilities.map(|it| {
                it.persist_through_power_loss
            }),
        })
    }
}

/// Returns the result of a request; `None` if the unit does not support the request.
fn known<T>(answer: Result<T, InitiatorError>) -> Result<Option<T>, InitiatorError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.sense().is_some() => Ok(None),
        Err(error) => Err(error),
    }
}

fn persistence(capabilities: &ReservationCapabilities) -> &'static str {
    match (
        capabilities.persist_through_power_loss,
        capabilities.persist_through_power_loss_activated,
    ) {
        (_, true) => "changes nothing",
        (true, false) => "ends all registrations; the unit could keep them",
        (false, false) => "ends all registrations",
    }
}

/// Returns the reservation types that the unit supports.
fn types(capabilities: &ReservationCapabilities) -> Vec<String> {
    let has = |it: &ReservationType| capabilities.supports(*it) == Some(true);
    ReservationType::ALL.into_iter().filter(has).map(|it| it.to_string()).collect()
}

fn row(registrant: &Registrant) -> String {
    let Registrant { key, initiator_port, relative_target_port, .. } = registrant;
    let port = if registrant.all_target_ports {
        "all ports".to_owned()
    } else {
        format!("port {relative_target_port}")
    };
    let holds = if registrant.holds.is_some() { ", holds it" } else { "" };
    format!("{key}  {initiator_port}  {port}{holds}")
}

fn registration_to_json(registrant: &Registrant) -> Value {
    let (initiator, isid) = match &registrant.initiator_port {
        TransportId::Iscsi { name, isid } => (Some(name.as_str()), isid.as_deref()),
        TransportId::Other { .. } => (None, None),
    };
    json!({
        "key": registrant.key.to_string(),
        "initiator": initiator,
        "isid": isid,
        "target_port": (!registrant.all_target_ports).then_some(registrant.relative_target_port),
        "holds": registrant.holds.is_some(),
    })
}

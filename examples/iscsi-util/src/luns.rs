//! Lists the logical units of a target: REPORT LUNS (SPC-4 §6.33), and what each unit reports about itself.

use clap::Args;
use iscsi_initiator::scsi::Lun;
use iscsi_initiator::{Capacity, Error as InitiatorError, LogicalUnit, Session};
use iscsi_pdu::scsi::{DeviceType, StandardInquiry};
use iscsi_tuner::Size;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::connector::Connector;
use crate::error::Error;
use crate::report::Report;
use crate::table::Table;

/// Maximum number of units that are queried concurrently.
const AT_ONCE: usize = 16;

/// The options of `luns`.
#[derive(Clone, Debug, Args)]
pub struct Luns {
    /// Target: iscsi://HOST/TARGET.
    ///
    /// A unit in the URL is ignored.
    pub url: String,
}

/// Data of one unit of the list.
#[derive(Debug)]
struct Unit {
    lun: Lun,
    inquiry: Option<StandardInquiry>,
    capacity: Option<Capacity>,
    /// The reason why the inquiry data or the capacity are missing.
    error: Option<InitiatorError>,
}

impl Luns {
    /// Requests the list of units from the target, then queries each unit.
    ///
    /// # Errors
    /// If the target does not respond. An error of a single unit is in the row of that unit.
    pub async fn run(&self, connector: &Connector) -> Result<Report, Error> {
        let work = async |session: &Session, _: &_| connector.unless(list(session)).await?;
        let units = connector.session(&self.url, work).await?;
        let mut table = Table::default();
        units.iter().for_each(|unit| table.push(unit.row()));
        let text = if units.is_empty() { "no units\n".to_owned() } else { table.to_string() };
        let members = json!({ "units": units.iter().map(Unit::to_json).collect::<Vec<_>>() });
        Ok(Report::new(text, members))
    }
}

async fn list(session: &Session) -> Result<Vec<Unit>, Error> {
    let luns = session.report_luns().await?;
    let mut units = Vec::with_capacity(luns.len());
    for some in luns.chunks(AT_ONCE) {
        let mut questions = JoinSet::new();
        for (place, lun) in some.iter().enumerate() {
            let unit = session.logical_unit(*lun);
            questions.spawn(async move { (place, Unit::of(&unit).await) });
        }
        let mut answers = questions.join_all().await;
        answers.sort_by_key(|(place, _)| *place);
        units.extend(answers.into_iter().map(|(_, unit)| unit));
        // If the session has ended, the other units cannot be queried either.
        let is_open = session.is_open();
        if let Some(error) = units.iter_mut().find_map(|unit| unit.error.take_if(|_| !is_open)) {
            return Err(error.into());
        }
    }
    Ok(units)
}

impl Unit {
    async fn of(unit: &LogicalUnit) -> Self {
        let lun = unit.lun();
        let inquiry = match unit.check_present().await {
            Ok(inquiry) => inquiry,
            Err(error) => {
                return Self { lun, inquiry: None, capacity: None, error: Some(error) };
            }
        };
        let (capacity, error) = match inquiry.device_type {
            DeviceType::DIRECT_ACCESS_BLOCK => match unit.profile().await {
                Ok(profile) => (Some(profile.capacity), None),
                Err(error) => (None, Some(error)),
            },
            _ => (None, None),
        };
        Self { lun, inquiry: Some(inquiry), capacity, error }
    }

    fn row(&self) -> Vec<String> {
        let mut row = vec![self.lun.to_string()];
        if let Some(inquiry) = &self.inquiry {
            let names = [&inquiry.vendor, &inquiry.product].map(|name| name.trim().to_owned());
            row.push(inquiry.device_type.to_string());
            row.extend(names);
        }
        if let Some(capacity) = self.capacity {
            row.push(format!("{} in blocks of {}", Size(capacity.bytes()), capacity.block_size));
        }
        row.extend(self.error.as_ref().map(ToString::to_string));
        row
    }

    fn to_json(&self) -> Value {
        let inquiry = self.inquiry.as_ref();
        json!({
            "lun": self.lun.number(),
            "address": self.lun.to_bytes().map(|byte| format!("{byte:02x}")).concat(),
            "type": inquiry.map(|inquiry| inquiry.device_type.to_string()),
            "vendor": inquiry.map(|inquiry| inquiry.vendor.trim()),
            "product": inquiry.map(|inquiry| inquiry.product.trim()),
            "revision": inquiry.map(|inquiry| inquiry.revision.trim()),
            "capacity_bytes": self.capacity.map(|capacity| capacity.bytes()),
            "block_size_bytes": self.capacity.map(|capacity| capacity.block_size),
            "error": self.error.as_ref().map(ToString::to_string),
        })
    }
}

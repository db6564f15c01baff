//! Which unit it is, whatever session leads to it.

use std::fmt;

use iscsi_pdu::scsi::Cdb;
use iscsi_pdu::scsi::vpd::{Designator, DeviceIdentification, UnitSerialNumber};

use crate::error::Error;
use crate::logical_unit::LogicalUnit;
use crate::profile::Profile;

/// The name that a unit has in the world: its best designator (VPD page 83), or else its serial
/// number (VPD page 80).
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Identity {
    Designator(Designator),
    SerialNumber(String),
}

/// Room for a vital product data page.
const PAGE_LEN: u16 = 1024;

impl Identity {
    /// The name by which the unit can be known again; `None` if it has none.
    pub(crate) fn of(profile: &Profile) -> Option<Self> {
        let serial = || profile.serial_number.clone().map(Self::SerialNumber);
        profile.designator.clone().map(Self::Designator).or_else(serial)
    }

    /// Asks a unit for a name of the same kind: one question, so that a session which is added
    /// carries data a round trip after its login.
    pub(crate) async fn ask(&self, unit: &LogicalUnit) -> Result<Option<Self>, Error> {
        match self {
            Self::Designator(_) => {
                let page = vital(unit, DeviceIdentification::PAGE).await?;
                let page = DeviceIdentification::decode(&page).ok();
                let name = page.and_then(|page| page.logical_unit_name().cloned());
                Ok(name.map(Self::Designator))
            }
            Self::SerialNumber(_) => {
                let page = vital(unit, UnitSerialNumber::PAGE).await?;
                let serial = UnitSerialNumber::decode(&page).ok().map(|page| page.serial);
                Ok(serial.filter(|serial| !serial.is_empty()).map(Self::SerialNumber))
            }
        }
    }
}

async fn vital(unit: &LogicalUnit, page: u8) -> Result<bytes::BytesMut, Error> {
    unit.query(Cdb::inquiry_vpd(page, PAGE_LEN), PAGE_LEN.into()).await
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Designator(designator) => designator.fmt(f),
            Self::SerialNumber(serial) => write!(f, "serial number {serial}"),
        }
    }
}

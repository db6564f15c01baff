//! Which unit it is, whatever session leads to it.

use std::fmt;

use iscsi_pdu::IscsiName;
use iscsi_pdu::scsi::vpd::{Designator, UnitSerialNumber};
use iscsi_pdu::scsi::{Lun, StandardInquiry};

use crate::completion::tolerate;
use crate::error::Error;
use crate::state::profile::Profile;
use crate::unit::logical_unit::LogicalUnit;
use crate::unit::probe::identification;

/// By what a unit is known again.
///
/// A missing name proves neither equality nor difference; only another name of the same type shows
/// another unit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Identity {
    /// Its best designator (VPD page 83), and its serial number beside it.
    Designator(Designator, Option<String>),
    /// Its serial number (VPD page 80).
    SerialNumber(String),
    /// It has no name of its own: the address where it is, and the model that is there.
    Address(UnitAddress, Model),
    /// The same over one session, which leads to one address.
    Model(Model),
}

/// A logical unit of a target port (SAM-5 §4.6.2): for one initiator, always the same unit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct UnitAddress {
    target: IscsiName,
    portal_group: u16,
    lun: Lun,
}

/// What standard INQUIRY data say of a unit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Model {
    vendor: String,
    product: String,
    revision: String,
}

/// Why a session is not taken for one with the unit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Doubt {
    /// It leads to this one.
    Other(String),
    /// Nothing tells where it leads, for this reason.
    Unproven(String),
}

impl Identity {
    /// By what the unit can be known again.
    ///
    /// # Errors
    /// Why there is nothing, as a sentence without its full stop.
    pub(crate) fn of(unit: &LogicalUnit, profile: &Profile) -> Result<Self, &'static str> {
        if let Some(name) = Self::named(profile) {
            return Ok(name);
        }
        let address = UnitAddress::of(unit).ok_or(
            "the unit has no name of its own, and the target does not say its portal group: \
             nothing would tell whether a second session leads to the same unit",
        )?;
        Ok(Self::Address(address, Model::of(profile)))
    }

    /// By what the unit can be known again over the same session.
    pub(crate) fn within_a_session(profile: &Profile) -> Self {
        Self::named(profile).unwrap_or_else(|| Self::Model(Model::of(profile)))
    }

    fn named(profile: &Profile) -> Option<Self> {
        let serial = profile.serial_number.clone();
        match profile.designator.clone() {
            Some(designator) => Some(Self::Designator(designator, serial)),
            None => serial.map(Self::SerialNumber),
        }
    }

    /// Whether the unit says itself which one it is.
    pub(crate) const fn is_a_name(&self) -> bool {
        matches!(self, Self::Designator(..) | Self::SerialNumber(_))
    }

    /// Asks a unit over a further session whether it is this one: one question, so that the session
    /// carries data a round trip after its login, and a second where the first is refused.
    pub(crate) async fn ask(&self, unit: &LogicalUnit) -> Result<Result<(), Doubt>, Error> {
        let designator = match self {
            Self::Designator(..) => identification(unit).await?,
            Self::SerialNumber(_) => None,
            Self::Address(address, model) => {
                let found = unit.inquiry().await?.into();
                return Ok(address.check(unit).and_then(|()| model.check(&found)));
            }
            Self::Model(model) => return Ok(model.check(&unit.inquiry().await?.into())),
        };
        let designator = designator.and_then(|page| page.logical_unit_name().cloned());
        let is_enough = self.comparable(designator.as_ref()).is_some();
        let serial = if is_enough { None } else { serial_number(unit).await? };
        Ok(self.compare(designator.as_ref(), serial.as_deref()))
    }

    /// Whether a unit that has been asked everything is this one.
    pub(crate) fn recognize(&self, unit: &LogicalUnit, profile: &Profile) -> Result<(), Doubt> {
        if let Self::Address(address, _) = self {
            address.check(unit)?;
        }
        if let Self::Address(_, model) | Self::Model(model) = self {
            return model.check(&Model::of(profile));
        }
        self.compare(profile.designator.as_ref(), profile.serial_number.as_deref())
    }

    /// Both designators, if they are of one type: a unit may have several, and tell another as its
    /// best when it leaves some out.
    fn comparable<'a>(&'a self, found: Option<&'a Designator>) -> Option<[&'a Designator; 2]> {
        let (Self::Designator(known, _), Some(found)) = (self, found) else { return None };
        (known.designator_type == found.designator_type).then_some([known, found])
    }

    /// Compares the best names that both sides have.
    fn compare(&self, designator: Option<&Designator>, serial: Option<&str>) -> Result<(), Doubt> {
        if let Some([known, found]) = self.comparable(designator) {
            return same(known, found);
        }
        let known = match self {
            Self::Designator(_, serial) => serial.as_deref(),
            Self::SerialNumber(serial) => Some(serial.as_str()),
            Self::Address(..) | Self::Model(_) => None,
        };
        match known.zip(serial) {
            Some((known, found)) => same(&NamedBySerial(known), &NamedBySerial(found)),
            None => Err(Doubt::Unproven("the unit there does not say that name".to_owned())),
        }
    }
}

impl Doubt {
    /// The error of a session over this portal that was to lead to the unit.
    pub(crate) fn about(self, unit: &Identity, portal: String) -> Error {
        let expected = unit.to_string();
        match self {
            Self::Other(found) => Error::DifferentUnits { portal, expected, found },
            Self::Unproven(why) => Error::UnprovenUnit { portal, expected, why },
        }
    }
}

fn same<T: PartialEq + fmt::Display>(known: &T, found: &T) -> Result<(), Doubt> {
    if known == found { Ok(()) } else { Err(Doubt::Other(found.to_string())) }
}

async fn serial_number(unit: &LogicalUnit) -> Result<Option<String>, Error> {
    let page = tolerate(unit.vital_product_data(UnitSerialNumber::PAGE).await)?;
    let serial = page.and_then(|page| UnitSerialNumber::decode(&page).ok());
    Ok(serial.map(|page| page.serial).filter(|serial| !serial.is_empty()))
}

impl UnitAddress {
    /// Where a unit is; `None` if its target does not say the portal group.
    fn of(unit: &LogicalUnit) -> Option<Self> {
        let session = unit.session();
        let portal_group = session.negotiated().target_portal_group_tag?;
        Some(Self { target: session.target()?.clone(), portal_group, lun: unit.lun() })
    }

    fn check(&self, unit: &LogicalUnit) -> Result<(), Doubt> {
        match Self::of(unit) {
            Some(found) if found == *self => Ok(()),
            Some(found) => Err(Doubt::Unproven(format!(
                "it has no name of its own, and the portal is of group {}",
                found.portal_group
            ))),
            None => Err(Doubt::Unproven(
                "it has no name of its own, and the portal does not say its group".to_owned(),
            )),
        }
    }
}

impl Model {
    fn of(profile: &Profile) -> Self {
        Self {
            vendor: profile.vendor.clone(),
            product: profile.product.clone(),
            revision: profile.revision.clone(),
        }
    }

    fn check(&self, found: &Self) -> Result<(), Doubt> {
        same(self, found)
    }
}

impl From<StandardInquiry> for Model {
    fn from(inquiry: StandardInquiry) -> Self {
        let StandardInquiry { vendor, product, revision, .. } = inquiry;
        Self { vendor, product, revision }
    }
}

#[derive(PartialEq)]
struct NamedBySerial<'a>(&'a str);

impl fmt::Display for NamedBySerial<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "serial number {}", self.0)
    }
}

impl fmt::Display for UnitAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, portal_group, lun } = self;
        write!(f, "logical unit {lun} of {target}, portal group {portal_group}")
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.vendor, self.product, self.revision)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Designator(designator, _) => designator.fmt(f),
            Self::SerialNumber(serial) => NamedBySerial(serial).fmt(f),
            Self::Address(address, model) => write!(f, "{address}: {model}"),
            Self::Model(model) => model.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use iscsi_pdu::scsi::vpd::DeviceIdentification;

    use super::*;

    /// SPC-4 §7.8.6: a unit may have designators of several types, and only one of the same type is
    /// another name.
    #[test]
    fn designators_of_different_types_are_not_compared() {
        let name = |kind, byte| {
            let page = [&[0, 0x83, 0, 12, 1, kind, 0, 8][..], &[byte; 8]].concat();
            let page = DeviceIdentification::decode(&page).unwrap();
            page.logical_unit_name().unwrap().clone()
        };
        let naa = |byte| name(3, byte);
        let eui = name(2, 0x61);
        let known = Identity::Designator(naa(0x61), Some("1".to_owned()));
        assert_eq!(known.compare(Some(&naa(0x61)), Some("2")), Ok(()));
        assert!(matches!(known.compare(Some(&naa(0x62)), Some("1")), Err(Doubt::Other(_))));
        assert_eq!(known.compare(Some(&eui), Some("1")), Ok(()));
        assert!(matches!(known.compare(Some(&eui), Some("2")), Err(Doubt::Other(_))));
        assert!(matches!(known.compare(Some(&eui), None), Err(Doubt::Unproven(_))));
    }

    /// Two units whose serial numbers are no text are two units all the same.
    #[test]
    fn serial_numbers_of_any_bytes_are_compared() {
        let serial = |bytes: [u8; 4]| {
            let page = [&[0, 0x80, 0, 4][..], &bytes].concat();
            UnitSerialNumber::decode(&page).unwrap().serial
        };
        let known = Identity::SerialNumber(serial([0x81, 0x82, 0x83, 0x84]));
        let other = serial([0x91, 0x92, 0x93, 0x94]);
        assert!(matches!(known.compare(None, Some(&other)), Err(Doubt::Other(_))));
        assert_eq!(known.compare(None, Some(&serial([0x81, 0x82, 0x83, 0x84]))), Ok(()));
    }
}

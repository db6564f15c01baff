//! Names by which a unit is recognized, over any path.

use std::fmt;

use iscsi_pdu::IscsiName;
use iscsi_pdu::scsi::vpd::Designator;
use iscsi_pdu::scsi::{Lun, StandardInquiry};

/// Name by which a unit is recognized.
///
/// A missing name shows neither equality nor difference. Only another name of the same type means another
/// unit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum UnitName {
    /// The best designator (VPD page 83) of the unit, and its serial number, if it has one.
    Designator(Designator, Option<String>),
    /// The serial number (VPD page 80).
    SerialNumber(String),
    /// The unit reports no name: it is recognized by its address, and the model of the unit there.
    Address(UnitAddress, Model),
    /// The unit reports no name, and is used within one session, which leads to one address: it is recognized
    /// by its model.
    Model(Model),
}

/// The address of a logical unit at target ports (SAM-5 §4.6.2). For one initiator, an address always means
/// the same unit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnitAddress {
    /// Name of the target.
    pub target: IscsiName,
    /// Target portal group tag.
    pub portal_group: u16,
    /// LUN of the unit.
    pub lun: Lun,
}

/// Description of a unit in its standard INQUIRY data.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Model {
    /// T10 VENDOR IDENTIFICATION.
    pub vendor: String,
    /// PRODUCT IDENTIFICATION.
    pub product: String,
    /// PRODUCT REVISION LEVEL.
    pub revision: String,
}

/// Reason why a path does not count as a path to the unit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Mismatch {
    /// The path leads to this unit.
    Other(String),
    /// It is unknown to which unit the path leads.
    Unproven(Unproven),
}

/// Reason why it is unknown to which unit a path leads.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Unproven {
    /// The unit reports no name of the expected type.
    #[error("the unit there does not say that name")]
    NoSuchName,
    /// The unit has no name, and the portal belongs to another portal group.
    #[error("it has no name of its own, and the portal is of group {0}")]
    OtherPortalGroup(u16),
    /// The unit has no name, and the portal group is unknown.
    #[error("it has no name of its own, and the portal does not say its group")]
    NoPortalGroup,
}

impl UnitName {
    /// Creates the name of a unit with this designator and this serial number; `None` if both are missing.
    pub fn of(designator: Option<Designator>, serial: Option<String>) -> Option<Self> {
        match designator {
            Some(designator) => Some(Self::Designator(designator, serial)),
            None => serial.map(Self::SerialNumber),
        }
    }

    /// Returns whether the unit reports the name itself.
    pub const fn is_reported(&self) -> bool {
        matches!(self, Self::Designator(..) | Self::SerialNumber(_))
    }

    /// Compares the best names of the same type that both sides have.
    ///
    /// # Errors
    /// [`Mismatch::Other`] if the names differ, [`Mismatch::Unproven`] if no two names have the same type.
    pub fn compare(
        &self,
        designator: Option<&Designator>,
        serial: Option<&str>,
    ) -> Result<(), Mismatch> {
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
            None => Err(Mismatch::Unproven(Unproven::NoSuchName)),
        }
    }

    /// Compares a unit after all of its names were queried. `address` is its address, if that is known.
    ///
    /// # Errors
    /// [`Mismatch::Other`] if the names differ, or the models of a unit without a name. [`Mismatch::Unproven`]
    /// if no two names have the same type, or the address of a unit without a name differs or is unknown.
    pub fn recognize(
        &self,
        address: Option<&UnitAddress>,
        model: &Model,
        designator: Option<&Designator>,
        serial: Option<&str>,
    ) -> Result<(), Mismatch> {
        match self {
            Self::Address(known, known_model) => {
                known.compare(address).and_then(|()| known_model.compare(model))
            }
            Self::Model(known) => known.compare(model),
            Self::Designator(..) | Self::SerialNumber(_) => self.compare(designator, serial),
        }
    }

    /// Returns whether a comparison with this designator is enough, without the serial number.
    pub fn is_comparable(&self, found: Option<&Designator>) -> bool {
        self.comparable(found).is_some()
    }

    /// Returns both designators if they have the same type. A unit may have several designators, and may
    /// report another one as its best if it omits some of them.
    fn comparable<'a>(&'a self, found: Option<&'a Designator>) -> Option<[&'a Designator; 2]> {
        let (Self::Designator(known, _), Some(found)) = (self, found) else { return None };
        (known.designator_type == found.designator_type).then_some([known, found])
    }
}

fn same<T: PartialEq + fmt::Display>(known: &T, found: &T) -> Result<(), Mismatch> {
    if known == found { Ok(()) } else { Err(Mismatch::Other(found.to_string())) }
}

impl UnitAddress {
    /// Compares the address of a unit without a name.
    ///
    /// # Errors
    /// [`Mismatch::Unproven`] if the address differs or is unknown.
    pub fn compare(&self, found: Option<&Self>) -> Result<(), Mismatch> {
        let why = match found {
            Some(found) if found == self => return Ok(()),
            Some(found) => Unproven::OtherPortalGroup(found.portal_group),
            None => Unproven::NoPortalGroup,
        };
        Err(Mismatch::Unproven(why))
    }
}

impl Model {
    /// Compares the model of a unit without a name.
    ///
    /// # Errors
    /// [`Mismatch::Other`] if the model differs.
    pub fn compare(&self, found: &Self) -> Result<(), Mismatch> {
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

impl fmt::Display for UnitName {
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
    use iscsi_pdu::scsi::vpd::{DeviceIdentification, UnitSerialNumber};

    use super::*;

    /// SPC-4 §7.8.6: a unit may have designators of several types, so only a different designator of the same
    /// type means another unit.
    #[test]
    fn designators_of_different_types_are_not_compared() {
        let name = |kind, byte| {
            let page = [&[0, 0x83, 0, 12, 1, kind, 0, 8][..], &[byte; 8]].concat();
            let page = DeviceIdentification::decode(&page).unwrap();
            page.logical_unit_name().unwrap().clone()
        };
        let naa = |byte| name(3, byte);
        let eui = name(2, 0x61);
        let known = UnitName::Designator(naa(0x61), Some("1".to_owned()));
        assert_eq!(known.compare(Some(&naa(0x61)), Some("2")), Ok(()));
        assert!(matches!(known.compare(Some(&naa(0x62)), Some("1")), Err(Mismatch::Other(_))));
        assert_eq!(known.compare(Some(&eui), Some("1")), Ok(()));
        assert!(matches!(known.compare(Some(&eui), Some("2")), Err(Mismatch::Other(_))));
        assert!(matches!(known.compare(Some(&eui), None), Err(Mismatch::Unproven(_))));
    }

    /// Two units with different serial numbers are different units, also if the serial numbers are not valid
    /// text.
    #[test]
    fn serial_numbers_of_any_bytes_are_compared() {
        let serial = |bytes: [u8; 4]| {
            let page = [&[0, 0x80, 0, 4][..], &bytes].concat();
            UnitSerialNumber::decode(&page).unwrap().serial
        };
        let known = UnitName::SerialNumber(serial([0x81, 0x82, 0x83, 0x84]));
        let other = serial([0x91, 0x92, 0x93, 0x94]);
        assert!(matches!(known.compare(None, Some(&other)), Err(Mismatch::Other(_))));
        assert_eq!(known.compare(None, Some(&serial([0x81, 0x82, 0x83, 0x84]))), Ok(()));
    }

    #[test]
    fn a_unit_without_a_name_is_recognized_by_its_address_and_its_model() {
        let model = |product: &str| Model {
            vendor: "V".to_owned(),
            product: product.to_owned(),
            revision: "1".to_owned(),
        };
        let at = |portal_group| UnitAddress {
            target: "iqn.2026-01.org.example:disk".parse().unwrap(),
            portal_group,
            lun: Lun::ZERO,
        };
        let known = UnitName::Address(at(1), model("A"));
        let recognize = |address: Option<UnitAddress>, product| {
            known.recognize(address.as_ref(), &model(product), None, Some("1"))
        };
        assert_eq!(recognize(Some(at(1)), "A"), Ok(()));
        assert_eq!(recognize(Some(at(1)), "B"), Err(Mismatch::Other("V B 1".to_owned())));
        let unproven = |why| Err(Mismatch::Unproven(why));
        assert_eq!(recognize(Some(at(2)), "A"), unproven(Unproven::OtherPortalGroup(2)));
        assert_eq!(recognize(None, "A"), unproven(Unproven::NoPortalGroup));
        let within_a_session = UnitName::Model(model("A"));
        assert_eq!(within_a_session.recognize(None, &model("A"), None, None), Ok(()));
        assert!(!known.is_reported() && !within_a_session.is_reported());
    }
}

//! Identifies a unit by queries, and checks that a further session leads to the same unit.

use iscsi_multipath::{Mismatch, Model, Profile, UnitAddress, UnitName, Verdict};
use iscsi_pdu::scsi::vpd::UnitSerialNumber;

use crate::completion::tolerate;
use crate::error::{Error, UnitCause};
use crate::unit::logical_unit::LogicalUnit;
use crate::unit::probe::identification;
use crate::url::portal_name;

impl LogicalUnit {
    /// Returns the name by which the unit is identified over further sessions.
    ///
    /// # Errors
    /// The reason why there is none, as a sentence without its full stop.
    pub(crate) fn name(&self, profile: &Profile) -> Result<UnitName, &'static str> {
        if let Some(name) = reported_name(profile) {
            return Ok(name);
        }
        let address = self.address().ok_or(
            "the unit has no name of its own, and the target does not say its portal group: \
             nothing would tell whether a second session leads to the same unit",
        )?;
        Ok(UnitName::Address(address, model(profile)))
    }

    /// Checks whether a further session leads to the unit of this name. This takes one query, so that the
    /// session carries data one round trip after its login; if the unit refuses the query, a second one follows.
    pub(crate) async fn ask_name(&self, name: &UnitName) -> Result<Result<(), Mismatch>, Error> {
        let designator = match name {
            UnitName::Designator(..) => identification(self).await?,
            UnitName::SerialNumber(_) => None,
            UnitName::Address(address, model) => {
                let found = self.inquiry().await?.into();
                let is_there = address.compare(self.address().as_ref());
                return Ok(is_there.and_then(|()| model.compare(&found)));
            }
            UnitName::Model(model) => return Ok(model.compare(&self.inquiry().await?.into())),
        };
        let designator = designator.and_then(|page| page.logical_unit_name().cloned());
        let is_enough = name.is_comparable(designator.as_ref());
        let serial = if is_enough { None } else { self.serial_number().await? };
        Ok(name.compare(designator.as_ref(), serial.as_deref()))
    }

    /// Checks whether this is the unit with the given name, by a profile that was read over this session.
    pub(crate) fn recognize_by(&self, name: &UnitName, profile: &Profile) -> Result<(), Mismatch> {
        let (address, model) = (self.address(), model(profile));
        let serial = profile.serial_number.as_deref();
        name.recognize(address.as_ref(), &model, profile.designator.as_ref(), serial)
    }

    /// Returns the name of the portal that the session leads to.
    pub(super) fn portal_name(&self) -> String {
        self.session().portal().map(portal_name).unwrap_or_default()
    }

    /// Returns the error of a path that must not be used again.
    pub(crate) fn error_of(&self, verdict: Verdict) -> Error {
        match verdict {
            Verdict::OtherUnit { expected, found } => Error::from(UnitCause::DifferentUnits {
                portal: self.portal_name(),
                expected,
                found,
            }),
            Verdict::OtherBlockSize { before, now } => {
                Error::from(UnitCause::BlockSizeChanged { before, now })
            }
            Verdict::OtherMedium => Error::from(UnitCause::MediumChanged),
        }
    }

    /// Returns the address of the unit; `None` if the target does not report the portal group.
    fn address(&self) -> Option<UnitAddress> {
        let session = self.session();
        let portal_group = session.negotiated().target_portal_group_tag?;
        Some(UnitAddress { target: session.target()?.clone(), portal_group, lun: self.lun() })
    }

    async fn serial_number(&self) -> Result<Option<String>, Error> {
        let page = tolerate(self.vital_product_data(UnitSerialNumber::PAGE).await)?;
        let serial = page.and_then(|page| UnitSerialNumber::decode(&page).ok());
        Ok(serial.map(|page| page.serial).filter(|serial| !serial.is_empty()))
    }
}

/// Returns the name by which a unit is identified over the same session.
pub(super) fn name_within_a_session(profile: &Profile) -> UnitName {
    reported_name(profile).unwrap_or_else(|| UnitName::Model(model(profile)))
}

/// Returns the error of a session over `portal` that leads to another unit than `name`, or for which the unit is
/// unknown.
pub(crate) fn mismatch_error(mismatch: Mismatch, name: &UnitName, portal: String) -> Error {
    let expected = name.to_string();
    match mismatch {
        Mismatch::Other(found) => {
            Error::from(UnitCause::DifferentUnits { portal, expected, found })
        }
        Mismatch::Unproven(why) => {
            Error::from(UnitCause::UnprovenUnit { portal, expected, why: why.to_string() })
        }
    }
}

fn reported_name(profile: &Profile) -> Option<UnitName> {
    UnitName::of(profile.designator.clone(), profile.serial_number.clone())
}

fn model(profile: &Profile) -> Model {
    Model {
        vendor: profile.vendor.clone(),
        product: profile.product.clone(),
        revision: profile.revision.clone(),
    }
}

//! Reads the properties of a disk. All commands are sent together, so that they cost one round trip.
//!
//! Design: `docs/design/round-trips.md`.

use std::sync::Arc;

use iscsi_multipath::{
    Answers, Capacity, Pages, Profile, may_be_another_unit, short_capacity, short_capacity_now,
};
use iscsi_pdu::scsi::vpd::{
    BlockDeviceCharacteristics, BlockLimits, DeviceIdentification, LogicalBlockProvisioning,
    SupportedPages, UnitSerialNumber,
};
use iscsi_pdu::scsi::{
    Cdb, DeviceType, FormatError, ModeParameters, ReadCapacity10, ReadCapacity16, StandardInquiry,
};

use iscsi_session::Command;

use crate::boxed::{BoxFuture, boxed};
use crate::completion::tolerate;
use crate::error::{Cause, Error, UnitCause};
use crate::unit::logical_unit::LogicalUnit;
use crate::unit::transfer::Transfer;

/// Allocation length for mode pages, in bytes: near the maximum of MODE SENSE (6), 255.
const MODE_LEN: u8 = 252;

impl LogicalUnit {
    /// Returns identity, capacity and limits of the unit. They are read by the first call and then
    /// remembered. All commands are sent together, so the first call takes one round trip.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) if there is no such unit,
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if it is not a block device, or as
    /// [`execute`](Self::execute).
    pub async fn profile(&self) -> Result<Arc<Profile>, Error> {
        // Boxed, because every read and write asks for the profile and few have to wait for it.
        let ask = async || probe(self).await.map(Arc::new);
        self.state().profile.get_or_try_init(ask).await.cloned()
    }
}

/// Reads the profile of a unit.
fn probe(unit: &LogicalUnit) -> BoxFuture<'_, Result<Profile, Error>> {
    boxed(async move {
        // TEST UNIT READY is sent first, so that a pending unit attention ends this command and not one of the
        // others.
        let state = unit.state();
        let before = state.reasons();
        let ready = async {
            let first = unit.execute(Command::new(unit.lun(), Cdb::test_unit_ready())).await;
            // The unit executes the other commands after this one. So a condition that this command reports does
            // not concern their data; a later condition may.
            let is_reason = first.as_ref().is_err_and(raises_doubt);
            let resolved = if is_reason { before.and_one() } else { before };
            state.recognized(resolved);
            if first.is_ok() {
                return Ok(());
            }
            unit.session().count_retry();
            unit.test_unit_ready().await
        };
        let (ready, inquiry, pages, capacity, mode) =
            tokio::join!(ready, inquiry(unit), pages(unit), capacity(unit), mode(unit));
        let inquiry = inquiry?;
        tolerate(ready)?;
        let pages = pages?;
        let mode = mode?;
        let profile = Answers { inquiry, pages, capacity: capacity?, mode }.into();
        state.on_known(&profile);
        Ok(profile)
    })
}

/// Returns whether the error, a unit attention or a missing unit, means that the unit may be another one.
fn raises_doubt(error: &Error) -> bool {
    error.sense().is_some_and(|sense| may_be_another_unit(sense.additional))
}

/// Returns the INQUIRY data of the unit; an error unless it is a disk.
async fn inquiry(unit: &LogicalUnit) -> Result<StandardInquiry, Error> {
    let inquiry = unit.check_present().await?;
    let device_type = inquiry.device_type;
    if device_type != DeviceType::DIRECT_ACCESS_BLOCK {
        return Err(UnitCause::NotABlockDevice { lun: unit.lun(), device_type }.into());
    }
    Ok(inquiry)
}

/// Reads the vital product data that a disk may have.
async fn pages(unit: &LogicalUnit) -> Result<Pages, Error> {
    let ask = |page| unit.vital_product_data(page);
    let (list, serial, identification, limits, characteristics, provisioning) = tokio::join!(
        ask(SupportedPages::PAGE),
        ask(UnitSerialNumber::PAGE),
        identification(unit),
        ask(BlockLimits::PAGE),
        ask(BlockDeviceCharacteristics::PAGE),
        ask(LogicalBlockProvisioning::PAGE),
    );
    Ok(Pages {
        list: decode(list, SupportedPages::decode)?,
        serial: decode(serial, UnitSerialNumber::decode)?,
        identification: identification?,
        limits: decode(limits, BlockLimits::decode)?,
        characteristics: decode(characteristics, BlockDeviceCharacteristics::decode)?,
        provisioning: decode(provisioning, LogicalBlockProvisioning::decode)?,
    })
}

/// Reads the names of the unit (VPD page 83). A long page is read again in full only if its beginning lacks a
/// registered name.
pub(crate) async fn identification(
    unit: &LogicalUnit,
) -> Result<Option<DeviceIdentification>, Error> {
    const PAGE: u8 = DeviceIdentification::PAGE;
    let Some(start) = tolerate(unit.start_of_page(PAGE).await)? else { return Ok(None) };
    let page = DeviceIdentification::decode(&start).ok();
    if page.as_ref().is_some_and(DeviceIdentification::has_registered_name) {
        return Ok(page);
    }
    let whole = unit.rest_of_page(PAGE, start).await?;
    Ok(DeviceIdentification::decode(&whole).ok())
}

/// Reads VPD page 83; in full if its beginning lacks the port group of the port that sent it.
pub(super) async fn port_identification(
    unit: &LogicalUnit,
) -> Result<Option<DeviceIdentification>, Error> {
    const PAGE: u8 = DeviceIdentification::PAGE;
    let Some(start) = tolerate(unit.start_of_page(PAGE).await)? else { return Ok(None) };
    let page = DeviceIdentification::decode(&start).ok();
    if page.as_ref().is_some_and(|page| page.target_port_group().is_some()) {
        return Ok(page);
    }
    let whole = unit.rest_of_page(PAGE, start).await?;
    Ok(DeviceIdentification::decode(&whole).ok())
}

/// Reads the capacity: READ CAPACITY (16) from units that know it, otherwise READ CAPACITY (10).
async fn capacity(unit: &LogicalUnit) -> Result<Capacity, Error> {
    let (long, short) = tokio::join!(unit.read_capacity_16(), unit.read_capacity_10());
    better_of(long, short)
}

/// Reads the present capacity of a unit by one command, in the form that the unit supported when `before` was
/// read.
pub(crate) async fn capacity_now(unit: &LogicalUnit, before: &Capacity) -> Result<Capacity, Error> {
    if before.long_commands {
        return Ok(unit.read_capacity_16().await?.into());
    }
    Ok(short_capacity_now(before, unit.read_capacity_10().await?))
}

/// Returns the capacity of a unit from the results of READ CAPACITY (16) and (10). If the unit has more blocks
/// than READ CAPACITY (10) can count, a missing long result is an error: a part of the capacity must not be
/// taken for the whole capacity.
fn better_of(
    long: Result<ReadCapacity16, Error>,
    short: Result<ReadCapacity10, Error>,
) -> Result<Capacity, Error> {
    match long {
        Ok(long) => Ok(long.into()),
        Err(error) if is_refusal(&error) => short_capacity(short?).ok_or(error),
        Err(error) => Err(error),
    }
}

/// Returns whether the unit refuses the command, or its data have an invalid format.
fn is_refusal(error: &Error) -> bool {
    error.status().is_some() || matches!(error.cause(), Cause::Unit(UnitCause::Format { .. }))
}

/// Reads what the unit reports about its medium and its cache.
async fn mode(unit: &LogicalUnit) -> Result<Option<ModeParameters>, Error> {
    let data = unit.execute_with_retry(mode_question()).await.map(|completion| completion.data);
    decode(data, ModeParameters::decode_6)
}

/// Creates MODE SENSE (6) of all pages.
pub(super) fn mode_question() -> Transfer {
    let command = Cdb::mode_sense_6(ModeParameters::ALL_PAGES, MODE_LEN);
    Transfer::query(command, MODE_LEN.into())
}

/// Decodes the data of an optional command; `None` if the unit refuses the command, or the format is invalid.
fn decode<T, D: AsRef<[u8]>>(
    answer: Result<D, Error>,
    decode: impl FnOnce(&[u8]) -> Result<T, FormatError>,
) -> Result<Option<T>, Error> {
    Ok(tolerate(answer)?.and_then(|data| decode(data.as_ref()).ok()))
}

#[cfg(test)]
mod tests {
    use iscsi_pdu::scsi::{Sense, Status};

    use super::*;

    /// SBC-3: 0xffffffff blocks in READ CAPACITY (10) mean that READ CAPACITY (16) must be sent. If that fails,
    /// the unit has no capacity.
    #[test]
    fn what_the_short_answer_cannot_count_is_not_taken_for_the_whole() {
        let refusals = || {
            let sense = |bytes: &[u8]| Sense::decode(bytes).unwrap();
            let unknown = sense(&[0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0]);
            let command = "READ CAPACITY (16)";
            let why = ReadCapacity16::decode(&[0; 32]).unwrap_err();
            [
                Error::from(UnitCause::Status { command, status: Status::BUSY }),
                Error::from(UnitCause::CheckCondition { command, sense: unknown }),
                Error::from(UnitCause::Format { command, why }),
            ]
        };
        let short = |last: [u8; 4]| ReadCapacity10::decode(&[last, [0, 0, 2, 0]].concat()).unwrap();
        for refusal in refusals() {
            let text = refusal.to_string();
            let error = better_of(Err(refusal), Ok(short([0xff; 4]))).unwrap_err();
            assert_eq!(error.to_string(), text);
        }
        for refusal in refusals() {
            let capacity = better_of(Err(refusal), Ok(short([0xff, 0xff, 0xff, 0xfe]))).unwrap();
            assert_eq!((capacity.blocks, capacity.block_size), (0xffff_ffff, 512));
        }
        let closed = better_of(Err(Error::closed()), Ok(short([0; 4]))).unwrap_err();
        assert!(closed.is_of_session(), "{closed}");
    }
}

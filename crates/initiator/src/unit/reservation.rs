//! Sends the SCSI commands of persistent reservations to a unit (SPC-4 §5.13).

use iscsi_pdu::scsi::FormatError;
use iscsi_pdu::scsi::reservation::{
    FullStatus, HeldReservation, PersistentReserveIn, PersistentReserveOut, RegisteredKeys,
    ReservationCapabilities,
};

use crate::boxed::{BoxFuture, boxed};
use crate::error::Error;
use crate::unit::logical_unit::LogicalUnit;
use crate::unit::transfer::Transfer;

impl LogicalUnit {
    /// Returns the keys that are registered with the unit (PERSISTENT RESERVE IN with READ KEYS).
    ///
    /// # Errors
    /// As [`execute`](Self::execute); a unit without persistent reservations refuses the command.
    pub async fn registered_keys(&self) -> Result<RegisteredKeys, Error> {
        let first = PersistentReserveIn::ALLOCATION_LENGTH;
        let keys = self.reserve_in(PersistentReserveIn::ReadKeys, first, RegisteredKeys::decode);
        let keys = keys.await?;
        if !keys.is_truncated() {
            return Ok(keys);
        }
        let length = keys.allocation_length();
        self.reserve_in(PersistentReserveIn::ReadKeys, length, RegisteredKeys::decode).await
    }

    /// Returns the reservation of the unit, if there is one (PERSISTENT RESERVE IN with READ
    /// RESERVATION).
    ///
    /// # Errors
    /// As [`registered_keys`](Self::registered_keys).
    pub async fn reservation(&self) -> Result<HeldReservation, Error> {
        let question = PersistentReserveIn::ReadReservation;
        self.reserve_in(question, HeldReservation::LEN, HeldReservation::decode).await
    }

    /// Returns which reservations the unit supports (PERSISTENT RESERVE IN with REPORT
    /// CAPABILITIES).
    ///
    /// # Errors
    /// As [`registered_keys`](Self::registered_keys).
    pub async fn reservation_capabilities(&self) -> Result<ReservationCapabilities, Error> {
        let question = PersistentReserveIn::ReportCapabilities;
        let length = ReservationCapabilities::LEN;
        self.reserve_in(question, length, ReservationCapabilities::decode).await
    }

    /// Returns each registration with its I_T nexus: initiator port and target port (PERSISTENT RESERVE IN with
    /// READ FULL STATUS). Not every unit supports this command.
    ///
    /// # Errors
    /// As [`registered_keys`](Self::registered_keys).
    pub async fn reservation_full_status(&self) -> Result<FullStatus, Error> {
        const FIRST: u16 = 8192;
        let question = PersistentReserveIn::ReadFullStatus;
        let status = self.reserve_in(question, FIRST, FullStatus::decode).await?;
        if !status.is_truncated() {
            return Ok(status);
        }
        self.reserve_in(question, status.allocation_length(), FullStatus::decode).await
    }

    /// Changes registrations or the reservation, for the I_T nexus of this session (PERSISTENT RESERVE OUT).
    ///
    /// # Errors
    /// [`ReservationConflict`](crate::ErrorKind::ReservationConflict) if this session is not registered by the
    /// key in `change`, or if another initiator holds the unit; otherwise as [`execute`](Self::execute).
    pub async fn persistent_reserve_out(&self, change: &PersistentReserveOut) -> Result<(), Error> {
        self.reserve_out(change).await
    }

    fn reserve_out<'a>(
        &'a self,
        change: &'a PersistentReserveOut,
    ) -> BoxFuture<'a, Result<(), Error>> {
        boxed(async move {
            let reserve =
                async { self.execute_with_retry(Transfer::reserve_out(change)).await.map(drop) };
            self.reserving(change, reserve).await
        })
    }

    async fn reserve_in<T>(
        &self,
        question: PersistentReserveIn,
        length: u16,
        decode: impl FnOnce(&[u8]) -> Result<T, FormatError>,
    ) -> Result<T, Error> {
        self.ask(question.cdb(length), length.into(), decode).await
    }
}

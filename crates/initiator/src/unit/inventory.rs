//! Lists the logical units of a session's target (SPC-4 §6.33, REPORT LUNS).

use iscsi_pdu::scsi::Lun;

use crate::error::{Error, UnitCause};
use crate::session::Session;
use crate::state::unit_state::UnitState;
use crate::unit::logical_unit::LogicalUnit;

/// Allocation length for the numbers of 1023 logical units, in bytes; a longer list is read again.
const LUN_LIST: u32 = 8192;
/// Largest allocation length, in bytes: it has room for more numbers than exist with one level of addressing.
const MAX_LUN_LIST: u32 = 1 << 20;

impl Session {
    /// Waits for the end of the login. Meanwhile it queues the commands that read the properties of the unit
    /// named in the URL, so that they are sent immediately after the login.
    pub(crate) async fn log_in(&self) -> Result<(), Error> {
        let Some(unit) = self.named_lun().map(|lun| self.logical_unit(lun)) else {
            return self.logged_in().await;
        };
        // The profile is stored with the unit; if reading it failed, the next caller that needs it reads it
        // again.
        let mut probe = Box::pin(async move { drop(unit.profile().await) });
        tokio::select! {
            biased;
            () = &mut probe => self.logged_in().await,
            result = self.logged_in() => {
                if result.is_ok() {
                    tokio::spawn(probe);
                }
                result
            }
        }
    }

    /// Returns a handle to a logical unit, with the state that another session already has of the unit.
    pub(crate) fn adopt_unit(&self, lun: Lun, state: UnitState) -> LogicalUnit {
        LogicalUnit::new(self.clone(), lun, self.adopt_unit_state(lun, state))
    }

    /// Returns a handle to a logical unit of the target. Nothing is sent, so the unit need not
    /// exist.
    #[doc(alias = "LUN")]
    pub fn logical_unit(&self, lun: Lun) -> LogicalUnit {
        LogicalUnit::new(self.clone(), lun, self.unit_state(lun))
    }

    /// Returns the numbers of the target's logical units (SPC-4, REPORT LUNS).
    ///
    /// # Errors
    /// As any command; see [`LogicalUnit::execute`].
    #[doc(alias("LUN", "list"))]
    pub async fn report_luns(&self) -> Result<Vec<Lun>, Error> {
        // A target without unit 0 may execute REPORT LUNS only at the well known logical unit.
        match self.report_luns_at(Lun::ZERO).await {
            Err(error) if error.sense().is_some() => self.report_luns_at(Lun::REPORT_LUNS).await,
            result => result,
        }
    }

    /// Returns the unit that the target lists with the number of `lun`, but in another form: in flat space
    /// addressing below 256, or as a bus and a number above 255. Use this if the target does not know the unit
    /// by the form that SAM-5 defines for its number.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) if the target lists no such unit, or does not list its units;
    /// otherwise as [`report_luns`](Self::report_luns).
    pub async fn listed_unit(&self, lun: Lun) -> Result<LogicalUnit, Error> {
        let listed = match self.report_luns().await {
            // A target that refuses to list its units counts as one that lists none.
            Err(error) if error.sense().is_some() => Vec::new(),
            result => result?,
        };
        let is_other_form = |other: &Lun| {
            let number = lun.number();
            let on_bus = number.filter(|number| *number > 255).and_then(Lun::on_bus);
            *other != lun
                && number.is_some()
                && (other.number() == number || Some(*other) == on_bus)
        };
        let none = || Error::from(UnitCause::NoSuchUnit { lun, target: self.target_url() });
        let other = listed.into_iter().find(is_other_form).ok_or_else(none)?;
        Ok(self.logical_unit(other))
    }

    async fn report_luns_at(&self, lun: Lun) -> Result<Vec<Lun>, Error> {
        let unit = self.logical_unit(lun);
        let list = unit.report_luns(LUN_LIST).await?;
        if !list.is_truncated() {
            return Ok(list.luns);
        }
        let length = list.allocation_length().min(MAX_LUN_LIST);
        Ok(unit.report_luns(length).await?.luns)
    }
}

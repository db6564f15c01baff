//! Reads and sets the states of the target ports through which a unit is reached (SPC-4 §5.11).

use bytes::BytesMut;
use iscsi_pdu::scsi::{
    AdditionalSense, Cdb, PortGroupsHeader, SenseKey, SetTargetPortGroups, TargetPortGroups,
};

use crate::error::{Error, UnitCause};
use crate::unit::logical_unit::LogicalUnit;
use crate::unit::probe::port_identification;
use crate::unit::retry::Patience;
use crate::unit::transfer::Transfer;

/// Longest list of groups that is read, in bytes: twice the length for 65536 ports.
const MAX_LEN: u32 = 1 << 20;

/// The target port that a session is connected to.
#[doc(alias = "ALUA")]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct TargetPort {
    /// Relative target port identifier (SPC-4 §7.8.6.7), if the unit reports it.
    pub relative_id: Option<u16>,
    /// Number of the target port group of the port (SPC-4 §7.8.6.8), if the unit reports it.
    pub group: Option<u16>,
}

impl LogicalUnit {
    /// Returns the groups of ports that lead to the unit, with the state of each group (REPORT TARGET PORT
    /// GROUPS, SPC-4 §6.37). If the unit has port groups, a [`Disk`](crate::Disk) reads them by itself, and uses
    /// the best ports.
    ///
    /// # Errors
    /// As [`execute`](Self::execute): a unit without port groups does not know the command.
    #[doc(alias("ALUA", "RTPG", "multipath"))]
    pub async fn target_port_groups(&self) -> Result<TargetPortGroups, Error> {
        self.ask_port_groups(Self::patience).await
    }

    /// Returns the port, and its group, that this session is connected to (VPD page 83).
    ///
    /// # Errors
    /// As [`vital_product_data`](Self::vital_product_data).
    pub async fn target_port(&self) -> Result<TargetPort, Error> {
        let Some(page) = port_identification(self).await? else { return Ok(TargetPort::default()) };
        Ok(TargetPort { relative_id: page.relative_target_port(), group: page.target_port_group() })
    }

    /// Asks the array to change the states of groups of ports (SET TARGET PORT GROUPS, SPC-4 §6.45). The command
    /// is sent once. No disk ever sends it by itself, because it takes the unit away from hosts that use the
    /// unit through another port.
    ///
    /// # Errors
    /// As [`execute`](Self::execute): the unit refuses the command unless its TPGS field says that explicit
    /// changes are supported.
    #[doc(alias("ALUA", "STPG", "failover"))]
    pub async fn set_target_port_groups(&self, states: &SetTargetPortGroups) -> Result<(), Error> {
        let cdb = Cdb::set_target_port_groups(states.parameter_list_length());
        self.execute(self.command(cdb).with_write(states.encode())).await.map(drop)
    }

    /// Returns the groups of ports like [`target_port_groups`](Self::target_port_groups), but without pauses for
    /// temporary errors: the supervisor of the states repeats the query.
    pub(crate) async fn port_groups_now(&self) -> Result<TargetPortGroups, Error> {
        self.ask_port_groups(Self::patience_of_a_path).await
    }

    async fn ask_port_groups(
        &self,
        patience: fn(&Self) -> Patience<'_>,
    ) -> Result<TargetPortGroups, Error> {
        let mut header = PortGroupsHeader::Extended;
        let mut len = TargetPortGroups::ALLOCATION_LENGTH;
        loop {
            let cdb = Cdb::report_target_port_groups(header, len);
            let command = cdb.operation_name();
            let transfer = Transfer::query(cdb, len as usize);
            let data: BytesMut = match self.execute_with(transfer, patience(self)).await {
                // A unit older than SPC-4 does not know the extended header.
                Err(error) if header == PortGroupsHeader::Extended && is_invalid_field(&error) => {
                    header = PortGroupsHeader::LengthOnly;
                    continue;
                }
                result => result?.data,
            };
            let groups = TargetPortGroups::decode(&data);
            let groups = groups.map_err(|why| UnitCause::Format { command, why })?;
            let whole = groups.allocation_length();
            if groups.is_truncated() && whole > len && whole <= MAX_LEN {
                len = whole;
                continue;
            }
            return Ok(groups);
        }
    }
}

fn is_invalid_field(error: &Error) -> bool {
    let sense = error.sense().filter(|sense| sense.key == SenseKey::IllegalRequest);
    sense.is_some_and(|sense| sense.additional == AdditionalSense::INVALID_FIELD_IN_CDB)
}

//! A logical unit: a disk, and what the unit reports about itself.

use std::ops::Range;

use super::reservations::Reservations;
use super::task_set::Ends;
use crate::disk::RamDisk;

/// A logical unit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Unit {
    /// The disk with the bytes of the unit.
    pub disk: RamDisk,
    /// Vendor, at most 8 ASCII characters.
    pub vendor: String,
    /// Product, at most 16 ASCII characters.
    pub product: String,
    /// Unit serial number (VPD page 80h), at most 200 ASCII characters.
    pub serial: String,
    /// NAA designator (VPD page 83h).
    pub naa: u64,
    /// MAXIMUM TRANSFER LENGTH in blocks (VPD page B0h); 0 announces no limit. Longer commands are
    /// refused with INVALID FIELD IN CDB.
    pub max_transfer_blocks: u32,
    /// OPTIMAL TRANSFER LENGTH in blocks (VPD page B0h).
    pub optimal_transfer_blocks: u32,
    /// Whether the unit is thinly provisioned: UNMAP and WRITE SAME with UNMAP are served.
    pub thin: bool,
    /// Whether the first command of a session receives the unit attention 29h/00h.
    pub unit_attention: bool,
    /// Logical blocks in a physical block, as a power of two (READ CAPACITY (16)).
    pub physical_block_exponent: u8,
    /// The registrations and the reservation; clones of the unit share them.
    pub reservations: Reservations,
    /// Events that ended commands of the unit; clones of the unit share the list.
    pub(crate) ends: Ends,
    /// Departures from the usual behavior.
    pub behavior: UnitBehavior,
}

impl Unit {
    /// Creates a thinly provisioned unit without limits and without unit attention.
    #[must_use]
    pub fn new(disk: RamDisk) -> Self {
        Self {
            disk,
            vendor: "TESTKIT".into(),
            product: "RAM disk".into(),
            serial: "0001".into(),
            naa: 0x3000_0000_0000_0001,
            max_transfer_blocks: 0,
            optimal_transfer_blocks: 0,
            thin: true,
            unit_attention: false,
            physical_block_exponent: 0,
            reservations: Reservations::default(),
            ends: Ends::default(),
            behavior: UnitBehavior::default(),
        }
    }

    /// Sets the serial number and the NAA designator, by which initiators recognise the unit.
    #[must_use]
    pub fn with_identity(mut self, serial: impl Into<String>, naa: u64) -> Self {
        self.serial = serial.into();
        self.naa = naa;
        self
    }

    /// Sets the maximum and the optimal transfer length in blocks; 0 announces none.
    #[must_use]
    pub const fn with_transfer_blocks(mut self, max: u32, optimal: u32) -> Self {
        self.max_transfer_blocks = max;
        self.optimal_transfer_blocks = optimal;
        self
    }

    /// Makes the unit fully provisioned: it does not serve UNMAP.
    #[must_use]
    pub const fn fully_provisioned(mut self) -> Self {
        self.thin = false;
        self
    }
}

/// Departures of a logical unit from the usual behavior.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct UnitBehavior {
    /// RMB: the medium is removable.
    pub removable: bool,
    /// Operation codes that the unit does not know.
    pub refused: Vec<u8>,
    /// Vital product data pages that the unit lists but refuses.
    pub refused_pages: Vec<u8>,
    /// The designators of VPD page 83h that replace the NAA designator.
    pub designators: Option<Vec<u8>>,
    /// Whether the allocation length of INQUIRY is taken from its last byte alone (SPC-2).
    pub one_byte_allocation: bool,
    /// Byte 5 of VPD page B2h, instead of the byte of a thin unit. UNMAP, and WRITE SAME with UNMAP, are
    /// refused if their bit (LBPU, LBPWS or LBPWS10) is clear.
    pub provisioning: Option<u8>,
    /// Bits 7 and 6 of byte 14 of READ CAPACITY (16), LBPME and LBPRZ, instead of the bits of a thin unit.
    pub capacity_provisioning: Option<u8>,
    /// TAS of the control mode page: whether commands that another initiator aborts end with TASK ABORTED.
    /// Otherwise they end without a status.
    pub task_aborted_status: bool,
    /// Whether every REGISTER is executed but ends with NOT READY, LOGICAL UNIT COMMUNICATION FAILURE, as on LIO
    /// without a place to store registrations.
    pub forgetful_registrations: bool,
    /// Whether a registration under the holder's initiator name is ignored if the random part of its ISID
    /// differs from the holder's, as on LIO.
    pub holder_hides_registrations: bool,
    /// Whether UNMAP ends with a residual of its whole parameter list, as on tgt.
    pub unmap_residual: bool,
    /// MAXIMUM UNMAP LBA COUNT (VPD page B0h); `None` is no limit. UNMAP of more blocks is refused.
    pub max_unmap_blocks: Option<u32>,
    /// OPTIMAL UNMAP GRANULARITY and UNMAP GRANULARITY ALIGNMENT (VPD page B0h), in blocks. UNMAP does not change
    /// a granule if its range covers only a part of it.
    pub unmap_granularity: Option<(u32, u32)>,
    /// Blocks that UNMAP does not change; any unit may have such blocks (SBC-3 §4.7.3.4).
    pub kept_by_unmap: Range<u64>,
    /// Whether each session is a separate nexus, as on tgt. The registration of the previous session stays, and
    /// belongs to no session.
    pub nexus_per_session: bool,
    /// Whether GET LBA STATUS is refused with INVALID FIELD IN CDB.
    pub refuses_lba_status: bool,
    /// The most runs of blocks in a response to GET LBA STATUS; `None` is one.
    pub lba_status_runs: Option<usize>,
    /// The most blocks per run in a response to GET LBA STATUS, as on a unit that reports each cluster
    /// separately.
    pub lba_status_blocks: Option<u64>,
}

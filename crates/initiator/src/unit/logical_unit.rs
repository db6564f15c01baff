//! Sends SCSI commands to a logical unit, addressed by blocks.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use iscsi_pdu::scsi::vpd::page_len;
use iscsi_pdu::scsi::{
    AdditionalSense, Cdb, FormatError, LbaStatus, Lun, ModeParameters, ReadCapacity10,
    ReadCapacity16, ReportLuns, Sense, SenseFormat, StandardInquiry, UnmapList, WriteSameFlags,
};
use iscsi_pdu::{FunctionResponse, TaskFunction};
use iscsi_session::{Command, Payload};

use crate::completion::tolerate;
use crate::error::{Error, UnitCause};
use crate::session::Session;
use crate::state::budget::Budget;
use crate::state::loss_cursor::LossCursor;
use crate::state::unit_state::UnitState;
use crate::unit::transfer::{Expected, Transfer};

/// Allocation length of the first read of a page of vital product data, in bytes.
const PAGE_START: u16 = u8::MAX as u16;

/// A logical unit of the session's target. It takes any command, and the common ones have methods.
/// Addresses and lengths are in logical blocks.
///
/// The methods retry a command after an error that passes by itself; the table in the [crate
/// documentation](crate#what-is-retried) lists these errors. [`execute`](Self::execute) does not
/// retry. Dropping a future cancels its command. Unlike a [`Disk`](crate::Disk), a logical unit
/// does not keep writes to the same block in order.
///
/// ```
/// use bytes::BytesMut;
/// use iscsi_initiator::Initiator;
/// use iscsi_initiator::scsi::{Cdb, Lun};
///
/// # use iscsi_testkit::{config::TargetConfig, disk::RamDisk, serve::Server, target::Target};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let unit = RamDisk::new(512, 4096);
/// # let target = TargetConfig::new("iqn.2026-01.org.example:disk", unit);
/// # let server = Server::start(Target::new(target)).await?;
/// # let url = format!("iscsi://{}/iqn.2026-01.org.example:disk/0", server.address());
/// let session = Initiator::new("iqn.2026-01.org.example:host")?.connect(url).await?;
/// let unit = session.logical_unit(Lun::ZERO);
/// println!("{}", unit.inquiry().await?.product);
/// // Two blocks of 512 bytes, from the third one on.
/// unit.write(2, vec![7; 1024]).await?;
/// assert_eq!(unit.read(3, 1).await?, [7; 512][..]);
/// // Any command, sent once.
/// let command = unit.command(Cdb::read_10(2, 1)).with_read(BytesMut::zeroed(512));
/// assert_eq!(unit.execute(command).await?.data, [7; 512][..]);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "LUN")]
#[derive(Clone, Debug)]
pub struct LogicalUnit {
    pub(super) session: Session,
    pub(super) lun: Lun,
    pub(super) state: Arc<UnitState>,
    pub(super) losses: LossCursor,
    /// Separate budget of a handle for checks and queries, whose commands do not wait until the unit's identity
    /// is confirmed; `None` for other handles.
    pub(super) questions: Option<Arc<Budget>>,
    /// Whether another port may serve the unit. If so, commands of this handle do not wait while their port
    /// changes its state.
    pub(super) has_other_ports: bool,
}

impl LogicalUnit {
    pub(crate) fn new(session: Session, lun: Lun, state: Arc<UnitState>) -> Self {
        let losses = LossCursor::new(state.known());
        Self { session, lun, state, losses, questions: None, has_other_ports: false }
    }

    /// Returns the cursor of the losses that this handle has reported.
    pub(crate) const fn losses(&self) -> &LossCursor {
        &self.losses
    }

    /// Returns a handle of the same unit for checks and queries: its commands use `budget`, and do not wait
    /// until the unit's identity is confirmed.
    pub(crate) fn with_questions(&self, budget: Budget) -> Self {
        Self { questions: Some(Arc::new(budget)), ..self.clone() }
    }

    /// Returns a handle of the same unit that does not wait while its port changes state.
    pub(crate) fn through_one_of_several_ports(&self) -> Self {
        Self { has_other_ports: true, ..self.clone() }
    }

    /// Returns the session that carries the commands of this unit.
    pub const fn session(&self) -> &Session {
        &self.session
    }

    /// Returns the number of the unit.
    pub const fn lun(&self) -> Lun {
        self.lun
    }

    /// Creates a command for this unit. Add data or a buffer to it, and then [execute](Self::execute) it.
    pub const fn command(&self, cdb: Cdb) -> Command {
        Command::new(self.lun, cdb)
    }

    /// Checks whether the unit accepts commands (TEST UNIT READY).
    ///
    /// # Errors
    /// With sense data that give the reason, if the unit does not; otherwise as [`execute`](Self::execute).
    pub async fn test_unit_ready(&self) -> Result<(), Error> {
        self.query(Cdb::test_unit_ready(), 0).await.map(drop)
    }

    /// Returns the pending sense data of the unit (REQUEST SENSE).
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub async fn request_sense(&self) -> Result<Sense, Error> {
        const LEN: u8 = 252;
        self.ask(Cdb::request_sense(SenseFormat::Fixed, LEN), LEN.into(), Sense::decode).await
    }

    /// Returns the type, vendor and product of the unit (INQUIRY).
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub async fn inquiry(&self) -> Result<StandardInquiry, Error> {
        const LEN: u16 = 96;
        self.ask(Cdb::inquiry(LEN), LEN.into(), StandardInquiry::decode).await
    }

    /// Returns the type, vendor and product of the unit, after checking that the target has the unit (INQUIRY).
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) if the target has no unit by this number, or as
    /// [`inquiry`](Self::inquiry).
    pub async fn check_present(&self) -> Result<StandardInquiry, Error> {
        let inquiry = match self.inquiry().await {
            Err(error) if is_unknown(&error) => None,
            inquiry => Some(inquiry?).filter(StandardInquiry::is_present),
        };
        inquiry.ok_or_else(|| {
            let target = self.session().target_url();
            UnitCause::NoSuchUnit { lun: self.lun(), target }.into()
        })
    }

    /// Returns a page of vital product data, not decoded (INQUIRY); see [`vpd`](iscsi_pdu::scsi::vpd) for
    /// decoders. A page of more than 255 bytes takes two commands; if the unit refuses the second, the first
    /// 255 bytes are returned.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub async fn vital_product_data(&self, page: u8) -> Result<Bytes, Error> {
        let start = self.start_of_page(page).await?;
        self.rest_of_page(page, start).await
    }

    /// Returns the first 255 bytes of a page of vital product data. Before SPC-3 the allocation length of
    /// INQUIRY was one byte, so an older unit may read 256 as 0.
    pub(crate) async fn start_of_page(&self, page: u8) -> Result<Bytes, Error> {
        Ok(self.query(Cdb::inquiry_vpd(page, PAGE_START), PAGE_START.into()).await?.freeze())
    }

    /// Returns the whole of a page that begins with `start`, or `start` if the unit refuses to return more.
    pub(crate) async fn rest_of_page(&self, page: u8, start: Bytes) -> Result<Bytes, Error> {
        let len = page_len(&start, page).unwrap_or_default();
        if len <= PAGE_START.into() {
            return Ok(start);
        }
        let len = u16::try_from(len).unwrap_or(u16::MAX);
        let whole = tolerate(self.query(Cdb::inquiry_vpd(page, len), len.into()).await)?;
        let longer = whole.filter(|whole| whole.len() > start.len());
        Ok(longer.map_or(start, BytesMut::freeze))
    }

    /// Returns the capacity of a unit of up to 2^32 - 1 blocks (READ CAPACITY (10)).
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub async fn read_capacity_10(&self) -> Result<ReadCapacity10, Error> {
        self.ask(Cdb::read_capacity_10(), ReadCapacity10::LEN, ReadCapacity10::decode).await
    }

    /// Returns capacity and provisioning (READ CAPACITY (16)).
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub async fn read_capacity_16(&self) -> Result<ReadCapacity16, Error> {
        const LEN: u32 = 32;
        self.ask(Cdb::read_capacity_16(LEN), LEN as usize, ReadCapacity16::decode).await
    }

    pub(crate) async fn report_luns(&self, length: u32) -> Result<ReportLuns, Error> {
        self.ask(Cdb::report_luns(0, length), length as usize, ReportLuns::decode).await
    }

    /// Returns the current values of a mode page, or of all pages with
    /// [`ModeParameters::ALL_PAGES`] (MODE SENSE (10)).
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub async fn mode_sense(&self, page: u8) -> Result<ModeParameters, Error> {
        const LEN: u16 = 4096;
        self.ask(Cdb::mode_sense_10(page, LEN), LEN.into(), ModeParameters::decode_10).await
    }

    /// Returns which blocks from `lba` on are mapped, as far as the unit reports in one response (GET LBA
    /// STATUS).
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub async fn get_lba_status(&self, lba: u64) -> Result<LbaStatus, Error> {
        /// Room for 2047 extents.
        const LEN: u32 = 32 * 1024 - 8;
        self.ask(Cdb::get_lba_status(lba, LEN), LEN as usize, LbaStatus::decode).await
    }

    /// Reads `blocks` blocks from `lba` on (READ (16), or READ (10) if the unit knows only that).
    ///
    /// # Errors
    /// As [`profile`](Self::profile) and [`execute`](Self::execute); [`Protocol`](crate::ErrorKind::Protocol)
    /// if the unit moves fewer bytes, [`InvalidInput`](crate::ErrorKind::InvalidInput) beyond what the unit's
    /// commands can address.
    pub async fn read(&self, lba: u64, blocks: u32) -> Result<BytesMut, Error> {
        let capacity = &self.profile().await?.capacity;
        self.read_all(Transfer::read(capacity, lba, blocks)?).await
    }

    /// Reads whole blocks from `lba` on into `buffer` and returns it filled; its length is the
    /// number of bytes to read. The buffer is lost when the read fails.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`InvalidInput`](crate::ErrorKind::InvalidInput) if the buffer ends within
    /// a block.
    pub async fn read_into(&self, lba: u64, buffer: BytesMut) -> Result<BytesMut, Error> {
        let capacity = &self.profile().await?.capacity;
        self.read_all(Transfer::read_into(capacity, lba, buffer)?).await
    }

    /// Sends a read command, and checks that its whole buffer was filled.
    async fn read_all(&self, transfer: Transfer) -> Result<BytesMut, Error> {
        let expected = Expected::of(&transfer);
        expected.all_read(self.execute_with_retry(transfer).await?)
    }

    /// Writes whole blocks from `lba` on (WRITE (16), or WRITE (10) if the unit knows only that).
    ///
    /// # Errors
    /// As [`read_into`](Self::read_into).
    pub async fn write(&self, lba: u64, data: impl Into<Payload>) -> Result<(), Error> {
        let capacity = &self.profile().await?.capacity;
        let data = data.into();
        self.modify(|| Transfer::write(capacity, lba, data.clone())).await
    }

    /// Deallocates blocks (UNMAP). The caller must keep to the limits of VPD page B0.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    #[doc(alias("trim", "discard"))]
    pub async fn unmap(&self, list: &UnmapList) -> Result<(), Error> {
        self.modify(|| Ok(Transfer::unmap(list))).await
    }

    /// Writes one block of data to `blocks` addresses from `lba` on (WRITE SAME (16), or WRITE SAME
    /// (10) if the unit knows only that).
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub async fn write_same(
        &self,
        lba: u64,
        blocks: u32,
        block: impl Into<Payload>,
        flags: WriteSameFlags,
    ) -> Result<(), Error> {
        let block = block.into();
        self.modify(|| Ok(Transfer::write_same(lba, blocks, block.clone(), flags))).await
    }

    /// Resets the unit: aborts all its tasks, of all initiators (LOGICAL UNIT RESET).
    ///
    /// # Errors
    /// When the session ends first. A refusal is a [`FunctionResponse`].
    pub async fn reset(&self) -> Result<FunctionResponse, Error> {
        self.session.manage(TaskFunction::LogicalUnitReset, self.lun).await
    }

    /// Sends a command that reads up to `len` bytes.
    pub(crate) async fn query(&self, cdb: Cdb, len: usize) -> Result<BytesMut, Error> {
        Ok(self.execute_with_retry(Transfer::query(cdb, len)).await?.data)
    }

    /// Sends a command that reads up to `len` bytes, and decodes the data.
    pub(super) async fn ask<T>(
        &self,
        cdb: Cdb,
        len: usize,
        decode: impl FnOnce(&[u8]) -> Result<T, FormatError>,
    ) -> Result<T, Error> {
        let command = cdb.operation_name();
        let data = self.query(cdb, len).await?;
        decode(&data).map_err(|why| Error::from(UnitCause::Format { command, why }))
    }

    /// Sends a command that changes blocks, and checks that the unit took all its data.
    async fn modify(
        &self,
        transfer: impl Fn() -> Result<Transfer, Error> + Send + Sync,
    ) -> Result<(), Error> {
        let change = || async {
            let transfer = transfer()?;
            let expected = Expected::of(&transfer);
            expected.all_written(&self.execute_with_retry(transfer).await?)
        };
        self.losses.until_not_lost(change).await
    }

    pub(crate) fn state(&self) -> &UnitState {
        &self.state
    }
}

/// Returns whether the error says that the target has no unit by this number.
fn is_unknown(error: &Error) -> bool {
    error
        .sense()
        .is_some_and(|sense| sense.additional == AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED)
}

//! An opened disk, or several disks as one volume.

use bytes::{Bytes, BytesMut};
use iscsi_initiator::device::{Device, DeviceError, Extent};
use iscsi_initiator::{Disk, Error, Session};
use iscsi_volume::Volume;
use tokio::task::JoinSet;

/// A disk or a volume. Its errors are those of the initiator.
#[derive(Clone, Debug)]
pub(crate) enum Opened {
    Disk(Disk),
    Volume(Box<Volume<Disk>>),
}

impl Opened {
    fn device(&self) -> &dyn Device {
        match self {
            Self::Disk(disk) => disk,
            Self::Volume(volume) => &**volume,
        }
    }

    /// Returns the disk, or the members of the volume.
    pub(crate) fn disks(&self) -> Vec<&Disk> {
        match self {
            Self::Disk(disk) => vec![disk],
            Self::Volume(volume) => volume.members().iter().map(|member| member.device()).collect(),
        }
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.device().capacity()
    }

    pub(crate) fn block_size(&self) -> u32 {
        self.device().limits().block_size
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.device().is_settled()
    }

    /// Returns whether blocks can be deallocated.
    pub(crate) fn discards(&self) -> bool {
        match self {
            Self::Disk(_) => true,
            Self::Volume(volume) => volume.limits().discard_granularity.is_some(),
        }
    }

    pub(crate) fn sessions(&self) -> Vec<Session> {
        self.disks().into_iter().flat_map(Disk::sessions).collect()
    }

    pub(crate) async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes, Error> {
        match self {
            Self::Disk(disk) => disk.read_at(offset, len).await,
            // Some reads use a buffer of the caller.
            Self::Volume(volume) if len.is_multiple_of(3) => {
                let read = volume.read_into(offset, BytesMut::zeroed(len)).await;
                read.map(BytesMut::freeze).map_err(of_member)
            }
            Self::Volume(volume) => volume.read_at(offset, len).await.map_err(of_member),
        }
    }

    pub(crate) async fn write_at(&self, offset: u64, data: Bytes) -> Result<(), Error> {
        match self {
            Self::Disk(disk) => disk.write_at(offset, data).await,
            Self::Volume(volume) => {
                let mut rest = data;
                let first = rest.split_to(rest.len() / 3);
                volume.write_at(offset, vec![first, rest]).await.map_err(of_member)
            }
        }
    }

    pub(crate) async fn write_zeroes(&self, offset: u64, len: u64) -> Result<(), Error> {
        match self {
            Self::Disk(disk) => disk.write_zeroes(offset, len).await,
            Self::Volume(volume) => volume.write_zeroes(offset, len).await.map_err(of_member),
        }
    }

    pub(crate) async fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        match self {
            Self::Disk(disk) => disk.discard(offset, len).await,
            Self::Volume(volume) => volume.discard(offset, len).await.map_err(of_member),
        }
    }

    pub(crate) async fn flush(&self) -> Result<(), Error> {
        match self {
            Self::Disk(disk) => disk.flush().await,
            Self::Volume(volume) => volume.flush().await.map_err(of_member),
        }
    }

    pub(crate) async fn extents(&self, offset: u64, len: u64) -> Result<Vec<Extent>, Error> {
        match self {
            Self::Disk(disk) => disk.extents(offset, len).await,
            Self::Volume(volume) => volume.extents(offset, len).await.map_err(of_member),
        }
    }

    pub(crate) async fn confirm_unit(&self) -> Result<(), Error> {
        match self {
            Self::Disk(disk) => disk.confirm_unit().await,
            Self::Volume(volume) => volume.confirm().await.map_err(of_member),
        }
    }

    pub(crate) async fn logout(&self) -> Result<(), Error> {
        let mut leaving = JoinSet::new();
        for disk in self.disks() {
            let disk = disk.clone();
            leaving.spawn(async move { disk.logout().await });
        }
        leaving.join_all().await.into_iter().collect()
    }
}

/// Returns the initiator's error that a member of a volume has reported. An error of the volume itself is a
/// bug, and ends the episode.
fn of_member(error: DeviceError) -> Error {
    let of_unit = error.source_as::<Error>().cloned();
    of_unit.unwrap_or_else(|| panic!("a volume fails by itself: {error}"))
}

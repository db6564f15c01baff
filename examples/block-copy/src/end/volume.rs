//! Several logical units as one device.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use iscsi_copy::{Device as _, Identity};
use iscsi_examples_common::volume;
use iscsi_initiator::{Disk, Initiator};
use iscsi_tuner::Size;
use iscsi_volume::{Description, Volume};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::unit::{UnitEnd, counted};
use crate::error::Error;
use crate::side::Side;
use crate::stop::Stop;

/// A volume of several units, each with its sessions.
#[derive(Clone, Debug)]
pub struct VolumeEnd {
    name: Arc<str>,
    volume: Volume<Disk>,
    units: Vec<UnitEnd>,
    identity: Identity,
}

impl VolumeEnd {
    /// Logs in to all units, and checks that they are the units of the description.
    pub(super) async fn open(
        side: Side,
        path: &Path,
        description: &Description,
        initiator: &Initiator,
    ) -> Result<Self, Error> {
        let name: Arc<str> = format!("volume:{}", path.display()).into();
        let volume = volume::open(path, description, initiator).await;
        let volume = volume.map_err(|cause| Error::Volume { side, cause })?;
        if matches!(side, Side::Destination) && volume.limits().is_read_only {
            let cause = io::Error::new(ErrorKind::ReadOnlyFilesystem, "a unit refuses writes");
            return Err(Error::File { side, name, cause: cause.into() });
        }
        let members = volume.members().iter().zip(&description.members);
        let units = members.map(|(member, described)| {
            UnitEnd::member(side, &described.url, member.device().clone(), member.name())
        });
        let units = units.collect();
        let identity = identity(&volume, description);
        Ok(Self { name, volume, units, identity })
    }

    pub(super) const fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) const fn volume(&self) -> &Volume<Disk> {
        &self.volume
    }

    /// Returns the units, in their order.
    pub fn units(&self) -> &[UnitEnd] {
        &self.units
    }

    /// Returns the texts that may be shown after the volume's name in the heading, the longest first. The heading
    /// uses the first that fits.
    pub(super) fn details(&self) -> Vec<String> {
        let (units, size) = (counted(self.units.len(), "unit"), Size(self.volume.capacity()));
        let sessions = self.units.iter().map(|unit| unit.sessions().len()).sum();
        let sessions = counted(sessions, "session");
        vec![format!("{units}, {size}, {sessions}"), format!("{units}, {size}"), size.to_string()]
    }

    /// Returns the identity of the volume in later runs: its units in their order, and the layout of the data
    /// on them.
    pub(super) fn identity(&self) -> Identity {
        self.identity.clone()
    }

    /// Limits each command to `io_size` bytes, on each unit that accepts that.
    pub(super) fn with_io_size(self, io_size: usize) -> Self {
        let volume = self.volume.map_members(|disk| disk.with_max_transfer(io_size));
        let units = self.units.into_iter().map(|unit| unit.with_io_size(io_size)).collect();
        Self { volume, units, ..self }
    }

    /// Logs out of all units concurrently. If several logouts fail, returns one of the errors.
    pub(super) async fn close(&self, stop: &Stop) -> Result<(), Error> {
        let mut closing = JoinSet::new();
        for unit in self.units.clone() {
            let stop = stop.clone();
            closing.spawn(async move { unit.close(&stop).await });
        }
        closing.join_all().await.into_iter().collect()
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "kind": "volume",
            "name": &*self.name,
            "capacity_bytes": self.volume.capacity(),
            "chunk_bytes": self.volume.stripe().chunk().bytes(),
            "members": self.units.iter().map(UnitEnd::to_json).collect::<Vec<_>>(),
        })
    }
}

fn identity(volume: &Volume<Disk>, description: &Description) -> Identity {
    let names = description.members.iter().map(|member| format!("logical unit {}", member.name));
    let names: Vec<_> = names.collect();
    let (chunk, start) = (volume.stripe().chunk().bytes(), volume.data_offset());
    let name =
        format!("volume of chunks of {chunk} bytes from byte {start} of {}", names.join(", "));
    Identity::new(&name, volume.capacity())
}

impl fmt::Display for VolumeEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stripe = self.volume.stripe();
        let (bytes, chunk) = (Size(stripe.capacity()), Size(stripe.chunk().bytes()));
        write!(f, "{}: {bytes} in chunks of {chunk} over {} units", self.name, self.units.len())?;
        self.units.iter().try_for_each(|unit| write!(f, "\n  {unit}"))
    }
}

//! Copies from and to an export of an NBD server.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use iscsi_copy::{Device, NbdDevice, NbdUri, RangeSet};
use serde_json::{Value, json};

use crate::end::awaited::Awaited;
use crate::error::Error;
use crate::side::Side;

/// An export of a server of the Network Block Device protocol.
#[derive(Clone, Debug)]
pub struct ExportEnd {
    device: NbdDevice,
    uri: NbdUri,
    name: Arc<str>,
    /// The ranges that the requested dirty bitmap marked when the export was opened.
    marked: Option<Arc<RangeSet>>,
}

impl ExportEnd {
    pub(super) async fn open(
        side: Side,
        uri: &NbdUri,
        wait: Duration,
        bitmap: Option<&str>,
    ) -> Result<Self, Error> {
        let name: Arc<str> = uri.name().into();
        let uri = uri.clone().or_open_timeout(wait);
        let opening = async {
            Ok(match bitmap {
                Some(bitmap) => {
                    let (device, marked) = NbdDevice::open_with_bitmap(&uri, bitmap).await?;
                    (device, Some(marked))
                }
                None => (NbdDevice::open(&uri).await?, None),
            })
        };
        let (device, marked) = opening.await.map_err(|cause| Error::Nbd { side, cause })?;
        if matches!(side, Side::Destination) && device.limits().is_read_only {
            let cause =
                io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "the export is read-only");
            return Err(Error::File { side, name, cause: cause.into() });
        }
        Ok(Self { device, uri, name, marked: marked.map(Arc::new) })
    }

    /// Returns the device.
    pub const fn device(&self) -> &NbdDevice {
        &self.device
    }

    /// Returns the server as the peer that the copy waits for, while the connection is lost.
    pub(super) fn awaited(&self) -> Option<Awaited> {
        let limit = Some(self.uri.retry_timeout());
        self.device.is_away().then_some(Awaited { side: None, what: "server", limit })
    }

    /// Returns the ranges that the requested dirty bitmap marked when the export was opened.
    pub(crate) fn marked(&self) -> Option<&RangeSet> {
        self.marked.as_deref()
    }

    /// Returns the URI of the export.
    pub const fn uri(&self) -> &NbdUri {
        &self.uri
    }

    /// Returns the address of the export as text.
    pub const fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn to_json(&self) -> Value {
        json!({ "kind": "export", "name": &*self.name, "capacity_bytes": self.device.capacity() })
    }
}

impl fmt::Display for ExportEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

//! A command and its data, as often as it must be sent.

use std::sync::Arc;

use bytes::BytesMut;
use iscsi_pdu::scsi::{Cdb, Lun};
use iscsi_session::{Command, Payload};

use crate::extent::Extent;

/// A command with the data it writes or the room it reads into.
#[derive(Debug)]
pub(crate) struct Transfer {
    cdb: Cdb,
    write: Option<Payload>,
    /// Bytes to read; 0 for none.
    read_len: usize,
    /// The buffer for them; made when the command's turn comes if there is none yet.
    buffer: Option<BytesMut>,
    extent: Option<Arc<Extent>>,
}

impl Transfer {
    pub(crate) const fn read(cdb: Cdb, len: usize) -> Self {
        Self { cdb, write: None, read_len: len, buffer: None, extent: None }
    }

    pub(crate) fn read_into(cdb: Cdb, buffer: BytesMut) -> Self {
        Self { cdb, write: None, read_len: buffer.len(), buffer: Some(buffer), extent: None }
    }

    pub(crate) const fn write(cdb: Cdb, data: Payload) -> Self {
        Self { cdb, write: Some(data), read_len: 0, buffer: None, extent: None }
    }

    /// The range that the command keeps taken until the session has finished with it.
    pub(crate) fn within(mut self, extent: Option<Arc<Extent>>) -> Self {
        self.extent = extent;
        self
    }

    pub(crate) fn extent(&self) -> Option<Arc<Extent>> {
        self.extent.clone()
    }

    /// The command's name in the standard.
    pub(crate) fn name(&self) -> &'static str {
        self.cdb.operation_name()
    }

    /// Bytes to be moved.
    pub(crate) fn len(&self) -> usize {
        self.write.as_ref().map_or(self.read_len, Payload::len)
    }

    /// The command for one try.
    pub(crate) fn command(&mut self, lun: Lun) -> Command {
        let mut command = Command::new(lun, self.cdb.clone());
        command.write = self.write.clone();
        if self.read_len > 0 {
            let fresh = || BytesMut::zeroed(self.read_len);
            command.read = Some(self.buffer.take().unwrap_or_else(fresh));
        }
        command
    }

    /// Takes the buffer back for another try; the unit may have filled less than all of it.
    pub(crate) fn restore(&mut self, mut buffer: BytesMut) {
        buffer.resize(self.read_len, 0);
        self.buffer = Some(buffer);
    }
}

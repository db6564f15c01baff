//! Connects QEMU to the unit: by its own iSCSI driver, or through this project's server.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::error::Error;
use crate::peers::{Bench, Server};
use crate::result::Outcome;
use crate::scenario::{Mirror, Through};
use crate::testbed::{TARGET, portal, url};

/// A unit, and its server if QEMU reaches the unit through a server.
#[derive(Debug)]
pub(super) struct Unit {
    lun: u16,
    server: Option<Server>,
}

impl Unit {
    /// Starts the server, if QEMU is to reach the unit through one.
    pub(super) async fn serve(mirror: &Mirror, bench: &Bench) -> Result<Self, Outcome> {
        let server = match mirror.through {
            Through::BlockServe => {
                let url = url(mirror.lun);
                Some(Server::start(&url, &socket("unit"), &mirror.args, bench).await?)
            }
            Through::QemuIscsi => None,
        };
        Ok(Self { lun: mirror.lun, server })
    }

    /// Returns the arguments of QEMU's command `blockdev-add` for the unit.
    pub(super) fn node(&self) -> Value {
        match self.server {
            Some(_) => json!({
                "driver": "nbd", "node-name": "unit",
                "server": { "type": "unix", "path": socket("unit") },
            }),
            None => json!({
                "driver": "iscsi", "node-name": "unit", "transport": "tcp",
                "portal": portal(), "target": TARGET, "lun": self.lun,
            }),
        }
    }

    /// Shuts the server down cleanly, if there is one.
    pub(super) async fn end(self) -> Result<(), Error> {
        match self.server {
            Some(server) => server.end().await,
            None => Ok(()),
        }
    }
}

/// Returns the path of a Unix socket in the lab's own folder.
pub(super) fn socket(name: &str) -> PathBuf {
    PathBuf::from(format!("/run/lab-{name}.sock"))
}

/// Returns the outcome of an error of `blockdev-add`. If QEMU lacks its iSCSI part, it does not know the
/// driver, and the measurement is skipped.
pub(super) fn explain(error: Error) -> Outcome {
    let reason = error.to_string();
    if reason.contains("Unknown driver 'iscsi'") {
        return Outcome::Skipped(
            "QEMU lacks its iSCSI part, which the Debian package `qemu-block-extra` brings \
             (`ci/packages peers` installs it)"
                .to_owned(),
        );
    }
    Outcome::Failed(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_part_is_told_from_a_failure() {
        let said = |message: &str| {
            let (program, message) = ("qemu-storage-daemon".to_owned(), message.to_owned());
            explain(Error::Tool { program, message })
        };
        assert!(matches!(said("Unknown driver 'iscsi'"), Outcome::Skipped(_)));
        assert!(matches!(said("Failed to connect to LUN"), Outcome::Failed(_)));
    }
}

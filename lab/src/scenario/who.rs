//! Those who move bytes.

use serde::{Deserialize, Serialize};

/// Who moves the bytes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Who {
    /// This project's copy program.
    BlockCopy,
    /// TCP alone: what the link can carry.
    Iperf3,
    /// libiscsi, kept busy by `qemu-img bench`: 64 KiB, 32 deep.
    Libiscsi,
    /// `qemu-img convert`.
    QemuImg,
    /// The kernel's initiator, by `dd`.
    OpenIscsi,
    /// Any other program.
    Program,
}

impl Who {
    /// Its name in scenarios and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::BlockCopy => "block-copy",
            Self::Iperf3 => "iperf3",
            Self::Libiscsi => "libiscsi",
            Self::QemuImg => "qemu-img",
            Self::OpenIscsi => "open-iscsi",
            Self::Program => "program",
        }
    }
}

//! The programs that move bytes.

use serde::{Deserialize, Serialize};

/// A program that moves bytes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Who {
    /// This project's copy program.
    BlockCopy,
    /// TCP without iSCSI: what the link can carry.
    Iperf3,
    /// libiscsi, driven by `qemu-img bench` with 32 requests of 64 KiB in flight.
    Libiscsi,
    /// `qemu-img convert`.
    QemuImg,
    /// The kernel's initiator, driven by `dd`.
    OpenIscsi,
    /// Any other program.
    Program,
}

impl Who {
    /// Returns the name in scenarios and results.
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

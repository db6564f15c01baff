//! Describes the network interface of a connection.

/// A network interface: its longest packet, and its offloads.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Interface {
    /// Name of the interface.
    pub name: String,
    /// Longest packet that the interface sends, bytes.
    pub mtu: Option<u32>,
    /// The offloads of the interface.
    pub offload: Offload,
}

/// Offloads, as `ethtool -k` shows them; `None` where the interface does not report one.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Offload {
    /// TCP segmentation offload (`tso`).
    pub tcp_segmentation: Option<bool>,
    /// Generic segmentation offload (`gso`).
    pub generic_segmentation: Option<bool>,
    /// Generic receive offload (`gro`).
    pub generic_receive: Option<bool>,
}

impl Offload {
    /// Returns the names of the active offloads, as `ethtool -K` takes them.
    pub(crate) fn names_of_active(&self) -> Vec<&'static str> {
        let all = [
            ("tso", self.tcp_segmentation),
            ("gso", self.generic_segmentation),
            ("gro", self.generic_receive),
        ];
        all.into_iter().filter(|(_, on)| *on == Some(true)).map(|(name, _)| name).collect()
    }
}

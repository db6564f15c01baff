//! Limits of this host for a socket.

use std::fmt;

/// The limits of this host; `None` where a limit is unknown. `Limits::read` queries the Linux kernel.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Limits {
    /// `net.core.wmem_max`: the largest send buffer that may be requested, bytes. The kernel doubles the
    /// requested size, so that this many bytes of data fit.
    pub wmem_max: Option<u64>,
    /// `net.core.rmem_max`: the largest receive buffer that may be requested, bytes.
    pub rmem_max: Option<u64>,
    /// `net.ipv4.tcp_wmem`: the range in which the kernel tunes the send buffer, bookkeeping included.
    pub tcp_wmem: Option<Autotuning>,
    /// `net.ipv4.tcp_rmem`: the range in which the kernel tunes the receive buffer, bookkeeping included.
    pub tcp_rmem: Option<Autotuning>,
    /// Whether `SO_SNDBUFFORCE` and `SO_RCVBUFFORCE` are permitted (CAP_NET_ADMIN).
    pub may_force: bool,
    /// Congestion controls that the kernel has loaded.
    pub available_congestion_controls: Vec<String>,
    /// The congestion controls that this process may choose.
    pub allowed_congestion_controls: Vec<String>,
    /// The congestion control of a new socket.
    pub congestion_control: Option<String>,
}

/// The range in which the kernel tunes a buffer by itself, bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Autotuning {
    /// The size that remains under memory pressure.
    pub min: u64,
    /// The initial size of a socket's buffer.
    pub default: u64,
    /// The largest size of a socket's buffer.
    pub max: u64,
}

/// The congestion control that does not treat a lost segment as a full queue.
pub(crate) const BBR: &str = "bbr";

impl Autotuning {
    /// The default range of send buffers of Linux.
    pub const STOCK_SEND: Self = Self { min: 4096, default: 16_384, max: 4 << 20 };
    /// The default range of receive buffers of Linux.
    pub const STOCK_RECEIVE: Self = Self { min: 4096, default: 131_072, max: 6 << 20 };
    /// Bytes of buffer that the kernel counts for a byte of data: bookkeeping, and the space of an offered
    /// window.
    pub const BYTES_PER_BYTE: u64 = 2;

    /// Returns how much data in flight the kernel's tuning allows, bytes.
    #[must_use]
    pub const fn reach(self) -> u64 {
        self.max / Self::BYTES_PER_BYTE
    }

    /// Returns the range that allows `data` bytes in flight; the maximum is not lowered. The `Display` output
    /// of the range is the value of the sysctl.
    #[must_use]
    pub fn reaching(self, data: u64) -> Self {
        Self { max: self.max.max(data.saturating_mul(Self::BYTES_PER_BYTE)), ..self }
    }

    #[cfg(any(target_os = "linux", test))]
    pub(crate) fn parse(words: &[String]) -> Option<Self> {
        let numbers: Option<Vec<u64>> = words.iter().map(|word| word.parse().ok()).collect();
        match numbers?.as_slice() {
            [min, default, max] => Some(Self { min: *min, default: *default, max: *max }),
            _ => None,
        }
    }
}

impl fmt::Display for Autotuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.min, self.default, self.max)
    }
}

//! Holds the settings of a plan that the kernel granted, and those that it refused.

use std::fmt;

use crate::size::Size;
use crate::table::{self, Row};

/// The settings that the kernel granted, read back from the socket; `None` where it does not report them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Granted {
    /// The size of the send buffer as the kernel counts it, bytes: twice the requested size, or the size that
    /// the kernel has tuned it to so far.
    pub send_buffer: Option<u64>,
    /// The size of the receive buffer as the kernel counts it, bytes.
    pub receive_buffer: Option<u64>,
    /// `TCP_NODELAY`.
    pub no_delay: Option<bool>,
    /// `TCP_NOTSENT_LOWAT`, bytes; `None` also if the option is not set.
    pub not_sent_low_water: Option<u32>,
    /// The congestion control in use.
    pub congestion_control: Option<String>,
    /// The options that the kernel refused.
    pub refused: Vec<Refusal>,
}

/// An option that the kernel refused, or granted only in part.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Refusal {
    /// Name of the option.
    pub option: &'static str,
    /// The kernel's error, and its meaning.
    pub reason: String,
}

impl Granted {
    /// Returns the granted settings as table rows.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let size = |bytes: Option<u64>| bytes.map_or_else(unknown, |bytes| Size(bytes).to_string());
        let row = |name, value, reason: &str| Row { name, value, reason: reason.to_owned() };
        let counted = "as the kernel counts it, bookkeeping included";
        let mut rows = vec![
            row("send buffer", size(self.send_buffer), counted),
            row("receive buffer", size(self.receive_buffer), counted),
            row("congestion control", self.congestion_control.clone().unwrap_or_else(unknown), ""),
        ];
        rows.extend(self.refused.iter().map(|refusal| Row {
            name: refusal.option,
            value: "refused".to_owned(),
            reason: refusal.reason.clone(),
        }));
        rows
    }
}

impl fmt::Display for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        table::write(f, &self.rows())
    }
}

fn unknown() -> String {
    "unknown".to_owned()
}

//! The direction in which bytes go.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// To the target.
    #[default]
    Write,
    /// From it.
    Read,
}

impl Direction {
    /// Returns the name in scenarios and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

//! Describes the unit that the read test reads.

use iscsi_initiator::Disk;
use serde_json::{Value, json};

use iscsi_tuner::Size;

/// A unit, as it describes itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unit {
    /// LUN of the unit.
    pub lun: Option<u16>,
    /// Vendor and product of the unit.
    pub name: String,
    /// Serial number.
    pub serial_number: Option<String>,
    /// Capacity in bytes.
    pub capacity: u64,
    /// Bytes of a logical block.
    pub block_size: u32,
    /// Maximum number of bytes of one read or write, if the unit sets a limit.
    pub longest_transfer: Option<u64>,
}

/// Limits of at least this many bytes are not shown, because no program reads or writes so much at a time.
const NOTABLE_LIMIT: u64 = 64 << 20;

impl Unit {
    /// Creates the description of a disk.
    #[must_use]
    pub fn of(disk: &Disk) -> Self {
        let profile = disk.profile();
        let limit = profile.limits.maximum_transfer_length.filter(|blocks| *blocks > 0);
        Self {
            lun: disk.unit().lun().number(),
            name: format!("{} {}", profile.vendor.trim(), profile.product.trim()),
            serial_number: profile.serial_number.clone(),
            capacity: disk.capacity(),
            block_size: disk.block_size(),
            longest_transfer: limit.map(|blocks| u64::from(blocks) * u64::from(disk.block_size())),
        }
    }

    /// Returns the description as one line of text.
    #[must_use]
    pub fn describe(&self) -> String {
        let number = self.lun.map_or_else(String::new, |lun| format!("{lun}: "));
        let mut text = format!(
            "{number}{}, {} in blocks of {}",
            self.name,
            Size(self.capacity),
            self.block_size
        );
        if let Some(serial) = &self.serial_number {
            text.push_str(&format!(", serial number {serial}"));
        }
        if let Some(longest) = self.longest_transfer.filter(|longest| *longest <= NOTABLE_LIMIT) {
            text.push_str(&format!(", at most {} at a time", Size(longest)));
        }
        text
    }

    /// Returns the description as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "lun": self.lun,
            "name": self.name,
            "serial_number": self.serial_number,
            "capacity_bytes": self.capacity,
            "block_size_bytes": self.block_size,
            "longest_transfer_bytes": self.longest_transfer,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_limit_that_matters_is_told() {
        let unit = |longest_transfer| Unit {
            lun: Some(3),
            name: "MAKER disk".to_owned(),
            serial_number: Some("0001".to_owned()),
            capacity: 64 << 30,
            block_size: 4096,
            longest_transfer,
        };
        let plain = "3: MAKER disk, 64 GiB in blocks of 4096, serial number 0001";
        assert_eq!(unit(None).describe(), plain);
        assert_eq!(unit(Some(u64::MAX)).describe(), plain);
        assert_eq!(unit(Some(65_536)).describe(), format!("{plain}, at most 64 KiB at a time"));
    }
}

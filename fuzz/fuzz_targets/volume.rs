//! Feeds any text as the description of a volume, and any bytes as a superblock with the right checksum. What was
//! read must be written so that it is read the same.
#![no_main]

use iscsi_fuzz::with_text;
use iscsi_volume::Description;
use iscsi_volume::md::Superblock;
use libfuzzer_sys::fuzz_target;

/// Offsets of fields in a superblock (`struct mdp_superblock_1`).
const CHECKSUM: usize = 216;
const ROLE_COUNT: usize = 220;
const ROLES: usize = 256;

fuzz_target!(|data: &[u8]| {
    with_text(data, |text| {
        let Ok(description) = Description::parse(text) else { return };
        let printed = description.to_string();
        let again =
            Description::parse(&printed).unwrap_or_else(|error| panic!("{printed}: {error}"));
        assert_eq!(printed, again.to_string());
    });
    let mut bytes = [0; Superblock::LEN];
    let len = data.len().min(bytes.len());
    bytes[..len].copy_from_slice(&data[..len]);
    let sum = checksum(&bytes).to_le_bytes();
    bytes[CHECKSUM..ROLE_COUNT].copy_from_slice(&sum);
    if let Ok(superblock) = Superblock::parse(&bytes) {
        assert_eq!(Superblock::parse(&superblock.emit()), Ok(superblock));
    }
});

/// Returns the checksum of a superblock: the sum of its 32-bit words, with the carry added.
fn checksum(bytes: &[u8; Superblock::LEN]) -> u32 {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let end = (ROLES + 2 * word(ROLE_COUNT) as usize).min(bytes.len());
    let words = (0..end / 4 * 4).step_by(4).filter(|at| *at != CHECKSUM);
    let mut sum: u64 = words.map(|at| u64::from(word(at))).sum();
    if end % 4 != 0 {
        sum += u64::from(u16::from_le_bytes([bytes[end - 2], bytes[end - 1]]));
    }
    ((sum & u64::from(u32::MAX)) + (sum >> 32)) as u32
}

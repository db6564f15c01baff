//! Tables of messages: errors of volumes.

use std::io;

use iscsi_examples_common::sentence::words;
use iscsi_initiator::{Error as UnitError, samples};
use iscsi_volume::Error;
use iscsi_volume::md::SuperblockError;

use super::{Row, Table};

const VOLUME: &str = include_str!("../../../../crates/volume/src/error.rs");
const SUPERBLOCK: &str = include_str!("../../../../crates/volume/src/refusal.rs");

pub(super) fn tables() -> Vec<Table> {
    vec![
        Table::new("Volumes", ("Error", VOLUME), volumes()).elsewhere(&["Superblock"]),
        Table::new("Volumes of Linux md", ("SuperblockError", SUPERBLOCK), superblocks()),
    ]
}

/// Returns the advice in the words of the programs.
fn of_programs(error: &Error) -> Option<String> {
    if let Error::Unit { cause, .. } = error {
        let unit: &UnitError = cause.source_as()?;
        return unit.advice().map(|advice| words(advice, unit).into_owned());
    }
    error.advice().map(|advice| advice.to_string())
}

fn volumes() -> Vec<Row> {
    let member = || "member 1".to_owned();
    let name = |name: &str| format!("naa.6001405a000000000000000000000{name}");
    let errors = [
        Error::Chunk(1000),
        Error::MemberCount(1),
        Error::NoRoom { room: 4096, chunk: 65536 },
        Error::TooLarge,
        Error::BlockSize { member: member(), block_size: 520, chunk: 65536 },
        Error::DataOffset { member: member(), block_size: 4096, data_offset: 512 },
        Error::TooSmall { member: member(), capacity: 1 << 20, needed: 1 << 30 },
        Error::Description("chunk is missing".to_owned()),
        Error::Unit { member: member(), cause: samples::closed().into() },
        Error::Nameless { member: member() },
        Error::OtherUnit { member: member(), found: name("0a1"), expected: name("0b2") },
        Error::WrongOrder { member: member(), found: name("0a1"), other: 0 },
        Error::SameUnit { one: 0, other: 1, name: name("0a1") },
        Error::Resized { member: member(), found: 1 << 31, expected: 1 << 30 },
        Error::Unequal { member: member(), found: 1 << 31, expected: 1 << 30 },
        Error::Entropy(io::ErrorKind::NotFound.into()),
    ];
    errors.iter().map(|error| Row::new(error, of_programs(error))).collect()
}

fn superblocks() -> Vec<Row> {
    let causes = [
        SuperblockError::Missing,
        SuperblockError::Checksum { found: 0x0123_4567, expected: 0x89ab_cdef },
        SuperblockError::Unsupported { what: "the level", found: 5 },
        SuperblockError::Mismatch {
            what: "the role",
            found: "1".to_owned(),
            expected: "0".to_owned(),
        },
    ];
    let row = |cause: SuperblockError| {
        let error = Error::Superblock { member: "member 1".to_owned(), cause: cause.clone() };
        Row::of(&cause, &error, of_programs(&error))
    };
    causes.into_iter().map(row).collect()
}

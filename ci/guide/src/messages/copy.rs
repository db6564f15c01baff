//! Tables of messages: exports of NBD servers, and copies.

use std::fmt::{Debug, Display};
use std::io;

use block_copy::error::sentence::words;
use iscsi_copy::device::DeviceError;
use iscsi_copy::{CheckpointError, CopyAdvice, CopyError, DigestsError, Identity, NbdError};
use iscsi_examples_common::sentence;
use iscsi_initiator::{Error as UnitError, samples};
use iscsi_nbd::client::HandshakeError;
use iscsi_nbd::{OptionError, ProtocolError};

use super::{Row, Table};

const NBD: &str = include_str!("../../../../crates/copy/src/ends/nbd.rs");
const OPTIONS: &str = include_str!("../../../../crates/nbd/src/option.rs");
const HANDSHAKES: &str = include_str!("../../../../crates/nbd/src/client/handshake.rs");
const CHECKPOINTS: &str = include_str!("../../../../crates/copy/src/progress/checkpoint.rs");
const DIGESTS: &str = include_str!("../../../../crates/copy/src/digests.rs");
const COPY: &str = include_str!("../../../../crates/copy/src/error.rs");
const PLACE: &str = "192.0.2.7:10809";

pub(super) fn tables() -> Vec<Table> {
    vec![
        Table::new("NBD exports", ("NbdError", NBD), exports()).elsewhere(&["Handshake"]),
        Table::new("An NBD server refuses the export", ("OptionError", OPTIONS), refusals()),
        Table::new(
            "The handshake with an NBD server fails",
            ("HandshakeError", HANDSHAKES),
            handshakes(),
        )
        .elsewhere(&["Refused"]),
        Table::new("Copies", ("CopyError", COPY), copies()),
        Table::new("Checkpoints", ("CheckpointError", CHECKPOINTS), checkpoints()),
        Table::new("Files of digests", ("DigestsError", DIGESTS), digests()),
    ]
}

fn row(error: &NbdError) -> Row {
    Row::new(error, error.advice().map(words))
}

fn exports() -> Vec<Row> {
    let text = |text: &str| text.to_owned();
    let connect =
        |kind: io::ErrorKind| NbdError::Connect { place: text(PLACE), cause: kind.into() };
    let bitmap = || text("nbd://192.0.2.7/disk qemu:dirty-bitmap:b0");
    let errors = [
        NbdError::Uri("the host is missing"),
        NbdError::BitmapForm,
        NbdError::Tls,
        NbdError::TlsOptions(text("ca.pem holds no certificate")),
        NbdError::NotTrusted {
            place: text(PLACE),
            reason: text("no trusted authority has issued its certificate"),
        },
        NbdError::TlsEnded {
            place: text(PLACE),
            reason: text("received fatal alert: CertificateRequired"),
        },
        connect(io::ErrorKind::ConnectionRefused),
        NbdError::Connect { place: text("disk.sock"), cause: io::ErrorKind::NotFound.into() },
        NbdError::Connect {
            place: text("disk.sock"),
            cause: io::ErrorKind::PermissionDenied.into(),
        },
        connect(io::ErrorKind::HostUnreachable),
        connect(io::ErrorKind::ConnectionReset),
        NbdError::Silent(text(PLACE)),
        NbdError::TooLarge { place: text(PLACE), size: u64::MAX },
        NbdError::NoBitmap(bitmap()),
        NbdError::Bitmap { bitmap: bitmap(), cause: io::ErrorKind::ConnectionReset.into() },
        NbdError::Protocol(ProtocolError::Payload(1 << 30)),
        NbdError::Lost,
        NbdError::Away {
            why: text("the server closed the connection"),
            seconds: 300,
            last: text("no NBD server listens at 192.0.2.7:10809"),
        },
        NbdError::Changed(text("it has 1048576 bytes, and had 2097152")),
        NbdError::UnflushedWritesLost,
    ];
    errors.iter().map(row).collect()
}

fn of_handshake(cause: HandshakeError) -> NbdError {
    NbdError::Handshake { place: PLACE.to_owned(), export: "disk".to_owned(), cause }
}

fn refusals() -> Vec<Row> {
    let errors = [
        OptionError::Unsupported,
        OptionError::Policy,
        OptionError::Invalid,
        OptionError::Platform,
        OptionError::TlsRequired,
        OptionError::Unknown,
        OptionError::Shutdown,
        OptionError::BlockSizeRequired,
        OptionError::TooBig,
    ];
    let row = |error: OptionError| {
        let refused = of_handshake(HandshakeError::Refused { error, message: String::new() });
        Row::of(&error, &refused, refused.advice().map(words))
    };
    errors.into_iter().map(row).collect()
}

fn handshakes() -> Vec<Row> {
    let magic = ProtocolError::Magic { message: "greeting", value: 0x4854_5450_2f31_2e31 };
    let causes =
        [HandshakeError::NoTls, HandshakeError::TooOld, HandshakeError::Oldstyle, magic.into()];
    let row = |cause: HandshakeError| {
        let error = of_handshake(cause.clone());
        Row::of(&cause, &error, error.advice().map(words))
    };
    causes.into_iter().map(row).collect()
}

fn copies() -> Vec<Row> {
    let full = || io::ErrorKind::StorageFull.into();
    let errors = [
        CopyError::Source(NbdError::Lost.into()),
        CopyError::Shrunk,
        CopyError::Destination(samples::unflushed_writes_lost().into()),
        CopyError::Flush(io::ErrorKind::StorageFull.into()),
        CopyError::Digests(full()),
        CopyError::Checkpoint { path: "disk.map".into(), cause: full() },
        CopyError::ReadOnly,
        CopyError::TooSmall { capacity: 1 << 20, needed: 1 << 30 },
        CopyError::Overflow { capacity: 1 << 20 },
        CopyError::Cancelled,
        CopyError::Abandoned { in_flight: 1 << 20 },
    ];
    let row =
        |error: &CopyError| Row::new(error, error.advice().map(|advice| of_program(error, advice)));
    errors.iter().map(row).collect()
}

/// Returns the row of an error whose text has the advice after a semicolon.
fn whole(error: &(impl Debug + Display)) -> Row {
    let text = error.to_string();
    let (fact, advice) = text.split_once("; ").unwrap_or((&text, ""));
    Row::of(error, &fact, Some(advice).filter(|advice| !advice.is_empty()))
}

fn ends() -> (Box<Identity>, Box<Identity>) {
    let unit = |name: &str| Identity::new(&format!("logical unit {name}"), 64 << 20).into();
    (unit("naa.60014050000000000000000000000001"), unit("naa.60014050000000000000000000000002"))
}

fn checkpoints() -> Vec<Row> {
    let ((was, is), (old, new)) = (ends(), ends());
    let errors = [
        CheckpointError::Foreign,
        CheckpointError::Newer(9),
        CheckpointError::Damaged(7),
        CheckpointError::OtherSource { was: old, is: new },
        CheckpointError::OtherDestination { was, is },
        CheckpointError::Doubtful("another program has written to the destination".to_owned()),
    ];
    errors.iter().map(whole).collect()
}

fn digests() -> Vec<Row> {
    let (was, is) = ends();
    let errors = [
        DigestsError::Foreign,
        DigestsError::Newer(9),
        DigestsError::Algorithm,
        DigestsError::Damaged(7),
        DigestsError::OtherDestination { was, is },
    ];
    errors.iter().map(whole).collect()
}

/// Returns the advice of a copy as block-copy words it.
fn of_program(error: &CopyError, advice: CopyAdvice) -> String {
    let unit = error.device().and_then(DeviceError::source_as::<UnitError>);
    let export = error.device().and_then(DeviceError::source_as::<NbdError>);
    let of_unit = unit.and_then(|unit| Some(sentence::words(unit.advice()?, unit).into_owned()));
    let of_export = export.and_then(|export| export.advice().map(words));
    of_unit.or_else(|| of_export.map(str::to_owned)).unwrap_or_else(|| advice.to_string())
}

//! Describes a failure as JSON.

use std::io;

use iscsi_initiator::device::DeviceError;
use iscsi_initiator::{Error, Fault};
use serde_json::{Value, json};

/// Kinds of failure, by the side at fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// The command line, a name or a password is wrong.
    Caller,
    /// The target or its unit failed, or refused.
    Target,
    /// The network between this host and the target failed.
    Network,
    /// A file, a stream or this machine failed.
    System,
    /// The data that were read differ from the data that were written.
    Data,
    /// A signal asked the program to stop.
    Interrupted,
}

impl Kind {
    /// Returns the name of the kind in JSON objects.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Target => "target",
            Self::Network => "network",
            Self::System => "system",
            Self::Data => "data",
            Self::Interrupted => "interrupted",
        }
    }
}

impl From<Fault> for Kind {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Caller => Self::Caller,
            Fault::Network => Self::Network,
            Fault::Target => Self::Target,
            _ => Self::System,
        }
    }
}

impl From<&DeviceError> for Kind {
    /// Returns the kind of a unit's failure. An error that no unit has caused is of this host: `System`.
    fn from(error: &DeviceError) -> Self {
        error.source_as::<Error>().map_or(Self::System, |unit| unit.fault().into())
    }
}

impl From<&iscsi_volume::Error> for Kind {
    /// Returns the kind of the failure: of the unit that failed, or `Caller` if the named units form no volume.
    fn from(error: &iscsi_volume::Error) -> Self {
        if let iscsi_volume::Error::Unit { cause, .. } = error {
            cause.into()
        } else {
            Self::Caller
        }
    }
}

/// Adds the members `error`, a sentence, and `kind` to the object `known`.
#[must_use]
pub fn object(mut known: Value, error: &str, kind: Kind) -> Value {
    if let Value::Object(members) = &mut known {
        members.insert("error".to_owned(), json!(error));
        members.insert("kind".to_owned(), json!(kind.name()));
    }
    known
}

/// Returns the advice about an error of the operating system.
#[must_use]
pub fn file_advice(kind: io::ErrorKind) -> &'static str {
    const ADVICE: [(io::ErrorKind, &str); 10] = [
        (io::ErrorKind::NotFound, "; check the path"),
        (io::ErrorKind::PermissionDenied, "; check its permissions"),
        (io::ErrorKind::IsADirectory, "; name a file or a block device"),
        (io::ErrorKind::StorageFull, "; make room there"),
        (io::ErrorKind::FileTooLarge, "; raise the limit (ulimit -f), or choose another place"),
        (io::ErrorKind::ReadOnlyFilesystem, "; choose a place that can be written"),
        (io::ErrorKind::AlreadyExists, "; choose another path"),
        (io::ErrorKind::NotADirectory, "; check the path"),
        (io::ErrorKind::InvalidFilename, "; choose a shorter path"),
        (io::ErrorKind::BrokenPipe, "; the program that reads it has ended"),
    ];
    ADVICE.iter().find(|(known, _)| *known == kind).map_or("", |(_, advice)| advice)
}

/// Removes the error numbers that Rust appends to texts of the operating system, as in " (os error 2)".
#[must_use]
pub fn plain(text: &str) -> String {
    const NUMBER: &str = " (os error ";
    let mut parts = text.split(NUMBER);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| match part.split_once(')') {
        Some((number, rest)) if number.bytes().all(|digit| digit.is_ascii_digit()) => text + rest,
        _ => text + NUMBER + part,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_system_are_for_nobody() {
        let missing = io::Error::from_raw_os_error(2).to_string();
        assert!(missing.contains("(os error 2)"), "{missing}");
        let text = format!("source a: {missing}; check the path");
        assert_eq!(plain(&text), "source a: No such file or directory; check the path");
        for text in ["", "all is well", "a (os error", "a (os error x) b", "(os error 2)"] {
            assert_eq!(plain(text), text);
        }
        assert_eq!(plain("a (os error 2): b (os error 13)"), "a: b");
    }
}

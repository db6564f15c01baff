//! Failures of a program, as other programs read them.

use std::io;

use iscsi_initiator::Fault;
use serde_json::{Value, json};

/// Kinds of failure, by whose fault it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// The command line, a name or a password: something else must be asked for.
    Caller,
    /// The target or its unit failed, or refuses.
    Target,
    /// The way to the target.
    Network,
    /// A file, a stream, or this machine.
    System,
    /// The data that were read back differ from those that were written.
    Data,
    /// A signal asked the program to stop.
    Interrupted,
}

impl Kind {
    /// The name that programs know it by.
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

/// The object `known` with the members `error`, a sentence, and `kind`.
#[must_use]
pub fn object(mut known: Value, error: &str, kind: Kind) -> Value {
    if let Value::Object(members) = &mut known {
        members.insert("error".to_owned(), json!(error));
        members.insert("kind".to_owned(), json!(kind.name()));
    }
    known
}

/// Returns advice about an error of the system.
#[must_use]
pub fn file_advice(kind: io::ErrorKind) -> &'static str {
    const ADVICE: [(io::ErrorKind, &str); 9] = [
        (io::ErrorKind::NotFound, "; check the path"),
        (io::ErrorKind::PermissionDenied, "; check its permissions"),
        (io::ErrorKind::IsADirectory, "; name a file or a block device"),
        (io::ErrorKind::StorageFull, "; make room there"),
        (io::ErrorKind::FileTooLarge, "; raise the limit (ulimit -f), or choose another place"),
        (io::ErrorKind::ReadOnlyFilesystem, "; choose a place that can be written"),
        (io::ErrorKind::AlreadyExists, "; choose another path"),
        (io::ErrorKind::NotADirectory, "; check the path"),
        (io::ErrorKind::BrokenPipe, "; the program that reads it has ended"),
    ];
    ADVICE.iter().find(|(known, _)| *known == kind).map_or("", |(_, advice)| advice)
}

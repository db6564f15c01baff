//! The arguments of the command line.

mod content;
mod controller;
mod delta;
mod guard;
mod link;
mod output;
mod passes;
mod passwords;
mod rate;
mod resumption;

use std::ffi::OsString;

use clap::Parser;

pub use content::{ContentArgs, VerifyMode, ZeroGranularity};
pub use controller::ControllerArgs;
pub use delta::{DeltaArgs, RangesFrom};
pub use guard::{GuardArgs, SourceFormat};
pub use iscsi_examples_common::session_count::SessionCount;
pub use link::{IoSize, LinkArgs, NoDelay, QueueDepth};
pub use output::OutputArgs;
pub use passes::{PassArgs, WhenNotConverging};
pub use passwords::PasswordArgs;
pub use rate::RateArgs;
pub(crate) use rate::parse_limit;
pub use resumption::{FlushBytes, OnReadError, ResumptionArgs};

/// Copy a disk image to an iSCSI unit, back, or from unit to unit
///
/// Either end may be a file, a block device, a stream, an iSCSI unit, several units as one volume, or an NBD export. At
/// the end all data are flushed. A lost session is reopened, and the copy goes on.
///
/// `block-copy --jobs FILE` runs many copies in one process: see `block-copy --jobs --help`.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "block-copy",
    version,
    override_usage = "block-copy [OPTIONS] <SOURCE> <DESTINATION>\n       \
                      block-copy [OPTIONS] --verify=digests --digests <FILE> <DESTINATION>"
)]
pub struct Args {
    /// Path, `-`, iscsi:// URL, nbd:// URI, or volume:FILE.
    ///
    /// A path is that of a regular file, a block device or a FIFO; `-` is standard input. Write ./ before a name that
    /// looks like a URL.
    ///
    /// A unit is iscsi://USER@HOST:PORT/TARGET/LUN?OPTION=VALUE&..., where user, port and options may be left out. A
    /// password is best read from a file (--password-file): all users of this host can see one that is in a URL.
    ///
    /// iscsis:// in place of iscsi:// encrypts the connections by TLS 1.3, up to a tunnel in front of the target.
    ///
    /// An NBD export is nbd://HOST:PORT/EXPORT, nbds:// for TLS, or nbd+unix:///EXPORT?socket=PATH.
    ///
    /// volume:FILE is several units as one device, as FILE describes them: see `iscsi-util volume`.
    pub source: OsString,
    /// Path, `-`, iscsi:// URL, nbd:// URI, or volume:FILE.
    ///
    /// A regular file is created if it is missing, and ends up as long as the source. A unit, a block device or an
    /// export must be at least that long. `-` is standard output.
    ///
    /// With --verify=digests the destination may stand alone: then nothing is copied, and the destination is compared
    /// with the file of --digests.
    pub destination: Option<OsString>,
    /// The content to copy.
    #[command(flatten)]
    pub content: ContentArgs,
    /// The guards of the destination.
    #[command(flatten)]
    pub guard: GuardArgs,
    /// The data that the destination has already.
    #[command(flatten)]
    pub delta: DeltaArgs,
    /// The passes over a source in use.
    #[command(flatten)]
    pub passes: PassArgs,
    /// The link and its settings.
    #[command(flatten)]
    pub link: LinkArgs,
    /// Where the passwords are.
    #[command(flatten)]
    pub passwords: PasswordArgs,
    /// The resumption after an interruption.
    #[command(flatten)]
    pub resumption: ResumptionArgs,
    /// The limits of the rate.
    #[command(flatten)]
    pub rate: RateArgs,
    /// What the copy prints.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Options for a controller, such as a Job of Kubernetes.
    #[command(flatten)]
    pub controller: ControllerArgs,
}

impl Args {
    /// Returns the arguments of a copy with the default options.
    pub fn new(source: impl Into<OsString>, destination: impl Into<OsString>) -> Self {
        Self {
            source: source.into(),
            destination: Some(destination.into()),
            content: ContentArgs::default(),
            guard: GuardArgs::default(),
            delta: DeltaArgs::default(),
            passes: PassArgs::default(),
            link: LinkArgs::default(),
            passwords: PasswordArgs::default(),
            resumption: ResumptionArgs::default(),
            rate: RateArgs::default(),
            output: OutputArgs::default(),
            controller: ControllerArgs::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use iscsi_initiator::Sessions;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn defaults_agree_with_the_command_line() {
        let parsed = Args::parse_from(["block-copy", "a", "b"]);
        assert_eq!(format!("{parsed:?}"), format!("{:?}", Args::new("a", "b")));
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for (option, value) in [
            ("--io-size", "511"),
            ("--io-size", "65M"),
            ("--zero-granularity", "511"),
            ("--zero-granularity", "65M"),
            ("--zero-granularity", "none"),
            ("--destination-is-zero", "yes"),
            ("--queue-depth", "0"),
            ("--queue-depth", "1025"),
            ("--queue-depth", "many"),
            ("--sessions", "0"),
            ("--sessions", "65"),
            ("--sessions", "many"),
            ("--connections", "0"),
            ("--connections", "17"),
            ("--progress", "loud"),
            ("--tune", "faster"),
            ("--bandwidth", "0mbit"),
            ("--bandwidth", "fast"),
            ("--nodelay", "yes"),
            ("--on-read-error", "retry"),
            ("--flush-bytes", "63K"),
            ("--verify=all", "--json"),
            // A mode needs `=` before it: after a space it would be the next argument.
            ("--verify", "digests"),
            ("--flush-bytes", "2T"),
            ("--rate-limit", "0"),
            ("--rate-limit", "5Mb/s"),
            ("--format", "qcow2"),
            ("--if-blank", "yes"),
            ("--ranges-from=cat", "--offset=1"),
            ("--ranges-from=cat", "--downtime=1m"),
            ("--ranges-from=cat", "--max-passes=0"),
            ("--ranges-from=cat", "--when-not-converging=wait"),
            // A source that is not in use is copied in one pass, so options of passes are errors.
            ("--downtime", "1s"),
            ("--max-passes", "3"),
            ("--before-last-pass", "true"),
            ("--when-not-converging", "stop"),
        ] {
            let parsed = Args::try_parse_from(["block-copy", "a", "b", option, value]);
            assert!(parsed.is_err(), "{option} {value}");
        }
    }

    #[test]
    fn several_connections_are_one_session_unless_asked_otherwise() {
        let sessions = |options: &[&str]| {
            let args = Args::parse_from([&["block-copy", "a", "b"], options].concat());
            (args.link.sessions(), args.link.why_one_session().is_some())
        };
        let auto = Sessions::default();
        assert_eq!(sessions(&[]), (auto, false));
        assert_eq!(sessions(&["--sessions", "64"]), (Sessions::Fixed(64), false));
        assert_eq!(sessions(&["--connections", "4"]), (Sessions::Fixed(1), true));
        assert_eq!(sessions(&["--connections", "4", "--sessions", "auto"]), (auto, false));
        assert_eq!(
            sessions(&["--connections", "4", "--sessions", "2"]),
            (Sessions::Fixed(2), false)
        );
    }
}

//! The arguments of the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use iscsi_examples_common::credentials::PasswordFiles;
use iscsi_examples_common::help::heading;
use iscsi_examples_common::metrics::MetricsArgs;
use iscsi_examples_common::named_socket::{SocketAccess, parse_group, parse_mode};
use iscsi_examples_common::session_count::SessionCount;
use iscsi_examples_common::time;
use iscsi_tuner::{Size, SizeError};
use nix::unistd::Gid;

use crate::listen::Address;
use crate::memory::MIN_MEMORY;

/// Default size of the write-behind window, in bytes.
const WINDOW: u64 = 32 << 20;
/// Default size of the memory for reads, in bytes.
const CACHE: u64 = 64 << 20;

/// Serve an iSCSI unit to NBD clients: QEMU, nbdcopy, nbdkit, the Linux kernel
///
/// Writes are answered before the unit has them, up to --write-behind. They are safe when a flush (NBD_CMD_FLUSH, or a
/// write with FUA) has succeeded. An error of a write that was already answered fails the next flush of each client.
///
/// SIGINT, SIGTERM and SIGHUP end the server: requests in flight are answered, and all data are flushed.
#[derive(Clone, Debug, Parser)]
#[command(name = "block-serve", version)]
pub struct Args {
    /// Unit to serve: iscsi:// URL, or volume:FILE.
    ///
    /// iscsi://USER@HOST:PORT/TARGET/LUN?OPTION=VALUE&..., where user, port and options may be left out. A password is
    /// best read from a file (--password-file): all users of this host can see one that is in a URL.
    ///
    /// iscsis:// in place of iscsi:// encrypts the connections by TLS 1.3, up to a tunnel in front of the target.
    ///
    /// volume:FILE serves several units as one device, as FILE describes them: see `iscsi-util volume`.
    #[arg(value_name = "URL")]
    pub unit: String,
    /// The clients.
    #[command(flatten)]
    pub clients: ClientArgs,
    /// TLS of the clients.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// The writes and reads in memory.
    #[command(flatten)]
    pub buffers: BufferArgs,
    /// The sessions with the unit.
    #[command(flatten)]
    pub link: LinkArgs,
    /// Print a JSON object when ready, and one at the end.
    ///
    /// On standard output: the first has what is served, and where; the second what was done.
    #[arg(long, help_heading = heading::OUTPUT)]
    pub json: bool,
    /// Where metrics are served.
    #[command(flatten)]
    pub metrics: MetricsArgs,
    /// Where the passwords are.
    #[command(flatten)]
    pub passwords: PasswordFiles,
}

/// Where clients connect, and what they may do.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct ClientArgs {
    /// Where to listen: unix:/PATH or tcp:HOST:PORT; may be repeated.
    ///
    /// Without the option the program takes the sockets that its parent hands over (LISTEN_FDS). NBD has no passwords:
    /// a client that reaches the address reads and writes the unit, unless --tls-ca asks for its certificate. A Unix socket
    /// admits processes of the same user, unless --socket-mode says otherwise.
    #[arg(long, short, value_name = "ADDRESS", help_heading = heading::CLIENTS)]
    pub listen: Vec<Address>,
    /// Permissions of Unix sockets, octal.
    ///
    /// As 660. A client needs write permission.
    #[arg(long, value_name = "MODE", default_value = "600", value_parser = parse_mode, help_heading = heading::CLIENTS)]
    pub socket_mode: u32,
    /// Group of Unix sockets, by name or number.
    ///
    /// kvm, with --socket-mode 660, admits QEMU under another user.
    #[arg(long, value_name = "GROUP", value_parser = parse_group, help_heading = heading::CLIENTS)]
    pub socket_group: Option<Gid>,
    /// Name of the export.
    ///
    /// The export is the default one as well, which clients get that name none.
    #[arg(long, value_name = "NAME", default_value = "", help_heading = heading::CLIENTS)]
    pub export: String,
    /// Refuse writes.
    #[arg(long, help_heading = heading::CLIENTS)]
    pub read_only: bool,
    /// Most clients that are connected, 1 to 4096.
    ///
    /// Further clients are refused. A client is disconnected if its handshake takes more than 30 s, or if it sends a
    /// request, or takes its replies, at less than 64 KiB/s. An idle client stays.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096), help_heading = heading::CLIENTS)]
    pub max_clients: u16,
    /// End when the last client has disconnected.
    #[arg(long, help_heading = heading::CLIENTS)]
    pub until_last: bool,
}

/// How the connections of clients are encrypted.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct TlsArgs {
    /// Whether clients use TLS 1.3.
    ///
    /// The default is `require` with --tls-cert, and `off` without. `require` refuses clients without TLS before they learn
    /// the name of the export. `allow` serves them as well: then anyone on the way can keep a client from using TLS.
    #[arg(long, value_name = "MODE", value_enum, help_heading = heading::CLIENTS)]
    pub tls: Option<TlsMode>,
    /// Certificate of this server (PEM).
    ///
    /// Those of intermediate authorities follow it in the file. When the file changes, new clients get the new certificate.
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = heading::CLIENTS)]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = heading::CLIENTS)]
    pub tls_key: Option<PathBuf>,
    /// Authorities of the clients' certificates (PEM).
    ///
    /// A client that starts TLS without a certificate of one of these is refused. Without the option each client is accepted.
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = heading::CLIENTS)]
    pub tls_ca: Option<PathBuf>,
}

/// Whether clients use TLS.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum TlsMode {
    /// TLS is refused.
    Off,
    /// Clients with and without TLS are served.
    Allow,
    /// Clients without TLS are refused.
    Require,
}

/// What is kept in memory of writes and reads.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct BufferArgs {
    /// Bytes of writes to answer early [default: 32M; 0 with --shared].
    ///
    /// 64K to 1G: at most this many bytes are answered before the unit has them. 0 answers when the unit has the data.
    /// A server that is killed loses what it has answered and not flushed. Use 0 if a new server is started under
    /// clients that go on.
    #[arg(long, value_name = "SIZE", value_parser = parse_window, help_heading = heading::CACHE)]
    pub write_behind: Option<Size>,
    /// Memory for reads, and for reading ahead [default: 64M; 0 with --shared].
    ///
    /// 0 to 64G; 0 keeps nothing.
    #[arg(long, value_name = "SIZE", value_parser = parse_cache, help_heading = heading::CACHE)]
    pub cache: Option<Size>,
    /// Other hosts use the unit as well.
    ///
    /// What was read is not kept, unless --cache is given, and writes are answered when the unit has them, unless
    /// --write-behind is given.
    #[arg(long, help_heading = heading::CACHE)]
    pub shared: bool,
    /// Most bytes in requests of all clients, 128M to 3G.
    ///
    /// Beside --write-behind and --cache.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_memory, help_heading = heading::CACHE)]
    pub memory: Size,
}

/// How the unit is reached.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct LinkArgs {
    /// Seconds that requests wait for a lost target [default: 300].
    ///
    /// 1 to 86400. After that they fail, and new ones fail immediately, until the target is back.
    #[arg(long, alias = "patience", value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400), help_heading = heading::LINK)]
    pub retry_timeout: Option<u32>,
    /// Wait for a target that is not ready yet, as 30s or 5min.
    ///
    /// Not ready: nothing listens, the login is refused for now, or a unit is missing. Without the option the program
    /// ends after the first try. `open_timeout` in the URL overrides it.
    #[arg(long, value_name = "TIME", value_parser = time::parse, help_heading = heading::LINK)]
    pub wait: Option<Duration>,
    /// Sessions with the unit, 1 to 64.
    ///
    /// `auto` begins with what the link needs by the plan, and adds more while the total rate rises.
    #[arg(long, value_name = "N|auto", default_value = "auto", help_heading = heading::LINK)]
    pub sessions: SessionCount,
    /// iSCSI name of this initiator [default: made from this host].
    ///
    /// The default is made from the name and the identity of this host.
    #[arg(long, value_name = "IQN", help_heading = heading::LINK)]
    pub initiator_name: Option<String>,
}

impl TlsArgs {
    /// Checks the options together. The error is a sentence.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        match self.tls {
            Some(TlsMode::Allow | TlsMode::Require) if self.tls_cert.is_none() => {
                Err("--tls needs --tls-cert and --tls-key")
            }
            Some(TlsMode::Off | TlsMode::Allow) if self.tls_ca.is_some() => {
                Err("--tls-ca has no effect on clients without TLS; write --tls require")
            }
            _ => Ok(()),
        }
    }
}

impl Args {
    /// Returns the permissions and the group of the Unix sockets of `--listen`.
    pub(crate) const fn socket_access(&self) -> SocketAccess {
        SocketAccess { mode: self.clients.socket_mode, group: self.clients.socket_group }
    }

    /// Returns the sizes of the write-behind window and of the cache, in bytes; 0 is none.
    pub(crate) fn buffers(&self) -> (u32, u64) {
        let default = |size| if self.buffers.shared { 0 } else { size };
        let window = self.buffers.write_behind.map_or_else(|| default(WINDOW), |size| size.0);
        let cache = self.buffers.cache.map_or_else(|| default(CACHE), |size| size.0);
        (u32::try_from(window).unwrap_or(u32::MAX), cache)
    }
}

fn parse_window(text: &str) -> Result<Size, String> {
    let size = parse(text, 64 << 10..=1 << 30);
    if text.trim() == "0" { Ok(Size(0)) } else { size }
}

fn parse_cache(text: &str) -> Result<Size, String> {
    parse(text, 0..=64 << 30)
}

fn parse_memory(text: &str) -> Result<Size, String> {
    parse(text, MIN_MEMORY.into()..=3 << 30)
}

fn parse(text: &str, range: std::ops::RangeInclusive<u64>) -> Result<Size, String> {
    let size: Size = text.parse().map_err(|error: SizeError| error.to_string())?;
    let [start, end] = [Size(*range.start()), Size(*range.end())];
    range
        .contains(&size.0)
        .then_some(size)
        .ok_or_else(|| format!("it must lie between {start} and {end}"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn nothing_is_kept_of_a_shared_unit_unless_that_is_asked_for() {
        for (arguments, buffers) in [
            (&[][..], (32 << 20, 64 << 20)),
            (&["--shared"], (0, 0)),
            (&["--shared", "--cache", "1M"], (0, 1 << 20)),
            (&["--shared", "--write-behind", "1M"], (1 << 20, 0)),
            (&["--write-behind", "0", "--cache", "0"], (0, 0)),
        ] {
            let parsed = Args::try_parse_from([&["block-serve", "url"], arguments].concat());
            assert_eq!(parsed.unwrap().buffers(), buffers, "{arguments:?}");
        }
    }

    #[test]
    fn options_of_tls_that_contradict_each_other_are_refused() {
        let files = ["--tls-cert", "c", "--tls-key", "k"];
        let parse = |arguments: &[&str]| {
            let parsed = Args::try_parse_from([&["block-serve", "url"], arguments].concat());
            parsed.map_err(drop).and_then(|args| args.tls.check().map_err(drop))
        };
        for arguments in [
            &["--tls", "require"][..],
            &["--tls", "allow"],
            &["--tls", "yes"],
            &["--tls-cert", "c"],
            &["--tls-key", "k"],
            &["--tls-ca", "a"],
        ] {
            assert!(parse(arguments).is_err(), "{arguments:?}");
        }
        for mode in ["off", "allow"] {
            assert!(parse(&[&files[..], &["--tls", mode, "--tls-ca", "a"]].concat()).is_err());
        }
        for arguments in [&[][..], &["--tls", "off"], &["--tls", "require", "--tls-ca", "a"]] {
            assert!(parse(&[&files[..], arguments].concat()).is_ok(), "{arguments:?}");
        }
        assert!(parse(&["--tls", "off"]).is_ok());
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for arguments in [
            &["--write-behind", "1K"][..],
            &["--write-behind", "2G"],
            &["--cache", "-1"],
            &["--cache", "65G"],
            &["--memory", "127M"],
            &["--memory", "4G"],
            &["--max-clients", "0"],
            &["--max-clients", "4097"],
            &["--listen", "/path"],
            &["--retry-timeout", "0"],
            &["--patience", "0"],
            &["--sessions", "0"],
            &["--sessions", "65"],
        ] {
            let parsed = Args::try_parse_from([&["block-serve"], arguments, &["url"]].concat());
            assert!(parsed.is_err(), "{arguments:?}");
        }
        let parsed = Args::try_parse_from(["block-serve", "url", "--write-behind", "0"]).unwrap();
        assert_eq!(
            (parsed.buffers.write_behind, parsed.buffers.memory),
            (Some(Size(0)), Size(256 << 20))
        );
    }
}

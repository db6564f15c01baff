//! What the command line says.

use std::time::Duration;

use clap::Parser;
use iscsi_examples_common::credentials::PasswordFiles;
use iscsi_examples_common::named_socket::{SocketAccess, parse_group, parse_mode};
use iscsi_examples_common::session_count::SessionCount;
use iscsi_examples_common::time;
use iscsi_initiator::tuning::{Size, SizeError};
use nix::unistd::Gid;

use crate::listen::Address;
use crate::memory::MIN_MEMORY;

/// The window of writes where nothing else is said, bytes.
const WINDOW: u64 = 32 << 20;
/// The memory for reads where nothing else is said, bytes.
const CACHE: u64 = 64 << 20;

/// Serves a logical unit to NBD clients: QEMU, nbdcopy, nbdkit, the kernel's own nbd.
///
/// URL is iscsi://user@host:port/target/lun?option=value, where user, port and options may be left out. The password of
/// the user is best read from a file (--password-file); LIBISCSI_CHAP_USERNAME and LIBISCSI_CHAP_PASSWORD are read as
/// well. In a URL all users of the host may see it.
///
/// volume:FILE in its place serves several units as one device, as FILE describes it: see iscsi-util volume.
///
/// Writes are answered before the unit has them, as many as --write-behind has room for. They are safe when
/// a flush (NBD_CMD_FLUSH, or a write with FUA) has ended well; one that fails after its answer fails the next
/// flush of each client.
///
/// SIGINT, SIGTERM and SIGHUP end it: what was asked for is answered and flushed. The exit status is 0 then, 1 after
/// an error, 2 for a wrong command line.
#[derive(Clone, Debug, Parser)]
#[command(name = "block-serve", version)]
pub struct Args {
    /// The unit, or volume:FILE for several as one device.
    #[arg(value_name = "URL")]
    pub unit: String,
    /// Where to listen: unix:/PATH or tcp:HOST:PORT; may be given again. Without it, the sockets that are
    /// handed over by whoever starts the program (LISTEN_FDS). NBD has no passwords: whoever reaches the
    /// address reads and writes the unit. A Unix socket is for processes of the same user, unless
    /// --socket-mode says otherwise.
    #[arg(long, short, value_name = "ADDRESS")]
    pub listen: Vec<Address>,
    /// Permissions of the Unix sockets of --listen, octal, as 660. A client needs write permission.
    #[arg(long, value_name = "MODE", default_value = "600", value_parser = parse_mode)]
    pub socket_mode: u32,
    /// Group of the Unix sockets of --listen, by name or number: kvm, with --socket-mode 660, admits QEMU under another user.
    #[arg(long, value_name = "GROUP", value_parser = parse_group)]
    pub socket_group: Option<Gid>,
    /// The name of the export; it is the default one as well.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub export: String,
    /// Refuses to write.
    #[arg(long)]
    pub read_only: bool,
    /// Bytes of writes that are answered before the unit has them, 64K to 1G; 0 answers when the unit has. By
    /// default 32 MiB, and 0 with --shared. A server that is killed loses what it has answered and not
    /// flushed: 0 is for one that is started anew under clients that go on.
    #[arg(long, value_name = "SIZE", value_parser = parse_window)]
    pub write_behind: Option<Size>,
    /// Bytes of memory for what was read, and what comes next, up to 64G; 0 for none. By default 64 MiB, and
    /// none with --shared.
    #[arg(long, value_name = "SIZE", value_parser = parse_cache)]
    pub cache: Option<Size>,
    /// Other hosts use the unit at the same time: what was read is not kept, unless --cache says so, and
    /// writes are answered when the unit has them, unless --write-behind says otherwise.
    #[arg(long)]
    pub shared: bool,
    /// Clients at once, 1 to 4096; further ones are refused. One that comes through no handshake within 30 s is let go, and
    /// so is one that sends a request, or takes its replies, below 64 KiB/s. An idle client stays.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub max_clients: u16,
    /// Bytes that requests of all clients may hold, beside the two above, 128M to 3G.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_memory)]
    pub memory: Size,
    /// How long requests wait for a target that is gone, in seconds, before they fail; those that come later fail
    /// at once, until the target is back. By default 300.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub patience: Option<u32>,
    /// How long to wait for a target that is not there yet, as 30s or 5min: nothing listens, the login is refused for
    /// now, or a unit is missing. Without it the program ends at the first try. For a service that starts with the host.
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub wait: Option<Duration>,
    /// Sessions with the unit, 1 to 64; auto begins with what the link needs by the plan, and adds more as long as
    /// the total rises.
    #[arg(long, value_name = "N|auto", default_value = "auto")]
    pub sessions: SessionCount,
    /// Ends when the last client has gone.
    #[arg(long)]
    pub until_last: bool,
    /// Prints what it serves where as one JSON object when it is ready, and what was done as another at the
    /// end.
    #[arg(long)]
    pub json: bool,
    /// The initiator's iSCSI name; by default one that is made from this host's name and identity.
    #[arg(long, value_name = "IQN")]
    pub initiator_name: Option<String>,
    /// Where the passwords are.
    #[command(flatten)]
    pub passwords: PasswordFiles,
}

impl Args {
    /// Permissions and group of the Unix sockets of `--listen`.
    pub(crate) const fn socket_access(&self) -> SocketAccess {
        SocketAccess { mode: self.socket_mode, group: self.socket_group }
    }

    /// The bytes of the window of writes, and those of the memory for reads; 0 for none.
    pub(crate) fn buffers(&self) -> (u32, u64) {
        let default = |size| if self.shared { 0 } else { size };
        let window = self.write_behind.map_or_else(|| default(WINDOW), |size| size.0);
        let cache = self.cache.map_or_else(|| default(CACHE), |size| size.0);
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
            &["--patience", "0"],
            &["--sessions", "0"],
            &["--sessions", "65"],
        ] {
            let parsed = Args::try_parse_from([&["block-serve"], arguments, &["url"]].concat());
            assert!(parsed.is_err(), "{arguments:?}");
        }
        let parsed = Args::try_parse_from(["block-serve", "url", "--write-behind", "0"]).unwrap();
        assert_eq!((parsed.write_behind, parsed.memory), (Some(Size(0)), Size(256 << 20)));
    }
}

//! The arguments of the command line.

use std::time::Duration;

use clap::{Parser, Subcommand};
use iscsi_examples_common::credentials::PasswordFiles;
use iscsi_examples_common::help::heading;
use iscsi_examples_common::time;

use crate::capacity::Capacity;
use crate::discard::Discard;
use crate::discover::Discover;
use crate::extents::Extents;
use crate::inquiry::Inquiry;
use crate::luns::Luns;
use crate::perf::Perf;
use crate::ping::Ping;
use crate::port_groups::{PortGroups, SetPortGroup};
use crate::reservations::Reservations;
use crate::reserve::{Clear, Preempt, Register, Reserve};
use crate::volume::Volume;

/// Ask iSCSI targets and their units what they are, how far away, and how fast
///
/// A URL is iscsi://USER@HOST:PORT/TARGET/LUN?OPTION=VALUE&..., where user, port and options may be left out. A password
/// is best read from a file (--password-file): all users of this host can see one that is in a URL.
///
/// iscsis:// in place of iscsi:// encrypts the connections by TLS 1.3, up to a tunnel in front of the target.
///
/// `iscsi-util help COMMAND` explains a command. Answers go to standard output, progress and errors to standard error.
#[derive(Clone, Debug, Parser)]
#[command(name = "iscsi-util", version, arg_required_else_help = false)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Print the answer, or the error, as one JSON object.
    #[arg(long, global = true, help_heading = heading::OUTPUT)]
    pub json: bool,
    /// Wait for a target that is not ready yet, as 30s or 5min.
    ///
    /// Not ready: nothing listens, the login is refused for now, or a unit is missing. Without the option the program
    /// ends after the first try. `open_timeout` in the URL overrides it.
    #[arg(long, value_name = "TIME", global = true, value_parser = time::parse, help_heading = heading::LINK)]
    pub wait: Option<Duration>,
    /// iSCSI name of this initiator [default: made from this host].
    ///
    /// The default is made from the name and the identity of this host.
    #[arg(long, value_name = "IQN", global = true, help_heading = heading::LINK)]
    pub initiator_name: Option<String>,
    /// Where the passwords are.
    #[command(flatten)]
    pub passwords: PasswordFiles,
}

/// Commands of the program.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// List the targets of a portal, and the portals of each (SendTargets)
    Discover(Discover),
    /// List the units of a target: type, vendor, product, capacity (REPORT LUNS)
    Luns(Luns),
    /// Show what a unit reports of itself: INQUIRY data and vital product data
    Inquiry(Inquiry),
    /// Show the capacity of a unit, its block size, and whether it is thin
    Capacity(Capacity),
    /// Show which parts of a unit hold data (GET LBA STATUS)
    Extents(Extents),
    /// Deallocate the blocks of a range (UNMAP); their data are lost
    ///
    /// Whole blocks only. The unit is flushed at the end.
    Discard(Discard),
    /// Measure round trips to the target (NOP-Out)
    Ping(Ping),
    /// Measure how fast a unit can be read, or written
    Perf(Perf),
    /// Show registrations with a unit, and its reservation (PERSISTENT RESERVE IN)
    Reservations(Reservations),
    /// Register this initiator with a unit by a key, or end its registration
    Register(Register),
    /// Reserve a unit for this initiator, which has registered
    Reserve(Reserve),
    /// Release the reservation that this initiator holds
    Release(Reserve),
    /// End all registrations by another key, and take their reservation over
    Preempt(Preempt),
    /// End the reservation of a unit, and all registrations
    Clear(Clear),
    /// Show the ports of a unit, and their states (REPORT TARGET PORT GROUPS)
    PortGroups(PortGroups),
    /// Request another state for a group of ports (SET TARGET PORT GROUPS)
    SetPortGroup(SetPortGroup),
    /// Describe several units as one device, which programs take as volume:FILE
    Volume(Volume),
}

impl Command {
    /// Returns the name of the command on the command line.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Discover(_) => "discover",
            Self::Luns(_) => "luns",
            Self::Inquiry(_) => "inquiry",
            Self::Capacity(_) => "capacity",
            Self::Extents(_) => "extents",
            Self::Discard(_) => "discard",
            Self::Ping(_) => "ping",
            Self::Perf(_) => "perf",
            Self::Reservations(_) => "reservations",
            Self::Register(_) => "register",
            Self::Reserve(_) => "reserve",
            Self::Release(_) => "release",
            Self::Preempt(_) => "preempt",
            Self::Clear(_) => "clear",
            Self::PortGroups(_) => "port-groups",
            Self::SetPortGroup(_) => "set-port-group",
            Self::Volume(_) => "volume",
        }
    }
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
    fn every_subcommand_knows_its_name() {
        for subcommand in Args::command().get_subcommands() {
            let name = subcommand.get_name();
            let first = if name == "volume" { &["volume", "create"][..] } else { &[name] };
            let options: &[_] = match name {
                "discard" => &["--offset", "0", "--length", "512"],
                "register" | "clear" => &["--key", "0x1"],
                "reserve" | "release" => &["--key", "0x1", "--type", "write-exclusive"],
                "preempt" => &["--key", "0x1", "--type", "exclusive-access", "--victim", "0x2"],
                "set-port-group" => &["1", "standby"],
                _ => &[],
            };
            let arguments = [&["iscsi-util"], first, &["iscsi://host"], options].concat();
            assert_eq!(Args::try_parse_from(arguments).unwrap().command.name(), name);
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for arguments in [
            &["ping", "--count", "0"][..],
            &["ping", "--count", "1000001"],
            &["ping", "--interval", "-1"],
            &["ping", "--interval", "3601"],
            &["ping", "--interval", "NaN"],
            &["perf", "--size", "511"],
            &["perf", "--size", "65M"],
            &["perf", "--depth", "0"],
            &["perf", "--depth", "1025"],
            &["perf", "--seconds", "0"],
            &["perf", "--sessions", "0"],
            &["perf", "--sessions", "65"],
            &["inquiry", "--page", "100"],
            &["inquiry", "--page", "g0"],
            &["inquiry", "--page", "+1"],
            &["inquiry", "--page", "80", "--all"],
            &["extents", "--offset", "-1"],
            &["discard", "--offset", "0"],
            &["discard", "--length", "1M"],
            &["register", "--key", "1"],
            &["register", "--key", "0x11112222333344445"],
            &["register", "--key", "0x1", "--isid", "12345"],
            &["register", "--key", "0x1", "--isid", "+12345"],
            &["reserve", "--key", "0x1", "--type", "shared"],
            &["preempt", "--key", "0x1", "--type", "write-exclusive"],
            &["clear"],
            &["volume", "create", "--chunk", "-1"],
            &["volume", "create", "--metadata", "0.90"],
            &["volume"],
        ] {
            let parsed = Args::try_parse_from([&["iscsi-util"], arguments, &["url"]].concat());
            assert!(parsed.is_err(), "{arguments:?}");
        }
    }
}

//! What the command line says.

use std::time::Duration;

use clap::{Parser, Subcommand};
use iscsi_examples_common::credentials::PasswordFiles;
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

/// Asks iSCSI targets and their units what they are, how far they are and how fast.
///
/// URL is iscsi://user@host:port/target/lun?option=value, where user, port and options may be left out. The password of
/// the user is best read from a file (--password-file); LIBISCSI_CHAP_USERNAME and LIBISCSI_CHAP_PASSWORD are read as
/// well. In a URL all users of the host may see it.
///
/// Answers go to standard output, progress and errors to standard error. The exit status is 0 when
/// the answer is complete, 1 after an error, 2 for a wrong command line, 130 after an interrupt.
#[derive(Clone, Debug, Parser)]
#[command(name = "iscsi-util", version, arg_required_else_help = false)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Prints the answer, or why there is none, as one JSON object.
    #[arg(long, global = true)]
    pub json: bool,
    /// How long to wait for a target that is not up yet, as 30s or 5min: nothing listens, it refuses the login for now, or the unit
    /// is missing. By default there is one try. A URL may say otherwise (open_patience).
    #[arg(long, value_name = "TIME", global = true, value_parser = time::parse)]
    pub wait: Option<Duration>,
    /// The initiator's iSCSI name; by default one that is made from this host's name and identity.
    #[arg(long, value_name = "IQN", global = true)]
    pub initiator_name: Option<String>,
    /// Where the passwords are.
    #[command(flatten)]
    pub passwords: PasswordFiles,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Lists the targets behind a portal, and the portals of each (SendTargets).
    Discover(Discover),
    /// Lists the logical units of a target: type, vendor, product, capacity (REPORT LUNS).
    Luns(Luns),
    /// Shows what a unit says of itself: standard INQUIRY data and vital product data, decoded.
    Inquiry(Inquiry),
    /// Shows how much a unit holds, and in which blocks.
    Capacity(Capacity),
    /// Shows which parts of a unit hold data (GET LBA STATUS).
    Extents(Extents),
    /// Deallocates the blocks of a range (UNMAP). What they held is lost.
    Discard(Discard),
    /// Measures round trips to the target (NOP-Out).
    Ping(Ping),
    /// Measures how fast a unit can be read, or written.
    Perf(Perf),
    /// Shows who is registered with a unit, and how it is reserved (PERSISTENT RESERVE IN).
    Reservations(Reservations),
    /// Registers this initiator with a unit by a key, or ends that.
    Register(Register),
    /// Reserves a unit for this initiator, which has registered.
    Reserve(Reserve),
    /// Gives up the reservation that this initiator holds.
    Release(Reserve),
    /// Fences others off: ends all registrations by their key, and takes the reservation over.
    Preempt(Preempt),
    /// Ends the reservation of a unit, and all registrations.
    Clear(Clear),
    /// Shows through which ports a unit is reached, and how well (REPORT TARGET PORT GROUPS).
    PortGroups(PortGroups),
    /// Asks for another state of a group of ports (SET TARGET PORT GROUPS).
    SetPortGroup(SetPortGroup),
    /// Describes several units as one device, which programs take as volume:FILE.
    Volume(Volume),
}

impl Command {
    /// The name on the command line.
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

//! Options for requests, sessions and sockets.

use std::num::NonZeroUsize;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use iscsi_examples_common::help::heading;
use iscsi_examples_common::session_count::SessionCount;
use iscsi_examples_common::{place, time};
use iscsi_initiator::{Initiator, Options, Sessions, Timeouts, TrafficClass};
use iscsi_initiator::{Policy, Tuning};
use iscsi_tuner::{Limits, Rate, Size, SizeError, UnknownPolicy};

use crate::error::Error;
use crate::error::refusal::Refusal;

/// Time limit of a command from its submission, unless the URL sets another limit. On a slow link a command
/// waits for all commands that were submitted before it. Whether the target is alive is known much sooner from
/// pings.
const COMMAND: Duration = Duration::from_secs(300);
/// Longest read or write that a plan chooses.
const MAX_AUTO_IO: u64 = 4 << 20;

/// The link and its settings.
#[derive(Clone, Debug, Args)]
pub struct LinkArgs {
    /// Bytes of one read or write.
    ///
    /// 512 to 64M, rounded up to whole blocks of a unit; K, M and G are powers of 1024. `auto` fits it to the link, and
    /// to what the target agreed to.
    #[arg(long, value_name = "SIZE|auto", default_value = "auto", help_heading = heading::TRANSFER)]
    pub io_size: IoSize,
    /// Concurrent reads, and concurrent writes.
    ///
    /// 1 to 1024 of each. `auto` fits the number to the link of a unit, and to its sessions as they come and go; for a
    /// file it is what fits in 4 MiB.
    #[arg(long, value_name = "N|auto", default_value = "auto", help_heading = heading::TRANSFER)]
    pub queue_depth: QueueDepth,
    /// Sessions with each unit, 1 to 64 [default: auto].
    ///
    /// `auto` begins with what the link needs by the plan, and adds more while the total rate rises. With several
    /// --connections the default is 1.
    #[arg(long, value_name = "N|auto", help_heading = heading::LINK)]
    pub sessions: Option<SessionCount>,
    /// TCP connections of each session (MC/S), 1 to 16.
    ///
    /// As far as the target allows them.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=16), help_heading = heading::LINK)]
    pub connections: u16,
    /// How socket buffers are chosen.
    ///
    /// `auto` leaves them to the kernel as far as its tuning reaches, and sets them beyond. `static` sets them to what
    /// the link needs. `autotune` never sets them. `thesis` follows Zhang and MacGregor (2011): by round-trip time, its
    /// stability, and memory. `off` sets nothing but TCP_NODELAY.
    #[arg(long, value_name = "POLICY", default_value = "auto", value_parser = parse_policy, help_heading = heading::LINK)]
    pub tune: Policy,
    /// Rate of the narrowest part of the link, as 100mbit.
    ///
    /// 1kbit to 1000gbit. Without it 1gbit is assumed until more is known.
    #[arg(long, value_name = "RATE", help_heading = heading::LINK)]
    pub bandwidth: Option<Rate>,
    /// When to send small segments.
    #[arg(long, value_name = "on|off|auto", value_enum, default_value_t = NoDelay::Auto, help_heading = heading::LINK)]
    pub nodelay: NoDelay,
    /// TCP congestion control, as cubic or bbr.
    ///
    /// By the name that the kernel has for it. Without the option it is the default of the kernel, or what the loss on
    /// the link asks for. One that this host lacks, or does not permit, is an error.
    #[arg(long, value_name = "NAME", help_heading = heading::LINK)]
    pub congestion: Option<String>,
    /// Wait for a target that is not ready yet, as 30s or 5min.
    ///
    /// Not ready: nothing listens, the login is refused for now, or a unit is missing. Without the option the program
    /// ends after the first try. `open_timeout` in the URL overrides it. Recommended in systemd units and Kubernetes
    /// jobs.
    #[arg(long, value_name = "TIME", value_parser = time::parse, help_heading = heading::LINK)]
    pub wait: Option<Duration>,
    /// iSCSI name of this initiator [default: made from this host].
    ///
    /// The default is made from the name and the identity of this host.
    #[arg(long, value_name = "IQN", help_heading = heading::LINK)]
    pub initiator_name: Option<String>,
}

impl Default for LinkArgs {
    fn default() -> Self {
        Self {
            io_size: IoSize::Auto,
            queue_depth: QueueDepth::Auto,
            sessions: None,
            connections: 1,
            tune: Policy::Auto,
            bandwidth: None,
            nodelay: NoDelay::Auto,
            congestion: None,
            wait: None,
            initiator_name: None,
        }
    }
}

impl LinkArgs {
    /// Returns the number of sessions of each unit.
    pub(crate) fn sessions(&self) -> Sessions {
        match self.sessions {
            None if self.connections > 1 => Sessions::Fixed(1),
            count => count.unwrap_or(SessionCount::Auto).into(),
        }
    }

    /// Returns the reason why each unit has one session, if the reason is `--connections`; otherwise `None`.
    pub(crate) fn why_one_session(&self) -> Option<&'static str> {
        (self.sessions.is_none() && self.connections > 1)
            .then_some("with several --connections, unless --sessions asks for more")
    }

    /// Returns the maximum number of bytes in flight per queue that the options set.
    pub(crate) fn queue_bytes(&self) -> u64 {
        let depth = match self.queue_depth {
            QueueDepth::Fixed(depth) => depth.get() as u64,
            QueueDepth::Auto => 2,
        };
        let io_size = match self.io_size {
            IoSize::Fixed(size) => size.0,
            IoSize::Auto => MAX_AUTO_IO,
        };
        depth.saturating_mul(io_size)
    }

    /// Returns an initiator with these options, whose units use `class`.
    ///
    /// # Errors
    /// [`Error::Initiator`] for an invalid name, or the refusal of a congestion control that is not
    /// available.
    pub(crate) fn initiator(&self, class: Option<TrafficClass>) -> Result<Initiator, Error> {
        self.check_congestion()?;
        let tuning = Tuning::default()
            .with_policy(self.tune)
            .with_bandwidth(self.bandwidth)
            .with_no_delay(self.nodelay.wish())
            .with_congestion_control(self.congestion.clone());
        let queue = usize::try_from(self.queue_bytes()).unwrap_or(usize::MAX);
        let default = Options::default();
        let bytes = default.max_bytes_in_flight().max(queue);
        let options = default
            .with_timeouts(Timeouts::default().with_command(Some(COMMAND)))
            .with_max_bytes_in_flight(bytes)
            .with_sessions(self.sessions())
            .with_connections(self.connections)
            .with_class(class)
            .with_open_timeout(self.wait.unwrap_or_default())
            .with_tuning(tuning);
        place::initiator(self.initiator_name.as_deref(), options).map_err(Error::Initiator)
    }
}

impl LinkArgs {
    /// Checks that this host has the requested congestion control: with another one the copy could take much
    /// longer.
    fn check_congestion(&self) -> Result<(), Error> {
        let Some(wish) = &self.congestion else { return Ok(()) };
        let limits = Limits::read();
        let has = |names: &[String]| names.iter().any(|name| name == wish);
        let available = &limits.available_congestion_controls;
        // A container may hide the list of available congestion controls. Then nothing can be checked.
        if has(&limits.allowed_congestion_controls) || available.is_empty() {
            return Ok(());
        }
        let wish = wish.escape_debug();
        Err(Refusal::Congestion(if has(available) {
            format!(
                "{wish} is not permitted here; add it to net.ipv4.tcp_allowed_congestion_control, or run with CAP_NET_ADMIN"
            )
        } else {
            let known = available.join(", ");
            format!("this kernel has no {wish}, it has {known}; name one of these, or try modprobe tcp_{wish}")
        })
        .into())
    }
}

/// Bytes of one read or write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum IoSize {
    /// The length is chosen for the link.
    Auto,
    /// A fixed length, 512 bytes to 64 MiB.
    Fixed(Size),
}

const SMALLEST_IO: Size = Size(512);
const LARGEST_IO: Size = Size(64 << 20);

impl FromStr for IoSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        parse_io_size(text).map(Self::Fixed)
    }
}

/// Parses the length of a read or write.
pub(super) fn parse_io_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse().map_err(|error: SizeError| error.to_string())?;
    if (SMALLEST_IO..=LARGEST_IO).contains(&size) {
        Ok(size)
    } else {
        Err(format!("it must lie between {SMALLEST_IO} and {LARGEST_IO}"))
    }
}

fn parse_policy(text: &str) -> Result<Policy, UnknownPolicy> {
    text.parse()
}

/// Whether small segments wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum NoDelay {
    /// Immediately (`TCP_NODELAY`).
    On,
    /// When the segments before are acknowledged (Nagle's algorithm).
    Off,
    /// As the tuner decides: immediately.
    Auto,
}

impl NoDelay {
    /// Returns the value for the tuner; `None` leaves the decision to the tuner.
    pub(crate) const fn wish(self) -> Option<bool> {
        match self {
            Self::On => Some(true),
            Self::Off => Some(false),
            Self::Auto => None,
        }
    }
}

/// The number of reads in flight, and of writes in flight.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum QueueDepth {
    /// The copy chooses the number of requests from the round-trip time.
    Auto,
    /// A fixed number, 1 to 1024.
    Fixed(NonZeroUsize),
}

/// Largest number that `--queue-depth` accepts.
const DEEPEST_QUEUE: usize = 1024;

impl FromStr for QueueDepth {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let depth = text.parse().ok().filter(|depth: &NonZeroUsize| depth.get() <= DEEPEST_QUEUE);
        depth
            .map(Self::Fixed)
            .ok_or_else(|| format!("write auto, or a number from 1 to {DEEPEST_QUEUE}"))
    }
}

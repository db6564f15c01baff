//! How the bytes are sent: requests, sessions, sockets.

use std::num::NonZeroUsize;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use iscsi_examples_common::session_count::SessionCount;
use iscsi_examples_common::{time, unit};
use iscsi_initiator::tuning::{Bandwidth, Limits, Policy, Size, SizeError, UnknownPolicy};
use iscsi_initiator::{Initiator, Options, Sessions, TrafficClass};

use crate::error::Error;
use crate::refusal::Refusal;

/// How long a command may take from its submission, unless the URL says otherwise: on a slow link
/// it waits for all that were submitted before. Whether the target is alive is found out by pings,
/// much sooner.
const COMMAND: Duration = Duration::from_secs(300);
/// No plan has longer reads and writes.
const MAX_AUTO_IO: u64 = 4 << 20;

/// How it is sent.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "How it is sent")]
pub struct LinkArgs {
    /// Bytes of one read or write, 512 to 64M; K, M and G are powers of 1024; auto fits it to the
    /// link and to what the target agreed to.
    #[arg(long, value_name = "SIZE|auto", default_value = "auto")]
    pub io_size: IoSize,
    /// Reads under way at once, and writes, 1 to 1024 each; auto fits those of a unit to its link, and
    /// to its sessions while they come and go.
    #[arg(long, value_name = "N|auto", default_value = "auto")]
    pub queue_depth: QueueDepth,
    /// Sessions with each unit, 1 to 64; auto begins with what the link needs by the plan, and adds
    /// more as long as the total rises. The default is auto, or 1 with several --connections.
    #[arg(long, value_name = "N|auto")]
    pub sessions: Option<SessionCount>,
    /// TCP connections of each session (MC/S), 1 to 16, as far as the target allows them.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=16))]
    pub connections: u16,
    /// What decides about the TCP socket: auto leaves buffers to the kernel as far as it reaches,
    /// static sets them, autotune never does, thesis follows the scheme of Zhang and MacGregor
    /// (2011), off sets nothing but TCP_NODELAY.
    #[arg(long, value_name = "POLICY", default_value = "auto", value_parser = parse_policy)]
    pub tune: Policy,
    /// The rate of the narrowest part of the link, such as 100mbit or 2.5gbit, 1kbit to 1000gbit;
    /// without it 1gbit is assumed until more is known.
    #[arg(long, value_name = "RATE")]
    pub bandwidth: Option<Bandwidth>,
    /// Whether small segments go out at once, on, or wait for an acknowledgement (Nagle), off.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = NoDelay::Auto)]
    pub nodelay: NoDelay,
    /// The congestion control, by the kernel's name for it: cubic, bbr, ...
    #[arg(long, value_name = "NAME")]
    pub congestion: Option<String>,
    /// How long to wait for a target that is not there yet, as 30s or 5min: nothing listens, the login is refused for
    /// now, or a unit is missing. Without it the program ends at the first try. A URL may say otherwise (open_patience).
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub wait: Option<Duration>,
    /// The initiator's iSCSI name; by default one that is made from this host's name and identity.
    #[arg(long, value_name = "IQN")]
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
    /// How many sessions each unit shall have.
    pub(crate) fn sessions(&self) -> Sessions {
        match self.sessions {
            None if self.connections > 1 => Sessions::Fixed(1),
            count => count.unwrap_or(SessionCount::Auto).into(),
        }
    }

    /// Why a unit has one session, where nobody said so.
    pub(crate) fn why_one_session(&self) -> Option<&'static str> {
        (self.sessions.is_none() && self.connections > 1)
            .then_some("with several --connections, unless --sessions asks for more")
    }

    /// Bytes that one queue may hold, as far as that was asked for.
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

    /// The initiator that opens units this way, in a class.
    ///
    /// # Errors
    /// [`Error::Initiator`] for a name that is none.
    pub(crate) fn initiator(&self, class: Option<TrafficClass>) -> Result<Initiator, Error> {
        self.check_congestion()?;
        let mut options = Options::default();
        options.timeouts.command = Some(COMMAND);
        let queue = usize::try_from(self.queue_bytes()).unwrap_or(usize::MAX);
        options.max_bytes_in_flight = options.max_bytes_in_flight.max(queue);
        options.sessions = self.sessions();
        options.connections = self.connections;
        options.class = class;
        options.open_patience = self.wait.unwrap_or_default();
        options.tuning.policy = self.tune;
        options.tuning.bandwidth = self.bandwidth;
        options.tuning.no_delay = self.nodelay.wish();
        options.tuning.congestion_control = self.congestion.clone();
        unit::initiator(self.initiator_name.as_deref(), options).map_err(Error::Initiator)
    }
}

impl LinkArgs {
    /// Makes sure that this host has the congestion control that was asked for: with another one the copy takes whatever time.
    fn check_congestion(&self) -> Result<(), Error> {
        let Some(wish) = &self.congestion else { return Ok(()) };
        let limits = Limits::read();
        let has = |names: &[String]| names.iter().any(|name| name == wish);
        let available = &limits.available_congestion_controls;
        // A container may hide what there is.
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

/// How many bytes one read or write has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum IoSize {
    /// Chosen for the link.
    Auto,
    /// This many, 512 bytes to 64 MiB.
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

/// A size that a read or write may have.
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
    /// They go out at once (`TCP_NODELAY`).
    On,
    /// They wait for an acknowledgement (Nagle's algorithm).
    Off,
    /// The tuner decides.
    Auto,
}

impl NoDelay {
    /// The wish, if there is one.
    pub(crate) const fn wish(self) -> Option<bool> {
        match self {
            Self::On => Some(true),
            Self::Off => Some(false),
            Self::Auto => None,
        }
    }
}

/// How many reads, and how many writes, are under way at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum QueueDepth {
    /// Chosen from the round trip time.
    Auto,
    /// This many, 1 to 1024.
    Fixed(NonZeroUsize),
}

/// As many requests as a session has room for.
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

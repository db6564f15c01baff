//! Builds the grid of the measurement: round-trip times, settings of sends, sizes of the send buffer.

use std::time::Duration;

use iscsi_initiator::{Policy, Tuning};
use iscsi_tuner::Sends;

/// An error, as readable text.
pub(crate) type Trouble = Box<dyn std::error::Error + Send + Sync>;

const KIB: u64 = 1024;
/// The send buffers of the full grid, in KiB of data.
const BUFFERS: [u64; 12] = [128, 256, 384, 512, 640, 768, 1024, 1152, 1280, 1536, 2048, 2560];

/// How data is sent: the length of each send, and Nagle's algorithm.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Variant {
    /// A page per send; small segments are sent immediately.
    Default,
    /// A page per send; small segments are held back.
    Nagle,
    /// Many pages per send; small segments are sent immediately.
    MultiPage,
    /// Many pages per send; small segments are held back.
    Both,
    /// The tuner chooses all settings.
    Tuned,
}

/// Setting of the send buffer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Buffer {
    /// This number of bytes of data.
    Static(u64),
    /// The kernel tunes it.
    Auto,
    /// The tuner chooses it.
    Tuned,
}

/// One point of the grid.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Point {
    /// Round-trip time, milliseconds.
    pub(crate) rtt_ms: u32,
    pub(crate) variant: Variant,
    pub(crate) buffer: Buffer,
}

/// All points of a run, and the time of each sample.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Grid {
    /// Round-trip times in milliseconds.
    rtts: Vec<u32>,
    variants: Vec<Variant>,
    /// Send buffers of all variants except the tuner's.
    buffers: Vec<Buffer>,
    /// Least time of one sample.
    sample: Duration,
}

impl Grid {
    /// Returns the grid that the variables select.
    ///
    /// # Errors
    /// A message about a variable that cannot be parsed.
    pub(crate) fn from_variables(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Trouble> {
        let grid = match variable("WAN_GRID").as_deref() {
            None | Some("small") => Self::small(),
            Some("full") => Self::full(),
            Some(other) => {
                return Err(format!("WAN_GRID is `small` or `full`, not `{other}`").into());
            }
        };
        let listed = |name: &str| variable(name).filter(|list| !list.trim().is_empty());
        Ok(Self {
            rtts: parsed(listed("WAN_RTT"), grid.rtts, "WAN_RTT", parse_rtt)?,
            variants: parsed(listed("WAN_VARIANT"), grid.variants, "WAN_VARIANT", Variant::parse)?,
            buffers: parsed(listed("WAN_BUFFER"), grid.buffers, "WAN_BUFFER", Buffer::parse)?,
            ..grid
        })
    }

    /// Returns a small grid, for a check of the bench.
    fn small() -> Self {
        Self {
            rtts: vec![20, 100],
            variants: vec![Variant::Default, Variant::Both, Variant::Tuned],
            buffers: vec![Buffer::of_kib(128), Buffer::of_kib(1152), Buffer::Auto],
            sample: Duration::from_millis(200),
        }
    }

    /// Returns the full grid, with round-trip times and buffers as in the literature.
    fn full() -> Self {
        let sizes = BUFFERS.iter().map(|kib| Buffer::of_kib(*kib));
        Self {
            rtts: vec![4, 12, 20, 40, 60, 80, 100, 200],
            variants: Variant::ALL.to_vec(),
            buffers: sizes.chain([Buffer::Auto]).collect(),
            sample: Duration::from_millis(450),
        }
    }

    /// Returns all points. Points that are compared with each other are measured one after the other.
    pub(crate) fn points(&self) -> Vec<Point> {
        let mut points = Vec::new();
        for &rtt_ms in &self.rtts {
            let fixed = self.variants.iter().filter(|variant| **variant != Variant::Tuned);
            for &buffer in &self.buffers {
                points.extend(fixed.clone().map(|&variant| Point { rtt_ms, variant, buffer }));
            }
            if self.variants.contains(&Variant::Tuned) {
                points.push(Point { rtt_ms, variant: Variant::Tuned, buffer: Buffer::Tuned });
            }
        }
        points
    }

    /// Returns how long one sample of a point lasts, at least two round trips: with a small send buffer, writes
    /// end in bursts, one burst per round trip.
    pub(crate) fn sample(&self, point: &Point) -> Duration {
        self.sample.max(2 * point.rtt())
    }
}

impl Variant {
    const ALL: [Self; 5] = [Self::Default, Self::Nagle, Self::MultiPage, Self::Both, Self::Tuned];

    /// Returns the name of the variant in the result file.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Nagle => "nagle",
            Self::MultiPage => "multi-page",
            Self::Both => "both",
            Self::Tuned => "tuned",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|variant| variant.name() == text)
    }

    /// Returns whether small segments are sent immediately, and the length of sends; `None` if the tuner
    /// chooses them.
    const fn sending(self) -> Option<(bool, Sends)> {
        match self {
            Self::Default => Some((true, Sends::OnePage)),
            Self::Nagle => Some((false, Sends::OnePage)),
            Self::MultiPage => Some((true, Sends::ManyPages)),
            Self::Both => Some((false, Sends::ManyPages)),
            Self::Tuned => None,
        }
    }
}

impl Buffer {
    const fn of_kib(kib: u64) -> Self {
        Self::Static(kib * KIB)
    }

    fn parse(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(Self::Auto),
            kib => kib.parse().ok().filter(|kib| BUFFERS.contains(kib)).map(Self::of_kib),
        }
    }

    /// Returns the setting of the buffer as it is in the result file.
    pub(crate) fn parameter(self) -> String {
        match self {
            Self::Static(bytes) => bytes.to_string(),
            Self::Auto => "auto".to_owned(),
            Self::Tuned => "tuned".to_owned(),
        }
    }

    /// Returns the name of the point as readable text.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Static(bytes) => format!("{} KiB", bytes / KIB),
            Self::Auto | Self::Tuned => self.parameter(),
        }
    }
}

impl Point {
    pub(crate) fn rtt(&self) -> Duration {
        Duration::from_millis(self.rtt_ms.into())
    }

    /// Returns the least time before the first sample: slow start and the kernel's tuning must have ended.
    pub(crate) fn warm_up(&self) -> Duration {
        Duration::from_secs(1).max(20 * self.rtt())
    }

    /// Returns the options for the tuner. A variant sets only what its name says, so that the variants differ
    /// only in that.
    pub(crate) fn tuning(&self) -> Tuning {
        let mut tuning = Tuning::default();
        if let Some((no_delay, sends)) = self.variant.sending() {
            tuning = tuning
                .with_policy(Policy::Off)
                .with_no_delay(Some(no_delay))
                .with_sends(Some(sends));
        }
        if let Buffer::Static(bytes) = self.buffer {
            tuning = tuning.with_send_buffer(Some(bytes));
        }
        tuning
    }
}

fn parse_rtt(text: &str) -> Option<u32> {
    text.parse().ok().filter(|rtt| (1..=1000).contains(rtt))
}

/// Parses a list separated by commas, or returns the default without one.
fn parsed<T>(
    list: Option<String>,
    otherwise: Vec<T>,
    name: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, Trouble> {
    let Some(list) = list else { return Ok(otherwise) };
    let words = list.split(',').map(str::trim);
    words
        .map(|word| parse(word).ok_or_else(|| format!("{name}: what is `{word}`?").into()))
        .collect()
}

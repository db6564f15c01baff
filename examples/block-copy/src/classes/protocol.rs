//! Defines the protocol between the keeper and its clients. The keeper is the process that has a tree of
//! traffic classes. The clients are other processes, whose copies use these classes: the keeper grants each of
//! their requests, over its control socket. Each message is a line.

use std::fmt;

use iscsi_initiator::shaping::RateLimit;
use iscsi_tuner::Rate;
use serde::{Deserialize, Serialize};

/// The command that turns a connection to the control socket into the connection of a client. The name of a
/// class may follow the command.
pub(crate) const SHARE: &str = "share";
/// Maximum number of bytes of a request.
const MAX_REQUEST: u64 = 1 << 32;

/// Messages of a client to the keeper.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Asked {
    /// Asks to grant a request of `bytes`. Ids must rise.
    Take { id: u64, bytes: u64 },
    /// Ends a request, whether or not it was granted. `bytes` is the number of bytes that it moved; 0 if it was
    /// not sent.
    Moved { id: u64, bytes: u64 },
}

impl Asked {
    /// Parses a line; `None` if it is invalid.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let words: Vec<_> = line.split_whitespace().collect();
        let [word, id, bytes] = words[..] else { return None };
        let (id, bytes) = (id.parse().ok()?, bytes.parse().ok()?);
        match word {
            _ if bytes > MAX_REQUEST => None,
            "take" => Some(Self::Take { id, bytes }),
            "moved" => Some(Self::Moved { id, bytes }),
            _ => None,
        }
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Take { id, bytes } => writeln!(f, "take {id} {bytes}"),
            Self::Moved { id, bytes } => writeln!(f, "moved {id} {bytes}"),
        }
    }
}

/// Messages of the keeper to a client, each a JSON object on one line.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    /// The limits of the client from this message on. It is the first message, and is sent again at each
    /// change.
    Limits(Limits),
    /// The client may send the request with this id.
    Granted(u64),
    /// A message of the client was refused. The keeper then closes the connection.
    Error(String),
}

impl Reply {
    /// Parses a line; `None` if it is invalid.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = serde_json::to_string(self).map_err(|_| fmt::Error)?;
        writeln!(f, "{text}")
    }
}

/// The limits of one client of a class, in bits per second; `None` is unlimited.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Limits {
    /// The highest rate.
    ceil_bit_per_s: Option<u64>,
    /// The rate without a connection to the keeper. At these rates all clients together stay within the rates
    /// of the tree.
    alone_bit_per_s: Option<u64>,
}

impl Limits {
    pub(crate) const fn new(ceil: RateLimit, alone: RateLimit) -> Self {
        let (ceil, alone) = (ceil.bits_per_second(), alone.bits_per_second());
        Self { ceil_bit_per_s: ceil, alone_bit_per_s: alone }
    }

    pub(crate) fn ceil(self) -> RateLimit {
        rate(self.ceil_bit_per_s)
    }

    pub(crate) fn alone(self) -> RateLimit {
        rate(self.alone_bit_per_s)
    }
}

/// Returns a rate of `bits` per second, or 0 if that is below the lowest possible rate. `None` is unlimited.
fn rate(bits: Option<u64>) -> RateLimit {
    bits.map_or(RateLimit::Unlimited, |bits| {
        Rate::from_bits_per_second(bits).map_or(RateLimit::Zero, RateLimit::Limited)
    })
}

/// Divides a rate by `count`.
pub(crate) fn divided(rate: RateLimit, count: usize) -> RateLimit {
    let count = u64::try_from(count.max(1)).unwrap_or(u64::MAX);
    self::rate(rate.bits_per_second().map(|bits| bits / count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_reads_as_it_is_written() {
        for asked in [Asked::Take { id: 1, bytes: 4096 }, Asked::Moved { id: u64::MAX, bytes: 0 }] {
            assert_eq!(Asked::parse(&asked.to_string()), Some(asked));
        }
        for nonsense in ["", "take", "take 1", "take 1 -1", "take 1 2 3", "give 1 2"] {
            assert_eq!(Asked::parse(nonsense), None, "{nonsense}");
        }
        assert_eq!(Asked::parse("take 1 4294967297"), None);
    }

    #[test]
    fn what_is_told_is_an_object() {
        let limits = Limits::new(RateLimit::Unlimited, "1mbit".parse().unwrap());
        for (told, text) in [
            (Reply::Granted(7), "{\"granted\":7}\n"),
            (Reply::Error("no".to_owned()), "{\"error\":\"no\"}\n"),
            (
                Reply::Limits(limits),
                "{\"limits\":{\"ceil_bit_per_s\":null,\"alone_bit_per_s\":1000000}}\n",
            ),
        ] {
            assert_eq!(told.to_string(), text);
            assert_eq!(Reply::parse(text), Some(told));
        }
        assert_eq!(
            (limits.ceil(), limits.alone()),
            (RateLimit::Unlimited, "1mbit".parse().unwrap())
        );
    }

    #[test]
    fn a_rate_is_divided_until_nothing_is_left_of_it() {
        let rate = |text: &str| text.parse().unwrap();
        assert_eq!(divided(rate("9mbit"), 3), rate("3mbit"));
        assert_eq!(divided(rate("1kbit"), 2), RateLimit::Zero);
        assert_eq!(
            (divided(rate("off"), 2), divided(rate("0"), 2)),
            (RateLimit::Unlimited, RateLimit::Zero)
        );
    }
}

//! Implements the scheme of Y. Zhang's thesis (University of Alberta, 2010), table 4.3.
//!
//! | round-trip time | memory free | memory restricted |
//! |---|---|---|
//! | up to 40 ms, stable | the buffer of most benefit, one page per send | the largest allowed, one page per send |
//! | more, stable | the buffer of most benefit, Nagle, many pages | the largest allowed, Nagle, many pages |
//! | up to 40 ms, variable | the buffer of most benefit at the mean, Nagle, many pages | the largest allowed, Nagle, many pages |
//! | more, variable | the kernel's tuning, Nagle, many pages | the kernel's tuning, Nagle, many pages |
//!
//! Where a limit of the kernel restricts the buffer, and the kernel's own tuning allows more, the kernel
//! tunes the buffer: the scheme is older than kernels that tune buffers well.

use super::decision::{Decision, Inputs};
use crate::link::model::LONG;
use crate::plan::{Buffer, Choice};
use crate::tuning::Sends;

impl Inputs<'_> {
    pub(super) fn thesis(&self) -> Decision {
        let is_variable = self.link.rtt.is_some_and(|rtt| rtt.is_variable());
        let is_long = self.link.round_trip() > LONG;
        let send_buffer = if is_long && is_variable {
            Choice::new(Buffer::Autotuned, "a long round trip that varies has no one right size")
        } else {
            self.send.fixed(&self.link, self.tuning.memory)
        };
        let (no_delay, sends) = match (is_long, is_variable) {
            (false, false) => (true, Sends::OnePage),
            (true, _) | (_, true) => (false, Sends::ManyPages),
        };
        let reason = match (is_long, is_variable) {
            (false, false) => "up to 40 ms, stable",
            (false, true) => "up to 40 ms, variable",
            (true, false) => "more than 40 ms, stable",
            (true, true) => "more than 40 ms, variable",
        };
        Decision {
            send_buffer,
            receive_buffer: Choice::new(Buffer::Autotuned, "the scheme is about sending"),
            no_delay: Choice::new(no_delay, reason),
            sends: Choice::new(sends, reason),
            cork: Choice::new(false, "the scheme knows none"),
            send_size: Choice::new(None, "the scheme knows none"),
            not_sent_low_water: Choice::new(None, "the scheme knows none"),
            receive_low_water: Choice::new(None, "the scheme is about sending"),
        }
    }
}

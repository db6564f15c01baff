//! Sizes socket buffers: the kernel tunes them, or their size is set.

use crate::limits::{Autotuning, Limits};
use crate::link::model::LinkModel;
use crate::plan::{Buffer, Choice};
use crate::size::Size;

/// The limits of buffers in one direction: send or receive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    /// Names of the sysctls of this direction.
    cap_name: &'static str,
    range_name: &'static str,
    range: Autotuning,
    /// Largest buffer that any user may request, bytes of data.
    cap: u64,
    may_force: bool,
    /// Bytes of data in flight that the kernel's own tuning allows.
    pub(super) reach: u64,
}

/// Largest buffer, bytes: no link needs more, and a mistake must not take all memory.
const MAX: u64 = 1 << 30;
const MIN: u64 = 4096;
/// Largest buffer beyond the limit for users, bytes, if the need of the link sets its size. The user's
/// `memory` may allow more.
const MAX_FORCED: u64 = 64 << 20;

impl Side {
    pub(super) fn send(limits: &Limits) -> Self {
        let range = limits.tcp_wmem.unwrap_or(Autotuning::STOCK_SEND);
        Self::new(("net.core.wmem_max", "net.ipv4.tcp_wmem"), range, limits.wmem_max, limits)
    }

    pub(super) fn receive(limits: &Limits) -> Self {
        let range = limits.tcp_rmem.unwrap_or(Autotuning::STOCK_RECEIVE);
        Self::new(("net.core.rmem_max", "net.ipv4.tcp_rmem"), range, limits.rmem_max, limits)
    }

    fn new(
        (cap_name, range_name): (&'static str, &'static str),
        range: Autotuning,
        cap: Option<u64>,
        limits: &Limits,
    ) -> Self {
        Self {
            cap_name,
            range_name,
            range,
            // An unknown limit counts as 0.
            cap: cap.unwrap_or(0),
            may_force: limits.may_force,
            reach: range.reach(),
        }
    }

    /// Leaves the buffer to the kernel if its tuning is enough; otherwise sets the size, if that allows more.
    pub(super) fn beyond_autotuning(
        &self,
        link: &LinkModel,
        memory: Option<u64>,
    ) -> Choice<Buffer> {
        let Some(need) = need(link) else { return not_measured() };
        if need <= self.reach.min(memory.unwrap_or(u64::MAX)) {
            let reach = Size(self.reach);
            let reason = format!("the link needs {}, the kernel reaches {reach}", Size(need));
            return Choice::new(Buffer::Autotuned, reason);
        }
        self.fixed(link, memory)
    }

    /// Sets the size that the link needs, unless the kernel's own tuning allows more than the size that may be
    /// set.
    pub(super) fn fixed(&self, link: &LinkModel, memory: Option<u64>) -> Choice<Buffer> {
        let Some(need) = need(link) else { return not_measured() };
        if let Some(memory) = memory.filter(|memory| *memory < need) {
            return self.restricted(need, memory.max(MIN));
        }
        if need <= self.cap {
            return Choice::new(Buffer::Set(need), format!("the link needs {}", Size(need)));
        }
        if self.may_force {
            return self.forced(need);
        }
        if self.cap >= self.reach {
            let reason = format!("the most permitted; {}", self.more_for(need));
            return Choice::new(Buffer::Set(self.cap), reason);
        }
        let reason = format!(
            "the kernel reaches {}, more than the {} that may be set; {}",
            Size(self.reach),
            Size(self.cap),
            self.more_for(need)
        );
        Choice::new(Buffer::Autotuned, reason)
    }

    fn forced(&self, need: u64) -> Choice<Buffer> {
        if need <= MAX_FORCED {
            let reason = format!("the link needs {}, beyond {}", Size(need), self.cap_name);
            return Choice::new(Buffer::Forced(need), reason);
        }
        let reason = format!("the link needs {}; more connections bring more", Size(need));
        Choice::new(Buffer::Forced(MAX_FORCED.max(self.cap).max(self.reach)), reason)
    }

    /// Chooses the largest buffer within the user's `memory`. It is set, because the kernel's own tuning would
    /// not respect that limit.
    fn restricted(&self, need: u64, memory: u64) -> Choice<Buffer> {
        let reason = format!("the link needs {}, memory allows {}", Size(need), Size(memory));
        match memory {
            _ if memory <= self.cap => Choice::new(Buffer::Set(memory), reason),
            _ if self.may_force => Choice::new(Buffer::Forced(memory), reason),
            _ if memory >= self.range.max => Choice::new(Buffer::Autotuned, reason),
            _ => Choice::new(Buffer::Set(self.cap), reason),
        }
    }

    /// Describes the setting that would lift the limit.
    fn more_for(&self, need: u64) -> String {
        format!(
            "for {}: sysctl -w {}=\"{}\"",
            Size(need),
            self.range_name,
            self.range.reaching(need)
        )
    }
}

/// Returns the buffer that the link needs, bytes; `None` before the round-trip time is measured.
fn need(link: &LinkModel) -> Option<u64> {
    link.rtt.map(|_| link.max_benefit().min(MAX))
}

fn not_measured() -> Choice<Buffer> {
    Choice::new(Buffer::Autotuned, "the round-trip time is not measured yet")
}

/// Returns a buffer of the size that the user set, within `MIN` to `MAX`.
pub(super) fn asked_for(bytes: u64) -> Choice<Buffer> {
    let granted = bytes.clamp(MIN, MAX);
    let reason = if granted == bytes {
        "as asked for".to_owned()
    } else {
        format!("as near to the {bytes} bytes asked for as makes sense")
    };
    Choice::new(Buffer::Set(granted), reason)
}

//! What policies for today's kernels have in common.

use std::time::Duration;

use super::buffers::Side;
use super::decision::{Decision, Inputs};
use crate::link::model::{Basis, LinkModel};
use crate::plan::{Buffer, Choice};
use crate::tuning::Sends;

impl Inputs<'_> {
    /// The decision, with buffers chosen by `buffer`.
    pub(super) fn modern(
        &self,
        buffer: impl Fn(&Side, &LinkModel, Option<u64>) -> Choice<Buffer>,
    ) -> Decision {
        let memory = self.tuning.memory;
        Decision {
            send_buffer: buffer(&self.send, &self.link, memory),
            receive_buffer: match self.link.basis {
                Basis::Assumed => Choice::new(
                    Buffer::Autotuned,
                    "the link's rate is only assumed: no reason to connect again for more",
                ),
                Basis::Declared | Basis::Estimated => buffer(&self.receive, &self.link, memory),
            },
            no_delay: Choice::new(true, "a command must not wait for an acknowledgement"),
            sends: Choice::new(Sends::ManyPages, "fewer system calls, full segments"),
            cork: Choice::new(true, "no short segment between two sends of one burst"),
            not_sent_low_water: self.low_water(),
        }
    }

    /// What waits unsent in the kernel can no longer be overtaken.
    fn low_water(&self) -> Choice<Option<u32>> {
        /// Enough for the sender to sleep so long.
        const NAP: Duration = Duration::from_millis(10);
        /// Enough for a system call to be worth it.
        const MIN: u64 = 128 << 10;
        const MAX: u64 = 4 << 20;
        if self.link.is_local() {
            return Choice::new(None, "what waits is gone within a millisecond");
        }
        let bytes = self.link.bandwidth.bytes_in(NAP).clamp(MIN, MAX);
        let seconds = self.link.bandwidth.time_for(bytes).as_secs_f64();
        let reason =
            format!("{:.0} ms of the link: no command, no ping waits longer", seconds * 1e3);
        Choice::new(u32::try_from(bytes).ok(), reason)
    }
}

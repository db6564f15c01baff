//! Makes the common decisions of the policies for current kernels.

use std::time::Duration;

use super::buffers::Side;
use super::decision::{Decision, Inputs};
use crate::link::model::{Basis, LinkModel};
use crate::plan::{Buffer, Choice};
use crate::size::Size;
use crate::tuning::Sends;

/// Longest time for which either host may sleep without making the link idle.
const NAP: Duration = Duration::from_millis(10);

impl Inputs<'_> {
    /// Returns the decision, with buffers chosen by `buffer`.
    pub(super) fn modern(
        &self,
        buffer: impl Fn(&Side, &LinkModel, Option<u64>) -> Choice<Buffer>,
    ) -> Decision {
        let memory = self.tuning.memory;
        let receive_buffer = match self.link.basis {
            Basis::Assumed => Choice::new(
                Buffer::Autotuned,
                "the link's rate is only assumed: no reason to connect again for more",
            ),
            Basis::Declared | Basis::Estimated => buffer(&self.receive, &self.link, memory),
        };
        Decision {
            send_buffer: buffer(&self.send, &self.link, memory),
            receive_low_water: self.receive_low_water(receive_buffer.value),
            receive_buffer,
            no_delay: Choice::new(true, "a command must not wait for an acknowledgement"),
            sends: Choice::new(Sends::ManyPages, "fewer system calls, full segments"),
            cork: Choice::new(true, "no short segment between two sends of one burst"),
            send_size: self.send_size(),
            not_sent_low_water: self.not_sent_low_water(),
        }
    }

    /// Limits the bytes of a system call on a local link. During a call the kernel defers the peer's
    /// acknowledgements, so that after a long call the freed memory is not in the processor's caches any more.
    /// With the limit, a target that keeps up gets 1.7 times the rate over loopback, for 0.6 of the processor
    /// time.
    fn send_size(&self) -> Choice<Option<u32>> {
        const BYTES: u32 = 112 << 10;
        if self.link.is_local() {
            let reason = "the memory of what was sent comes back while a cache has it";
            return Choice::new(Some(BYTES), reason);
        }
        Choice::new(None, "no limit: the link is slower than a call")
    }

    /// Limits unsent data in the kernel, because later commands cannot overtake it.
    fn not_sent_low_water(&self) -> Choice<Option<u32>> {
        /// Smallest limit that is worth a system call, bytes.
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

    /// Chooses how many bytes to wait for before the socket is read. An incomplete data segment is useless,
    /// so each read of the socket before its end costs an iteration of the event loop without benefit. Nor is
    /// it worth an iteration to read the first of many answers alone.
    fn receive_low_water(&self, buffer: Buffer) -> Choice<Option<u32>> {
        /// With fewer bytes, the system call that sets the option costs more than it saves.
        const MIN: u64 = 16 << 10;
        /// Largest number of bytes to wait for: the length of several answers.
        const MAX: u64 = 256 << 10;
        /// Divisor of the window: the limit is at most this part of it, because bytes that wait in the socket
        /// reduce the window.
        const PART_OF_WINDOW: u64 = 32;
        if self.link.is_local() {
            let reason = "fewer turns for what is there within a millisecond";
            return Choice::new(u32::try_from(MAX).ok(), reason);
        }
        let window = buffer.bytes().unwrap_or(self.receive.reach);
        let (nap, part) = (self.link.bandwidth.bytes_in(NAP), window / PART_OF_WINDOW);
        let bytes = nap.min(part).min(MAX);
        if bytes < MIN {
            return Choice::new(None, format!("{} would save no turns", Size(bytes)));
        }
        let reason = match bytes {
            _ if bytes == part => format!("a 32nd of a window of {}, fewer turns", Size(window)),
            _ if bytes == nap => "10 ms of the link, fewer turns for a segment".to_owned(),
            _ => "less than 10 ms of the link, fewer turns for a segment".to_owned(),
        };
        Choice::new(u32::try_from(bytes).ok(), reason)
    }
}

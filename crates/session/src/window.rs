//! The command window (RFC 7143 §4.2.2.1).

use iscsi_pdu::CmdSn;

use crate::task::Task;

/// The next CmdSN, and the last CmdSN that the target accepts.
///
/// Invariant: `max_cmd_sn` and `exp_cmd_sn` never decrease.
#[derive(Clone, Debug)]
pub(crate) struct CommandWindow {
    /// CmdSN of the next non-immediate command.
    cmd_sn: CmdSn,
    exp_cmd_sn: CmdSn,
    max_cmd_sn: CmdSn,
}

impl CommandWindow {
    /// Creates a window that accepts one command, as before the first report of the target.
    pub(crate) const fn new(first: CmdSn) -> Self {
        Self { cmd_sn: first, exp_cmd_sn: first, max_cmd_sn: first }
    }

    /// Sets ExpCmdSN and MaxCmdSN from the final Login Response.
    pub(crate) const fn begin(&mut self, exp_cmd_sn: CmdSn, max_cmd_sn: CmdSn) {
        self.exp_cmd_sn = exp_cmd_sn;
        self.max_cmd_sn = max_cmd_sn;
    }

    /// Returns the CmdSN that an immediate command carries without consuming it.
    pub(crate) const fn current(&self) -> CmdSn {
        self.cmd_sn
    }

    pub(crate) const fn exp_cmd_sn(&self) -> CmdSn {
        self.exp_cmd_sn
    }

    pub(crate) const fn max_cmd_sn(&self) -> CmdSn {
        self.max_cmd_sn
    }

    /// Returns whether a non-immediate command may be sent now.
    const fn is_open(&self) -> bool {
        !self.cmd_sn.is_after(self.max_cmd_sn)
    }

    /// Returns whether a command may be sent now. A command that starts over already has its CmdSN, so it
    /// needs no window.
    pub(crate) const fn lets_out(&self, task: &Task) -> bool {
        task.starts_over() || self.is_open()
    }

    /// Consumes the current CmdSN for a non-immediate command.
    pub(crate) const fn take(&mut self) -> CmdSn {
        let taken = self.cmd_sn;
        self.cmd_sn = taken.next();
        taken
    }

    /// Updates the window from the fields of any PDU of the target. Each number can only increase. If
    /// MaxCmdSN is less than ExpCmdSN - 1, both are ignored.
    pub(crate) const fn update(&mut self, exp_cmd_sn: CmdSn, max_cmd_sn: CmdSn) {
        if max_cmd_sn.is_before(exp_cmd_sn.minus(1)) {
            return;
        }
        if exp_cmd_sn.is_after(self.exp_cmd_sn) {
            self.exp_cmd_sn = exp_cmd_sn;
        }
        if max_cmd_sn.is_after(self.max_cmd_sn) {
            self.max_cmd_sn = max_cmd_sn;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sn(value: u32) -> CmdSn {
        CmdSn::new(value)
    }

    #[test]
    fn seq_06_closed_window_blocks() {
        let mut window = CommandWindow::new(sn(5));
        window.begin(sn(5), sn(4));
        assert!(!window.is_open());
        window.update(sn(5), sn(6));
        assert!(window.is_open());
        assert_eq!([window.take(), window.take()], [sn(5), sn(6)]);
        assert!(!window.is_open());
    }

    #[test]
    fn seq_09_window_never_shrinks() {
        let mut window = CommandWindow::new(sn(1));
        window.begin(sn(1), sn(64));
        window.update(sn(3), sn(20));
        assert_eq!((window.exp_cmd_sn(), window.max_cmd_sn()), (sn(3), sn(64)));
        window.update(sn(2), sn(65));
        assert_eq!((window.exp_cmd_sn(), window.max_cmd_sn()), (sn(3), sn(65)));
    }

    #[test]
    fn seq_08_contradictory_pair_is_ignored() {
        let mut window = CommandWindow::new(sn(1));
        window.begin(sn(1), sn(8));
        window.update(sn(30), sn(20));
        assert_eq!((window.exp_cmd_sn(), window.max_cmd_sn()), (sn(1), sn(8)));
        // A closed window, with MaxCmdSN = ExpCmdSN - 1, is legal.
        window.update(sn(10), sn(9));
        assert_eq!((window.exp_cmd_sn(), window.max_cmd_sn()), (sn(10), sn(9)));
    }

    /// SEQ-20: while the target has not counted a CmdSN, no CmdSN more than 2^31-1 after it is sent, whatever
    /// window the target reports: beyond that the comparison wraps around.
    #[test]
    fn seq_20_commands_stay_in_reach_of_the_oldest_uncounted_one() {
        for oldest in [0, 1, 77, u32::MAX - 5] {
            let mut window = CommandWindow::new(sn(oldest));
            window.begin(sn(oldest), sn(oldest));
            for ahead in [5, (1 << 31) - 2, (1 << 31) - 1, 1 << 31, u32::MAX - 1] {
                window.update(sn(oldest), sn(oldest.wrapping_add(ahead)));
            }
            let reach = window.max_cmd_sn().distance_from(window.exp_cmd_sn());
            assert_eq!(reach, i32::MAX);
            window.cmd_sn = window.max_cmd_sn();
            assert!(window.is_open());
            window.take();
            assert!(!window.is_open());
        }
    }

    #[test]
    fn seq_02_window_works_across_the_wrap() {
        let mut window = CommandWindow::new(sn(u32::MAX));
        window.begin(sn(u32::MAX), sn(1));
        let taken: Vec<u32> =
            std::iter::from_fn(|| window.is_open().then(|| window.take().get())).collect();
        assert_eq!(taken, [u32::MAX, 0, 1]);
    }
}

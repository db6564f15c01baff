//! Executes the actions of a world: actions of callers, of the network and of the target.

use std::ops::Range;
use std::time::{Duration, Instant};

use iscsi_multipath::machine::{AttemptId, Request};
use iscsi_multipath::{Access, CommandEnd, Verdict};
use iscsi_pdu::scsi::{AccessState, Status};
use iscsi_session::TaskError;

use super::target::{Answer, Attention, Phase, Reply, Sent, Session, Value, Work};
use super::{Action, BLOCK, Budget, Pending, STATES, Step, Wish, World, facts, spec};

impl World {
    /// Executes one action, and the outputs of the machine that follow.
    ///
    /// # Errors
    /// A text that names the check that fails: for example, a write that is executed over a newer one.
    pub fn take(&mut self, action: Action) -> Step {
        let before = self.machine.sizes();
        let mut now = self.now;
        match action {
            Action::Submit { wish, disk, prefer } => self.submit(wish, disk, prefer),
            Action::Execute { session, command } => self.execute(session.into(), command.into())?,
            Action::Trouble { session, command, kind } => {
                self.trouble(session.into(), command.into(), kind)?;
            }
            Action::Abort { session, command } => {
                self.oracle.faults += 1;
                self.reply(session.into(), command.into(), Reply::Aborted);
            }
            Action::Withdraw { session, command } => {
                self.reply(session.into(), command.into(), Reply::Withdrawn);
            }
            Action::Deliver { session, answer } => self.deliver(session.into(), answer.into())?,
            Action::Lose { session, unsent } => self.lose_session(session.into(), unsent.into()),
            Action::Login { session } => self.login(session.into()),
            Action::Opened { session } => self.opened(session.into()),
            Action::Reset => self.reset(),
            Action::Fire => now = self.fire(),
            Action::Cancel { request } => self.cancel(request.into()),
            Action::Exchange => self.exchange(),
            Action::Port { session, state } => {
                self.left.access -= 1;
                self.target.sessions[usize::from(session)].access = STATES[usize::from(state)];
            }
            Action::Ports => self.report_ports(),
            Action::Close { session } => self.close(session.into()),
            Action::Destage { block } => {
                self.left.destages -= 1;
                let block = usize::from(block);
                self.target.units[0].destage(block..block + 1);
            }
            Action::DeferredError => {
                self.left.destages -= 1;
                self.oracle.faults += 1;
                self.target.defer_error();
            }
            Action::Again => self.submit_again(),
            Action::Heal => self.heal(),
            Action::Pass { exponent } => now = self.pass(Duration::from_millis(1 << exponent)),
        }
        self.drain(before, now)
    }

    fn reset(&mut self) {
        self.left.resets -= 1;
        self.oracle.faults += 1;
        self.target.reset();
    }

    fn exchange(&mut self) {
        self.left.exchanges = self.left.exchanges.saturating_sub(1);
        self.target.is_exchanged = !self.target.is_exchanged;
        self.oracle.faults += 1;
        self.target.attend(Attention::Exchanged);
    }

    fn close(&mut self, session: usize) {
        self.left.closes -= 1;
        let path = self.target.sessions[session].path;
        self.closed.push(path);
        self.machine.close_path(path, self.now);
    }

    /// Fires the earliest timer. Without `has_time` the clock stands still, so that it may fire before or after any
    /// other step.
    fn fire(&mut self) -> Instant {
        self.left.timers = self.left.timers.saturating_sub(1);
        let now = self.machine.poll_timeout().unwrap_or(self.now).max(self.now);
        self.time_passes(now);
        if self.settings.has_time {
            self.now = now;
        }
        now
    }

    fn pass(&mut self, time: Duration) -> Instant {
        self.now += time;
        if self.machine.poll_timeout().is_some_and(|at| at <= self.now) {
            self.time_passes(self.now);
        }
        self.now
    }

    fn time_passes(&mut self, now: Instant) {
        // A flush stops waiting for earlier commands at its time limit. It may then report a loss, so this
        // counts as a fault.
        let awaits_commands = self.machine.awaits_commands();
        self.oracle.faults += u32::from(awaits_commands);
        self.machine.handle_timeout(now);
    }

    fn submit(&mut self, wish: u8, disk: u8, prefer: u8) {
        let kind = self.settings.wishes[usize::from(wish)].clone();
        let disk_at = usize::from(disk);
        let disk = self.disks[disk_at];
        self.submitted[usize::from(wish)] = true;
        self.seen.requests += 1;
        if self.settings.prefers {
            let paths = self.settings.paths_of_each;
            let own = &self.target.sessions[disk_at * paths..(disk_at + 1) * paths];
            let access = |(at, it): (usize, &Session)| {
                let preferred = at == usize::from(prefer);
                (it.path, Access { state: AccessState::ActiveOptimized, preferred })
            };
            let all: Vec<_> = own.iter().enumerate().map(access).collect();
            self.machine.set_access(&all, self.now);
        }
        let bytes = |range: &Range<usize>| range.start as u64 * BLOCK..range.end as u64 * BLOCK;
        let mut value = self.next_value;
        let request = match &kind {
            Wish::Write(range) => {
                // In a small world, the value of a write is the index of its request plus 1, whenever it is
                // submitted.
                value = if self.settings.has_time { value } else { Value::from(wish) + 1 };
                self.next_value += 1;
                self.oracle.write_submitted(value, range.clone());
                let bytes = bytes(range);
                Request::Write(bytes.clone(), spec(bytes.end - bytes.start, true))
            }
            Wish::Read(range) => Request::Read(spec(range.len() as u64 * BLOCK, false)),
            Wish::Flush => {
                value = if self.settings.has_time { value } else { Value::from(wish) + 1 };
                self.next_value += 1;
                self.oracle.flush_submitted(value, disk);
                Request::Flush
            }
        };
        let request = self.machine.submit(disk, request, self.now).expect("a disk");
        self.pending.push(Pending { request, disk, wish: kind, value });
    }

    fn execute(&mut self, session: usize, command: usize) -> Step {
        let is_lost = self.target.sessions[session].phase == Phase::Lost;
        let is_exchanged = self.target.is_exchanged;
        let (answer, is_answered) = self.target.execute(session, command);
        if is_answered || answer.reply != Reply::Good {
            // A lost session delivers no responses.
            if !is_lost {
                self.target.sessions[session].answers.push_back(answer.clone());
            }
        }
        if answer.reply == Reply::Good
            && !is_exchanged
            && let Work::Write(range, value) = answer.work
        {
            self.seen.late_executions += u64::from(is_lost);
            self.oracle.executed(value, range)?;
        }
        Ok(())
    }

    /// Ends a command with this reply.
    fn reply(&mut self, session: usize, command: usize, reply: Reply) {
        let it = &mut self.target.sessions[session];
        let Sent { attempt, work, .. } = it.commands.remove(command);
        it.answers.push_back(Answer { attempt, reply, work, data: Vec::new() });
    }

    fn trouble(&mut self, session: usize, command: usize, kind: u8) -> Step {
        self.left.troubles -= 1;
        let is_flush = self.target.sessions[session].commands[command].work == Work::Flush;
        let is_attended = !self.target.sessions[session].attentions.is_empty();
        self.oracle.faults += u32::from(kind >= 3);
        let reply = match kind {
            // The unit may return BUSY instead of a pending unit attention, or after it.
            0 => Reply::Busy,
            1 if !is_attended => Reply::BecomingReady,
            2 if !is_attended => Reply::AbortedCommand,
            3 => Reply::TaskAborted,
            4 => Reply::TimedOut,
            5 if is_flush && !is_attended => {
                let unit = &mut self.target.units[usize::from(self.target.is_exchanged)];
                unit.cache.fill(None);
                Reply::MediumError
            }
            // The command does not time out while the report of an exchange is pending: a real unit would have
            // sent that report before the time limit of the command.
            6 if self.target.sessions[session].attentions.contains(&Attention::Exchanged) => {
                return self.execute(session, command);
            }
            6 | 7 => {
                // The unit executes the command or reports a unit attention with it, and the status is lost.
                let before = self.target.sessions[session].answers.len();
                self.execute(session, command)?;
                let answers = &mut self.target.sessions[session].answers;
                if answers.len() > before
                    && let Some(answer) = answers.back_mut()
                {
                    answer.reply = if kind == 6 { Reply::TimedOut } else { Reply::TaskAborted };
                }
                return Ok(());
            }
            _ => return self.execute(session, command),
        };
        self.reply(session, command, reply);
        Ok(())
    }

    fn deliver(&mut self, session: usize, at: usize) -> Step {
        let Some(answer) = self.target.sessions[session].answers.remove(at) else {
            return Ok(());
        };
        let (attempt, now) = (answer.attempt, self.now);
        // Each session that receives the report counts it as a new loss.
        let is_loss = answer.reply == Reply::Attention(Attention::DeferredError);
        self.oracle.faults += u32::from(is_loss);
        if let Reply::Unit(is_known) = answer.reply {
            let other = || {
                let [expected, found] = ["one", "other"].map(str::to_owned);
                (Verdict::OtherUnit { expected, found }, "another unit")
            };
            let verdict = if is_known { Ok(()) } else { Err(other()) };
            self.machine.identified(attempt, verdict, now);
            if !is_known {
                self.machine.close_path(self.target.sessions[session].path, now);
            }
            return Ok(());
        }
        let sense = |key: u8, asc: u8, ascq: u8, response: u8| {
            [response, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0]
        };
        let check = Status::CHECK_CONDITION;
        let (status, sense) = match answer.reply {
            Reply::Good | Reply::Unit(_) => (Status::GOOD, None),
            Reply::Attention(Attention::Reset) => (check, Some(sense(6, 0x29, 0, 0x70))),
            Reply::Attention(Attention::Exchanged) => (check, Some(sense(6, 0x3f, 0x0e, 0x70))),
            Reply::Attention(Attention::DeferredError) => (check, Some(sense(3, 0x0c, 0, 0x71))),
            Reply::Busy => (Status::BUSY, None),
            Reply::BecomingReady => (check, Some(sense(2, 4, 1, 0x70))),
            Reply::Port(AccessState::Transitioning) => (check, Some(sense(2, 4, 0x0a, 0x70))),
            Reply::Port(_) => (check, Some(sense(2, 4, 0x0b, 0x70))),
            Reply::AbortedCommand => (check, Some(sense(0x0b, 0, 0, 0x70))),
            Reply::MediumError => (check, Some(sense(3, 0x0c, 0, 0x70))),
            Reply::TaskAborted => (Status::TASK_ABORTED, None),
            Reply::Aborted => return self.deliver_error(attempt, &TaskError::Aborted),
            Reply::TimedOut => return self.deliver_error(attempt, &TaskError::TimedOut),
            Reply::Withdrawn => return self.deliver_error(attempt, &TaskError::Withdrawn),
        };
        let sense = sense.as_ref().map_or(&[][..], |sense| &sense[..]);
        let end = CommandEnd::Status(status, sense);
        self.machine.completed(attempt, end, || "a status", now);
        // A second end of the same attempt must change nothing.
        self.machine.completed(attempt, end, || "a status", now);
        Ok(())
    }

    fn deliver_error(&mut self, attempt: AttemptId, why: &TaskError) -> Step {
        for _ in 0..2 {
            self.machine.completed(attempt, CommandEnd::Error(why), || "no status", self.now);
        }
        Ok(())
    }

    fn lose_session(&mut self, session: usize, unsent: usize) {
        self.left.losses -= 1;
        self.oracle.faults += 1;
        let it = &mut self.target.sessions[session];
        let late: Vec<_> = it.answers.drain(..).collect();
        let unsent = it.commands.split_off(it.commands.len() - unsent);
        let unsent: Vec<_> = unsent.iter().map(|sent| sent.attempt).collect();
        it.phase = Phase::Lost;
        it.attentions.clear();
        let path = it.path;
        self.machine.path_lost(path, &"lost", &unsent, self.now);
        self.machine.path_lost(path, &"lost", &[], self.now);
        // Ends of attempts after the loss must change nothing.
        for answer in late {
            let end = CommandEnd::Status(Status::GOOD, &[]);
            self.machine.completed(answer.attempt, end, || "late", self.now);
        }
    }

    fn login(&mut self, session: usize) {
        self.asked_at[session] = self.machine.unit().identity.shared_reasons();
        let it = &mut self.target.sessions[session];
        it.phase = Phase::LoggedIn;
        it.commands.clear();
        it.answers.clear();
        it.access = AccessState::ActiveOptimized;
        it.attentions.clear();
        if self.settings.attends_login {
            it.attentions.push(Attention::Reset);
            // If the report of the login arrives while a write is in flight, it looks like a reset that has
            // lost the write, so a flush may report a loss.
            self.oracle.faults += 1;
        }
    }

    fn opened(&mut self, session: usize) {
        let facts = facts(&self.settings, self.asked_at[session]);
        let disk = self.disk_of(session);
        let it = &mut self.target.sessions[session];
        self.machine.settled(it.path, self.now);
        if let Some(path) = self.machine.path_opened(disk, facts, self.now) {
            it.path = path;
            it.phase = Phase::Live;
        }
    }

    fn cancel(&mut self, at: usize) {
        self.left.cancels -= 1;
        let pending = self.pending.remove(at);
        self.machine.cancel(pending.request, self.now);
        match pending.wish {
            Wish::Write(_) => {
                // The copies of the write are aborted. Their ends may hide the report of a reset, so a flush
                // may report a loss.
                self.oracle.faults += 1;
                self.oracle.write_ended(pending.value);
            }
            Wish::Flush => self.oracle.flush_ended(pending.value),
            Wish::Read(_) => self.oracle.faults += 1,
        }
    }

    fn report_ports(&mut self) {
        self.left.access -= 1;
        let live = self.target.sessions.iter().filter(|it| it.phase == Phase::Live);
        let all: Vec<_> = live.map(|it| (it.path, Access::of_state(it.access))).collect();
        self.machine.set_access(&all, self.now);
    }

    /// Ends all faults: ports serve the unit, and the known unit is there.
    pub fn heal(&mut self) {
        self.left = Budget { timers: u32::MAX, ..Budget::default() };
        self.target.sessions.iter_mut().for_each(|it| it.access = AccessState::ActiveOptimized);
        if self.target.is_exchanged {
            self.target.is_exchanged = false;
            self.target.attend(Attention::Exchanged);
        }
        self.left.access = 1;
        self.report_ports();
    }
}

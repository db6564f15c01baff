//! Executes the outputs of the machine, and checks its results.

use std::time::Instant;

use iscsi_multipath::PathId;
use iscsi_multipath::machine::{Command, Done, Failure, Output, RequestId};

use super::target::{Phase, Sent, Session, Work};
use super::{Pending, Step, Wish, World};

impl World {
    /// Executes all outputs of the machine.
    pub(super) fn drain(&mut self, before: (usize, usize), now: Instant) -> Step {
        let mut count = 0;
        while let Some(output) = self.machine.poll_output() {
            count += 1;
            if self.is_verbose {
                println!("    {output:?}");
            }
            self.carry_out(output)?;
        }
        self.oracle.flush_begun(self.machine.flushes_begun());
        let after = self.machine.sizes();
        let (requests, attempts) = (before.0.max(after.0), before.1.max(after.1));
        if count > 4 * (requests + attempts) + 8 * self.target.sessions.len() + 8 {
            return Err(format!("{count} outputs for {requests} requests and {attempts} attempts"));
        }
        match self.machine.poll_timeout() {
            Some(at) if at <= now => Err("a timer that is due stays".to_owned()),
            _ => Ok(()),
        }
    }

    fn carry_out(&mut self, output: Output<&'static str>) -> Step {
        match output {
            Output::Send { attempt, path, command } => {
                let (work, is_hedge) = self.work_of(command)?;
                let Some(at) = self.session_of(path) else {
                    return Err(format!("{command:?} is sent over path {path}, which is lost"));
                };
                let may_be_withdrawn = false;
                let sent = Sent { attempt, work, is_hedge, is_aborted: false, may_be_withdrawn };
                self.check_order(&sent)?;
                self.target.sessions[at].commands.push(sent);
            }
            Output::Abort(attempt) => {
                let mut live = self.target.sessions.iter_mut().filter(|it| it.phase == Phase::Live);
                let found = live.find_map(|it| {
                    let is_answered = it.answers.iter().any(|answer| answer.attempt == attempt);
                    let sent = it.commands.iter_mut().find(|sent| sent.attempt == attempt);
                    sent.map(|sent| sent.is_aborted = true).or_else(|| is_answered.then_some(()))
                });
                if found.is_none() {
                    return Err(format!("{attempt:?} is aborted, which no session has"));
                }
            }
            Output::Withdraw(path) => {
                if let Some(at) = self.session_of(path) {
                    let commands = self.target.sessions[at].commands.iter_mut();
                    let others = commands.filter(|sent| sent.work != Work::Identify);
                    others.for_each(|sent| sent.may_be_withdrawn = true);
                }
            }
            Output::Completed { request, result } => return self.completed(request, &result),
            Output::LogOut(path) => {
                let Some(at) = self.session_of(path) else {
                    return Err(format!("path {path} is logged out, which is lost"));
                };
                let it = &mut self.target.sessions[at];
                if !it.commands.is_empty() || !it.answers.is_empty() {
                    return Err("a session is logged out with commands in flight".to_owned());
                }
                it.phase = Phase::Gone;
            }
            Output::Reserve { request, .. } => self.machine.reserved(request, true, self.now),
            Output::Charge { request, .. } => self.machine.charged(request, self.now),
            Output::Unreserve(_) | Output::Event(_) => {}
        }
        Ok(())
    }

    fn session_of(&self, path: PathId) -> Option<usize> {
        let is_it = |it: &Session| it.path == path && it.phase == Phase::Live;
        self.target.sessions.iter().position(is_it)
    }

    fn work_of(&mut self, command: Command) -> Result<(Work, bool), String> {
        Ok(match command {
            Command::Request { request, is_hedge, .. } => {
                let found = self.pending.iter().find(|it| it.request == request);
                let Some(pending) = found else {
                    return Err(format!("a command is sent for {request:?}, which has ended"));
                };
                let work = match &pending.wish {
                    Wish::Write(range) => Work::Write(range.clone(), pending.value),
                    Wish::Read(range) => Work::Read(range.clone()),
                    Wish::Flush => return Err("a flush has attempts of its own".to_owned()),
                };
                (work, is_hedge)
            }
            Command::Flush => (Work::Flush, false),
            Command::Ready => {
                self.seen.witnesses += 1;
                (Work::Ready, false)
            }
            Command::Identify => (Work::Identify, false),
            Command::ModeSense => return Err("the unit knows the flush".to_owned()),
        })
    }

    /// Checks that no copy of another write to the same blocks may still be executed.
    fn check_order(&self, new: &Sent) -> Step {
        let Work::Write(range, value) = &new.work else { return Ok(()) };
        for sent in self.target.sessions.iter().flat_map(|it| &it.commands) {
            if let Work::Write(other, other_value) = &sent.work
                && other_value != value
                && other.start < range.end
                && range.start < other.end
            {
                return Err(format!(
                    "write {value} is sent while a copy of write {other_value} may still be executed"
                ));
            }
        }
        Ok(())
    }

    fn completed(
        &mut self,
        request: RequestId,
        result: &Result<Done, Failure<&'static str>>,
    ) -> Step {
        let Some(at) = self.pending.iter().position(|it| it.request == request) else {
            return Err(format!("{request:?} is answered twice, or was cancelled"));
        };
        let Pending { wish, value, disk, .. } = self.pending.remove(at);
        debug_assert!(self.disks.contains(&disk));
        if let Ok(Done::By(attempt)) = result
            && self.target.foreign.contains(attempt)
        {
            return Err(format!("{wish:?} is answered by another unit"));
        }
        match (&wish, result) {
            (Wish::Write(_), Ok(Done::By(attempt))) => {
                let is_executed = self.target.executed.get(value as usize) == Some(&true);
                if !is_executed {
                    return Err(format!(
                        "write {value} is answered, and the unit has never executed it"
                    ));
                }
                let sessions = self.target.sessions.iter();
                let copies =
                    sessions.flat_map(|it| &it.commands).filter(|it| it.attempt != *attempt);
                let is_copied = |it: &Sent| {
                    matches!(&it.work, Work::Write(_, of) if *of == value) && !it.is_hedge
                };
                self.seen.hedges_won += u64::from(copies.into_iter().any(is_copied));
                self.oracle.write_answered(value);
            }
            (Wish::Read(_), Ok(Done::By(_))) => {}
            (Wish::Flush, Ok(Done::Flushed)) => {
                self.seen.flushes += 1;
                self.oracle.flushed(value, &self.target.units[0].medium)?;
            }
            (Wish::Flush, Ok(Done::LostWrites)) => {
                self.seen.losses_reported += 1;
                self.oracle.lost(value)?;
            }
            (_, Ok(done)) => return Err(format!("{wish:?} ends in {done:?}")),
            (Wish::Write(_), Err(why)) => {
                self.seen.failures += 1;
                self.seen.in_doubt_waits += u64::from(*why == Failure::InDoubt);
                self.oracle.write_ended(value);
            }
            (Wish::Read(_), Err(_)) => self.seen.failures += 1,
            (Wish::Flush, Err(_)) => {
                self.seen.failures += 1;
                self.oracle.flush_ended(value);
            }
        }
        Ok(())
    }
}

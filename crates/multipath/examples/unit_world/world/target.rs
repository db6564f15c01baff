//! Models a target with one LUN: sessions, commands in any order, a volatile cache, resets, and the exchange
//! of the unit for another one.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::ops::Range;

use iscsi_multipath::PathId;
use iscsi_multipath::machine::AttemptId;
use iscsi_pdu::scsi::AccessState;

/// Data of a block: the value of the last write to it, or 0.
pub type Value = u32;

/// The effect of a command at the unit.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Work {
    Write(Range<usize>, Value),
    Read(Range<usize>),
    Flush,
    Ready,
    Identify,
}

/// A command that was sent and has not been executed.
#[derive(Clone, Debug)]
pub struct Sent {
    pub attempt: AttemptId,
    pub work: Work,
    pub is_hedge: bool,
    pub is_aborted: bool,
    /// Whether the initiator can still withdraw the command, because it may not have sent the command yet.
    pub may_be_withdrawn: bool,
}

/// A unit attention.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Attention {
    Reset,
    /// Another unit has replaced the first one, or the first one is back.
    Exchanged,
    /// An acknowledged write could not be written back.
    DeferredError,
}

/// The end of a command.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Reply {
    Good,
    /// The result of the identification: whether the unit is the known one.
    Unit(bool),
    Attention(Attention),
    Busy,
    BecomingReady,
    Port(AccessState),
    AbortedCommand,
    TaskAborted,
    MediumError,
    /// The initiator has aborted the command.
    Aborted,
    TimedOut,
    Withdrawn,
}

/// A response that has not been delivered.
#[derive(Clone, Debug)]
pub struct Answer {
    pub attempt: AttemptId,
    pub reply: Reply,
    pub work: Work,
    pub data: Vec<Value>,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Phase {
    /// The session is a path.
    Live,
    /// The session is lost. The target may still execute its commands.
    Lost,
    /// A login has ended the earlier session, and the machine does not know of the login yet.
    LoggedIn,
    /// The session is logged out.
    Gone,
}

#[derive(Clone, Debug)]
pub struct Session {
    /// The path of the session, or its lost path until the machine opens the next one.
    pub path: PathId,
    pub phase: Phase,
    pub attentions: Vec<Attention>,
    pub commands: Vec<Sent>,
    pub answers: VecDeque<Answer>,
    pub access: AccessState,
}

/// The data of one unit.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Content {
    pub medium: Vec<Value>,
    pub cache: Vec<Option<Value>>,
}

#[derive(Clone, Debug)]
pub struct Target {
    pub sessions: Vec<Session>,
    /// The known unit, and the unit that may replace it.
    pub units: [Content; 2],
    pub is_exchanged: bool,
    /// For each write, by its number, whether the known unit has executed it.
    pub executed: Vec<bool>,
    /// Attempts that the other unit has executed.
    pub foreign: Vec<AttemptId>,
}

impl Content {
    pub fn new(blocks: usize) -> Self {
        Self { medium: vec![0; blocks], cache: vec![None; blocks] }
    }

    pub fn read(&self, range: Range<usize>) -> Vec<Value> {
        range.map(|block| self.cache[block].unwrap_or(self.medium[block])).collect()
    }

    /// Writes a range of blocks from the cache to the medium.
    pub fn destage(&mut self, blocks: Range<usize>) {
        for block in blocks {
            if let Some(value) = self.cache[block].take() {
                self.medium[block] = value;
            }
        }
    }

    fn lose_cache(&mut self) {
        self.cache.fill(None);
    }
}

impl Target {
    pub fn new(blocks: usize) -> Self {
        let units = [(); 2].map(|()| Content::new(blocks));
        Self {
            sessions: Vec::new(),
            units,
            is_exchanged: false,
            executed: vec![true],
            foreign: Vec::new(),
        }
    }

    pub fn attend(&mut self, attention: Attention) {
        for session in &mut self.sessions {
            if session.phase != Phase::Lost && session.phase != Phase::Gone {
                // A unit need not report the same condition twice.
                if !session.attentions.contains(&attention) {
                    session.attentions.push(attention);
                }
            }
        }
    }

    /// Loses acknowledged writes. The unit reports the error to each session, because it does not know which
    /// session has written the data.
    pub fn defer_error(&mut self) {
        self.units[0].lose_cache();
        self.attend(Attention::DeferredError);
    }

    pub fn reset(&mut self) {
        self.units.iter_mut().for_each(Content::lose_cache);
        self.attend(Attention::Reset);
    }

    /// Executes a command of a session, unless the unit refuses it.
    pub fn execute(&mut self, session: usize, at: usize) -> (Answer, bool) {
        let Session { phase, commands, attentions, access, .. } = &mut self.sessions[session];
        let is_lost = *phase == Phase::Lost;
        let Sent { attempt, work, .. } = commands.remove(at);
        let mut answer =
            Answer { attempt, reply: Reply::Good, work: work.clone(), data: Vec::new() };
        let serves =
            matches!(access, AccessState::ActiveOptimized | AccessState::ActiveNonOptimized);
        // A unit attention refuses every command, also the identification: a unit would execute INQUIRY, but
        // the identification needs other commands as well.
        if !attentions.is_empty() {
            answer.reply = Reply::Attention(attentions.remove(0));
            return (answer, false);
        }
        if !serves && matches!(work, Work::Write(..) | Work::Read(_) | Work::Flush | Work::Ready) {
            answer.reply = Reply::Port(*access);
            return (answer, false);
        }
        let which = usize::from(self.is_exchanged);
        let unit = &mut self.units[which];
        if which == 1 {
            self.foreign.push(attempt);
        }
        match work {
            Work::Write(range, value) => {
                range.for_each(|block| unit.cache[block] = Some(value));
                let place = value as usize;
                if which == 0 {
                    self.executed.resize(self.executed.len().max(place + 1), false);
                    self.executed[place] = true;
                }
            }
            Work::Read(range) => answer.data = unit.read(range),
            Work::Flush => unit.destage(0..unit.medium.len()),
            Work::Ready => {}
            Work::Identify => answer.reply = Reply::Unit(which == 0),
        }
        let is_answered = !is_lost;
        (answer, is_answered)
    }

    /// Hashes the target; `age` names an attempt that has not ended.
    pub fn fingerprint(&self, age: impl Fn(AttemptId) -> Option<usize>, state: &mut impl Hasher) {
        for session in &self.sessions {
            (session.phase, &session.attentions, session.access).hash(state);
            // The number of a path is not hashed, because it grows with each login. Whether the path is lost
            // matters, because writes in doubt belong to a lost path.
            (session.phase == Phase::Lost || session.phase == Phase::LoggedIn).hash(state);
            for sent in &session.commands {
                (age(sent.attempt), &sent.work, sent.is_aborted, sent.may_be_withdrawn).hash(state);
            }
            u8::MAX.hash(state);
            for answer in &session.answers {
                (age(answer.attempt), answer.reply, &answer.work, &answer.data).hash(state);
            }
            u8::MAX.hash(state);
        }
        (&self.units, self.is_exchanged, &self.executed).hash(state);
        self.foreign.iter().filter_map(|it| age(*it)).for_each(|age| age.hash(state));
    }
}

//! The tasks of a session, found by their tag.

use std::time::Instant;

use iscsi_pdu::{Cid, CmdSn, Itt};
use smallvec::SmallVec;

use super::scsi::ScsiTask;
use super::write::WriteTransfer;
use super::{Task, TaskKind};
use crate::timer::Timer;

/// Number of low bits of a tag, which hold the slot. The high bits count how often the slot was used. So the
/// tag of a finished task is reused only after its slot has had 262,143 other tasks, and does not identify
/// another task before.
const SLOT_BITS: u32 = 14;
/// The most slots. Several times [`MAX_TASKS`], because each task of the caller may need an ABORT TASK, all
/// at the same time.
const MAX_SLOTS: usize = 1 << SLOT_BITS;
/// The most tasks that a caller may have outstanding.
const MAX_TASKS: usize = 4096;
/// The bits of a tag that hold its slot.
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;
/// Number of generations (uses of a slot) that a tag can count. Invariant: the generation of a tag is below
/// this number, because the number itself would give the reserved tag 0xffffffff in the last slot.
const GENERATIONS: u32 = (1 << (32 - SLOT_BITS)) - 1;

/// A tag that [`TaskSet`] never gives to a task.
pub(crate) const NO_TASK: u32 = GENERATIONS << SLOT_BITS;

/// A slab of tasks.
#[derive(Debug, Default)]
pub(crate) struct TaskSet {
    slots: Vec<Slot>,
    /// The generation that slots begin with.
    first_generation: u32,
    free: FreeSlots,
    limit: usize,
    /// The earliest time limit. The task of this limit may have ended. Keeping all limits sorted would touch
    /// further memory with each task, which with 1,000 sessions is not in the processor's cache. So all tasks
    /// are searched when this time has come. If tasks end long before their limits, such a search happens
    /// once per time limit.
    earliest: Option<(Instant, Timer)>,
    /// The load of each connection that has had tasks. There are few connections, mostly one.
    loads: SmallVec<[(Cid, Load); 1]>,
}

/// The slots without a task.
#[derive(Debug, Default)]
struct FreeSlots {
    /// The slot that was freed last, which is used next: the other slots, and the list of them, may not be in
    /// the processor's cache.
    next: Option<u32>,
    /// The other free slots; the last of them is used next.
    others: Vec<u32>,
}

/// The outstanding requests and data of one connection's tasks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// Sum of the loads of all tasks, bytes; zero exactly when there are no tasks.
    pub(crate) bytes: u64,
    /// Write data that the target may wait for, bytes.
    pub(crate) outstanding: u64,
    /// Write data of all writes that have ended, bytes.
    pub(crate) concluded: u64,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    task: Option<Task>,
    /// The last task of the slot that ended by an abort. A late PDU for this task is not an error.
    aborted: Option<Itt>,
}

impl TaskSet {
    /// Creates a set with room for `limit` tasks, at most 4096.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit: limit.clamp(1, MAX_TASKS), ..Self::default() }
    }

    /// Sets the first generation of tags.
    pub(crate) fn beginning_at(mut self, generation: u32) -> Self {
        self.first_generation = generation % GENERATIONS;
        self
    }

    /// Adds a task, if there is room, and returns its tag, which no other live task has.
    pub(crate) fn insert(&mut self, task: Task) -> Option<Itt> {
        if self.len() >= self.limit {
            return None;
        }
        self.insert_beyond_limit(task)
    }

    /// Adds a task even beyond the limit, for requests that the session itself must be able to send.
    pub(crate) fn insert_beyond_limit(&mut self, task: Task) -> Option<Itt> {
        let at = match self.free.pop() {
            Some(at) => at,
            None if self.slots.len() < MAX_SLOTS => {
                self.slots.push(Slot { generation: self.first_generation, ..Slot::default() });
                u32::try_from(self.slots.len() - 1).ok()?
            }
            None => return None,
        };
        let slot = self.slots.get_mut(at as usize)?;
        let itt = Itt::new(slot.generation << SLOT_BITS | at)?;
        let limit = task.limit();
        slot.task = Some(task);
        self.record_deadline(limit);
        Some(itt)
    }

    /// Removes a task. Its tag is not used again until the generations wrap around.
    pub(crate) fn remove(&mut self, itt: Itt) -> Option<Task> {
        let at = slot_of(itt);
        let slot = self.slots.get_mut(at as usize).filter(|slot| slot.names(itt))?;
        let task = slot.task.as_ref()?;
        let (allegiance, load, outstanding) = (task.allegiance, task.load(), task.outstanding);
        slot.generation = (slot.generation + 1) % GENERATIONS;
        self.free.push(at);
        if self.len() == 0 {
            self.earliest = None;
        }
        self.lighten(allegiance, load, outstanding);
        // The task is large, so it is moved only once.
        self.slots.get_mut(at as usize)?.task.take()
    }

    /// Removes a task that ended without its response, which may still arrive.
    pub(crate) fn remove_aborted(&mut self, itt: Itt) -> Option<Task> {
        let task = self.remove(itt)?;
        let at = slot_of(itt);
        if task.is_sent()
            && let Some(slot) = self.slots.get_mut(at as usize)
        {
            slot.aborted = Some(itt);
            // The next task in this slot may end in the same way, and overwrite the remembered tag: so use
            // the slot last.
            self.free.put_off();
        }
        Some(task)
    }

    /// Returns whether the tag belonged to the last task of its slot that ended without its response.
    pub(crate) fn was_aborted(&self, itt: Itt) -> bool {
        self.slots.get(slot_of(itt) as usize).is_some_and(|slot| slot.aborted == Some(itt))
    }

    /// Returns whether the tag belonged to a task that has ended; `false` for a live task, and for a tag that
    /// was not assigned yet. Tags of up to half the generations back count as ended.
    pub(crate) fn has_ended(&self, itt: Itt) -> bool {
        let generation = generation_of(itt);
        let Some(slot) = self.slots.get(slot_of(itt) as usize) else { return false };
        let age = (slot.generation + GENERATIONS - generation) % GENERATIONS;
        generation < GENERATIONS && (1..=GENERATIONS / 2).contains(&age)
    }

    pub(crate) fn get(&self, itt: Itt) -> Option<&Task> {
        let slot = self.slots.get(slot_of(itt) as usize)?;
        slot.task.as_ref().filter(|_| slot.names(itt))
    }

    pub(crate) fn get_mut(&mut self, itt: Itt) -> Option<&mut Task> {
        let slot = self.slots.get_mut(slot_of(itt) as usize).filter(|slot| slot.names(itt))?;
        slot.task.as_mut()
    }

    /// Sets how much write data of a task may be outstanding once the task has a connection, bytes.
    pub(crate) fn set_outstanding(&mut self, itt: Itt, bytes: u64) {
        let Some(task) = self.get_mut(itt) else { return };
        task.outstanding = bytes;
        let allegiance = task.allegiance;
        if let Some(load) = allegiance.and_then(|cid| self.load_mut(cid)) {
            load.outstanding = load.outstanding.saturating_add(bytes);
        }
    }

    /// Returns the load of a connection.
    pub(crate) fn load_of(&self, cid: Cid) -> Load {
        self.loads.iter().find(|(of, _)| *of == cid).map_or_else(Load::default, |(_, load)| *load)
    }

    /// Returns the read data that the tasks of a connection expect, bytes. A part of it may have arrived.
    pub(crate) fn awaited_on(&self, cid: Cid) -> u64 {
        let there = self.iter().filter(|(_, task)| task.allegiance == Some(cid));
        there.filter_map(|(_, task)| task.read_len()).fold(0, u64::saturating_add)
    }

    fn load_mut(&mut self, cid: Cid) -> Option<&mut Load> {
        self.loads.iter_mut().find(|(of, _)| *of == cid).map(|(_, load)| load)
    }

    /// Assigns a task to a connection, with the CmdSN of its first PDU there.
    pub(crate) fn assign(&mut self, itt: Itt, cid: Cid, cmd_sn: CmdSn) {
        let Some(task) = self.get_mut(itt) else { return };
        task.cmd_sn = Some(cmd_sn);
        if task.allegiance.replace(cid).is_none() {
            let bytes = task.load();
            match self.load_mut(cid) {
                Some(load) => load.bytes += bytes,
                None => self.loads.push((cid, Load { bytes, ..Load::default() })),
            }
        }
    }

    /// Removes a task from its connection, so that it can start over on another one.
    pub(crate) fn unassign(&mut self, itt: Itt) {
        let Some(task) = self.get_mut(itt) else { return };
        let (allegiance, load) = (task.allegiance.take(), task.load());
        let outstanding = std::mem::take(&mut task.outstanding);
        self.lighten(allegiance, load, outstanding);
    }

    fn lighten(&mut self, cid: Option<Cid>, bytes: u64, outstanding: u64) {
        let Some(cid) = cid else { return };
        let Some(load) = self.load_mut(cid) else { return };
        load.bytes = load.bytes.saturating_sub(bytes);
        load.outstanding = load.outstanding.saturating_sub(outstanding);
        load.concluded = load.concluded.saturating_add(outstanding);
        if load.bytes == 0 {
            load.outstanding = 0;
        }
    }

    /// Sets or removes the time limit of a task.
    pub(crate) fn set_deadline(&mut self, itt: Itt, deadline: Option<Instant>) {
        let Some(task) = self.get_mut(itt) else { return };
        task.deadline = deadline;
        let limit = task.limit();
        self.record_deadline(limit);
    }

    fn record_deadline(&mut self, limit: Option<(Instant, Timer)>) {
        let Some((deadline, _)) = limit else { return };
        if self.earliest.is_none_or(|(earliest, _)| deadline < earliest) {
            self.earliest = limit;
        }
    }

    /// Returns the earliest time at which a time limit of a task may end, and which timer that is.
    pub(crate) const fn earliest_deadline(&self) -> Option<(Instant, Timer)> {
        self.earliest
    }

    /// Removes and returns the time limits that have ended by `now`, sorted, each with its task.
    /// [`earliest_deadline`](Self::earliest_deadline) then applies to the other tasks.
    pub(crate) fn take_timed_out(&mut self, now: Instant) -> Vec<(Instant, Itt)> {
        if self.earliest.is_none_or(|(earliest, _)| now < earliest) {
            return Vec::new();
        }
        let (mut timed_out, mut earliest) = (Vec::new(), None);
        for (itt, task) in self.iter() {
            let Some((deadline, timer)) = task.limit() else { continue };
            if deadline <= now {
                timed_out.push((deadline, itt));
            } else if earliest.is_none_or(|(earliest, _)| deadline < earliest) {
                earliest = Some((deadline, timer));
            }
        }
        self.earliest = earliest;
        timed_out.sort_unstable();
        timed_out.iter().for_each(|(_, itt)| self.set_deadline(*itt, None));
        timed_out
    }

    /// Returns the write half of a SCSI command.
    pub(crate) fn write_of(&mut self, itt: Itt) -> Option<&mut WriteTransfer> {
        self.get_mut(itt)?.as_scsi_mut()?.write.as_deref_mut()
    }

    /// Returns the task that a request aborts, if the request is an ABORT TASK.
    pub(crate) fn aborted_by(&self, request: Itt) -> Option<Itt> {
        match &self.get(request)?.kind {
            TaskKind::Management(management) => management.aborts(),
            TaskKind::Scsi(_) | TaskKind::Text(_) | TaskKind::Ping(_) | TaskKind::Logout(_) => None,
        }
    }

    /// Returns the write that a request aborts, if the request must wait for the data of the write.
    fn aborted_after_data(&self, request: Itt) -> Option<Itt> {
        match &self.get(request)?.kind {
            TaskKind::Management(management) => {
                management.aborts().filter(|_| management.after_data)
            }
            TaskKind::Scsi(_) | TaskKind::Text(_) | TaskKind::Ping(_) | TaskKind::Logout(_) => None,
        }
    }

    /// Returns whether a request waits for the data of the write that it aborts.
    pub(crate) fn waits_for_data(&self, request: Itt) -> bool {
        let write = self.aborted_after_data(request).and_then(|itt| self.get(itt)?.write());
        write.is_some_and(|write| !write.is_handed_out())
    }

    /// Returns whether an ABORT TASK that should follow the data of its write is unnecessary, because the
    /// write has ended.
    pub(crate) fn is_needless(&self, request: Itt) -> bool {
        self.aborted_after_data(request).is_some_and(|itt| self.get(itt).is_none())
    }

    /// Makes a request no longer wait for data, and returns whether it waited.
    pub(crate) fn stop_waiting_for_data(&mut self, request: Itt) -> bool {
        let waits = self.waits_for_data(request);
        if let Some(TaskKind::Management(management)) =
            self.get_mut(request).map(|task| &mut task.kind)
        {
            management.after_data = false;
        }
        waits
    }

    /// Returns whether a task is a text exchange that must wait until another one ends: a connection has only
    /// one text exchange at a time (RFC 7143 §11.10).
    pub(crate) fn waits_for_text(&self, itt: Itt, cid: Cid) -> bool {
        let is_text = |task: &Task| matches!(task.kind, TaskKind::Text(_));
        self.get(itt).is_some_and(is_text)
            && self
                .iter()
                .any(|(other, task)| other != itt && is_text(task) && task.allegiance == Some(cid))
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns the live tasks with their tags, by slot.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Itt, &Task)> {
        (0u32..).zip(&self.slots).filter_map(|(at, slot)| {
            let itt = Itt::new(slot.generation << SLOT_BITS | at)?;
            Some((itt, slot.task.as_ref()?))
        })
    }

    /// Returns the operation of a command that the target has on a connection and has not completed: a flush
    /// if there is one, because it delays other commands, or else the oldest command. `None` if each of them
    /// is being aborted.
    pub(crate) fn operation_in_hand(&self, cid: Cid) -> Option<&'static str> {
        let in_hand = self.iter().filter(|(_, task)| task.allegiance == Some(cid));
        let commands = in_hand.filter_map(|(_, task)| Some((task.cmd_sn?, task.as_scsi()?)));
        let commands = commands.filter(|(_, scsi)| scsi.aborting.is_none());
        let first = commands.reduce(|first, next| {
            let is_flush = |(_, scsi): &(CmdSn, &ScsiTask)| scsi.cdb.synchronizes_cache();
            match (is_flush(&first), is_flush(&next)) {
                (true, false) => first,
                (false, true) => next,
                _ if next.0.is_before(first.0) => next,
                _ => first,
            }
        });
        first.map(|(_, scsi)| scsi.cdb.operation_name())
    }

    /// Returns whether there are tasks that a logout should wait for.
    pub(crate) fn has_work(&self) -> bool {
        self.iter().any(|(_, task)| match &task.kind {
            TaskKind::Scsi(_) => true,
            TaskKind::Text(text) => !text.internal,
            TaskKind::Management(management) => !management.internal,
            TaskKind::Ping(_) | TaskKind::Logout(_) => false,
        })
    }
}

impl FreeSlots {
    fn push(&mut self, at: u32) {
        if let Some(before) = self.next.replace(at) {
            self.others.push(before);
        }
    }

    fn pop(&mut self) -> Option<u32> {
        self.next.take().or_else(|| self.others.pop())
    }

    /// Moves the slot that was freed last to the end of the list, so that it is used last.
    fn put_off(&mut self) {
        if let Some(last) = self.next.take() {
            self.others.insert(0, last);
        }
    }

    fn len(&self) -> usize {
        self.others.len() + usize::from(self.next.is_some())
    }
}

impl Slot {
    const fn names(&self, itt: Itt) -> bool {
        self.generation == generation_of(itt)
    }
}

const fn slot_of(itt: Itt) -> u32 {
    itt.get() & SLOT_MASK
}

const fn generation_of(itt: Itt) -> u32 {
    itt.get() >> SLOT_BITS
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;
    use crate::task::Logout;

    fn ping() -> Task {
        Task::new(TaskKind::Logout(Logout::Session), None)
    }

    /// A late PDU of an aborted task is not an error, however many tasks start and end before it arrives.
    #[test]
    fn what_was_sent_and_aborted_is_remembered_as_long_as_other_slots_are_free() {
        let mut tasks = TaskSet::new(8);
        let sent: Vec<_> = (0..4).filter_map(|_| tasks.insert(ping())).collect();
        sent.iter().for_each(|itt| tasks.assign(*itt, Cid(0), CmdSn::new(1)));
        let (aborted, ended) = (sent[0], sent[1]);
        tasks.remove(ended);
        tasks.remove_aborted(aborted);
        let next = tasks.insert(ping()).unwrap();
        tasks.assign(next, Cid(0), CmdSn::new(2));
        tasks.remove_aborted(next);
        assert!(tasks.was_aborted(next) && tasks.was_aborted(aborted), "it has another slot");
        for _ in 0..100 {
            let unsent = tasks.insert(ping()).unwrap();
            tasks.remove_aborted(unsent);
            let unsent = [(); 2].map(|()| tasks.insert(ping()).unwrap());
            unsent.into_iter().for_each(|itt| drop(tasks.remove_aborted(itt)));
            assert!(tasks.was_aborted(aborted));
            let sent = tasks.insert(ping()).unwrap();
            tasks.assign(sent, Cid(0), CmdSn::new(3));
            tasks.remove(sent);
            assert!(tasks.was_aborted(aborted) && !tasks.was_aborted(sent));
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "an Instant comes from a clock; all later ones are reckoned"
    )]
    fn any_moment() -> Instant {
        Instant::now()
    }

    /// Whatever tasks start, end, or change their time limit, and in whatever order: each task is returned
    /// when its time limit ends, and no time limit ends before the reported earliest time.
    #[test]
    fn tasks_are_found_when_their_time_is_up() {
        let start = any_moment();
        let (mut set, mut random, mut found) = (TaskSet::new(64), 1_u32, 0);
        let mut next = |below: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) % below
        };
        for step in 0..20_000_u32 {
            let now = start + Duration::from_millis(step.into());
            let mut later = || Some(now + Duration::from_millis(next(300).into()));
            let deadline = later().filter(|_| step % 7 > 0);
            set.insert(Task { deadline, ..ping() });
            let live: Vec<_> = set.iter().map(|(itt, _)| itt).collect();
            let any = live[step as usize % live.len()];
            match step % 5 {
                0 => drop(set.remove(any)),
                1 => set.set_deadline(any, later()),
                2 => set.set_deadline(any, None),
                _ => {}
            }
            let limits = |set: &TaskSet| {
                let limits = set.iter().filter_map(|(itt, task)| Some((task.deadline?, itt)));
                limits.collect::<BTreeSet<_>>()
            };
            let told = set.earliest_deadline();
            assert!(limits(&set).iter().all(|(due, _)| told.is_some_and(|(told, _)| told <= *due)));
            let (due, later): (BTreeSet<_>, BTreeSet<_>) =
                limits(&set).into_iter().partition(|(due, _)| *due <= now);
            let timed_out = set.take_timed_out(now);
            assert!(timed_out.iter().eq(&due), "the first one first");
            assert_eq!(limits(&set), later, "whose time is up has no limit any more");
            found += timed_out.len();
            timed_out.into_iter().for_each(|(_, itt)| drop(set.remove(itt)));
            let told = set.earliest_deadline();
            assert!(later.is_empty() || told.is_some());
            assert!(told.is_none_or(|(told, _)| told > now));
        }
        assert!(found > 3_000, "{found}");
    }

    #[test]
    fn tasks_are_looked_through_when_the_time_has_come_and_not_before() {
        let now = any_moment();
        let [soon, late] = [1, 2].map(|seconds| now + Duration::from_secs(seconds));
        let mut set = TaskSet::new(4);
        let itt = set.insert(Task { deadline: Some(soon), ..ping() }).unwrap();
        let other = set.insert(Task { deadline: Some(late), ..ping() }).unwrap();
        set.remove(itt);
        assert_eq!(set.take_timed_out(now), []);
        assert_eq!(set.earliest_deadline(), Some((soon, Timer::Logout)), "of one that has ended");
        assert_eq!(set.take_timed_out(soon), []);
        assert_eq!(set.earliest_deadline(), Some((late, Timer::Logout)));
        assert_eq!(set.take_timed_out(late), [(late, other)]);
        assert_eq!(set.earliest_deadline(), None);
        set.set_deadline(other, Some(late));
        assert_eq!(set.earliest_deadline(), Some((late, Timer::Logout)));
        set.remove(other);
        assert_eq!(set.earliest_deadline(), None, "no task is left");
    }

    #[test]
    fn seq_21_tags_are_unique_and_do_not_come_back_at_once() {
        let mut set = TaskSet::new(4);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..1000 {
            let itt = set.insert(ping()).unwrap();
            assert!(seen.insert(itt));
            assert!(set.get(itt).is_some());
            set.remove(itt);
            assert!(set.get(itt).is_none() && set.remove(itt).is_none());
        }
    }

    #[test]
    fn seq_21_generations_wrap_without_the_reserved_tag() {
        let mut set = TaskSet::new(MAX_TASKS);
        let tags: Vec<Itt> =
            (0..MAX_SLOTS).map(|_| set.insert_beyond_limit(ping()).unwrap()).collect();
        assert!(set.insert_beyond_limit(ping()).is_none());
        for slot in &mut set.slots {
            slot.generation = GENERATIONS - 1;
        }
        let last = Itt::new((GENERATIONS - 1) << SLOT_BITS | SLOT_MASK).unwrap();
        assert!(set.remove(last).is_some());
        let next = set.insert_beyond_limit(ping()).unwrap();
        assert_eq!(next.get(), SLOT_MASK);
        assert_ne!(Some(&next), tags.first());
    }

    #[test]
    fn seq_21_tags_begin_at_any_generation_and_go_round() {
        let mut set = TaskSet::new(4).beginning_at(GENERATIONS - 1);
        let given: Vec<_> = (0..3)
            .map(|_| {
                let itt = set.insert(ping()).unwrap();
                set.remove(itt);
                assert!(set.has_ended(itt));
                generation_of(itt)
            })
            .collect();
        assert_eq!(given, [GENERATIONS - 1, 0, 1]);
        let first = TaskSet::new(4).beginning_at(GENERATIONS).insert(ping()).unwrap();
        assert_eq!(first.get(), 0, "not the tag of no task");
    }

    /// SEQ-19: a tag has ended once its task is removed, whatever task uses its slot later. A tag of a live
    /// task, or one that was never assigned, has not ended, even if the generations wrap around.
    #[test]
    fn seq_19_ended_tags_are_told_from_those_never_given() {
        for generation in [0, 7, GENERATIONS - 2, GENERATIONS - 1] {
            let mut set = TaskSet::new(4);
            assert!(!set.has_ended(Itt::new(0).unwrap()), "no slot, no task");
            let first = set.insert(ping()).unwrap();
            set.remove(first);
            set.slots[0].generation = generation;
            let [mut ended, mut never] = [None, None];
            for _ in 0..3 {
                let itt = set.insert(ping()).unwrap();
                assert!(!set.has_ended(itt));
                set.remove(itt);
                ended = Some(itt);
                let next = (generation_of(itt) + 1) % GENERATIONS;
                never = Itt::new(next << SLOT_BITS);
                assert!(set.has_ended(itt) && !set.has_ended(never.unwrap()));
            }
            set.insert(ping()).unwrap();
            assert!(set.has_ended(ended.unwrap()) && !set.has_ended(never.unwrap()));
            assert!(!set.has_ended(Itt::new(1).unwrap()), "a slot that was never used");
            assert!(!set.has_ended(Itt::new(NO_TASK).unwrap()));
        }
    }

    #[test]
    fn limit_holds_back_the_caller_but_not_the_session() {
        let mut set = TaskSet::new(1);
        let first = set.insert(ping()).unwrap();
        assert!(set.insert(ping()).is_none());
        assert!(set.insert_beyond_limit(ping()).is_some());
        set.remove(first);
        assert!(set.insert(ping()).is_none());
    }
}

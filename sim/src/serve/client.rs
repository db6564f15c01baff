//! A client of a server. It makes requests over one connection after the other, and the oracle judges the
//! responses.

use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use iscsi_nbd::client::{Answer, Completed, ContextStatus};
use iscsi_nbd::{Command, Extent};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::asked::{self, Again, Asked};
use super::link::Link;
use super::server::Current;
use crate::oracle::{GRAIN, Moment, Write};
use crate::rng::Rng;
use crate::world::{Shared, World};

/// Time limit of a handshake, after which the client connects again.
const HANDSHAKE: Duration = Duration::from_secs(30);
/// Longest time between a flush and the loss of its connection, if the connection is lost because of the
/// flush; milliseconds.
const MAX_FLUSHING: u64 = 4000;
/// Largest number of acknowledged writes that a client remembers until a flush covers them.
const MAX_REMEMBERED: usize = 256;
/// Length of the reads that verify the unit, in grains of 64 bytes.
const MAX_READ: usize = 1 << 9;

/// Settings that the clients of an episode share.
#[derive(Clone)]
pub(super) struct Habits {
    pub(super) shared: Arc<Shared>,
    /// Number of requests that all clients together have still to make.
    pub(super) left: Arc<AtomicUsize>,
    /// Number of grains (64 bytes each) of the unit. `block` is the number of grains of a block.
    pub(super) all: usize,
    pub(super) block: usize,
    /// Longest pause between two requests, milliseconds.
    pub(super) max_pause: u64,
    /// Whether connections are lost at times.
    pub(super) cuts: bool,
    /// Whether unanswered requests of a lost connection are sent again.
    pub(super) resends: bool,
    /// Whether a client repeats the acknowledged writes to a killed server that no flush has covered.
    pub(super) replays: bool,
    /// Whether there are no faults, so that a request that fails is a violation.
    pub(super) is_strict: bool,
}

pub(super) struct Client {
    pub(super) habits: Habits,
    current: Current,
    rng: Rng,
    /// Largest number of requests in flight.
    depth: usize,
    link: Option<Link>,
    again: VecDeque<Again>,
    /// Acknowledged writes that no flush has covered, with the moment of each acknowledgement.
    unflushed: Vec<(Command, Write, Moment)>,
    last: Range<usize>,
    /// Whether the client verifies the unit. There are no faults then, and everything can be read.
    is_verifying: bool,
    next: Instant,
    cut: Option<Instant>,
}

/// The next event of a client.
enum Event {
    Server,
    Received(io::Result<()>),
    Turn,
    Cut,
}

impl Client {
    pub(super) fn new(habits: Habits, current: Current, mut rng: Rng) -> Self {
        let depth = 1 << rng.within(0..5);
        Self {
            habits,
            current,
            rng,
            depth,
            link: None,
            again: VecDeque::new(),
            unflushed: Vec::new(),
            last: 0..0,
            is_verifying: false,
            next: Instant::now(),
            cut: None,
        }
    }

    /// Makes requests until there were enough, and all of them have ended.
    pub(super) async fn run(mut self) {
        while self.has_work() {
            if self.link.is_none() {
                self.connect().await;
                continue;
            }
            match self.event().await {
                Event::Server => self.check_server(),
                Event::Received(Ok(())) => {
                    if self.receive_answers() {
                        self.cut().await;
                    }
                }
                Event::Received(Err(_)) => self.drop_link("the server closes"),
                Event::Cut => self.cut().await,
                Event::Turn => self.ask_next(),
            }
        }
        if (self.is_verifying || self.rng.percent(70))
            && let Some(link) = &mut self.link
        {
            link.disconnect();
        }
    }

    /// Flushes and reads everything, while there are no faults. Failed requests are retried.
    pub(super) async fn verify(mut self) {
        let all = 0..self.habits.all;
        (self.depth, self.is_verifying, self.habits.cuts) = (1, true, false);
        self.again.push_back(Again { command: Command::Flush, grains: 0..0, write: None });
        let command = Command::Read { dont_fragment: false };
        for start in all.clone().step_by(MAX_READ) {
            let grains = start..(start + MAX_READ).min(all.end);
            self.again.push_back(Again { command, grains, write: None });
        }
        self.habits.left = Arc::default();
        self.run().await;
    }

    fn has_work(&self) -> bool {
        let is_well = self.habits.shared.lock().violation.is_none();
        let is_left = self.habits.left.load(Ordering::Relaxed) > 0;
        let is_asked = self.link.as_ref().is_some_and(|link| !link.asked.is_empty());
        is_well && (is_left || is_asked || !self.again.is_empty())
    }

    async fn event(&mut self) -> Event {
        let Some(link) = &mut self.link else { return Event::Server };
        let has_more = !self.again.is_empty() || self.habits.left.load(Ordering::Relaxed) > 0;
        let may_ask = has_more && link.asked.len() < self.depth;
        let (next, cut, disk) = (self.next, self.cut, link.standing.disk);
        tokio::select! {
            biased;
            () = self.current.is_not(Some(disk)) => Event::Server,
            received = link.receive() => Event::Received(received),
            () = at(cut) => Event::Cut,
            () = sleep_until(next), if may_ask => Event::Turn,
            // Other clients may have taken the last requests. Then no event comes, so the wait has a limit.
            () = sleep(Duration::from_secs(60)), if !may_ask => Event::Server,
        }
    }

    /// Connects to the current server, or waits for one.
    async fn connect(&mut self) {
        let Some(standing) = self.current.get() else {
            // Other clients may take the last requests meanwhile, so the wait has a limit.
            drop(timeout(Duration::from_secs(60), self.current.is_not(None)).await);
            return;
        };
        let room = 1 << self.rng.index(9..18);
        let connecting = Link::connect(&self.habits.shared, &standing, room);
        let link = tokio::select! {
            biased;
            () = self.current.is_not(Some(standing.disk)) => return,
            link = timeout(HANDSHAKE, Box::pin(connecting)) => link,
        };
        match link {
            Ok(Ok(link)) => {
                let mut world = self.habits.shared.lock();
                world.trace.record("a client has come", &[standing.disk as u64, link.number()]);
                world.counts.served("a client comes");
                self.link = Some(link);
                let cuts = self.habits.cuts && standing.has_handles() && self.rng.percent(70);
                self.cut = cuts.then(|| Instant::now() + self.rng.any_scale(60_000));
            }
            Ok(Err(_)) | Err(_) => sleep(self.rng.any_scale(5000)).await,
        }
    }

    fn check_server(&mut self) {
        let current = self.current.get().map(|standing| standing.disk);
        if self.link.as_ref().is_some_and(|link| Some(link.standing.disk) != current) {
            self.drop_link("the server is gone");
        }
    }

    /// Loses the connection on purpose. The server notices it immediately or later, and the data in flight
    /// arrives or does not.
    async fn cut(&mut self) {
        self.cut = None;
        let Some(link) = &self.link else { return };
        if self.rng.percent(40) {
            link.line.reset();
        }
        self.habits.shared.lock().counts.served("a connection is lost");
        let lost = self.take_lost("a client loses its connection");
        if self.rng.percent(40) {
            let late = self.rng.any_scale(60_000);
            tokio::spawn(async move {
                sleep(late).await;
                drop(lost);
            });
        } else {
            drop(lost);
        }
        if self.rng.percent(50) {
            sleep(self.rng.any_scale(20_000)).await;
        }
    }

    fn drop_link(&mut self, why: &str) {
        drop(self.take_lost(why));
    }

    /// Ends the connection. Its unanswered requests are sent again over the next one, or dropped.
    fn take_lost(&mut self, why: &str) -> Option<Link> {
        let mut link = self.link.take()?;
        let mut world = self.habits.shared.lock();
        let (is_alive, was_killed) = (link.standing.is_alive(), link.standing.was_killed());
        world.trace.record(why, &[link.number(), link.asked.len() as u64]);
        let mut unanswered = Vec::new();
        let mut again = VecDeque::new();
        if was_killed && self.habits.replays {
            let unflushed = mem::take(&mut self.unflushed).into_iter();
            again.extend(unflushed.map(|(command, write, _)| {
                let grains = write.grains();
                Again { command, grains, write: Some(write) }
            }));
        }
        for (_, Asked { command, grains, write, .. }) in mem::take(&mut link.asked) {
            if let Some(write) = &write {
                if is_alive {
                    unanswered.push(world.oracle.end_unanswered(write));
                } else if !was_killed {
                    world.oracle.end_write(write.clone(), false);
                }
            }
            if self.habits.resends {
                again.push_back(Again { command, grains, write });
            }
        }
        drop(world);
        again.append(&mut self.again);
        self.again = again;
        link.line.lost(unanswered);
        Some(link)
    }

    /// Sends the next request.
    fn ask_next(&mut self) {
        if self.rng.percent(60) {
            self.next = Instant::now() + self.rng.any_scale(self.habits.max_pause);
        }
        let Some(again) = self.again.pop_front().or_else(|| self.draw()) else { return };
        let Some(link) = &mut self.link else { return };
        let Again { command, grains, write } = again;
        let mut world = self.habits.shared.lock();
        let (begun, disk) = (world.oracle.now(), link.standing.disk);
        let write = match (write, asked::writes(command)) {
            (Some(write), _) => Some(world.oracle.begin_again(disk, &write)),
            (None, Some(zeros)) => Some(world.oracle.begin_write(disk, grains.clone(), zeros)),
            (None, None) => None,
        };
        let is_data = matches!(command, Command::Write { .. });
        let data = write.as_ref().filter(|_| is_data).map(Write::data);
        trace_command(&mut world, link, "asks", command, &grains);
        let asked = Asked { command, grains, write, begun, sent: Instant::now() };
        if let Err(why) = link.ask(command, asked, data) {
            world.accuse(why);
        }
        drop(world);
        if command == Command::Flush && self.cut.is_some() && self.rng.percent(10) {
            // The most important case: the connection is lost before the response to the flush.
            self.cut = Some(Instant::now() + self.rng.any_scale(MAX_FLUSHING));
        }
    }

    fn draw(&mut self) -> Option<Again> {
        let take = |left: usize| left.checked_sub(1);
        let left = &self.habits.left;
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        let command = asked::draw(&mut self.rng);
        if self.last.is_empty() || self.rng.percent(60) {
            self.last = asked::draw_grains(&mut self.rng, self.habits.all, self.habits.block);
        }
        let grains = if command == Command::Flush { 0..0 } else { self.last.clone() };
        Some(Again { command, grains, write: None })
    }

    /// Takes the responses that have arrived. Returns whether the connection is to be lost before the client
    /// takes a response.
    fn receive_answers(&mut self) -> bool {
        loop {
            let Some(link) = &mut self.link else { return false };
            let (asked, completed) = match link.answer() {
                Ok(Some(answer)) => answer,
                Ok(None) => return false,
                Err(why) => {
                    self.habits.shared.lock().accuse(why);
                    return false;
                }
            };
            let tells = asked.command == Command::Flush && completed.outcome.is_err();
            if tells && self.cut.is_some() && self.rng.percent(20) {
                // The client did not receive this report of a loss, so the server must repeat it.
                link.asked.insert(completed.request.cookie, asked);
                return true;
            }
            self.on_answer(asked, completed);
        }
    }

    fn on_answer(&mut self, asked: Asked, completed: Completed) {
        let shared = Arc::clone(&self.habits.shared);
        let (mut world, Some(link)) = (shared.lock(), &mut self.link) else { return };
        let (world, disk) = (&mut *world, link.standing.disk);
        for handle in link.new_handles().into_iter().flatten() {
            world.oracle.made_handle(disk, handle);
        }
        link.standing.observe(world);
        let Asked { command, grains, write, begun, sent } = asked;
        let what = if completed.outcome.is_ok() { "has" } else { "has not" };
        trace_command(world, link, what, command, &grains);
        match completed.outcome {
            Ok(Answer::Data(data)) => {
                world.counts.reads += 1;
                if let Err(why) = world.oracle.check(begun, grains.start, &data) {
                    world.accuse(format!("a client has read: {why}"));
                }
            }
            Ok(Answer::BlockStatus(status)) => check_holes(world, begun, &grains, &status),
            Ok(Answer::Done) => {
                if let Some(write) = write {
                    self.written(world, command, write, sent);
                } else if command == Command::Flush {
                    world.counts.flushes += 1;
                    world.oracle.flushed(disk, link.handle_at(sent), begun);
                    self.unflushed.retain(|(_, _, answered)| *answered >= begun);
                }
            }
            Err(failure) => {
                if self.is_verifying {
                    self.next = Instant::now() + Duration::from_secs(1);
                    self.again.push_back(Again { command, grains, write: None });
                } else if self.habits.is_strict {
                    world.accuse(format!("nothing is wrong, but a request failed: {failure}"));
                }
                if command == Command::Flush {
                    world.counts.served("a flush tells of a loss");
                    world.oracle.on_reported_loss(disk, link.record_report());
                }
                write.into_iter().for_each(|write| world.oracle.end_write(write, false));
            }
        }
    }

    /// Notes that a write was acknowledged.
    fn written(&mut self, world: &mut World, command: Command, write: Write, sent: Instant) {
        let Some(link) = &self.link else { return };
        let is_hint = matches!(command, Command::Trim { .. }) && world.lun.may_keep_blocks();
        if is_hint {
            return world.oracle.end_write(write, false);
        }
        world.counts.writes += 1;
        if asked::is_durable(command) {
            return world.oracle.end_flushed_write(write, link.handle_at(sent));
        }
        world.oracle.end_write(write.clone(), true);
        if self.unflushed.len() < MAX_REMEMBERED {
            self.unflushed.push((command, write, world.oracle.now()));
        }
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

/// Checks that ranges read as zeros where the block status says so.
fn check_holes(world: &mut World, begun: Moment, grains: &Range<usize>, status: &[ContextStatus]) {
    for context in status {
        let (mut at, end) = (grains.start * GRAIN, grains.end * GRAIN);
        for extent in &context.extents {
            let next = at + usize::try_from(extent.length).unwrap_or(0);
            let last = next.min(end);
            if extent.status & Extent::ZERO != 0 && at < last {
                let zeros = vec![0; last - at];
                if let Err(why) = world.oracle.check(begun, at / GRAIN, &zeros) {
                    world.accuse(format!("a client was told of zeros: {why}"));
                }
            }
            at = next;
        }
    }
}

fn trace_command(
    world: &mut World,
    link: &Link,
    what: &str,
    command: Command,
    grains: &Range<usize>,
) {
    let kind = match command {
        Command::Read { .. } => "read",
        Command::Write { fua: false } => "written",
        Command::Write { fua: true } => "written to the medium",
        Command::Flush => "flushed",
        Command::Trim { .. } => "trimmed",
        Command::Cache => "prefetched",
        Command::WriteZeroes { .. } => "zeroed",
        Command::BlockStatus { .. } => "seen extents",
    };
    let numbers = [link.number(), grains.start as u64, grains.end as u64];
    world.trace.record(&format!("{what} {kind}"), &numbers);
}

//! A session and the test target, connected by a link that splits the bytes as configured, in virtual time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use iscsi_pdu::scsi::{Cdb, Lun};
use iscsi_pdu::{Cid, IscsiName, Isid, Itt};
use iscsi_session::{
    Command, Completion, Config, Notice, Output, ReadAhead, Session, SessionError, SessionKind,
    TaskError, TransportError,
};
use iscsi_testkit::checker::Violation;
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::target::{ConnId, Target};

pub(crate) const TARGET: &str = "iqn.2026-01.org.example:disk";
pub(crate) const BLOCK: usize = 512;

/// How the link splits the bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut {
    /// All bytes in one piece.
    Whole,
    /// Pieces of this size.
    Every(usize),
    /// One split, after this number of bytes in each direction.
    After(usize),
}

impl Cut {
    /// Returns `Whole`, unless the environment variable `SCENARIO_CUT` sets the number of bytes per piece.
    /// With `SCENARIO_CUT=1`, the link moves single bytes in every scenario.
    #[expect(clippy::disallowed_methods, reason = "a second run of all scenarios sets it")]
    pub(crate) fn of_this_run() -> Self {
        let size = std::env::var("SCENARIO_CUT").ok().and_then(|size| size.parse().ok());
        size.map_or(Self::Whole, Self::Every)
    }
}

pub(crate) struct Pair {
    pub(crate) session: Session,
    pub(crate) target: Target,
    pub(crate) now: Instant,
    pub(crate) cut: Cut,
    /// A bit to flip in the bytes that the target sends: the byte's offset in the stream, and the mask.
    pub(crate) flip: Option<(usize, u8)>,
    read_ahead: Option<ReadAhead>,
    /// Numbers of bytes that have passed: to the target, and from it.
    pub(crate) passed: [usize; 2],
    links: BTreeMap<Cid, ConnId>,
    /// Connections that were closed, each with whether it was reset.
    pub(crate) disconnects: Vec<(Cid, bool)>,
    pub(crate) completed: BTreeMap<Itt, Result<Completion, TaskError>>,
    /// The outputs of the session that no other field holds.
    pub(crate) outputs: Vec<Output>,
    pub(crate) notices: Vec<Notice>,
    pub(crate) ended: Option<Result<(), SessionError>>,
    /// Number of connections that were made.
    pub(crate) connects: usize,
    /// Whether attempts to connect fail.
    pub(crate) refuses: bool,
    /// Whether the target does not notice that a connection is closed.
    pub(crate) half_open: bool,
    /// Connections whose sockets accept no bytes.
    pub(crate) blocked: Vec<Cid>,
    /// Returns whether the session itself made a violation: by default always `true`. A test that changes
    /// bytes sets another function, because the checker then reports violations that the session did not
    /// make.
    pub(crate) is_its_own: fn(&Violation) -> bool,
}

/// Checks the violations at the end of a test: the target tolerates many errors that only the checker
/// reports.
impl Drop for Pair {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.assert_no_violations();
        }
    }
}

pub(crate) fn config() -> Config {
    let name = IscsiName::parse("iqn.2026-01.org.example:host").unwrap();
    let target_name = IscsiName::parse(TARGET).unwrap();
    Config::new(name, Isid::random([1, 2, 3], 4), SessionKind::Normal { target_name })
}

pub(crate) fn target_config(blocks: u64) -> TargetConfig {
    let disk = RamDisk::new(512, blocks);
    disk.fill(7);
    let mut config = TargetConfig::new(TARGET, disk);
    config.record = true;
    config
}

/// Returns a source of random bytes that is the same in each run: a counter through a mixing function.
pub(crate) fn entropy(seed: u64) -> impl FnMut(&mut [u8]) + Send {
    let mut state = seed;
    move |bytes: &mut [u8]| {
        for byte in bytes {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            *byte = (mixed >> 56) as u8;
        }
    }
}

impl Pair {
    pub(crate) fn new(config: Config, target: TargetConfig) -> Self {
        let now = crate::start();
        Self {
            session: Session::new(config, entropy(1), now),
            target: Target::new(target),
            now,
            cut: Cut::of_this_run(),
            flip: None,
            read_ahead: None,
            passed: [0; 2],
            links: BTreeMap::new(),
            disconnects: Vec::new(),
            completed: BTreeMap::new(),
            outputs: Vec::new(),
            notices: Vec::new(),
            ended: None,
            connects: 0,
            refuses: false,
            half_open: false,
            blocked: Vec::new(),
            is_its_own: |_| true,
        }
    }

    /// Returns a pair in full feature phase.
    pub(crate) fn logged_in(config: Config, target: TargetConfig) -> Self {
        let mut pair = Self::new(config, target);
        pair.drive();
        assert!(pair.session.negotiated().is_some(), "login: {:?}", pair.ended);
        pair
    }

    /// Returns the connection of the target that belongs to a CID.
    pub(crate) fn link(&self, cid: u16) -> ConnId {
        self.links[&Cid(cid)]
    }

    /// Moves bytes until neither side has more to send, without letting time pass.
    pub(crate) fn drive(&mut self) {
        for _ in 0..100_000_000_u32 {
            if !self.step() {
                return;
            }
        }
        panic!("the two sides never come to rest");
    }

    /// Moves the bytes that each side has to send, once, and returns whether there were any.
    pub(crate) fn step(&mut self) -> bool {
        let told = self.drain_outputs();
        let sent = self.carry_to_target();
        let received = self.carry_to_session();
        told || sent || received
    }

    /// Advances the time from one time limit of the session to the next, and moves bytes after each step.
    pub(crate) fn advance(&mut self, by: Duration) {
        let end = self.now + by;
        while let Some((when, _)) = self.session.poll_timeout().filter(|(when, _)| *when <= end) {
            self.now = when.max(self.now);
            self.session.handle_timeout(self.now);
            self.drive();
        }
        self.now = end;
        self.session.handle_timeout(self.now);
        self.drive();
    }

    /// Moves bytes from the target only.
    pub(crate) fn drive_receive(&mut self) {
        while self.drain_outputs() || self.carry_to_session() {}
    }

    pub(crate) fn drain_outputs(&mut self) -> bool {
        let mut any = false;
        while let Some(output) = self.session.poll_output() {
            any = true;
            match output {
                Output::Connect { cid, .. } if self.refuses => {
                    let why = TransportError::Connect("connection refused".into());
                    self.session.handle_disconnected(cid, why, self.now);
                }
                Output::Connect { cid, .. } => {
                    self.connects += 1;
                    let link = self.target.accept();
                    self.links.insert(cid, link);
                    self.session.handle_connected(cid, self.now);
                }
                Output::Disconnect { cid, abortive } => {
                    if let Some(link) = self.links.remove(&cid).filter(|_| !self.half_open) {
                        self.target.disconnected(link);
                    }
                    self.disconnects.push((cid, abortive));
                }
                Output::Completed { itt, result } => {
                    let earlier = self.completed.insert(itt, result);
                    assert!(earlier.is_none(), "task {itt} ended twice");
                }
                Output::Notice(notice) => self.notices.push(notice),
                Output::Ended(result) => {
                    assert!(self.ended.is_none(), "the session ended twice");
                    self.ended = Some(result);
                }
                other => self.outputs.push(other),
            }
        }
        any
    }

    fn piece(&self, direction: usize, available: usize) -> usize {
        match self.cut {
            Cut::Whole => available,
            Cut::Every(size) => available.min(size),
            Cut::After(at) => match at.checked_sub(self.passed[direction]) {
                Some(before) if before > 0 => available.min(before),
                _ => available,
            },
        }
    }

    pub(crate) fn carry_to_target(&mut self) -> bool {
        let mut any = false;
        for (cid, link) in self.links.clone() {
            if self.blocked.contains(&cid) {
                continue;
            }
            let limit = self.piece(0, usize::MAX);
            let Some(mut transmit) = self.session.poll_transmit(cid, self.now) else { continue };
            let len = limit.min(transmit.remaining());
            let bytes = transmit.copy_to_bytes(len);
            self.passed[0] += len;
            self.target.receive(link, &bytes);
            any = true;
        }
        any
    }

    pub(crate) fn carry_to_session(&mut self) -> bool {
        let mut any = false;
        for (cid, link) in self.links.clone() {
            let mut bytes = BytesMut::from(&self.target.transmit(link)[..]);
            while bytes.has_remaining() && self.links.get(&cid) == Some(&link) {
                any = true;
                let len = self.piece(1, bytes.len());
                let mut piece = bytes.split_to(len);
                self.flip_in(&mut piece);
                self.passed[1] += len;
                while piece.has_remaining() && self.links.get(&cid) == Some(&link) {
                    self.deliver(cid, &mut piece);
                }
            }
            if self.target.is_closed(link) && self.links.get(&cid) == Some(&link) {
                any = true;
                self.links.remove(&cid);
                self.session.handle_disconnected(cid, TransportError::Closed, self.now);
            }
        }
        any
    }

    /// Breaks a connection in the network; the target notices only if the connection is not half open.
    pub(crate) fn break_connection(&mut self, cid: Cid) {
        if let Some(link) = self.links.remove(&cid).filter(|_| !self.half_open) {
            self.target.disconnected(link);
        }
        let why = TransportError::Io("reset".into());
        self.session.handle_disconnected(cid, why, self.now);
    }

    fn flip_in(&self, piece: &mut BytesMut) {
        let Some((at, mask)) = self.flip else { return };
        if let Some(byte) = at.checked_sub(self.passed[1]).and_then(|at| piece.get_mut(at)) {
            *byte ^= mask;
        }
    }

    /// Delivers bytes to a connection. All connections use the same memory for reading ahead, one after the
    /// other.
    pub(crate) fn deliver(&mut self, cid: Cid, piece: &mut BytesMut) {
        self.session.lend_read_ahead(cid, self.read_ahead.take().unwrap_or_default());
        self.deliver_lent(cid, piece);
        self.read_ahead = self.session.reclaim_read_ahead(cid);
    }

    fn deliver_lent(&mut self, cid: Cid, piece: &mut BytesMut) {
        let mut filled = 0;
        for slice in &mut self.session.receive_slices(cid) {
            let len = slice.len().min(piece.remaining());
            slice[..len].copy_from_slice(&piece.split_to(len));
            filled += len;
        }
        if filled == 0 {
            piece.clear();
            return;
        }
        self.session.handle_received(cid, filled, self.now);
        self.drain_outputs();
    }

    pub(crate) fn submit(&mut self, command: Command) -> Itt {
        self.session.submit(command, self.now).unwrap()
    }

    /// Submits a command, moves bytes, and returns the result.
    pub(crate) fn execute(&mut self, command: Command) -> Result<Completion, TaskError> {
        let itt = self.submit(command);
        self.drive();
        let result = self.completed.remove(&itt);
        result.unwrap_or_else(|| {
            panic!("the command has not ended: {:?} {:?}", self.ended, self.session)
        })
    }

    pub(crate) fn assert_no_violations(&self) {
        let violations = self.target.violations().iter();
        let own: Vec<_> = violations.filter(|found| (self.is_its_own)(found)).collect();
        assert!(own.is_empty(), "{own:#?}");
    }
}

pub(crate) fn read(lba: u32, blocks: u16) -> Command {
    let buffer = BytesMut::zeroed(usize::from(blocks) * BLOCK);
    Command::new(Lun::ZERO, Cdb::read_10(lba, blocks)).with_read(buffer)
}

pub(crate) fn write(lba: u32, data: Vec<u8>) -> Command {
    let blocks = u16::try_from(data.len() / BLOCK).unwrap();
    Command::new(Lun::ZERO, Cdb::write_10(lba, blocks)).with_write(data)
}

/// Returns bytes that depend on `seed`.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    entropy(seed)(&mut bytes);
    bytes
}

//! Runs the test target on TCP. Each PDU that it sends or receives may be changed in transit: a wrong answer
//! ("lie").

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use iscsi_testkit::checker::Violation;
use iscsi_testkit::frame::Framing;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::{NO_TAG, Pdu};
use iscsi_testkit::pdus::Numbers;
use iscsi_testkit::target::{ConnId, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::line::{Fate, Flood, Line, NO_NUMBERS, uses_stat_sn};
use crate::row::{Act, Asked, Place, Row};

/// Limit of data segments, longer than any segment in these tests.
const SEGMENT_LIMIT: usize = 1 << 24;
/// Number of bytes of a flood that are prepared at a time. `PAUSE` is the pause after each piece.
const PIECE: usize = 64 << 10;
const PAUSE: Duration = Duration::from_millis(4);

/// A target on its own port that sends wrong answers.
pub(crate) struct Liar {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    row: Row,
    address: SocketAddr,
    stage: Mutex<Stage>,
    sent: AtomicU64,
}

struct Stage {
    target: Target,
    /// Whether PDUs are counted, and wrong answers are sent.
    armed: bool,
    counts: HashMap<(bool, Opcode), u32>,
    /// Commands by their tags.
    commands: HashMap<u32, Asked>,
    /// Whether each wrong answer of the test case was sent.
    told: Vec<bool>,
}

impl Liar {
    pub(crate) async fn start(target: Target, row: Row) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stage = Stage {
            target,
            armed: false,
            counts: HashMap::new(),
            commands: HashMap::new(),
            told: vec![false; row.lies.len()],
        };
        let shared =
            Arc::new(Shared { row, address, stage: Mutex::new(stage), sent: AtomicU64::new(0) });
        let task = tokio::spawn(listen(listener, Arc::clone(&shared)));
        Self { address, shared, task }
    }

    /// Starts to count PDUs and to send wrong answers.
    pub(crate) fn arm(&self) {
        self.shared.stage().armed = true;
    }

    /// Returns the places of the wrong answers that were not sent.
    pub(crate) fn untold(&self) -> Vec<Place> {
        let stage = self.shared.stage();
        let lies = self.shared.row.lies.iter().zip(&stage.told);
        let untold = lies.filter(|(_, told)| !**told);
        untold.map(|((place, _), _)| *place).collect()
    }

    /// Returns the violations that the checker has found. The checker sees the initiator's PDUs after they
    /// were changed, and the target's PDUs before. So the violations are only the initiator's if no PDU is
    /// changed.
    pub(crate) fn violations(&self) -> Vec<Violation> {
        self.shared.stage().target.violations().to_vec()
    }

    /// Returns how many bytes the target has written to its sockets. The initiator has read them, or they are in
    /// the socket buffers.
    pub(crate) fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap()
    }
}

async fn listen(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let id = shared.stage().target.accept();
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let mut wire = Wire {
                id,
                stream,
                shared: Arc::clone(&shared),
                inbox: BytesMut::new(),
                outbox: BytesMut::new(),
                said: BytesMut::new(),
                framing: Framing::PLAIN,
                numbers: NO_NUMBERS,
                shift: 0,
                fate: Fate::GoesOn,
                flood: None,
            };
            // An error of the socket is discarded: however the loop has ended, the target sees a lost
            // connection.
            drop(wire.run().await);
            shared.stage().target.disconnected(id);
        });
    }
}

/// One connection.
struct Wire {
    id: ConnId,
    stream: TcpStream,
    shared: Arc<Shared>,
    /// Received bytes that are not a complete PDU yet.
    inbox: BytesMut,
    /// Bytes to send.
    outbox: BytesMut,
    /// Bytes from the target that are not a complete PDU yet.
    said: BytesMut,
    framing: Framing,
    /// Numbers of the target's next PDU, as the target counts: without the StatSNs that wrong answers have
    /// consumed.
    numbers: Numbers,
    /// Number of StatSNs that the wrong answers have consumed.
    shift: u32,
    fate: Fate,
    flood: Option<Flood>,
}

impl Wire {
    async fn run(&mut self) -> std::io::Result<()> {
        self.stream.set_nodelay(true)?;
        loop {
            self.fill();
            let closed = self.fate == Fate::IsClosed && self.outbox.is_empty();
            if closed {
                return Ok(());
            }
            if self.flood.is_some() {
                // With this pause, the flood is fast enough to fill any memory, and slow enough for other tests on
                // the machine.
                tokio::time::sleep(PAUSE).await;
            }
            let deaf = self.flood.as_ref().is_some_and(|flood| flood.deaf);
            let (mut reader, mut writer) = self.stream.split();
            tokio::select! {
                count = reader.read_buf(&mut self.inbox), if !deaf => {
                    if count? == 0 {
                        return Ok(());
                    }
                    self.take();
                }
                count = writer.write(&self.outbox), if !self.outbox.is_empty() => {
                    let count = count?;
                    self.outbox.advance(count);
                    self.shared.sent.fetch_add(count as u64, Ordering::Relaxed);
                }
            }
        }
    }

    /// Passes complete PDUs of the initiator to the target, after they were changed.
    fn take(&mut self) {
        let shared = Arc::clone(&self.shared);
        let mut stage = shared.stage();
        while let Ok(Some(mut pdu)) = self.framing.take(&mut self.inbox, SEGMENT_LIMIT) {
            let (bytes, _) = self.pass(&mut stage, &mut pdu, false);
            stage.target.receive(self.id, &bytes);
        }
        self.receive_from_target(&mut stage);
    }

    /// Takes PDUs from the target, and sends them after they were changed.
    fn receive_from_target(&mut self, stage: &mut Stage) {
        loop {
            let bytes = stage.target.transmit(self.id);
            if bytes.is_empty() {
                break;
            }
            self.said.extend_from_slice(&bytes);
            while let Ok(Some(mut pdu)) = self.framing.take(&mut self.said, SEGMENT_LIMIT) {
                let logged_in = pdu.is(Opcode::LoginResponse)
                    && pdu.is_final()
                    && pdu.nsg() == 3
                    && pdu.login_status() == 0;
                let (bytes, beside) = self.pass(stage, &mut pdu, true);
                if self.fate == Fate::GoesOn || beside {
                    self.outbox.extend_from_slice(&bytes);
                }
                if logged_in {
                    self.framing = self.shared.row.framing;
                }
            }
        }
        if stage.target.is_closed(self.id) && self.fate == Fate::GoesOn {
            self.fate = Fate::IsClosed;
        }
    }

    /// Applies the wrong answers to a PDU. Returns its bytes, and whether a wrong answer decides what is
    /// sent.
    fn pass(&mut self, stage: &mut Stage, pdu: &mut Pdu, from_target: bool) -> (BytesMut, bool) {
        let login = pdu.is(Opcode::LoginResponse) || pdu.is(Opcode::LoginRequest);
        let framing = if login { Framing::PLAIN } else { self.framing };
        let numbered = from_target && uses_stat_sn(pdu);
        if from_target {
            self.follow(pdu);
        }
        let acts = stage.due(&self.shared.row, pdu, from_target);
        let mut bytes = BytesMut::new();
        if acts.is_empty() || self.fate != Fate::GoesOn {
            self.move_on(pdu, numbered);
            framing.put(pdu, &mut bytes);
            return (bytes, false);
        }
        let mut line = Line {
            target: &mut stage.target,
            id: self.id,
            framing,
            before: BytesMut::new(),
            after: BytesMut::new(),
            keep: usize::MAX,
            patches: Vec::new(),
            damaged: false,
            flood: None,
            fate: Fate::GoesOn,
            address: self.shared.address,
            numbers: self.numbers,
            numbered,
            shift: self.shift,
            late: 0,
            tags: stage.commands.keys().copied().collect(),
        };
        if numbered {
            pdu.set_u32(24, pdu.stat_sn().wrapping_add(line.shift));
        }
        for act in acts {
            act(pdu, &mut line);
        }
        if numbered {
            pdu.set_u32(24, pdu.stat_sn().wrapping_add(line.late));
        }
        line.framing.put(pdu, &mut bytes);
        if let Some(last) = bytes.last_mut().filter(|_| line.damaged) {
            *last ^= 0xff;
        }
        for (at, value) in &line.patches {
            let at = (*at).min(bytes.len() - 1);
            bytes[at] = *value;
        }
        bytes.truncate(line.keep);
        self.fate = line.fate;
        self.flood = line.flood.or_else(|| self.flood.take());
        self.shift = line.shift;
        self.numbers.stat_sn = self.numbers.stat_sn.wrapping_add(u32::from(numbered));
        let (before, after) = (line.before, line.after);
        if from_target {
            return ([before, bytes, after].concat().as_slice().into(), true);
        }
        self.outbox.extend_from_slice(&before);
        self.outbox.extend_from_slice(&after);
        (bytes, true)
    }

    /// Reads the target's numbers from one of its own PDUs.
    fn follow(&mut self, pdu: &Pdu) {
        let silent = pdu.is(Opcode::DataIn) && !pdu.has_status();
        let stat_sn = if silent { self.numbers.stat_sn } else { pdu.stat_sn() };
        let (exp_cmd_sn, max_cmd_sn) = (pdu.exp_cmd_sn(), pdu.max_cmd_sn());
        self.numbers = Numbers { stat_sn, exp_cmd_sn, max_cmd_sn };
    }

    /// Adds the number of StatSNs that wrong answers have consumed to the StatSN of a PDU that is not changed
    /// otherwise. `numbered`: the PDU consumes a StatSN. R2T, and NOP-In without a tag, consume none, but have the
    /// StatSN of the next PDU.
    fn move_on(&mut self, pdu: &mut Pdu, numbered: bool) {
        let shows = pdu.is(Opcode::R2t) || pdu.is(Opcode::NopIn) && pdu.itt() == NO_TAG;
        if numbered || shows {
            pdu.set_u32(24, pdu.stat_sn().wrapping_add(self.shift));
        }
        self.numbers.stat_sn = self.numbers.stat_sn.wrapping_add(u32::from(numbered));
    }

    /// Prepares the next piece of a flood.
    fn fill(&mut self) {
        let Some(flood) = &mut self.flood else { return };
        while self.outbox.len() < PIECE {
            self.framing.put(&(flood.next)(), &mut self.outbox);
        }
    }
}

impl Stage {
    /// Counts a PDU. Returns the changes that apply to it.
    fn due(&mut self, row: &Row, pdu: &Pdu, from_target: bool) -> Vec<Act> {
        let Some(opcode) = pdu.opcode().filter(|_| self.armed) else { return Vec::new() };
        if opcode == Opcode::ScsiCommand {
            self.commands.insert(pdu.itt(), Asked::by(pdu.cdb()));
        }
        let count = self.counts.entry((from_target, opcode)).or_insert(0);
        let number = *count;
        *count += 1;
        let command = self.commands.get(&pdu.itt());
        let at = |place: &Place| {
            let nth = number.checked_sub(place.first).is_some_and(|after| after < place.count);
            let asked = place.cdb.is_none() || place.cdb.as_ref() == command;
            place.from_target == from_target && place.opcode == opcode && asked && nth
        };
        let lies = row.lies.iter().zip(&mut self.told).filter(|((place, _), _)| at(place));
        lies.map(|((_, act), told)| {
            *told = true;
            Arc::clone(act)
        })
        .collect()
    }
}

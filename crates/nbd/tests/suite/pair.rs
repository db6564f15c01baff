//! Tests with a client and a server that are connected by pipes, which cut the stream at any byte.

use std::collections::{BTreeMap, VecDeque};

use bytes::BytesMut;
use iscsi_nbd::client::{self, Answer, Goal, HandshakeOutcome};
use iscsi_nbd::server::{self, HandshakeEvent, Negotiated, Replies, TlsPolicy, TransmissionEvent};
use iscsi_nbd::{
    BASE_ALLOCATION, BlockSizes, Command, Cookie, Export, Extent, MetaContext, Request,
    TransmissionFlags,
};
use proptest::prelude::*;

const BLOCK: usize = 512;
const BLOCKS: usize = 128;

/// The bytes in flight in one direction, and those that have arrived.
#[derive(Default)]
struct Pipe {
    way: BytesMut,
    input: BytesMut,
}

impl Pipe {
    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.way.extend_from_slice(bytes.as_ref());
    }

    /// Moves up to `len` bytes from in flight to arrived.
    fn carry(&mut self, len: usize) {
        let now = self.way.split_to(len.min(self.way.len()));
        self.input.extend_from_slice(&now);
    }

    fn is_empty(&self) -> bool {
        self.way.is_empty() && self.input.is_empty()
    }
}

fn export() -> Export {
    let flags = TransmissionFlags::from_bits(0x0dfd).without(TransmissionFlags::READ_ONLY);
    Export {
        name: "disk".to_owned(),
        description: Some("a disk".to_owned()),
        size: (BLOCKS * BLOCK) as u64,
        flags,
        block_sizes: BlockSizes { minimum: 512, preferred: 4096, maximum: 1 << 25 },
        contexts: vec![BASE_ALLOCATION.to_owned()],
    }
}

type Ends = (Option<HandshakeOutcome>, Option<HandshakeEvent>);

/// Runs the handshake of client and server; `cut` returns the number of bytes that arrive at a time.
fn shake(goal: Goal, cut: impl FnMut() -> usize) -> Ends {
    let (ends, starts) = connect(client::Handshake::new(goal), server::Handshake::new(), cut);
    assert_eq!(starts, 0);
    ends
}

fn shake_over_tls(goal: Goal, tls: TlsPolicy, cut: impl FnMut() -> usize) -> Ends {
    let client = client::Handshake::new(goal).over_tls();
    let (ends, starts) = connect(client, server::Handshake::new().with_tls(tls), cut);
    assert_eq!(starts, 1);
    ends
}

/// Returns how the handshake ends on each side, and how often both have started TLS.
fn connect(
    mut client: client::Handshake,
    mut server: server::Handshake,
    mut cut: impl FnMut() -> usize,
) -> (Ends, usize) {
    let (mut to_server, mut to_client) = (Pipe::default(), Pipe::default());
    let (mut outcome, mut end) = (None, None);
    let (mut server_starts, mut client_starts) = (0, 0);
    loop {
        while let Some(event) = server.receive(&mut to_server.input).unwrap() {
            match event {
                HandshakeEvent::List => server.answer_list([("disk", None), ("other", None)]),
                HandshakeEvent::Export(_) => server.answer_export(export()),
                HandshakeEvent::StartTls => server_starts += 1,
                event @ (HandshakeEvent::Negotiated(_) | HandshakeEvent::Aborted) => {
                    end = Some(event)
                }
            }
        }
        while let Some(found) = client.receive(&mut to_client.input).unwrap() {
            if found != HandshakeOutcome::StartTls {
                outcome = Some(found);
                continue;
            }
            client_starts += 1;
            assert_eq!(client_starts, server_starts);
            assert!(to_server.is_empty() && to_client.is_empty());
            assert_eq!((client.poll_transmit(), server.poll_transmit()), (None, None));
        }
        let (from_server, from_client) = (server.poll_transmit(), client.poll_transmit());
        to_client.send(from_server.unwrap_or_default());
        to_server.send(from_client.unwrap_or_default());
        if to_client.way.is_empty() && to_server.way.is_empty() {
            assert_eq!(client_starts, server_starts);
            return ((outcome, end), client_starts);
        }
        to_client.carry(cut());
        to_server.carry(cut());
    }
}

fn goal() -> Goal {
    let contexts = vec![BASE_ALLOCATION.to_owned(), "qemu:dirty-bitmap:none".to_owned()];
    Goal::Export { name: "disk".to_owned(), contexts }
}

#[test]
fn both_sides_agree_however_the_handshake_is_cut() {
    for len in 1..100 {
        let (outcome, end) = shake(goal(), || len);
        let Some(HandshakeOutcome::Negotiated(client)) = outcome else { panic!("{outcome:?}") };
        let Some(HandshakeEvent::Negotiated(server)) = end else { panic!("{end:?}") };
        assert_eq!(client, server);
        assert_eq!((client.export, client.contexts.len()), (export(), 1));
    }
}

#[test]
fn a_list_ends_however_it_is_cut() {
    for len in 1..100 {
        let (outcome, end) = shake(Goal::List, || len);
        let Some(HandshakeOutcome::Exports(exports)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(
            exports.iter().map(|export| &*export.name).collect::<Vec<_>>(),
            ["disk", "other"]
        );
        assert_eq!(end, Some(HandshakeEvent::Aborted));
    }
}

#[test]
fn both_sides_agree_on_tls_however_the_handshake_is_cut() {
    for tls in [TlsPolicy::Allow, TlsPolicy::Require] {
        for len in 1..100 {
            let ends = shake_over_tls(goal(), tls, || len);
            assert!(matches!(ends.1, Some(HandshakeEvent::Negotiated(_))));
            assert_eq!(ends, shake(goal(), || len));
            assert_eq!(shake_over_tls(Goal::List, tls, || len), shake(Goal::List, || len));
        }
    }
}

/// Random decisions: where bytes and data are cut, and which reply continues.
struct Choices(std::iter::Cycle<std::vec::IntoIter<u8>>);

impl Choices {
    fn below(&mut self, limit: usize) -> usize {
        usize::from(self.0.next().unwrap()) % limit
    }
}

/// A disk in memory behind the server's side of the protocol.
struct Server {
    transmission: server::Transmission,
    replies: Replies,
    disk: Vec<u8>,
    /// The frames of each reply that is not complete yet.
    queue: Vec<VecDeque<Vec<u8>>>,
}

fn range(request: &Request) -> std::ops::Range<usize> {
    let start = usize::try_from(request.offset).unwrap();
    start..start + request.length as usize
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

impl Server {
    fn receive(&mut self, input: &mut BytesMut, choices: &mut Choices) {
        while let Some(event) = self.transmission.receive(input).unwrap() {
            let frames = match event {
                TransmissionEvent::Write(request, data) => {
                    self.disk[range(&request)].copy_from_slice(&data);
                    vec![self.replies.done(request.cookie).as_ref().to_vec()]
                }
                TransmissionEvent::Request(request) => self.serve(&request, choices),
                event @ (TransmissionEvent::Refused(_) | TransmissionEvent::Disconnect) => {
                    panic!("{event:?}")
                }
            };
            self.queue.push(frames.into());
        }
    }

    fn serve(&mut self, request: &Request, choices: &mut Choices) -> Vec<Vec<u8>> {
        let done = self.replies.done(request.cookie).as_ref().to_vec();
        match request.command {
            Command::Read { dont_fragment } if dont_fragment || !self.replies.is_structured() => {
                let head = self.replies.read(request);
                vec![[head.as_ref(), &self.disk[range(request)]].concat()]
            }
            Command::Read { .. } => self.chunks(request, choices),
            Command::WriteZeroes { .. } => {
                self.disk[range(request)].fill(0);
                vec![done]
            }
            Command::BlockStatus { .. } => {
                let rest = &self.disk[range(request).start..];
                let extents = rest.chunks(BLOCK).map(|block| Extent {
                    length: BLOCK as u64,
                    status: if is_zero(block) { Extent::ZERO } else { 0 },
                });
                vec![self.replies.block_status(request, 0, extents, true).unwrap().to_vec()]
            }
            Command::Write { .. } | Command::Flush | Command::Trim { .. } | Command::Cache => {
                vec![done]
            }
        }
    }

    /// Returns the reply to a read as chunks of any length, in any order.
    fn chunks(&self, request: &Request, choices: &mut Choices) -> Vec<Vec<u8>> {
        let mut range = range(request);
        let mut pieces = Vec::new();
        while !range.is_empty() {
            let end = (range.start + 1 + 7 * choices.below(256)).min(range.end);
            pieces.insert(choices.below(pieces.len() + 1), range.start..end);
            range.start = end;
        }
        let last = if choices.below(2) == 0 { pieces.len() } else { usize::MAX };
        let mut frames: Vec<Vec<u8>> = (1..)
            .zip(pieces)
            .map(|(nth, piece)| {
                let (offset, data) = (piece.start as u64, &self.disk[piece]);
                let len = u32::try_from(data.len()).unwrap();
                if is_zero(data) {
                    let hole = self.replies.hole(request.cookie, offset, len, nth == last);
                    return hole.unwrap().as_ref().to_vec();
                }
                let head = self.replies.data(request.cookie, offset, len, nth == last);
                [head.unwrap().as_ref(), data].concat()
            })
            .collect();
        if last == usize::MAX {
            frames.push(self.replies.end(request.cookie).unwrap().as_ref().to_vec());
        }
        frames
    }

    /// Removes and returns the next frame of a randomly chosen reply.
    fn next_frame(&mut self, choices: &mut Choices) -> Option<Vec<u8>> {
        if self.queue.is_empty() {
            return None;
        }
        let at = choices.below(self.queue.len());
        let frame = self.queue[at].pop_front();
        if self.queue[at].is_empty() {
            self.queue.swap_remove(at);
        }
        frame
    }
}

/// A request of a client: a kind, first block and number of blocks, and a byte to fill them with.
type Wish = (u8, usize, usize, u8);

fn command(kind: u8, flag: bool) -> Command {
    match kind {
        0 => Command::Read { dont_fragment: flag },
        1 => Command::Write { fua: flag },
        2 => Command::WriteZeroes { fua: false, no_hole: flag, fast: false },
        3 => Command::BlockStatus { one: flag },
        4 => Command::Trim { fua: flag },
        5 => Command::Cache,
        _ => Command::Flush,
    }
}

/// A client with a model of the disk, to which each request is applied when it is sent.
struct Client {
    transmission: client::Transmission,
    model: Vec<u8>,
    expected: BTreeMap<Cookie, Vec<u8>>,
}

impl Client {
    fn submit(&mut self, (kind, block, blocks, fill): Wish) -> Vec<u8> {
        let command = command(kind, fill & 1 == 0);
        let blocks = blocks.min(BLOCKS - block);
        let offset = (block * BLOCK) as u64;
        let length = u32::try_from(blocks * BLOCK).unwrap();
        let request = if command == (Command::Read { dont_fragment: false }) {
            let buffer = BytesMut::from(&vec![0xee; blocks * BLOCK][..]);
            self.transmission.read_into(offset, buffer)
        } else {
            self.transmission.submit(command, offset, length)
        };
        let request = request.unwrap();
        let mut bytes = request.encode().to_vec();
        if matches!(command, Command::Write { .. }) {
            self.model[range(&request)].fill(fill);
            bytes.extend(&self.model[range(&request)]);
        } else if matches!(command, Command::WriteZeroes { .. }) {
            self.model[range(&request)].fill(0);
        }
        let rest = self.model[range(&request).start..].to_vec();
        self.expected.insert(request.cookie, rest);
        bytes
    }

    fn receive(&mut self, input: &mut BytesMut) {
        while let Some(completed) = self.transmission.receive(input).unwrap() {
            let request = completed.request;
            let expected = self.expected.remove(&request.cookie).unwrap();
            match completed.outcome.unwrap() {
                Answer::Data(data) => assert_eq!(data, expected[..data.len()]),
                Answer::BlockStatus(status) => {
                    let [status] = &status[..] else { panic!("{status:?}") };
                    assert_status(&request, &status.extents, &expected);
                }
                Answer::Done => {}
            }
        }
    }
}

fn assert_status(request: &Request, extents: &[Extent], expected: &[u8]) {
    let mut at = 0;
    for extent in extents {
        let end = at + usize::try_from(extent.length).unwrap();
        for block in expected[at..end].chunks(BLOCK) {
            assert_eq!(is_zero(block), extent.status == Extent::ZERO);
        }
        at = end;
    }
    if request.command == (Command::BlockStatus { one: true }) {
        assert!(at > 0 && at <= request.length as usize && extents.len() == 1);
    } else {
        assert!(at >= request.length as usize);
    }
}

fn run(wishes: Vec<Wish>, choices: Vec<u8>, structured: bool) {
    let contexts = vec![MetaContext { id: 0, name: BASE_ALLOCATION.to_owned() }];
    let mut export = export();
    if !structured {
        export.flags = export.flags.without(TransmissionFlags::DONT_FRAGMENT);
    }
    let negotiated = Negotiated { export, structured, contexts, ..Negotiated::default() };
    let disk = vec![0; BLOCKS * BLOCK];
    let mut client = Client {
        transmission: client::Transmission::new(&negotiated),
        model: disk.clone(),
        expected: BTreeMap::new(),
    };
    let transmission = server::Transmission::new(&negotiated);
    let replies = transmission.replies();
    let mut server = Server { transmission, replies, disk, queue: Vec::new() };
    let (mut to_server, mut to_client) = (Pipe::default(), Pipe::default());
    let mut choices = Choices(choices.into_iter().cycle());
    let mut wishes = VecDeque::from(wishes);
    loop {
        let is_quiet = to_server.way.is_empty() && to_client.way.is_empty();
        if (is_quiet || choices.below(2) == 0)
            && let Some(wish) = wishes.pop_front()
        {
            to_server.send(client.submit(wish));
        }
        to_server.carry(1 + choices.below(256) * choices.below(64));
        server.receive(&mut to_server.input, &mut choices);
        to_client.send(server.next_frame(&mut choices).unwrap_or_default());
        to_client.carry(1 + choices.below(256) * choices.below(64));
        client.receive(&mut to_client.input);
        let is_quiet = to_server.way.is_empty() && to_client.way.is_empty();
        if wishes.is_empty() && is_quiet && server.queue.is_empty() {
            break;
        }
    }
    assert!(client.expected.is_empty() && client.transmission.requests().len() == 0);
    assert_eq!(client.model, server.disk);
}

fn wishes(kinds: &'static [u8]) -> impl Strategy<Value = Vec<Wish>> {
    let wish = (prop::sample::select(kinds), 0..BLOCKS, 1..32_usize, any::<u8>());
    prop::collection::vec(wish, 1..40)
}

fn choices() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 50..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_is_read_is_what_was_written(
        wishes in wishes(&[0, 0, 1, 1, 2, 3, 4, 5, 6]),
        choices in choices(),
    ) {
        run(wishes, choices, true);
    }

    #[test]
    fn also_by_simple_replies(wishes in wishes(&[0, 1, 2, 4, 5, 6]), choices in choices()) {
        let wishes = wishes.into_iter().map(|wish| if wish.0 == 0 { (0, wish.1, wish.2, 1) } else { wish });
        run(wishes.collect(), choices, false);
    }

    #[test]
    fn a_handshake_is_cut_anywhere(
        cuts in prop::collection::vec(1..40_usize, 1..50),
        tls in prop::sample::select(&[TlsPolicy::Off, TlsPolicy::Allow, TlsPolicy::Require][..]),
    ) {
        let mut cuts = cuts.into_iter().cycle();
        let cut = || cuts.next().unwrap();
        let (outcome, end) = match tls {
            TlsPolicy::Off => shake(goal(), cut),
            TlsPolicy::Allow | TlsPolicy::Require => shake_over_tls(goal(), tls, cut),
        };
        let negotiated = match end {
            Some(HandshakeEvent::Negotiated(negotiated)) => negotiated,
            other => panic!("{other:?}"),
        };
        prop_assert_eq!(outcome, Some(HandshakeOutcome::Negotiated(negotiated)));
    }
}

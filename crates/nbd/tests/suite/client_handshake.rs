//! Tests of the client's messages in the handshake, byte by byte as in the protocol's document.

use bytes::{Bytes, BytesMut};
use iscsi_nbd::client::{
    Goal, Handshake, HandshakeError, HandshakeOutcome, ListedExport, Negotiated,
};
use iscsi_nbd::{
    BASE_ALLOCATION, BlockSizes, MetaContext, OptionError, ProtocolError, TransmissionFlags,
};

const GREETING: &[u8] = b"NBDMAGICIHAVEOPT\0\x03";
const REPLY: [u8; 8] = [0x00, 0x03, 0xe8, 0x89, 0x04, 0x55, 0x65, 0xa9];
const ACK: u32 = 1;
const SERVER: u32 = 2;
const INFO: u32 = 3;
const META_CONTEXT: u32 = 4;
const UNSUP: u32 = 0x8000_0001;
const POLICY: u32 = 0x8000_0002;
const INVALID: u32 = 0x8000_0003;
const PLATFORM: u32 = 0x8000_0004;
const TLS_REQD: u32 = 0x8000_0005;
const UNKNOWN: u32 = 0x8000_0006;
const SHUTDOWN: u32 = 0x8000_0007;
const EXPORT_INFO: &[u8] = b"\0\0\0\0\0\0\0\x10\0\0\0\x8f";

type Outcome = Result<Option<HandshakeOutcome>, HandshakeError>;

struct Pair {
    handshake: Handshake,
    input: BytesMut,
}

impl Pair {
    fn new(goal: Goal) -> Self {
        Self { handshake: Handshake::new(goal), input: BytesMut::new() }
    }

    fn over_tls(goal: Goal) -> Self {
        Self { handshake: Handshake::new(goal).over_tls(), input: BytesMut::new() }
    }

    fn receive(&mut self, bytes: &[u8]) -> Outcome {
        self.input.extend_from_slice(bytes);
        self.handshake.receive(&mut self.input)
    }

    fn sent(&mut self) -> Bytes {
        let sent = self.handshake.poll_transmit().unwrap_or_default();
        assert_eq!(self.handshake.poll_transmit(), None);
        sent
    }

    fn negotiated(&mut self, bytes: &[u8]) -> Negotiated {
        match self.receive(bytes) {
            Ok(Some(HandshakeOutcome::Negotiated(negotiated))) => negotiated,
            other => panic!("{other:?}"),
        }
    }

    /// Returns a client that has sent NBD_OPT_GO, without structured replies.
    fn going() -> Self {
        let mut pair = Self::new(disk(&[]));
        assert_eq!(pair.receive(GREETING), Ok(None));
        assert_eq!(pair.receive(&answer(8, UNSUP, b"no")), Ok(None));
        let sent = pair.sent();
        assert_eq!(sent[20..], option(7, b"\0\0\0\x04disk\0\x03\0\x01\0\x02\0\x03"));
        pair
    }

    /// Returns a client that has sent NBD_OPT_STARTTLS.
    fn starting_tls(goal: Goal) -> Self {
        let mut pair = Self::over_tls(goal);
        assert_eq!(pair.receive(GREETING), Ok(None));
        assert_eq!(pair.sent(), [&[0, 0, 0, 3][..], &option(5, b"")].concat());
        pair
    }

    /// Returns a client whose connection is encrypted now.
    fn secured(goal: Goal) -> Self {
        let mut pair = Self::starting_tls(goal);
        let ack = answer(5, ACK, b"");
        assert_eq!(pair.receive(&ack[..19]), Ok(None));
        assert_eq!(pair.receive(&ack[19..]), Ok(Some(HandshakeOutcome::StartTls)));
        assert_eq!(pair.sent(), b""[..]);
        pair
    }

    fn protocol_error(&mut self, bytes: &[u8]) -> ProtocolError {
        let first = self.receive(bytes);
        assert_eq!(self.receive(b""), first, "it stays as it is");
        match first {
            Err(HandshakeError::Protocol(error)) => error,
            other => panic!("{other:?}"),
        }
    }
}

fn disk(contexts: &[&str]) -> Goal {
    let contexts = contexts.iter().map(|context| (*context).to_owned()).collect();
    Goal::Export { name: "disk".to_owned(), contexts }
}

fn len_u32(len: usize) -> u32 {
    u32::try_from(len).unwrap()
}

fn answer(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let numbers = [option, kind, len_u32(data.len())].map(u32::to_be_bytes);
    [&REPLY[..], numbers.as_flattened(), data].concat()
}

fn option(code: u32, data: &[u8]) -> Vec<u8> {
    let numbers = [code, len_u32(data.len())].map(u32::to_be_bytes);
    [b"IHAVEOPT", numbers.as_flattened(), data].concat()
}

#[test]
fn a_server_that_knows_everything() {
    let mut pair = Pair::new(disk(&[BASE_ALLOCATION, "qemu:dirty-bitmap:a"]));
    assert_eq!(pair.receive(&GREETING[..17]), Ok(None));
    assert_eq!(pair.receive(&GREETING[17..]), Ok(None));
    assert_eq!(pair.sent(), [&[0, 0, 0, 3][..], &option(8, b"")].concat());
    assert_eq!(pair.receive(&answer(8, ACK, b"")), Ok(None));
    let queries = b"\0\0\0\x04disk\0\0\0\x02\0\0\0\x0fbase:allocation\0\0\0\x13qemu:dirty-bitmap:a";
    assert_eq!(pair.sent(), option(10, queries));
    let answers = [
        answer(10, META_CONTEXT, b"\0\0\0\x05qemu:dirty-bitmap:a"),
        answer(10, META_CONTEXT, b"\0\0\0\x09base:allocation"),
        answer(10, ACK, b""),
    ];
    assert_eq!(pair.receive(&answers.concat()), Ok(None));
    assert_eq!(pair.sent(), option(7, b"\0\0\0\x04disk\0\x03\0\x01\0\x02\0\x03"));
    let answers = [
        answer(7, INFO, b"\0\x01the-disk"),
        answer(7, INFO, EXPORT_INFO),
        answer(7, INFO, b"\0\x02a disk"),
        answer(7, INFO, b"\0\x03\0\0\x10\0\0\0\x10\0\x02\0\0\0"),
        answer(7, INFO, b"\0\x63unknown"),
        answer(7, 77, b"unknown"),
        answer(7, ACK, b""),
        b"more".to_vec(),
    ];
    let negotiated = pair.negotiated(&answers.concat());
    assert_eq!(pair.input, b"more"[..], "what follows belongs to transmission");
    assert!(negotiated.structured && negotiated.knows_block_sizes);
    let export = negotiated.export;
    assert_eq!((&*negotiated.name, &*export.name), ("disk", "the-disk"));
    assert_eq!(export.description.as_deref(), Some("a disk"));
    assert_eq!((export.size, export.flags.bits()), (1 << 20, 0x8f));
    let sizes = BlockSizes { minimum: 4096, preferred: 4096, maximum: 1 << 25 };
    assert_eq!(export.block_sizes, sizes);
    let context = |id, name: &str| MetaContext { id, name: name.to_owned() };
    let contexts = [context(5, "qemu:dirty-bitmap:a"), context(9, BASE_ALLOCATION)];
    assert_eq!(negotiated.contexts, contexts);
    assert_eq!(pair.receive(b""), Ok(None));
}

#[test]
fn a_server_without_structured_replies_and_without_go() {
    for (flags, zeroes) in [(1, 124), (3, 0)] {
        let mut pair = Pair::new(disk(&[BASE_ALLOCATION]));
        let greeting = [&GREETING[..17], &[flags]].concat();
        assert_eq!(pair.receive(&greeting), Ok(None));
        assert_eq!(pair.sent()[..4], [0, 0, 0, flags]);
        assert_eq!(pair.receive(&answer(8, UNSUP, b"")), Ok(None));
        assert_eq!(pair.sent()[8..12], [0, 0, 0, 7]);
        assert_eq!(pair.receive(&answer(7, UNSUP, b"")), Ok(None));
        assert_eq!(pair.sent(), option(1, b"disk"));
        let told = [&b"\0\0\0\0\0\x10\0\0\0\x05"[..], &vec![0; zeroes]].concat();
        assert_eq!(pair.receive(&told[..told.len() - 1]), Ok(None));
        let negotiated = pair.negotiated(&told[told.len() - 1..]);
        assert!(!negotiated.structured && !negotiated.knows_block_sizes);
        assert!(negotiated.contexts.is_empty());
        let export = negotiated.export;
        assert_eq!((&*export.name, export.size), ("disk", 1 << 20));
        assert!(export.flags.contains(TransmissionFlags::FLUSH));
        assert_eq!(export.block_sizes.minimum, 512);
    }
}

#[test]
fn a_server_without_options() {
    let mut pair = Pair::new(disk(&[BASE_ALLOCATION]));
    assert_eq!(pair.receive(b"NBDMAGICIHAVEOPT\0\0"), Ok(None));
    assert_eq!(pair.sent(), [&[0; 4][..], &option(1, b"disk")].concat());
    let told = [&b"\0\0\0\0\0\0\0\x09\0\x03"[..], &[0; 124]].concat();
    let export = pair.negotiated(&told).export;
    assert_eq!((export.size, export.block_sizes.minimum), (9, 1));

    assert_eq!(Pair::new(Goal::List).receive(b"NBDMAGICIHAVEOPT\0\0"), Err(HandshakeError::TooOld));
    let oldstyle = b"NBDMAGIC\0\0\x42\x02\x81\x86\x12\x53\0\0";
    assert_eq!(Pair::new(disk(&[])).receive(oldstyle), Err(HandshakeError::Oldstyle));
}

#[test]
fn contexts_that_a_server_refuses_are_done_without() {
    let mut pair = Pair::new(disk(&[BASE_ALLOCATION]));
    assert_eq!(pair.receive(GREETING), Ok(None));
    assert_eq!(pair.receive(&answer(8, ACK, b"")), Ok(None));
    let answers =
        [answer(10, META_CONTEXT, b"\0\0\0\x05base:allocation"), answer(10, UNKNOWN, b"")];
    assert_eq!(pair.receive(&answers.concat()), Ok(None));
    let answers = [answer(7, INFO, EXPORT_INFO), answer(7, ACK, b"")];
    let negotiated = pair.negotiated(&answers.concat());
    assert!(negotiated.structured && negotiated.contexts.is_empty());
}

#[test]
fn a_refusal_ends_the_connection_politely() {
    let mut pair = Pair::going();
    let error =
        HandshakeError::Refused { error: OptionError::Unknown, message: "no disk here".to_owned() };
    assert_eq!(error.to_string(), "the server has no such export: no disk here");
    let refused = pair.receive(&answer(7, UNKNOWN, b"no disk here"));
    assert_eq!(refused, Err(error.clone()));
    assert_eq!(pair.sent(), option(2, b""));
    assert_eq!(pair.receive(b""), Err(error));

    for (kind, error) in [(TLS_REQD, OptionError::TlsRequired), (SHUTDOWN, OptionError::Shutdown)] {
        let refused = Err(HandshakeError::Refused { error, message: String::new() });
        let mut pair = Pair::new(disk(&[]));
        assert_eq!(pair.receive(GREETING), Ok(None));
        assert_eq!(pair.receive(&answer(8, kind, b"")), refused);
        let mut pair = Pair::new(disk(&[BASE_ALLOCATION]));
        assert_eq!(pair.receive(&[GREETING, &answer(8, ACK, b"")].concat()), Ok(None));
        assert_eq!(pair.receive(&answer(10, kind, b"")), refused);
    }
}

#[test]
fn exports_are_listed() {
    let mut pair = Pair::new(Goal::List);
    assert_eq!(pair.receive(GREETING), Ok(None));
    assert_eq!(pair.sent(), [&[0, 0, 0, 3][..], &option(3, b"")].concat());
    let answers = [
        answer(3, SERVER, b"\0\0\0\x04diskbig"),
        answer(3, SERVER, b"\0\0\0\0"),
        answer(3, ACK, b""),
    ];
    let listed = [("disk", "big"), ("", "")].map(|(name, description)| ListedExport {
        name: name.to_owned(),
        description: description.to_owned(),
    });
    let outcome = Ok(Some(HandshakeOutcome::Exports(listed.to_vec())));
    assert_eq!(pair.receive(&answers.concat()), outcome);
    assert_eq!(pair.sent(), option(2, b""));
    // The server may send ACK as a reply to NBD_OPT_ABORT, or not.
    assert_eq!(pair.receive(&answer(2, ACK, b"")), Ok(None));
}

#[test]
fn answers_that_cannot_be_are_errors() {
    let greeting = Pair::new(disk(&[])).protocol_error(b"GET / HTTP/1.1\r\n\r\n");
    assert!(matches!(greeting, ProtocolError::Magic { message: "greeting", .. }));
    let greeting = Pair::new(disk(&[])).protocol_error(b"NBDMAGICSSH-2.0-aa");
    assert!(matches!(greeting, ProtocolError::Magic { message: "greeting", .. }));
    let magic = Pair::going().protocol_error(&[0x55; 20]);
    assert!(matches!(magic, ProtocolError::Magic { message: "answer to an option", .. }));
    for (option, kind, data) in [
        // A reply to another option.
        (8, ACK, &b""[..]),
        // The size is missing.
        (7, ACK, b""),
        // Too short, too long, and not UTF-8.
        (7, INFO, b"\0"),
        (7, INFO, b"\0\0\0\0\0\0\0\x10\0\0\0"),
        (7, INFO, b"\0\0\0\0\0\0\0\x10\0\0\0\x8fx"),
        (7, INFO, b"\0\x01\xff"),
        // Block sizes of zero.
        (7, INFO, b"\0\x03\0\0\0\0\0\0\x10\0\x02\0\0\0"),
        (7, INFO, b"\0\x03\0\0\x02\0\0\0\x10\0\x02\0\0"),
    ] {
        let error = Pair::going().protocol_error(&answer(option, kind, data));
        assert!(matches!(error, ProtocolError::Answer { .. }), "{data:?}: {error:?}");
    }
    let long = [&answer(7, INFO, b"")[..16], &[0, 1, 0, 1]].concat();
    let error = Pair::going().protocol_error(&long);
    assert!(matches!(error, ProtocolError::Answer { option: 7, problem: "it is too long" }));
}

#[test]
fn a_malformed_name_in_a_list_is_an_error() {
    for data in [&b"\0\0\0"[..], b"\0\0\0\x05disk", b"\xff\xff\xff\xffdisk", b"\0\0\0\x01\0"] {
        let mut pair = Pair::new(Goal::List);
        assert_eq!(pair.receive(GREETING), Ok(None));
        let error = pair.protocol_error(&answer(3, SERVER, data));
        assert!(matches!(error, ProtocolError::Answer { option: 3, .. }), "{data:?}");
    }
}

#[test]
fn two_contexts_have_two_ids() {
    let mut pair = Pair::new(disk(&[BASE_ALLOCATION]));
    assert_eq!(pair.receive(GREETING), Ok(None));
    assert_eq!(pair.receive(&answer(8, ACK, b"")), Ok(None));
    let same = answer(10, META_CONTEXT, b"\0\0\0\x05base:allocation");
    let error = pair.protocol_error(&[&same[..], &same].concat());
    assert!(matches!(error, ProtocolError::Answer { option: 10, .. }));
}

/// Too many selected contexts are an error, because each would add a chunk to every block status.
#[test]
fn a_server_selects_no_more_contexts_than_anybody_asks_for() {
    let mut pair = Pair::new(disk(&[BASE_ALLOCATION]));
    assert_eq!(pair.receive(GREETING), Ok(None));
    assert_eq!(pair.receive(&answer(8, ACK, b"")), Ok(None));
    let context =
        |id: u32| answer(10, META_CONTEXT, &[&id.to_be_bytes()[..], b"base:allocation"].concat());
    for id in 0..64 {
        assert_eq!(pair.receive(&context(id)), Ok(None));
    }
    let error = pair.protocol_error(&context(64));
    let problem = "there are too many contexts";
    assert_eq!(error, ProtocolError::Answer { option: 10, problem });
}

#[test]
fn a_server_does_not_go_on_without_an_end() {
    let mut pair = Pair::new(Goal::List);
    assert_eq!(pair.receive(GREETING), Ok(None));
    let export = answer(3, SERVER, &[&b"\0\0\0\x04disk"[..], &[b'x'; 8192]].concat());
    let error = (0..10_000).find_map(|_| pair.receive(&export).err());
    let too_many = ProtocolError::Answer { option: 3, problem: "there are too many" };
    assert_eq!(error, Some(HandshakeError::Protocol(too_many)));
}

#[test]
fn tls_is_started_before_an_export_is_named() {
    let mut pair = Pair::secured(disk(&[BASE_ALLOCATION]));
    assert_eq!(pair.receive(b""), Ok(None));
    assert_eq!(pair.sent(), option(8, b""));
    let mut plain = Pair::new(disk(&[BASE_ALLOCATION]));
    assert_eq!(plain.receive(GREETING), Ok(None));
    assert_eq!(plain.sent()[4..], option(8, b""));
    let answers = [
        answer(8, ACK, b""),
        answer(10, META_CONTEXT, b"\0\0\0\x05base:allocation"),
        answer(10, ACK, b""),
        answer(7, INFO, EXPORT_INFO),
        answer(7, ACK, b""),
    ];
    let negotiated = pair.negotiated(&answers.concat());
    assert!(negotiated.structured && negotiated.contexts.len() == 1);
    assert_eq!(negotiated, plain.negotiated(&answers.concat()));
    let sent = pair.sent();
    assert!(sent.ends_with(&option(7, b"\0\0\0\x04disk\0\x03\0\x01\0\x02\0\x03")));
    assert_eq!(sent, plain.sent());
}

#[test]
fn exports_are_listed_over_tls() {
    let mut pair = Pair::secured(Goal::List);
    assert_eq!(pair.receive(b""), Ok(None));
    assert_eq!(pair.sent(), option(3, b""));
    let answers = [answer(3, SERVER, b"\0\0\0\x04diskbig"), answer(3, ACK, b"")];
    let listed = ListedExport { name: "disk".to_owned(), description: "big".to_owned() };
    let outcome = Ok(Some(HandshakeOutcome::Exports(vec![listed])));
    assert_eq!(pair.receive(&answers.concat()), outcome);
    assert_eq!(pair.sent(), option(2, b""));
}

#[test]
fn clear_text_is_not_taken_for_the_encrypted_answer() {
    let (ack, next) = (answer(5, ACK, b""), answer(8, ACK, b""));
    for len in 1..=next.len() {
        let mut pair = Pair::starting_tls(disk(&[]));
        let error = pair.protocol_error(&[&ack, &next[..len]].concat());
        let problem = "clear text follows it";
        assert_eq!(error, ProtocolError::Answer { option: 5, problem }, "{len}");
        assert_eq!(pair.sent(), b""[..]);
    }
}

#[test]
fn tls_is_not_started_before_the_server_is_asked() {
    let mut pair = Pair::over_tls(disk(&[]));
    let error = pair.protocol_error(&[GREETING, &answer(5, ACK, b"")].concat());
    let problem = "the option was not sent yet";
    assert_eq!(error, ProtocolError::Answer { option: 5, problem });
}

#[test]
fn only_the_answer_to_starttls_starts_tls() {
    let error = Pair::starting_tls(disk(&[])).protocol_error(&answer(8, ACK, b""));
    assert!(matches!(error, ProtocolError::Answer { option: 8, .. }));
}

#[test]
fn a_server_without_tls_is_not_told_the_name() {
    for goal in [disk(&[BASE_ALLOCATION]), Goal::List] {
        for kind in [UNSUP, POLICY, INVALID, PLATFORM, 0x8000_004d] {
            let mut pair = Pair::starting_tls(goal.clone());
            assert_eq!(pair.receive(&answer(5, kind, b"no")), Err(HandshakeError::NoTls));
            assert_eq!(pair.sent(), option(2, b""));
            assert_eq!(pair.receive(b""), Err(HandshakeError::NoTls));
            assert_eq!(pair.sent(), b""[..]);
        }
        let mut pair = Pair::starting_tls(goal.clone());
        let refused = pair.receive(&answer(5, SHUTDOWN, b"bye"));
        let (error, message) = (OptionError::Shutdown, "bye".to_owned());
        assert_eq!(refused, Err(HandshakeError::Refused { error, message }));
        assert_eq!(pair.sent(), option(2, b""));

        for flags in [0, 2] {
            let mut pair = Pair::over_tls(goal.clone());
            let greeting = [&GREETING[..17], &[flags]].concat();
            assert_eq!(pair.receive(&greeting), Err(HandshakeError::NoTls));
            assert_eq!(pair.sent(), [0, 0, 0, flags][..]);
        }
    }
}

//! Tests of the client's processing of replies, byte by byte as in the protocol's document.

use bytes::BytesMut;
use iscsi_nbd::client::{Answer, Completed, ContextStatus, Failure, Negotiated, Transmission};
use iscsi_nbd::{
    BlockSizes, Command, Cookie, Errno, Export, Extent, MetaContext, ProtocolError, Request,
    TransmissionFlags,
};

const NONE: u16 = 0;
const DATA: u16 = 1;
const HOLE: u16 = 2;
const BLOCK_STATUS: u16 = 5;
const ERROR: u16 = 0x8001;
const ERROR_OFFSET: u16 = 0x8002;
const READ: Command = Command::Read { dont_fragment: false };

fn transmission(structured: bool) -> Transmission {
    let context = |id, name: &str| MetaContext { id, name: name.to_owned() };
    let flags = TransmissionFlags::from_bits(0x0dfd).without(TransmissionFlags::READ_ONLY);
    let block_sizes = BlockSizes { minimum: 1, ..BlockSizes::default() };
    Transmission::new(&Negotiated {
        export: Export { size: 1 << 20, flags, block_sizes, ..Export::default() },
        structured,
        contexts: vec![context(7, "base:allocation"), context(9, "qemu:dirty-bitmap:a")],
        ..Negotiated::default()
    })
}

fn simple(cookie: Cookie, error: u32) -> Vec<u8> {
    [&[0x67, 0x44, 0x66, 0x98][..], &error.to_be_bytes(), &cookie.0.to_be_bytes()].concat()
}

fn chunk(cookie: Cookie, is_done: bool, kind: u16, payload: &[&[u8]]) -> Vec<u8> {
    let payload = payload.concat();
    [
        &[0x66, 0x8e, 0x33, 0xef, 0, u8::from(is_done)][..],
        &kind.to_be_bytes(),
        &cookie.0.to_be_bytes(),
        &u32::try_from(payload.len()).unwrap().to_be_bytes(),
        &payload,
    ]
    .concat()
}

fn data(cookie: Cookie, is_done: bool, offset: u64, data: &[u8]) -> Vec<u8> {
    chunk(cookie, is_done, DATA, &[&offset.to_be_bytes(), data])
}

fn hole(cookie: Cookie, is_done: bool, offset: u64, len: u32) -> Vec<u8> {
    chunk(cookie, is_done, HOLE, &[&offset.to_be_bytes(), &len.to_be_bytes()])
}

fn status(cookie: Cookie, is_done: bool, context: u32, descriptors: &[(u32, u32)]) -> Vec<u8> {
    let descriptors: Vec<u8> = descriptors
        .iter()
        .flat_map(|(length, status)| [length.to_be_bytes(), status.to_be_bytes()].concat())
        .collect();
    chunk(cookie, is_done, BLOCK_STATUS, &[&context.to_be_bytes(), &descriptors])
}

fn receive(
    transmission: &mut Transmission,
    bytes: &[u8],
) -> Result<Option<Completed>, ProtocolError> {
    transmission.receive(&mut BytesMut::from(bytes))
}

/// Returns the result of one request with one reply.
fn reply(
    command: Command,
    structured: bool,
    bytes: impl FnOnce(Cookie) -> Vec<u8>,
) -> Result<Option<Completed>, ProtocolError> {
    let mut transmission = transmission(structured);
    let request = transmission.submit(command, 0x1000, 0x100).unwrap();
    let reply = receive(&mut transmission, &bytes(request.cookie));
    if reply.is_err() {
        assert_eq!(transmission.requests().len(), 1, "it is still under way");
        assert_eq!(receive(&mut transmission, b""), reply, "it stays as it is");
    }
    reply
}

fn data_of(completed: Result<Option<Completed>, ProtocolError>) -> BytesMut {
    match completed.unwrap().unwrap().outcome {
        Ok(Answer::Data(data)) => data,
        other => panic!("{other:?}"),
    }
}

fn failure_of(completed: Result<Option<Completed>, ProtocolError>) -> Failure {
    completed.unwrap().unwrap().outcome.unwrap_err()
}

#[test]
fn simple_replies_come_in_any_order() {
    let mut transmission = transmission(false);
    let write = transmission.submit(Command::Write { fua: true }, 0, 512).unwrap();
    let read = transmission.submit(READ, 0x1000, 4).unwrap();
    let flush = transmission.submit(Command::Flush, 77, 77).unwrap();
    assert_eq!((flush.offset, flush.length), (0, 0));
    assert_eq!(transmission.requests().collect::<Vec<_>>(), [write, read, flush]);
    let bytes = [
        simple(flush.cookie, 0),
        simple(read.cookie, 0),
        b"data".to_vec(),
        simple(write.cookie, 28),
    ];
    let mut input = BytesMut::from(&bytes.concat()[..]);
    let mut next = || transmission.receive(&mut input).unwrap();
    assert_eq!(next(), Some(Completed { request: flush, outcome: Ok(Answer::Done) }));
    let outcome = Ok(Answer::Data(BytesMut::from("data")));
    assert_eq!(next(), Some(Completed { request: read, outcome }));
    let outcome = Err(Failure { errno: Errno::NoSpace, offset: None, message: String::new() });
    assert_eq!(next(), Some(Completed { request: write, outcome }));
    assert_eq!(next(), None);
    assert_eq!(transmission.requests().len(), 0);
}

#[test]
fn a_simple_error_of_a_read_has_no_data() {
    let failure = failure_of(reply(READ, false, |cookie| simple(cookie, 5)));
    assert_eq!(failure.errno, Errno::Io);
    // A simple reply is not allowed here, but its error is clear, so it is accepted.
    let failure = failure_of(reply(READ, true, |cookie| simple(cookie, 22)));
    assert_eq!(failure.errno, Errno::Invalid);
}

#[test]
fn chunks_land_where_they_belong_among_those_of_others() {
    let mut transmission = transmission(true);
    let buffer = BytesMut::from(&[0xee; 12][..]);
    let place = buffer.as_ptr();
    let read = transmission.read_into(0x1000, buffer).unwrap();
    let other = transmission.submit(READ, 0x2000, 2).unwrap();
    let bytes = [
        data(read.cookie, false, 0x1008, b"last"),
        data(other.cookie, true, 0x2000, b"ab"),
        hole(read.cookie, false, 0x1004, 4),
        data(read.cookie, false, 0x1000, b"head"),
        chunk(read.cookie, true, NONE, &[]),
    ];
    let mut input = BytesMut::from(&bytes.concat()[..]);
    let completed = transmission.receive(&mut input).unwrap().unwrap();
    assert_eq!(completed.request, other);
    let found = data_of(transmission.receive(&mut input));
    assert_eq!((found.as_ptr(), &found[..]), (place, &b"head\0\0\0\0last"[..]));
}

#[test]
fn data_may_be_read_straight_into_the_buffer() {
    let mut transmission = transmission(true);
    let read = transmission.submit(READ, 0x1000, 8).unwrap();
    assert!(transmission.landing().is_empty());
    assert_eq!(transmission.wanted(), 20);
    let bytes = data(read.cookie, true, 0x1000, b"12345678");
    assert_eq!(receive(&mut transmission, &bytes[..30]), Ok(None));
    assert_eq!(transmission.wanted(), 6);
    transmission.landing()[..4].copy_from_slice(b"3456");
    transmission.landed(4);
    assert_eq!(receive(&mut transmission, b""), Ok(None));
    transmission.landing().copy_from_slice(b"78");
    transmission.landed(3);
    assert_eq!(data_of(receive(&mut transmission, b""))[..], b"12345678"[..]);
    assert!(transmission.landing().is_empty());
}

#[test]
fn an_error_among_chunks_fails_the_request_when_the_reply_ends() {
    let failure = failure_of(reply(READ, true, |cookie| {
        let offset = 0x1080_u64.to_be_bytes();
        let error = chunk(cookie, false, ERROR_OFFSET, &[b"\0\0\0\x05\0\x03bad", &offset]);
        let second = chunk(cookie, false, ERROR, &[b"\0\0\0\x0c\0\0"]);
        let data = data(cookie, true, 0x1000, &[1; 0x80]);
        [error, second, data].concat()
    }));
    let expected = Failure { errno: Errno::Io, offset: Some(0x1080), message: "bad".to_owned() };
    assert_eq!(failure, expected);
    assert_eq!(failure.to_string(), "input/output error: bad");
}

#[test]
fn errors_of_unknown_kinds_and_values_are_errors() {
    let write = Command::Write { fua: false };
    let failure = failure_of(reply(write, true, |cookie| {
        chunk(cookie, true, 0x8077, &[b"\0\0\x01\0\0\x02noand more"])
    }));
    assert_eq!((failure.errno, &*failure.message), (Errno::Invalid, "no"));
}

#[test]
fn requests_without_data_may_be_answered_either_way() {
    for command in [Command::Write { fua: false }, Command::Cache, Command::Trim { fua: false }] {
        let completed = reply(command, true, |cookie| simple(cookie, 0)).unwrap().unwrap();
        assert_eq!(completed.outcome, Ok(Answer::Done));
        let completed = reply(command, true, |cookie| chunk(cookie, true, NONE, &[]));
        assert_eq!(completed.unwrap().unwrap().outcome, Ok(Answer::Done));
    }
}

#[test]
fn block_status_comes_for_each_context() {
    let command = Command::BlockStatus { one: false };
    let completed = reply(command, true, |cookie| {
        let first = status(cookie, false, 9, &[(0x80, 1), (0x80, 1), (0x1000, 0)]);
        [first, status(cookie, true, 7, &[(u32::MAX, 3)])].concat()
    });
    let extent = |length, status| Extent { length, status };
    let dirty = ContextStatus { context: 9, extents: vec![extent(0x100, 1), extent(0x1000, 0)] };
    let base = ContextStatus { context: 7, extents: vec![extent((1 << 20) - 0x1000, 3)] };
    let outcome = completed.unwrap().unwrap().outcome;
    assert_eq!(outcome, Ok(Answer::BlockStatus(vec![dirty, base])));
}

type Case = (Command, bool, fn(Cookie) -> Vec<u8>, fn(Cookie) -> ProtocolError);

const WRITE: Command = Command::Write { fua: false };
const STATUS: Command = Command::BlockStatus { one: false };

fn check(cases: &[Case]) {
    for (at, (command, structured, bytes, expected)) in cases.iter().enumerate() {
        let found = reply(*command, *structured, bytes);
        assert_eq!(found, Err(expected(Cookie(1))), "case {at}");
    }
}

#[test]
fn replies_are_of_the_kind_that_was_negotiated_and_complete() {
    let (kind, missing) = (ProtocolError::ReplyKind, ProtocolError::Missing);
    check(&[
        (READ, true, |cookie| simple(cookie, 0), kind),
        (STATUS, true, |cookie| simple(cookie, 0), kind),
        (READ, false, |cookie| data(cookie, true, 0x1000, &[0; 0x100]), kind),
        (WRITE, false, |cookie| chunk(cookie, true, NONE, &[]), kind),
        (
            READ,
            true,
            |cookie| [data(cookie, false, 0x1000, &[0; 1]), simple(cookie, 5)].concat(),
            kind,
        ),
        (READ, true, |cookie| chunk(cookie, true, NONE, &[]), missing),
        (READ, true, |cookie| data(cookie, true, 0x1000, &[0; 0xff]), missing),
        (READ, true, |cookie| hole(cookie, true, 0x1001, 0xff), missing),
        (STATUS, true, |cookie| status(cookie, true, 7, &[(512, 0)]), missing),
        (STATUS, true, |cookie| chunk(cookie, true, NONE, &[]), missing),
    ]);
}

#[test]
fn chunks_are_of_a_kind_and_length_that_belong_to_the_request() {
    type Expected = fn(Cookie) -> ProtocolError;
    let bad_data: Expected = |cookie| ProtocolError::Chunk { cookie, kind: DATA };
    let bad_hole: Expected = |cookie| ProtocolError::Chunk { cookie, kind: HOLE };
    let bad_none: Expected = |cookie| ProtocolError::Chunk { cookie, kind: NONE };
    let bad_error: Expected = |cookie| ProtocolError::Chunk { cookie, kind: ERROR };
    let bad_offset: Expected = |cookie| ProtocolError::Chunk { cookie, kind: ERROR_OFFSET };
    let bad_status: Expected = |cookie| ProtocolError::Chunk { cookie, kind: BLOCK_STATUS };
    check(&[
        (READ, true, |cookie| data(cookie, true, 0x1000, &[]), bad_data),
        (READ, true, |cookie| chunk(cookie, true, DATA, &[&[0; 7]]), bad_data),
        (WRITE, true, |cookie| data(cookie, true, 0x1000, &[0; 0x100]), bad_data),
        (READ, true, |cookie| hole(cookie, true, 0x1000, 0), bad_hole),
        (READ, true, |cookie| chunk(cookie, true, HOLE, &[&[0; 11]]), bad_hole),
        (STATUS, true, |cookie| hole(cookie, true, 0x1000, 0x100), bad_hole),
        (WRITE, true, |cookie| chunk(cookie, false, NONE, &[]), bad_none),
        (WRITE, true, |cookie| chunk(cookie, true, NONE, &[&[0]]), bad_none),
        (WRITE, true, |cookie| chunk(cookie, true, ERROR, &[&[0; 5]]), bad_error),
        (WRITE, true, |cookie| chunk(cookie, true, ERROR, &[b"\0\0\0\x05\0\x03no"]), bad_error),
        (WRITE, true, |cookie| chunk(cookie, true, ERROR, &[&[0; 70_000]]), bad_error),
        (WRITE, true, |cookie| chunk(cookie, true, ERROR_OFFSET, &[&[0; 13]]), bad_offset),
        (READ, true, |cookie| status(cookie, true, 7, &[(512, 0)]), bad_status),
        (STATUS, true, |cookie| status(cookie, true, 7, &[]), bad_status),
        (STATUS, true, |cookie| status(cookie, true, 7, &[(0, 0)]), bad_status),
        (
            READ,
            true,
            |cookie| chunk(cookie, true, 3, &[]),
            |cookie| ProtocolError::Chunk { cookie, kind: 3 },
        ),
        (
            STATUS,
            true,
            |cookie| status(cookie, false, 8, &[(512, 0)]),
            |cookie| ProtocolError::Context { cookie, id: 8 },
        ),
        (
            STATUS,
            true,
            |cookie| status(cookie, false, 7, &[(512, 0)]).repeat(2),
            |cookie| ProtocolError::Context { cookie, id: 7 },
        ),
    ]);
}

#[test]
fn data_lie_in_the_request_and_come_once() {
    for offset in [0x0fff, 0x1001, 0x1100, 0, u64::MAX] {
        let expected = Err(ProtocolError::OutsideRequest { cookie: Cookie(1), offset });
        assert_eq!(reply(READ, true, |cookie| data(cookie, true, offset, &[0; 0x100])), expected);
        assert_eq!(reply(READ, true, |cookie| hole(cookie, true, offset, u32::MAX)), expected);
    }
    let expected = Err(ProtocolError::Overlap { cookie: Cookie(1), offset: 0x107f });
    let twice = reply(READ, true, |cookie| {
        [hole(cookie, false, 0x1000, 0x80), data(cookie, true, 0x107f, &[0; 0x81])].concat()
    });
    assert_eq!(twice, expected);
}

#[test]
fn a_reply_is_to_a_request_under_way() {
    let mut idle = transmission(true);
    let expected = Err(ProtocolError::UnknownCookie(Cookie(1)));
    assert_eq!(receive(&mut idle, &simple(Cookie(1), 0)), expected);
    let twice = |cookie| [simple(cookie, 0), chunk(cookie, true, NONE, &[])].concat();
    let mut transmission = transmission(true);
    let request = transmission.submit(Command::Flush, 0, 0).unwrap();
    let mut input = BytesMut::from(&twice(request.cookie)[..]);
    assert!(transmission.receive(&mut input).unwrap().is_some());
    assert_eq!(transmission.receive(&mut input), expected);
}

#[test]
fn a_stream_that_is_no_reply_ends() {
    let expected = Err(ProtocolError::Magic { message: "reply", value: 0x4854_5450 });
    assert_eq!(reply(READ, true, |_| b"HTTP/1.1".to_vec()), expected);
}

#[test]
fn what_was_not_offered_is_not_asked_for() {
    let mut transmission = Transmission::new(&Negotiated {
        export: Export { size: 1 << 20, flags: TransmissionFlags::READ_ONLY, ..Export::default() },
        ..Negotiated::default()
    });
    let mut errno =
        |command, offset, length| transmission.submit(command, offset, length).unwrap_err().errno;
    assert_eq!(errno(Command::Write { fua: false }, 0, 512), Errno::Permission);
    assert_eq!(errno(Command::Flush, 0, 0), Errno::Invalid);
    assert_eq!(errno(Command::BlockStatus { one: true }, 0, 512), Errno::Invalid);
    assert_eq!(errno(READ, 1 << 20, 512), Errno::Invalid);
    assert_eq!(errno(READ, 0, 0), Errno::Invalid);
    assert_eq!(transmission.requests().len(), 0);
    assert!(transmission.read_into(0, BytesMut::zeroed(512)).is_ok());
}

#[test]
fn nothing_begins_after_the_end_and_what_is_under_way_is_answered() {
    let mut transmission = transmission(true);
    let flush = transmission.submit(Command::Flush, 0, 0).unwrap();
    let disconnect = transmission.disconnect();
    assert_eq!(disconnect[..8], [0x25, 0x60, 0x95, 0x13, 0, 0, 0, 2]);
    assert_eq!(disconnect[8..], [0; 20]);
    assert_eq!(disconnect.len(), Request::LEN);
    assert_eq!(transmission.submit(READ, 0, 512).unwrap_err().errno, Errno::Shutdown);
    assert!(receive(&mut transmission, &simple(flush.cookie, 0)).unwrap().is_some());
}

//! Tests of the server's processing of requests, and of its replies, byte by byte as in the protocol's
//! document.

use bytes::{Bytes, BytesMut};
use iscsi_nbd::server::{Expected, Negotiated, Refused, Transmission, TransmissionEvent};
use iscsi_nbd::{
    BlockSizes, Command, Cookie, Errno, Export, Extent, MetaContext, ProtocolError, Request,
    TransmissionFlags,
};

const COOKIE: Cookie = Cookie(0x0102_0304_0506_0708);
const FUA: u16 = 1;
const NO_HOLE: u16 = 2;
const DF: u16 = 4;
const REQ_ONE: u16 = 8;
const FAST_ZERO: u16 = 16;
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISC: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const CACHE: u16 = 5;
const WRITE_ZEROES: u16 = 6;
const BLOCK_STATUS: u16 = 7;

fn all_flags() -> TransmissionFlags {
    TransmissionFlags::from_bits(0x0dfd).without(TransmissionFlags::READ_ONLY)
}

fn negotiated(flags: TransmissionFlags) -> Negotiated {
    let block_sizes = BlockSizes { minimum: 512, preferred: 4096, maximum: u32::MAX };
    Negotiated {
        export: Export { size: 1 << 30, flags, block_sizes, ..Export::default() },
        structured: true,
        contexts: vec![MetaContext { id: 7, name: "base:allocation".to_owned() }],
        ..Negotiated::default()
    }
}

fn transmission() -> Transmission {
    Transmission::new(&negotiated(all_flags()))
}

fn request(flags: u16, kind: u16, offset: u64, length: u32) -> Vec<u8> {
    [
        &0x2560_9513_u32.to_be_bytes()[..],
        &flags.to_be_bytes(),
        &kind.to_be_bytes(),
        &COOKIE.0.to_be_bytes(),
        &offset.to_be_bytes(),
        &length.to_be_bytes(),
    ]
    .concat()
}

fn receive(
    transmission: &mut Transmission,
    bytes: &[u8],
) -> Result<Option<TransmissionEvent>, ProtocolError> {
    transmission.receive(&mut BytesMut::from(bytes))
}

/// Returns the command of a request, or the error with which it is refused. The data of a write is zeros.
fn outcome(
    negotiated: &Negotiated,
    (flags, kind, offset, length): (u16, u16, u64, u32),
) -> Result<Command, Errno> {
    let mut bytes = request(flags, kind, offset, length);
    if kind == WRITE {
        bytes.resize(Request::LEN + length as usize, 0);
    }
    match receive(&mut Transmission::new(negotiated), &bytes) {
        Ok(Some(TransmissionEvent::Request(request) | TransmissionEvent::Write(request, _))) => {
            assert_eq!((request.cookie, request.offset, request.length), (COOKIE, offset, length));
            assert_eq!(request.encode()[..4], bytes[..4]);
            Ok(request.command)
        }
        Ok(Some(TransmissionEvent::Refused(refused))) => {
            assert_eq!(refused.cookie, COOKIE);
            Err(refused.errno)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_request_is_understood_with_its_flags() {
    let negotiated = negotiated(all_flags());
    let (fua, no_hole, fast) = (true, true, true);
    for (flags, kind, command) in [
        (0, READ, Command::Read { dont_fragment: false }),
        (DF, READ, Command::Read { dont_fragment: true }),
        (0, WRITE, Command::Write { fua: false }),
        (FUA, WRITE, Command::Write { fua }),
        (FUA, TRIM, Command::Trim { fua }),
        (0, CACHE, Command::Cache),
        (NO_HOLE, WRITE_ZEROES, Command::WriteZeroes { fua: false, no_hole, fast: false }),
        (FUA | NO_HOLE | FAST_ZERO, WRITE_ZEROES, Command::WriteZeroes { fua, no_hole, fast }),
        (0, BLOCK_STATUS, Command::BlockStatus { one: false }),
        (REQ_ONE, BLOCK_STATUS, Command::BlockStatus { one: true }),
        // FUA has no effect here, but clients send it.
        (FUA, READ, Command::Read { dont_fragment: false }),
        (FUA, CACHE, Command::Cache),
    ] {
        assert_eq!(outcome(&negotiated, (flags, kind, 4096, 512)), Ok(command));
    }
    assert_eq!(outcome(&negotiated, (0, FLUSH, 0, 0)), Ok(Command::Flush));
    assert_eq!(outcome(&negotiated, (FUA, FLUSH, 0, 0)), Ok(Command::Flush));
}

#[test]
fn a_request_is_encoded_as_it_is_decoded() {
    for (command, flags, kind) in [
        (Command::Read { dont_fragment: true }, DF, READ),
        (Command::Write { fua: true }, FUA, WRITE),
        (Command::Flush, 0, FLUSH),
        (Command::Trim { fua: true }, FUA, TRIM),
        (Command::Cache, 0, CACHE),
        (
            Command::WriteZeroes { fua: true, no_hole: true, fast: true },
            FUA | NO_HOLE | FAST_ZERO,
            WRITE_ZEROES,
        ),
        (Command::BlockStatus { one: true }, REQ_ONE, BLOCK_STATUS),
    ] {
        let encoded = Request { cookie: COOKIE, command, offset: 1 << 40, length: 9 }.encode();
        assert_eq!(encoded[..], request(flags, kind, 1 << 40, 9));
    }
}

#[test]
fn what_was_not_offered_is_invalid() {
    for (flag, request) in [
        (TransmissionFlags::FLUSH, (0, FLUSH, 0, 0)),
        (TransmissionFlags::FUA, (FUA, WRITE, 0, 512)),
        (TransmissionFlags::TRIM, (0, TRIM, 0, 512)),
        (TransmissionFlags::CACHE, (0, CACHE, 0, 512)),
        (TransmissionFlags::WRITE_ZEROES, (0, WRITE_ZEROES, 0, 512)),
        (TransmissionFlags::FAST_ZERO, (FAST_ZERO, WRITE_ZEROES, 0, 512)),
        (TransmissionFlags::DONT_FRAGMENT, (DF, READ, 0, 512)),
    ] {
        assert!(outcome(&negotiated(all_flags()), request).is_ok());
        let without = negotiated(all_flags().without(flag));
        assert_eq!(outcome(&without, request), Err(Errno::Invalid), "{request:?}");
    }
    let without_contexts = Negotiated { contexts: vec![], ..negotiated(all_flags()) };
    let status = (0, BLOCK_STATUS, 0, 512);
    assert_eq!(outcome(&without_contexts, status), Err(Errno::Invalid));
}

#[test]
fn flags_of_other_requests_and_unknown_requests_are_invalid() {
    let negotiated = negotiated(all_flags());
    for request in [
        (NO_HOLE, WRITE, 0, 512),
        (DF, WRITE, 0, 512),
        (REQ_ONE, READ, 0, 512),
        (FAST_ZERO, TRIM, 0, 512),
        (DF, BLOCK_STATUS, 0, 512),
        (1 << 5, READ, 0, 512),
        (1 << 15, WRITE, 0, 512),
        (0, 8, 0, 512),
        (0, 77, 0, 512),
    ] {
        assert_eq!(outcome(&negotiated, request), Err(Errno::Invalid), "{request:?}");
    }
}

#[test]
fn ranges_lie_in_the_export_and_are_of_whole_blocks() {
    let negotiated = negotiated(all_flags());
    let size = 1_u64 << 30;
    for kind in [READ, WRITE, TRIM, CACHE, WRITE_ZEROES, BLOCK_STATUS] {
        let beyond =
            if matches!(kind, WRITE | WRITE_ZEROES) { Errno::NoSpace } else { Errno::Invalid };
        assert!(outcome(&negotiated, (0, kind, size - 512, 512)).is_ok());
        assert_eq!(outcome(&negotiated, (0, kind, size - 512, 1024)), Err(beyond));
        assert_eq!(outcome(&negotiated, (0, kind, size, 512)), Err(beyond));
        assert_eq!(outcome(&negotiated, (0, kind, u64::MAX - 511, 1024)), Err(beyond));
        for (offset, length) in [(0, 0), (0, 100), (100, 512)] {
            let outcome = outcome(&negotiated, (0, kind, offset, length));
            assert_eq!(outcome, Err(Errno::Invalid), "{kind}: {offset} {length}");
        }
    }
}

#[test]
fn nothing_is_written_to_an_export_that_is_read_only() {
    let negotiated = negotiated(all_flags() | TransmissionFlags::READ_ONLY);
    let plain = self::negotiated(TransmissionFlags::HAS_FLAGS | TransmissionFlags::READ_ONLY);
    for kind in [WRITE, TRIM, WRITE_ZEROES] {
        for negotiated in [&negotiated, &plain] {
            assert_eq!(outcome(negotiated, (0, kind, 0, 512)), Err(Errno::Permission));
        }
    }
    assert!(outcome(&negotiated, (0, READ, 0, 512)).is_ok());
    assert!(outcome(&negotiated, (0, FLUSH, 0, 0)).is_ok());
}

#[test]
fn payloads_have_a_limit_and_other_ranges_do_not() {
    let negotiated = negotiated(all_flags());
    let long = (1 << 25) + 512;
    assert!(outcome(&negotiated, (0, READ, 0, 1 << 25)).is_ok());
    assert_eq!(outcome(&negotiated, (0, READ, 0, long)), Err(Errno::Invalid));
    assert_eq!(outcome(&negotiated, (0, WRITE, 0, long)), Err(Errno::Invalid));
    for kind in [TRIM, CACHE, WRITE_ZEROES, BLOCK_STATUS] {
        assert!(outcome(&negotiated, (0, kind, 0, long)).is_ok());
    }
    let absurd = request(0, WRITE, 0, (1 << 27) + 1);
    let error = Err(ProtocolError::Payload((1 << 27) + 1));
    let mut transmission = transmission();
    assert_eq!(receive(&mut transmission, &absurd), error);
    assert_eq!(receive(&mut transmission, &request(0, READ, 0, 512)), error);
}

#[test]
fn the_data_of_a_write_stay_where_they_were_read() {
    let mut transmission = transmission();
    assert_eq!(transmission.expected(), Expected::Request(28));
    let mut input = BytesMut::from(&request(0, WRITE, 512, 1024)[..]);
    assert_eq!(transmission.receive(&mut input), Ok(None));
    assert_eq!(transmission.expected(), Expected::Payload(1024));
    input.reserve(transmission.expected().len());
    input.extend_from_slice(&[7; 1023]);
    assert_eq!(transmission.receive(&mut input), Ok(None));
    input.extend_from_slice(&[7]);
    let place = input.as_ptr();
    let Ok(Some(TransmissionEvent::Write(request, data))) = transmission.receive(&mut input) else {
        panic!("a write is complete");
    };
    assert_eq!((request.offset, request.length), (512, 1024));
    assert_eq!((data.as_ptr(), &data[..]), (place, &[7; 1024][..]));
    assert_eq!(transmission.expected(), Expected::Request(28));
}

#[test]
fn the_data_of_a_refused_write_are_skipped_without_being_held() {
    let mut transmission = transmission();
    let mut input = BytesMut::from(&request(0, WRITE, 1 << 30, 4096)[..]);
    for left in [4096, 3072, 2048, 1024] {
        assert_eq!(transmission.receive(&mut input), Ok(None));
        assert_eq!(transmission.expected(), Expected::Skipped(left));
        assert!(input.is_empty());
        input.extend_from_slice(&[0x25; 1024]);
    }
    input.extend_from_slice(&request(0, DISC, 0, 0));
    let refused = transmission.receive(&mut input).unwrap();
    assert!(matches!(refused, Some(TransmissionEvent::Refused(_))), "{refused:?}");
    assert_eq!(transmission.receive(&mut input), Ok(Some(TransmissionEvent::Disconnect)));
    assert_eq!(receive(&mut transmission, &request(0, READ, 0, 512)), Ok(None));
}

#[test]
fn a_stream_that_is_no_request_ends() {
    let mut bytes = request(0, READ, 0, 512);
    bytes[0] = 0x12;
    let error = Err(ProtocolError::Magic { message: "request", value: 0x1260_9513 });
    let mut transmission = transmission();
    assert_eq!(receive(&mut transmission, &bytes), error);
    assert_eq!(receive(&mut transmission, &request(0, READ, 0, 512)), error);
}

fn len_u32(len: usize) -> u32 {
    u32::try_from(len).unwrap()
}

fn chunk(flags: u16, kind: u16, payload: &[u8]) -> Vec<u8> {
    [
        &[0x66, 0x8e, 0x33, 0xef][..],
        &flags.to_be_bytes(),
        &kind.to_be_bytes(),
        &COOKIE.0.to_be_bytes(),
        &len_u32(payload.len()).to_be_bytes(),
        payload,
    ]
    .concat()
}

#[test]
fn simple_replies() {
    let negotiated = Negotiated { structured: false, ..negotiated(all_flags()) };
    let replies = Transmission::new(&negotiated).replies();
    let good = b"\x67\x44\x66\x98\0\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08";
    let command = Command::Read { dont_fragment: false };
    let read = Request { cookie: COOKIE, command, offset: 512, length: 1024 };
    assert_eq!(replies.done(COOKIE).as_ref(), good);
    assert_eq!(replies.read(&read).as_ref(), good);
    let bad = b"\x67\x44\x66\x98\0\0\0\x05\x01\x02\x03\x04\x05\x06\x07\x08";
    assert_eq!(replies.error(COOKIE, Errno::Io, "left out"), bad[..]);
    assert!(!replies.is_structured());
    assert_eq!(replies.data(COOKIE, 0, 512, true), None);
    assert_eq!(replies.hole(COOKIE, 0, 512, true), None);
    assert_eq!(replies.end(COOKIE), None);
    assert_eq!(replies.error_at(COOKIE, Errno::Io, 0, "", true), None);
    assert_eq!(replies.block_status(&read, 0, [Extent { length: 1, status: 0 }], true), None);
}

#[test]
fn structured_replies() {
    let replies = transmission().replies();
    assert!(replies.is_structured());
    let command = Command::Read { dont_fragment: false };
    let read = Request { cookie: COOKIE, command, offset: 0x1_0000_0200, length: 4 };
    let head = replies.read(&read);
    let expected = chunk(1, 1, b"\0\0\0\x01\0\0\x02\0data");
    assert_eq!([head.as_ref(), b"data"].concat(), expected);
    let head = replies.data(COOKIE, 0x1_0000_0200, 4, false).unwrap();
    assert_eq!([head.as_ref(), b"data"].concat(), chunk(0, 1, &expected[20..]));
    let head = replies.hole(COOKIE, 0x1_0000_0204, 0x1000, false).unwrap();
    assert_eq!(Bytes::from(head), chunk(0, 2, b"\0\0\0\x01\0\0\x02\x04\0\0\x10\0"));
    assert_eq!(replies.end(COOKIE).unwrap().as_ref(), chunk(1, 0, b""));
    let error = replies.error(COOKIE, Errno::NoSpace, "full");
    assert_eq!(error, chunk(1, 0x8001, b"\0\0\0\x1c\0\x04full"));
    let error = replies.error_at(COOKIE, Errno::Io, 0x300, "bad", false).unwrap();
    assert_eq!(error, chunk(0, 0x8002, b"\0\0\0\x05\0\x03bad\0\0\0\0\0\0\x03\0"));
    let refused = Refused { cookie: COOKIE, errno: Errno::Invalid, reason: "no" };
    assert_eq!(replies.refuse(&refused), chunk(1, 0x8001, b"\0\0\0\x16\0\x02no"));
    let long = replies.error(COOKIE, Errno::Io, &"x".repeat(5000));
    assert_eq!(long.len(), 20 + 6 + 4096);
}

#[test]
fn block_status_has_a_context_and_descriptors() {
    let replies = transmission().replies();
    let command = Command::BlockStatus { one: false };
    let request = Request { cookie: COOKIE, command, offset: 0, length: 0x3000 };
    let extents = [(0x1000, 0), (0x1000, 3), (0x1000, 3), (0x1000, 0)]
        .map(|(length, status)| Extent { length, status });
    let reply = replies.block_status(&request, 7, extents, true).unwrap();
    let payload = b"\0\0\0\x07\0\0\x10\0\0\0\0\0\0\0\x20\0\0\0\0\x03";
    assert_eq!(reply, chunk(1, 5, payload));
    let one = Request { command: Command::BlockStatus { one: true }, ..request };
    let extents = [Extent { length: 1 << 40, status: 3 }];
    let reply = replies.block_status(&one, 7, extents, false).unwrap();
    assert_eq!(reply, chunk(0, 5, b"\0\0\0\x07\0\0\x30\0\0\0\0\x03"));
    assert_eq!(replies.block_status(&request, 7, [], true), None);
}

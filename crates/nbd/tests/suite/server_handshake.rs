//! Tests of the server's messages in the handshake, byte by byte as in the protocol's document.

use bytes::{BufMut, Bytes, BytesMut};
use iscsi_nbd::server::{Handshake, HandshakeEvent, Negotiated, TlsPolicy};
use iscsi_nbd::{
    BASE_ALLOCATION, BlockSizes, Export, MAX_PAYLOAD, MetaContext, OptionError, ProtocolError,
    TransmissionFlags,
};

const IHAVEOPT: &[u8] = b"IHAVEOPT";
const REPLY: [u8; 8] = [0x00, 0x03, 0xe8, 0x89, 0x04, 0x55, 0x65, 0xa9];
const ACK: u32 = 1;
const SERVER: u32 = 2;
const INFO: u32 = 3;
const META_CONTEXT: u32 = 4;
const UNSUP: u32 = 0x8000_0001;
const POLICY: u32 = 0x8000_0002;
const INVALID: u32 = 0x8000_0003;
const TLS_REQD: u32 = 0x8000_0005;
const UNKNOWN: u32 = 0x8000_0006;
const TOO_BIG: u32 = 0x8000_0009;
const SET: u32 = 10;

struct Pair {
    handshake: Handshake,
    input: BytesMut,
}

impl Pair {
    /// Creates a handshake after its greeting, with a client that sets both client flags.
    fn new() -> Self {
        Self::greeted(Handshake::new())
    }

    fn with_tls(tls: TlsPolicy) -> Self {
        Self::greeted(Handshake::new().with_tls(tls))
    }

    /// Returns a server after a client has started TLS.
    fn secured(tls: TlsPolicy) -> Self {
        let mut pair = Self::with_tls(tls);
        pair.start_tls();
        pair
    }

    fn greeted(handshake: Handshake) -> Self {
        let mut pair = Self { handshake, input: BytesMut::new() };
        assert_eq!(pair.sent(), b"NBDMAGICIHAVEOPT\0\x03"[..]);
        assert_eq!(pair.receive(&[0, 0, 0, 3]), Ok(None));
        pair
    }

    fn receive(&mut self, bytes: &[u8]) -> Result<Option<HandshakeEvent>, ProtocolError> {
        self.input.extend_from_slice(bytes);
        self.handshake.receive(&mut self.input)
    }

    fn option(&mut self, code: u32, data: &[u8]) -> Result<Option<HandshakeEvent>, ProtocolError> {
        self.receive(&option(code, data))
    }

    fn sent(&mut self) -> Bytes {
        let sent = self.handshake.poll_transmit().unwrap_or_default();
        assert_eq!(self.handshake.poll_transmit(), None);
        sent
    }

    fn structured(&mut self) {
        assert_eq!(self.option(8, b""), Ok(None));
        assert_eq!(self.sent(), answer(8, ACK, b""));
    }

    fn start_tls(&mut self) {
        assert_eq!(self.option(5, b""), Ok(Some(HandshakeEvent::StartTls)));
        assert_eq!(self.sent(), answer(5, ACK, b""));
        assert!(self.input.is_empty());
    }

    fn set_contexts(&mut self, export: &str, queries: &[&str]) {
        let asked = self.option(SET, &contexts(export, queries));
        assert_eq!(asked, Ok(Some(HandshakeEvent::Export(export.to_owned()))));
        self.handshake.answer_export(disk());
        let _ = self.sent();
    }

    fn negotiated(&mut self) -> Negotiated {
        match self.receive(b"") {
            Ok(Some(HandshakeEvent::Negotiated(negotiated))) => negotiated,
            other => panic!("{other:?}"),
        }
    }

    fn go(&mut self, export: &str) -> Negotiated {
        let asked = self.option(7, &info(export, &[]));
        assert_eq!(asked, Ok(Some(HandshakeEvent::Export(export.to_owned()))));
        self.handshake.answer_export(disk());
        self.negotiated()
    }
}

fn len_u32(len: usize) -> u32 {
    u32::try_from(len).unwrap()
}

fn option(code: u32, data: &[u8]) -> Vec<u8> {
    let numbers = [code, len_u32(data.len())].map(u32::to_be_bytes);
    [IHAVEOPT, numbers.as_flattened(), data].concat()
}

fn answer(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let len = len_u32(data.len());
    let numbers = [option, kind, len].map(u32::to_be_bytes);
    [&REPLY[..], numbers.as_flattened(), data].concat()
}

fn info(export: &str, types: &[u16]) -> Vec<u8> {
    let mut data = Vec::new();
    data.put_u32(len_u32(export.len()));
    data.put_slice(export.as_bytes());
    data.put_u16(u16::try_from(types.len()).unwrap());
    types.iter().for_each(|kind| data.put_u16(*kind));
    data
}

fn contexts(export: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = Vec::new();
    data.put_u32(len_u32(export.len()));
    data.put_slice(export.as_bytes());
    data.put_u32(len_u32(queries.len()));
    for query in queries {
        data.put_u32(len_u32(query.len()));
        data.put_slice(query.as_bytes());
    }
    data
}

fn disk() -> Export {
    Export {
        name: "disk".to_owned(),
        description: Some("a disk".to_owned()),
        size: 0x1234_5678_0000,
        flags: TransmissionFlags::FLUSH | TransmissionFlags::DONT_FRAGMENT,
        block_sizes: BlockSizes { minimum: 512, preferred: 4096, maximum: 0x0200_0000 },
        contexts: vec![BASE_ALLOCATION.to_owned(), "qemu:dirty-bitmap:a".to_owned()],
    }
}

#[test]
fn export_name_is_answered_without_a_head_and_with_zeroes() {
    for (client_flags, zeroes) in [(1, 124), (3, 0), (0, 124)] {
        let mut pair = Pair { handshake: Handshake::new(), input: BytesMut::new() };
        let _ = pair.sent();
        assert_eq!(pair.receive(&[0, 0, 0, client_flags]), Ok(None));
        let asked = pair.option(1, b"disk");
        assert_eq!(asked, Ok(Some(HandshakeEvent::Export("disk".to_owned()))));
        pair.handshake.answer_export(disk());
        // Flags: HAS_FLAGS and SEND_FLUSH; no SEND_DF without structured replies.
        let expected = [&b"\0\0\x12\x34\x56\x78\0\0\0\x05"[..], &vec![0; zeroes]].concat();
        assert_eq!(pair.sent(), expected);
        let negotiated = pair.negotiated();
        assert_eq!(negotiated.name, "disk");
        assert!(!negotiated.structured && !negotiated.knows_block_sizes);
        assert_eq!(pair.receive(b"anything"), Ok(None));
        assert_eq!(pair.input, b"anything"[..], "what follows belongs to transmission");
    }
}

#[test]
fn export_name_knows_no_refusal() {
    let mut pair = Pair::new();
    assert!(pair.option(1, b"other").is_ok());
    pair.handshake.refuse(OptionError::Unknown);
    let error = OptionError::Unknown;
    let expected = Err(ProtocolError::Export { name: "other".to_owned(), error });
    assert_eq!(pair.receive(b""), expected);
    assert_eq!(pair.receive(b"more"), expected);
    assert_eq!(pair.sent(), b""[..]);

    let error = OptionError::Invalid;
    let expected = Err(ProtocolError::Export { name: String::new(), error });
    assert_eq!(Pair::new().option(1, b"\xff"), expected);
    let error = OptionError::TooBig;
    let expected = Err(ProtocolError::Export { name: String::new(), error });
    assert_eq!(Pair::new().option(1, &vec![b'a'; 70_000]), expected);
}

#[test]
fn go_tells_what_was_asked_and_begins_transmission() {
    let mut pair = Pair::new();
    pair.structured();
    let asked = pair.option(7, &info("", &[3, 1, 2, 77]));
    assert_eq!(asked, Ok(Some(HandshakeEvent::Export(String::new()))));
    pair.handshake.answer_export(disk());
    let expected = [
        answer(7, INFO, b"\0\0\0\0\x12\x34\x56\x78\0\0\0\x85"),
        answer(7, INFO, b"\0\x01disk"),
        answer(7, INFO, b"\0\x02a disk"),
        answer(7, INFO, b"\0\x03\0\0\x02\0\0\0\x10\0\x02\0\0\0"),
        answer(7, ACK, b""),
    ];
    assert_eq!(pair.sent(), expected.concat());
    let negotiated = pair.negotiated();
    assert!(negotiated.structured && negotiated.knows_block_sizes);
    assert!(negotiated.export.flags.contains(TransmissionFlags::DONT_FRAGMENT));
    assert_eq!((negotiated.name, negotiated.contexts), (String::new(), vec![]));
}

#[test]
fn no_client_is_told_of_longer_payloads_than_are_taken() {
    let mut pair = Pair::new();
    assert!(pair.option(7, &info("", &[3])).is_ok());
    let block_sizes = BlockSizes { minimum: 1, preferred: 512, maximum: u32::MAX };
    pair.handshake.answer_export(Export { block_sizes, ..disk() });
    let told = answer(7, INFO, b"\0\x03\0\0\0\x01\0\0\x02\0\x02\0\0\0");
    assert!(pair.sent().ends_with(&[told, answer(7, ACK, b"")].concat()));
    assert_eq!(pair.negotiated().export.block_sizes.maximum, MAX_PAYLOAD);
}

#[test]
fn info_leaves_the_handshake_where_it_is() {
    let mut pair = Pair::new();
    assert!(pair.option(6, &info("disk", &[])).is_ok());
    pair.handshake.answer_export(disk());
    let expected =
        [answer(6, INFO, b"\0\0\0\0\x12\x34\x56\x78\0\0\0\x05"), answer(6, ACK, b"")].concat();
    assert_eq!(pair.sent(), expected);
    assert!(pair.option(6, &info("other", &[])).is_ok());
    pair.handshake.refuse(OptionError::Unknown);
    assert_eq!(pair.sent(), answer(6, UNKNOWN, b""));
    assert!(!pair.go("disk").structured);
}

#[test]
fn exports_are_listed() {
    let mut pair = Pair::new();
    assert_eq!(pair.option(3, b""), Ok(Some(HandshakeEvent::List)));
    pair.handshake.answer_export(disk());
    assert_eq!(pair.sent(), b""[..], "nobody asked for an export");
    pair.handshake.answer_list([("disk", Some("big")), ("", None)]);
    let expected = [
        answer(3, SERVER, b"\0\0\0\x04diskbig"),
        answer(3, SERVER, b"\0\0\0\0"),
        answer(3, ACK, b""),
    ];
    assert_eq!(pair.sent(), expected.concat());

    assert_eq!(pair.option(3, b""), Ok(Some(HandshakeEvent::List)));
    pair.handshake.refuse(OptionError::Policy);
    assert_eq!(pair.sent(), answer(3, POLICY, b""));
    assert_eq!(pair.option(3, b"x"), Ok(None));
    assert_eq!(pair.sent(), answer(3, INVALID, b""));
}

#[test]
fn an_abort_is_acknowledged_whatever_comes_with_it() {
    for data in [&b""[..], b"because"] {
        let mut pair = Pair::new();
        assert_eq!(pair.option(2, data), Ok(Some(HandshakeEvent::Aborted)));
        assert_eq!(pair.sent(), answer(2, ACK, b""));
        assert_eq!(pair.option(3, b""), Ok(None));
    }
}

#[test]
fn contexts_are_listed_and_selected() {
    let mut pair = Pair::new();
    pair.structured();
    for (queries, found) in [
        (&[][..], &[&b"\0\0\0\0base:allocation"[..], b"\0\0\0\0qemu:dirty-bitmap:a"][..]),
        (&["base:"], &[b"\0\0\0\0base:allocation"]),
        (&["qemu:dirty-bitmap:a", "x-y:"], &[b"\0\0\0\0qemu:dirty-bitmap:a"]),
        (&["nothing"], &[]),
    ] {
        assert!(pair.option(9, &contexts("disk", queries)).is_ok());
        pair.handshake.answer_export(disk());
        let answers = found.iter().map(|found| answer(9, META_CONTEXT, found));
        let expected: Vec<_> = answers.chain([answer(9, ACK, b"")]).collect();
        assert_eq!(pair.sent(), expected.concat(), "{queries:?}");
    }
    let queries = ["qemu:dirty-bitmap:a", "base:", "base:none", "qemu:dirty-bitmap:a"];
    assert!(pair.option(SET, &contexts("disk", &queries)).is_ok());
    pair.handshake.answer_export(disk());
    let expected =
        [answer(SET, META_CONTEXT, b"\0\0\0\x01qemu:dirty-bitmap:a"), answer(SET, ACK, b"")];
    assert_eq!(pair.sent(), expected.concat());
    let selected = MetaContext { id: 1, name: "qemu:dirty-bitmap:a".to_owned() };
    assert_eq!(pair.go("disk").contexts, [selected]);
}

#[test]
fn contexts_need_structured_replies() {
    let mut pair = Pair::new();
    assert_eq!(pair.option(SET, &contexts("disk", &[BASE_ALLOCATION])), Ok(None));
    assert_eq!(pair.sent(), answer(SET, INVALID, b""));
}

#[test]
fn contexts_are_good_for_the_export_they_were_selected_for() {
    let mut pair = Pair::new();
    pair.structured();
    pair.set_contexts("other", &[BASE_ALLOCATION]);
    assert_eq!(pair.go("disk").contexts, []);
}

#[test]
fn each_selection_takes_the_place_of_the_one_before_also_when_it_fails() {
    let select = || {
        let mut pair = Pair::new();
        pair.structured();
        pair.set_contexts("disk", &[BASE_ALLOCATION]);
        pair
    };
    assert_eq!(select().go("disk").contexts.len(), 1);

    let mut nothing = select();
    nothing.set_contexts("disk", &[]);
    assert_eq!(nothing.go("disk").contexts, []);

    let mut malformed = select();
    assert_eq!(malformed.option(SET, b"x"), Ok(None));
    assert_eq!(malformed.go("disk").contexts, []);

    let mut long = select();
    assert_eq!(long.option(SET, &vec![0; 70_000]), Ok(None));
    assert_eq!(long.sent(), answer(SET, TOO_BIG, b""));
    assert_eq!(long.go("disk").contexts, []);

    let mut refused = select();
    assert!(refused.option(SET, &contexts("other", &[BASE_ALLOCATION])).is_ok());
    refused.handshake.refuse(OptionError::Unknown);
    assert_eq!(refused.go("disk").contexts, []);
}

#[test]
fn unknown_options_are_refused_and_skipped() {
    let mut pair = Pair::new();
    // The server supports none of these: PEEK_EXPORT, STARTTLS, EXTENDED_HEADERS, and undefined options.
    for option in [4, 5, 11, 0, 12, u32::MAX] {
        assert_eq!(pair.option(option, b"IHAVEOPT and more"), Ok(None));
        assert_eq!(pair.sent(), answer(option, UNSUP, b""));
    }
    assert_eq!(pair.go("disk").contexts, []);
}

#[test]
fn malformed_options_are_invalid() {
    let mut pair = Pair::new();
    pair.structured();
    let nul = info("a\0b", &[]);
    let long = info(&"a".repeat(4097), &[]);
    for option in [6, 7, 9, SET] {
        for data in [&b""[..], b"\0", b"\xff\xff\xff\xff", b"\0\0\0\0\xff\xff\xff\xff", &nul, &long]
        {
            assert_eq!(pair.option(option, data), Ok(None), "{option}: {data:?}");
            assert_eq!(pair.sent(), answer(option, INVALID, b""));
        }
    }
    assert_eq!(pair.option(8, b"x"), Ok(None));
    assert_eq!(pair.sent(), answer(8, INVALID, b""));
}

#[test]
fn a_long_option_is_skipped_without_being_held() {
    let mut pair = Pair::new();
    let len = 200_000_u32;
    let header = [IHAVEOPT, &7_u32.to_be_bytes(), &len.to_be_bytes()].concat();
    assert_eq!(pair.receive(&header), Ok(None));
    for _ in 0..len / 1000 {
        assert_eq!(pair.sent(), b""[..]);
        assert_eq!(pair.receive(&[0; 1000]), Ok(None));
        assert!(pair.input.is_empty());
    }
    assert_eq!(pair.sent(), answer(7, TOO_BIG, b""));
}

#[test]
fn a_stream_that_is_no_handshake_ends() {
    let mut pair = Pair { handshake: Handshake::new(), input: BytesMut::new() };
    assert_eq!(pair.receive(&[0, 0, 0, 4]), Err(ProtocolError::ClientFlags(4)));
    let magic = u64::from_be_bytes(*b"GET / HT");
    let expected = Err(ProtocolError::Magic { message: "option", value: magic });
    assert_eq!(Pair::new().receive(b"GET / HTTP/1.1\r\n"), expected);
}

#[test]
fn a_client_does_not_go_on_with_options_without_an_end() {
    let mut pair = Pair::new();
    for _ in 0..1024 {
        assert_eq!(pair.option(12, b""), Ok(None));
        let _ = pair.sent();
    }
    assert_eq!(pair.option(12, b""), Err(ProtocolError::Options(1024)));
}

#[test]
fn nothing_is_taken_while_a_question_is_open() {
    let mut pair = Pair::new();
    assert_eq!(pair.option(3, b""), Ok(Some(HandshakeEvent::List)));
    assert_eq!(pair.option(3, b""), Ok(None));
    assert_eq!(pair.input.len(), 16);
    pair.handshake.answer_list([]);
    assert_eq!(pair.receive(b""), Ok(Some(HandshakeEvent::List)));
}

#[test]
fn a_server_without_tls_goes_on_without_it() {
    for mut pair in [Pair::new(), Pair::with_tls(TlsPolicy::Off)] {
        for _ in 0..2 {
            assert_eq!(pair.option(5, b""), Ok(None));
            assert_eq!(pair.sent(), answer(5, UNSUP, b""));
        }
        pair.structured();
        assert!(pair.go("disk").structured);
    }
}

#[test]
fn a_client_need_not_start_tls_where_it_is_allowed() {
    let mut pair = Pair::with_tls(TlsPolicy::Allow);
    assert_eq!(pair.option(3, b""), Ok(Some(HandshakeEvent::List)));
    pair.handshake.answer_list([]);
    assert_eq!(pair.sent(), answer(3, ACK, b""));
    pair.structured();
    pair.set_contexts("disk", &[BASE_ALLOCATION]);
    assert_eq!(pair.go("disk").contexts.len(), 1);
}

#[test]
fn nothing_that_was_agreed_in_clear_text_holds_over_tls() {
    let secured = || {
        let mut pair = Pair::with_tls(TlsPolicy::Allow);
        pair.structured();
        pair.set_contexts("disk", &[BASE_ALLOCATION]);
        pair.start_tls();
        pair
    };
    let negotiated = secured().go("disk");
    assert!(!negotiated.structured && negotiated.contexts.is_empty());
    assert!(!negotiated.export.flags.contains(TransmissionFlags::DONT_FRAGMENT));

    let mut pair = secured();
    assert_eq!(pair.option(SET, &contexts("disk", &[BASE_ALLOCATION])), Ok(None));
    assert_eq!(pair.sent(), answer(SET, INVALID, b""));

    let mut pair = secured();
    pair.structured();
    assert_eq!(pair.go("disk").contexts, []);
}

#[test]
fn nothing_is_told_before_tls_where_it_is_required() {
    let mut pair = Pair::with_tls(TlsPolicy::Require);
    let (go, meta, long) = (info("disk", &[]), contexts("disk", &[]), vec![0; 70_000]);
    for (code, data) in [
        (3, &b""[..]),
        (6, &go),
        (7, &go),
        (8, b""),
        (9, &meta),
        (SET, &meta),
        (12, b""),
        // Malformed, and too long.
        (3, b"x"),
        (7, b"\0"),
        (7, &long),
    ] {
        assert_eq!(pair.option(code, data), Ok(None));
        assert_eq!(pair.sent(), answer(code, TLS_REQD, b""), "{code}");
    }
    assert_eq!(pair.option(2, b""), Ok(Some(HandshakeEvent::Aborted)));
    assert_eq!(pair.sent(), answer(2, ACK, b""));

    let mut pair = Pair::with_tls(TlsPolicy::Require);
    let error = OptionError::TlsRequired;
    let expected = Err(ProtocolError::Export { name: String::new(), error });
    assert_eq!(pair.option(1, b"disk"), expected);
    assert_eq!(pair.option(5, b""), expected);
    assert_eq!(pair.sent(), b""[..]);
}

#[test]
fn everything_works_over_tls_where_it_is_required() {
    let mut pair = Pair::with_tls(TlsPolicy::Require);
    assert_eq!(pair.option(3, b""), Ok(None));
    assert_eq!(pair.sent(), answer(3, TLS_REQD, b""));
    pair.start_tls();
    assert_eq!(pair.option(3, b""), Ok(Some(HandshakeEvent::List)));
    pair.handshake.answer_list([("disk", None)]);
    assert_eq!(pair.sent(), [answer(3, SERVER, b"\0\0\0\x04disk"), answer(3, ACK, b"")].concat());
    for (code, data) in [(6, info("disk", &[])), (9, contexts("disk", &[]))] {
        assert_eq!(pair.option(code, &data), Ok(Some(HandshakeEvent::Export("disk".to_owned()))));
        pair.handshake.answer_export(disk());
        assert!(pair.sent().ends_with(&answer(code, ACK, b"")));
    }
    assert_eq!(pair.option(12, b""), Ok(None));
    assert_eq!(pair.sent(), answer(12, UNSUP, b""));
    pair.structured();
    pair.set_contexts("disk", &[BASE_ALLOCATION]);
    let negotiated = pair.go("disk");
    assert!(negotiated.structured && negotiated.contexts.len() == 1);

    let mut pair = Pair::secured(TlsPolicy::Require);
    assert!(pair.option(1, b"disk").is_ok());
    pair.handshake.answer_export(disk());
    assert_eq!(pair.negotiated().name, "disk");

    let mut pair = Pair::secured(TlsPolicy::Require);
    assert_eq!(pair.option(2, b""), Ok(Some(HandshakeEvent::Aborted)));
}

#[test]
fn tls_is_started_once_and_without_data() {
    for tls in [TlsPolicy::Allow, TlsPolicy::Require] {
        let mut pair = Pair::with_tls(tls);
        for data in [&b"x"[..], &option(3, b""), &[0; 70_000]] {
            assert_eq!(pair.option(5, data), Ok(None));
            assert_eq!(pair.sent(), answer(5, INVALID, b""));
        }
        pair.start_tls();
        pair.structured();
        assert_eq!(pair.option(5, b""), Ok(None));
        assert_eq!(pair.sent(), answer(5, INVALID, b""));
        assert!(pair.go("disk").structured);
    }
}

#[test]
fn clear_text_is_not_taken_for_an_encrypted_option() {
    let (start, next) = (option(5, b""), option(3, b""));
    for tls in [TlsPolicy::Allow, TlsPolicy::Require] {
        for len in 1..=next.len() {
            let mut pair = Pair::with_tls(tls);
            let error = Err(ProtocolError::ClearText);
            assert_eq!(pair.receive(&[&start, &next[..len]].concat()), error, "{len}");
            assert_eq!(pair.receive(b""), error);
            assert_eq!(pair.receive(&next[len..]), error);
        }
    }
}

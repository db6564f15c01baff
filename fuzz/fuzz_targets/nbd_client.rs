//! Feeds any bytes as from an NBD server, in pieces of any length. The client's half must not panic, must
//! consume the input to its end, and must end each request at most once. A read that succeeds must have all of
//! its bytes. Over TLS, the export's name must not be sent in clear text.
#![no_main]

use std::collections::BTreeSet;

use bytes::BytesMut;
use iscsi_fuzz as _;
use iscsi_nbd::client::{Answer, Goal, Handshake, HandshakeOutcome, Negotiated, Transmission};
use iscsi_nbd::{BASE_ALLOCATION, Command, Export, MetaContext, TransmissionFlags};
use libfuzzer_sys::fuzz_target;

/// Bytes of the longest reply to an option that is not refused, with its head.
const MAX_ANSWER: usize = 64 * 1024 + 20;
const NAME: &str = "disk";

fn goal(is_list: bool) -> Goal {
    if is_list {
        return Goal::List;
    }
    let contexts = vec![BASE_ALLOCATION.to_owned()];
    Goal::Export { name: NAME.to_owned(), contexts }
}

/// Returns a negotiation, so that the fuzzer need not guess one.
fn agreed(structured: bool) -> Negotiated {
    let context = |id| MetaContext { id, name: String::new() };
    Negotiated {
        export: Export {
            size: 1 << 20,
            flags: TransmissionFlags::from_bits(0x0dfd),
            ..Export::default()
        },
        structured,
        contexts: vec![context(0), context(1)],
        ..Negotiated::default()
    }
}

/// Runs a handshake. After the start of TLS, the pieces count as decrypted.
fn shake<'a>(
    goal: Goal,
    over_tls: bool,
    input: &mut BytesMut,
    pieces: &mut impl Iterator<Item = &'a [u8]>,
) -> Option<Negotiated> {
    let handshake = Handshake::new(goal);
    let mut handshake = if over_tls { handshake.over_tls() } else { handshake };
    let mut needs_tls = over_tls;
    loop {
        let outcome = handshake.receive(input);
        if let Ok(Some(HandshakeOutcome::StartTls)) = outcome {
            assert!(needs_tls, "TLS is off, or was started before");
            assert!(input.is_empty(), "clear text counts as decrypted");
            assert!(handshake.poll_transmit().is_none(), "clear text would be sent encrypted");
            needs_tls = false;
            continue;
        }
        while let Some(sent) = handshake.poll_transmit() {
            let is_named = sent.windows(NAME.len()).any(|bytes| bytes == NAME.as_bytes());
            assert!(!(needs_tls && is_named), "the name is sent in clear text");
        }
        match outcome {
            Err(_) => return None,
            Ok(None) => {
                assert!(input.len() < MAX_ANSWER, "the input is not taken");
                input.extend_from_slice(pieces.next()?);
            }
            Ok(Some(outcome)) => {
                assert!(!needs_tls, "there is no TLS");
                let HandshakeOutcome::Negotiated(negotiated) = outcome else { return None };
                return Some(negotiated);
            }
        }
    }
}

fn transmit<'a>(
    negotiated: &Negotiated,
    input: &mut BytesMut,
    pieces: &mut impl Iterator<Item = &'a [u8]>,
) {
    let mut transmission = Transmission::new(negotiated);
    let reads = [(0, 4096), (4096, 512), (512, 64)]
        .map(|(offset, len)| transmission.read_into(offset, BytesMut::zeroed(len)));
    let others = [
        (Command::BlockStatus { one: false }, 65536),
        (Command::BlockStatus { one: true }, 4096),
        (Command::Write { fua: true }, 512),
        (Command::Flush, 0),
    ]
    .map(|(command, length)| transmission.submit(command, 0, length));
    let requests = reads.into_iter().chain(others).flatten();
    let mut live: BTreeSet<_> = requests.map(|request| request.cookie).collect();
    loop {
        match transmission.receive(input) {
            Ok(Some(completed)) => {
                assert!(live.remove(&completed.request.cookie), "a request ended twice");
                match completed.outcome {
                    Ok(Answer::Data(data)) => {
                        assert_eq!(data.len(), completed.request.length as usize);
                    }
                    Ok(Answer::BlockStatus(status)) => {
                        assert_eq!(status.len(), negotiated.contexts.len());
                        let extents = status.iter().flat_map(|status| &status.extents);
                        assert!(extents.clone().count() > 0);
                        assert!(extents.clone().all(|extent| extent.length > 0));
                    }
                    Ok(Answer::Done) | Err(_) => {}
                }
            }
            Ok(None) => {
                assert!(input.len() < transmission.wanted(), "the input is not taken");
                let Some(mut piece) = pieces.next() else { break };
                if input.is_empty() {
                    // The data of a read may be received directly into their buffer, and not through the input
                    // buffer.
                    let landing = transmission.landing();
                    let direct = landing.len().min(piece.len());
                    landing[..direct].copy_from_slice(&piece[..direct]);
                    transmission.landed(direct);
                    piece = &piece[direct..];
                }
                input.extend_from_slice(piece);
            }
            Err(_) => break,
        }
    }
    assert_eq!(transmission.requests().len(), live.len());
}

fuzz_target!(|data: &[u8]| {
    let Some((&[choice, cut], data)) = data.split_first_chunk::<2>() else { return };
    let mut pieces = data.chunks(usize::from(cut).max(1));
    let mut input = BytesMut::new();
    let negotiated = if choice & 1 == 0 {
        agreed(choice & 2 == 0)
    } else {
        let goal = goal(choice & 2 != 0);
        let found = shake(goal, choice & 4 != 0, &mut input, &mut pieces);
        let Some(found) = found else { return };
        found
    };
    transmit(&negotiated, &mut input, &mut pieces);
});

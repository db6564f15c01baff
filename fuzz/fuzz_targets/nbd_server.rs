//! Feeds any bytes as from an NBD client, in pieces of any length. The server's half must not panic, must
//! consume the input to its end, must buffer at most what it states, and must return only requests that the
//! export allows. Where TLS is required, it must ask and tell nothing before.
#![no_main]

use bytes::BytesMut;
use iscsi_fuzz as _;
use iscsi_nbd::server::{
    Handshake, HandshakeEvent, Negotiated, TlsPolicy, Transmission, TransmissionEvent,
};
use iscsi_nbd::{
    BASE_ALLOCATION, BlockSizes, Command, Export, OptionError, Request, TransmissionFlags,
};
use libfuzzer_sys::fuzz_target;

/// A valid handshake, so that the fuzzer need not guess one: flags, structured replies, a context, and
/// NBD_OPT_GO.
const GOOD: &[u8] = b"\0\0\0\x03IHAVEOPT\0\0\0\x08\0\0\0\0\
    IHAVEOPT\0\0\0\x0a\0\0\0\x1b\0\0\0\0\0\0\0\x01\0\0\0\x0fbase:allocation\
    IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0";
/// Bytes of the longest option that is not skipped, with its head.
const MAX_OPTION: usize = 64 * 1024 + 16;

fn export(flags: u16) -> Export {
    Export {
        size: 1 << 20,
        flags: TransmissionFlags::from_bits(flags),
        block_sizes: BlockSizes { minimum: 512, preferred: 4096, maximum: 1 << 20 },
        contexts: vec![BASE_ALLOCATION.to_owned()],
        ..Export::default()
    }
}

/// Runs a handshake on the input, as far as the input is valid. After the start of TLS, the input counts as
/// decrypted, and `tls` becomes [`TlsPolicy::Off`]: nothing more is required, and TLS cannot start again.
fn shake(
    handshake: &mut Handshake,
    input: &mut BytesMut,
    flags: u16,
    tls: &mut TlsPolicy,
) -> Option<Option<Negotiated>> {
    loop {
        let event = handshake.receive(input);
        if let Ok(Some(event)) = &event {
            let is_free = matches!(event, HandshakeEvent::StartTls | HandshakeEvent::Aborted);
            assert!(is_free || *tls != TlsPolicy::Require, "TLS is required");
        }
        match event {
            Ok(Some(HandshakeEvent::StartTls)) => {
                assert!(*tls != TlsPolicy::Off, "TLS is off, or was started before");
                assert!(input.is_empty(), "clear text counts as decrypted");
                *tls = TlsPolicy::Off;
            }
            Ok(Some(HandshakeEvent::List)) => handshake.answer_list([("", None)]),
            Ok(Some(HandshakeEvent::Export(name))) if name.len() < 4 => {
                handshake.answer_export(export(flags));
            }
            Ok(Some(HandshakeEvent::Export(_))) => handshake.refuse(OptionError::Unknown),
            Ok(Some(HandshakeEvent::Negotiated(negotiated))) => return Some(Some(negotiated)),
            Ok(Some(HandshakeEvent::Aborted)) | Err(_) => return Some(None),
            Ok(None) => {
                assert!(input.len() < MAX_OPTION, "the input is not taken");
                while handshake.poll_transmit().is_some() {}
                return None;
            }
        }
    }
}

fn check(request: &Request, export: &Export, len: Option<usize>) {
    let end = request.offset.checked_add(request.length.into());
    let offered = |flag| export.flags.contains(flag);
    let is_write = match request.command {
        Command::Flush => return assert!(offered(TransmissionFlags::FLUSH)),
        Command::Read { .. } | Command::Cache | Command::BlockStatus { .. } => false,
        Command::Write { .. } | Command::Trim { .. } | Command::WriteZeroes { .. } => true,
    };
    assert!(end.is_some_and(|end| end <= export.size) && request.length > 0);
    assert!(request.offset % 512 == 0 && request.length % 512 == 0);
    assert!(!is_write || !offered(TransmissionFlags::READ_ONLY));
    assert!(len.is_none_or(|len| len == request.length as usize));
}

fuzz_target!(|data: &[u8]| {
    let Some((&[choice, cut, high, low], data)) = data.split_first_chunk::<4>() else { return };
    let flags = u16::from_be_bytes([high, low]);
    let is_good = choice & 1 == 0;
    let mut tls = match choice >> 1 & 3 {
        0 => TlsPolicy::Off,
        3 if !is_good => TlsPolicy::Require,
        _ => TlsPolicy::Allow,
    };
    let mut handshake = Handshake::new().with_tls(tls);
    let mut input = BytesMut::new();
    let mut negotiated = None;
    if is_good {
        input.extend_from_slice(GOOD);
        negotiated = shake(&mut handshake, &mut input, flags, &mut tls).flatten();
        assert!(negotiated.as_ref().is_some_and(|found| found.contexts.len() == 1));
    }
    let mut pieces = data.chunks(usize::from(cut).max(1));
    while negotiated.is_none() {
        let Some(piece) = pieces.next() else { return };
        input.extend_from_slice(piece);
        match shake(&mut handshake, &mut input, flags, &mut tls) {
            None => {}
            Some(None) => return,
            Some(found) => negotiated = found,
        }
    }
    let Some(negotiated) = negotiated else { return };
    let mut transmission = Transmission::new(&negotiated);
    let replies = transmission.replies();
    loop {
        match transmission.receive(&mut input) {
            Ok(Some(TransmissionEvent::Request(request))) => {
                check(&request, &negotiated.export, None);
                let _ = replies.read(&request);
            }
            Ok(Some(TransmissionEvent::Write(request, data))) => {
                check(&request, &negotiated.export, Some(data.len()));
            }
            Ok(Some(TransmissionEvent::Refused(refused))) => {
                let _ = replies.refuse(&refused);
            }
            Ok(Some(TransmissionEvent::Disconnect)) | Err(_) => return,
            Ok(None) => {
                assert!(input.len() < transmission.expected().len(), "the input is not taken");
                let Some(piece) = pieces.next() else { return };
                input.extend_from_slice(piece);
            }
        }
    }
});

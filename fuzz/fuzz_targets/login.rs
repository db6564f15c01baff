//! Feeds the texts of login responses to a session that authenticates by CHAP, or demands that the target does as
//! well. A target without the secret must never be logged in to by mutual CHAP, and no secret may be sent.
#![no_main]

use std::time::{Duration, Instant};

use bytes::Buf;
use iscsi_fuzz::feed;
use iscsi_pdu::{Cid, IscsiName, Isid};
use iscsi_session::{Chap, Config, Output, Session, SessionKind, TargetCredentials};
use libfuzzer_sys::fuzz_target;

const SECRET: &str = "the secret of this side";
const TARGET_SECRET: &str = "and that of the target";
/// Length of a basic header segment.
const BHS: usize = 48;
/// The bits of the first byte of an input.
const IS_MUTUAL: u8 = 1;
const IS_DISCOVERY: u8 = 2;

fn session(choice: u8, entropy: [u8; 32], now: Instant) -> Option<Session> {
    let name = IscsiName::parse("iqn.2026-01.org.example:host").ok()?;
    let target_name = IscsiName::parse("iqn.2026-01.org.example:disk").ok()?;
    let kind = match choice & IS_DISCOVERY {
        0 => SessionKind::Normal { target_name },
        _ => SessionKind::Discovery,
    };
    let mut config = Config::new(name, Isid::random([0; 3], 0), kind);
    let mut chap = Chap::new("user", SECRET.into());
    chap.target = (choice & IS_MUTUAL != 0)
        .then(|| TargetCredentials::new(TARGET_SECRET.into()).with_user("target"));
    config.chap = Some(chap);
    let entropy = move |bytes: &mut [u8]| {
        bytes.iter_mut().zip(entropy.iter().cycle()).for_each(|(to, from)| *to = *from);
    };
    let mut session = Session::new(config, entropy, now);
    session.handle_connected(Cid(0), now);
    Some(session)
}

/// Takes all outputs. Returns whether the session has logged in, and the basic header segment of the last request.
fn drain(session: &mut Session, now: Instant, request: &mut [u8]) -> bool {
    let mut is_logged_in = false;
    loop {
        while let Some(output) = session.poll_output() {
            is_logged_in |= matches!(output, Output::LoggedIn { .. });
        }
        let mut sent = Vec::new();
        while let Some(mut transmit) = session.poll_transmit(Cid(0), now) {
            while transmit.has_remaining() {
                let part = transmit.chunk();
                sent.extend_from_slice(part);
                let len = part.len();
                transmit.advance(len);
            }
        }
        if sent.is_empty() {
            return is_logged_in;
        }
        for secret in [SECRET, TARGET_SECRET] {
            let shows = sent.windows(secret.len()).any(|part| part == secret.as_bytes());
            assert!(!shows, "a secret is sent");
        }
        if let Some(header) = sent.get(..BHS) {
            request.copy_from_slice(header);
        }
    }
}

/// Returns a login response to `request` (RFC 7143 §11.13): `flags` are its stages, `status` its class and detail.
fn response(request: &[u8], stat_sn: u32, flags: u8, status: [u8; 2], text: &[u8]) -> Vec<u8> {
    let mut pdu = vec![0; BHS];
    pdu[0] = 0x23;
    pdu[1] = flags;
    pdu[5..8].copy_from_slice(&(text.len() as u32).to_be_bytes()[1..]);
    pdu[8..14].copy_from_slice(&request[8..14]);
    pdu[15] = 1;
    pdu[16..20].copy_from_slice(&request[16..20]);
    pdu[24..28].copy_from_slice(&stat_sn.to_be_bytes());
    pdu[28..32].copy_from_slice(&request[24..28]);
    pdu[35] = 64;
    pdu[36..38].copy_from_slice(&status);
    pdu.extend_from_slice(text);
    pdu.resize(pdu.len().next_multiple_of(4), 0);
    pdu
}

fuzz_target!(|data: &[u8]| {
    let Some((&choice, mut rest)) = data.split_first() else { return };
    let mut now = Instant::now();
    // Each input has challenges of its own, so that none can contain the right answer to them.
    let Some(mut session) = session(choice, *blake3::hash(data).as_bytes(), now) else { return };
    let mut request = [0; BHS];
    let mut is_logged_in = drain(&mut session, now, &mut request);
    let mut stat_sn = 0;
    // Each response is its flags, its status and the length of its text.
    while let Some((&[flags, class, detail, low, high], behind)) = rest.split_first_chunk::<5>() {
        let len = usize::from(u16::from_le_bytes([low, high])).min(behind.len());
        let (text, behind) = behind.split_at(len);
        rest = behind;
        let pdu = response(&request, stat_sn, flags, [class, detail], text);
        feed(&mut session, &pdu, now);
        stat_sn += 1;
        is_logged_in |= drain(&mut session, now, &mut request);
    }
    assert!(
        !is_logged_in || choice & IS_MUTUAL == 0,
        "the target has not proved to know the secret"
    );
    session.logout(now);
    for _ in 0..20 {
        drain(&mut session, now, &mut request);
        now += Duration::from_secs(30);
        session.handle_timeout(now);
    }
    drain(&mut session, now, &mut request);
    assert!(session.is_ended(), "the session hangs: {session:?}");
});

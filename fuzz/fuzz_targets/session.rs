//! Feeds any bytes as from a target, in pieces of any length. The session must neither panic nor hang. Each
//! command must end at most once, and at the end of the session exactly once.
#![no_main]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use iscsi_fuzz::feed;
use iscsi_pdu::scsi::{Cdb, Lun};
use iscsi_pdu::{Cid, IscsiName, Isid, Itt};
use iscsi_session::{Command, Config, Output, Session, SessionKind};
use libfuzzer_sys::fuzz_target;

/// The login response of a target that accepts everything, so that the fuzzer need not guess one.
const LOGIN_RESPONSE: [u8; 48] = {
    let mut bhs = [0; 48];
    bhs[0] = 0x23;
    bhs[1] = 0x87;
    bhs[8] = 0x80;
    bhs[15] = 1;
    bhs[31] = 1;
    bhs[35] = 64;
    bhs
};

fn session(now: Instant) -> Option<Session> {
    let name = IscsiName::parse("iqn.2026-01.org.example:host").ok()?;
    let target_name = IscsiName::parse("iqn.2026-01.org.example:disk").ok()?;
    let config = Config::new(name, Isid::random([0; 3], 0), SessionKind::Normal { target_name });
    let mut session = Session::new(config, |bytes: &mut [u8]| bytes.fill(1), now);
    session.handle_connected(Cid(0), now);
    Some(session)
}

fn drain(session: &mut Session, now: Instant, live: &mut BTreeSet<Itt>) {
    while let Some(output) = session.poll_output() {
        if let Output::Completed { itt, .. } = output {
            assert!(live.remove(&itt), "a command ended twice");
        }
    }
    while let Some(mut transmit) = session.poll_transmit(Cid(0), now) {
        transmit.advance(transmit.remaining());
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&[choice, cut], data)) = data.split_first_chunk::<2>() else { return };
    let mut now = Instant::now();
    let Some(mut session) = session(now) else { return };
    let mut live = BTreeSet::new();
    drain(&mut session, now, &mut live);
    if choice & 1 == 0 {
        feed(&mut session, &LOGIN_RESPONSE, now);
    }
    let read = Command::new(Lun::ZERO, Cdb::read_10(0, 8)).with_read(BytesMut::zeroed(4096));
    let write = Command::new(Lun::ZERO, Cdb::write_10(0, 200)).with_write(vec![1; 102_400]);
    for command in [read, write] {
        live.extend(session.submit(command, now));
    }
    drain(&mut session, now, &mut live);
    for piece in data.chunks(usize::from(cut).max(1)) {
        feed(&mut session, piece, now);
        drain(&mut session, now, &mut live);
    }
    if let Some(itt) = live.first().copied().filter(|_| choice & 2 == 0) {
        session.abort(itt, now);
    }
    session.logout(now);
    for _ in 0..100 {
        drain(&mut session, now, &mut live);
        now += Duration::from_secs(30);
        session.handle_timeout(now);
    }
    drain(&mut session, now, &mut live);
    assert!(live.is_empty() && session.is_ended(), "the session hangs: {session:?}");
});

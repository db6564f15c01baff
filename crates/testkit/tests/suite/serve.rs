//! Tests of the target over TCP, also with full buffers in both directions.

#![cfg(feature = "serve")]

use std::time::Duration;

use crate::rig::{NAME, NAMES, pattern};
use bytes::BytesMut;
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::fault::Fault;
use iscsi_testkit::frame::Framing;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::{FINAL, NO_TAG, Pdu};
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;
use iscsi_testkit::text::Pairs;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Number of bytes that each command of these tests moves.
const LENGTH: usize = 1 << 20;

struct Client {
    stream: TcpStream,
    inbox: BytesMut,
}

impl Client {
    async fn login(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address()).await.unwrap();
        let mut client = Self { stream, inbox: BytesMut::new() };
        let mut request = Pdu::new(Opcode::LoginRequest);
        request.header[0] |= 0x40;
        request.header[1] = FINAL | 7;
        request.set(8, &[0x80, 0, 0, 0, 0, 1]);
        let keys = [("MaxRecvDataSegmentLength", "262144"), ("InitialR2T", "No")];
        let offer = [("MaxBurstLength", "1048576"), ("FirstBurstLength", "262144")];
        let all = NAMES.into_iter().chain(keys).chain(offer);
        request.data = all.collect::<Pairs>().join().into();
        client.send(&request).await;
        assert_eq!(client.next().await.login_status(), 0);
        client
    }

    async fn send(&mut self, pdu: &Pdu) {
        let mut bytes = BytesMut::new();
        Framing::PLAIN.put(pdu, &mut bytes);
        self.stream.write_all(&bytes).await.unwrap();
    }

    async fn next(&mut self) -> Pdu {
        loop {
            if let Some(pdu) = Framing::PLAIN.take(&mut self.inbox, 1 << 24).unwrap() {
                return pdu;
            }
            assert_ne!(self.stream.read_buf(&mut self.inbox).await.unwrap(), 0, "closed");
        }
    }
}

/// Returns command number `nth`: a transfer of [`LENGTH`] bytes at the `nth` place of the disk.
fn command(nth: u32, code: u8, flags: u8, acknowledged: u32) -> Pdu {
    let mut pdu = Pdu::new(Opcode::ScsiCommand);
    pdu.header[1] = flags;
    for (at, value) in [(16, nth + 1), (20, 1 << 20), (24, nth), (28, acknowledged)] {
        pdu.set_u32(at, value);
    }
    let [.., high, low] = (nth * 2048).to_be_bytes();
    pdu.set(32, &[code, 0, 0, 0, high, low, 0, 8, 0, 0]);
    pdu
}

fn config() -> TargetConfig {
    TargetConfig::new(NAME, RamDisk::new(512, 16 * 2048))
}

#[tokio::test]
async fn bytes_written_are_read_back() {
    let server = Server::start(Target::new(config())).await.unwrap();
    let mut client = Client::login(&server).await;
    let data = pattern(LENGTH);
    let mut write = command(0, 0x2a, 0xa1, 2);
    write.data = data[..262_144].to_vec().into();
    client.send(&write).await;
    let r2t = client.next().await;
    assert_eq!((r2t.buffer_offset(), r2t.desired_length()), (262_144, 786_432));
    for (nth, at) in (1..4).map(|nth| (nth, nth * 262_144)) {
        let mut out = Pdu::new(Opcode::DataOut);
        out.header[1] = if nth == 3 { FINAL } else { 0 };
        let at32 = u32::try_from(at).unwrap();
        for (place, value) in
            [(16, 1), (20, r2t.ttt()), (28, 2), (36, at32 / 262_144 - 1), (40, at32)]
        {
            out.set_u32(place, value);
        }
        out.data = data[at..at + 262_144].to_vec().into();
        client.send(&out).await;
    }
    assert_eq!(client.next().await.status(), 0);
    client.send(&command(1, 0x28, 0xc1, 3)).await;
    client.next().await;
    assert!(server.with(|target| target.disk(0).unwrap().holds(0, &data)));
    assert_eq!(server.with(|target| target.violations().to_vec()), []);
    server.stop().await;
}

/// RFC 7143 appendix C: SendTargets returns the address at which the target is served.
#[tokio::test]
async fn send_targets_lists_the_address() {
    let server = Server::start(Target::new(config())).await.unwrap();
    let mut client = Client::login(&server).await;
    let address = format!("{},1", server.address());
    for (number, which) in [(0, ""), (1, NAME)] {
        let mut request = Pdu::new(Opcode::TextRequest);
        request.set_u32(16, number + 1);
        request.set_u32(20, NO_TAG);
        request.set_u32(24, number);
        request.data = [("SendTargets", which)].into_iter().collect::<Pairs>().join().into();
        client.send(&request).await;
        let answer = Pairs::split(&client.next().await.data).unwrap();
        assert_eq!(answer.get("TargetName"), Some(NAME));
        assert_eq!(answer.get("TargetAddress"), Some(&*address));
    }
    server.stop().await;
}

/// An initiator that writes without reading, while the target has megabytes to send, causes no deadlock.
#[tokio::test]
async fn full_buffers_both_ways_are_no_deadlock() {
    let server = Server::start(Target::new(config())).await.unwrap();
    let mut client = Client::login(&server).await;
    for nth in 0..16 {
        client.send(&command(nth, 0x28, 0xc1, 2)).await;
    }
    let mut ping = Pdu::new(Opcode::NopOut);
    ping.header[0] |= 0x40;
    ping.set_u32(20, NO_TAG);
    ping.set_u32(24, 16);
    ping.set_u32(28, 2);
    ping.data = pattern(200_000).into();
    for nth in 0..40 {
        ping.set_u32(16, 1000 + nth);
        client.send(&ping).await;
    }
    let (mut bytes, mut answers) = (0, 0);
    while answers < 40 {
        let pdu = client.next().await;
        if pdu.is(Opcode::DataIn) {
            bytes += pdu.data.len();
        } else {
            answers += 1;
        }
    }
    assert_eq!(bytes, 16 * LENGTH);
}

#[tokio::test]
async fn a_change_from_outside_reaches_the_wire() {
    let server = Server::start_at("127.0.0.1:0", Target::new(config()), Duration::from_millis(5))
        .await
        .unwrap();
    let mut client = Client::login(&server).await;
    let live = server.with(|target| target.live_connections());
    server.with(|target| target.ping(live[0], 0));
    assert!(client.next().await.is(Opcode::NopIn));
    server.with(|target| target.drop_connection(live[0]));
    assert_eq!(client.stream.read(&mut [0]).await.unwrap(), 0);
    server.stop().await;
    assert_eq!(client.stream.read(&mut [0]).await.unwrap(), 0);
}

/// A delayed response is sent without another event, because the connection waits for the deadline of the
/// target.
#[tokio::test]
async fn a_delayed_answer_comes_without_another_event() {
    let mut config = config();
    config.faults.push(Fault::delay(.., Duration::from_millis(1)));
    let server = Server::start(Target::new(config)).await.unwrap();
    let mut client = Client::login(&server).await;
    client.send(&command(0, 0x28, 0xc1, 2)).await;
    assert!(client.next().await.is(Opcode::DataIn));
    server.stop().await;
}

#[tokio::test]
async fn stopping_closes_everything() {
    let server = Server::start(Target::new(config())).await.unwrap();
    let address = server.address();
    let mut client = Client::login(&server).await;
    server.stop().await;
    assert_eq!(client.stream.read(&mut [0]).await.unwrap(), 0);
    assert!(TcpStream::connect(address).await.is_err());
}

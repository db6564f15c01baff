use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use iscsi_initiator::TlsOptions;
use rcgen::{CertificateParams, KeyPair, PublicKeyData as _};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection};
use sha2::{Digest as _, Sha256};

use super::*;
use crate::config::{Protocol, make};

/// The bytes on their way between the socket and the server.
struct Wire {
    to_client: VecDeque<u8>,
    to_server: VecDeque<u8>,
    /// Number of bytes that the next writes of the client may send.
    room: usize,
    /// Whether writes of the client fail.
    is_broken: bool,
    /// Number of bytes that make the client's end readable.
    low_water: usize,
    pacing: Option<Rate>,
}

/// The client's end of the wire.
struct End(Arc<Mutex<Wire>>);

struct Server {
    connection: ServerConnection,
    wire: Arc<Mutex<Wire>>,
}

/// Counts how often a task is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Socket for End {
    fn poll_readable(&self, _: &mut Context<'_>) -> Poll<()> {
        let wire = self.0.lock().unwrap();
        if wire.to_client.len() < wire.low_water { Poll::Pending } else { Poll::Ready(()) }
    }

    fn poll_writable(&self, _: &mut Context<'_>) -> Poll<()> {
        let wire = self.0.lock().unwrap();
        if wire.room > 0 || wire.is_broken { Poll::Ready(()) } else { Poll::Pending }
    }

    fn read(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut wire = self.0.lock().unwrap();
        if wire.to_client.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        wire.to_client.read(&mut slices[0])
    }

    fn read_unasked(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.read(slices)
    }

    fn write(&self, slices: &[IoSlice<'_>], _: bool) -> io::Result<usize> {
        let mut wire = self.0.lock().unwrap();
        if wire.is_broken {
            return Err(ErrorKind::BrokenPipe.into());
        }
        if wire.room == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = slices[0].len().min(wire.room);
        wire.to_server.extend(&slices[0][..count]);
        wire.room -= count;
        Ok(count)
    }

    fn tcp_info(&self) -> io::Result<TcpInfo> {
        Ok(TcpInfo::default())
    }

    fn apply(&self, _: &Plan) -> Granted {
        Granted::default()
    }

    fn limit_pacing(&self, rate: Option<Rate>) -> io::Result<()> {
        self.0.lock().unwrap().pacing = rate;
        Ok(())
    }

    fn set_receive_low_water(&self, bytes: usize) -> io::Result<()> {
        self.0.lock().unwrap().low_water = bytes;
        Ok(())
    }

    fn interface(&self) -> Option<Interface> {
        None
    }

    fn set_abortive(&self) {}
}

impl Server {
    fn new(wire: Arc<Mutex<Wire>>, key: &KeyPair) -> Self {
        let certificate = CertificateParams::new(Vec::new()).unwrap().self_signed(key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        Self { connection: ServerConnection::new(Arc::new(config)).unwrap(), wire }
    }

    /// Receives everything that the client has sent, and sends what it has to send. Returns the received bytes.
    fn exchange(&mut self) -> Vec<u8> {
        let mut wire = self.wire.lock().unwrap();
        while !wire.to_server.is_empty() {
            self.connection.read_tls(&mut wire.to_server).unwrap();
            self.connection.process_new_packets().unwrap();
        }
        while self.connection.wants_write() {
            self.connection.write_tls(&mut wire.to_client).unwrap();
        }
        let mut received = Vec::new();
        // The error says that nothing more has arrived.
        drop(self.connection.reader().read_to_end(&mut received));
        received
    }

    fn send(&mut self, bytes: &[u8]) {
        self.connection.writer().write_all(bytes).unwrap();
        self.exchange();
    }
}

/// Returns a socket and its server after the handshake.
fn connected() -> (TlsSocket, Server) {
    let (to_client, to_server) = (VecDeque::new(), VecDeque::new());
    let wire = Wire {
        to_client,
        to_server,
        room: usize::MAX,
        is_broken: false,
        low_water: 1,
        pacing: None,
    };
    let wire = Arc::new(Mutex::new(wire));
    let key = KeyPair::generate().unwrap();
    let mut server = Server::new(Arc::clone(&wire), &key);
    let mut options = TlsOptions::default();
    options.pins = vec![Sha256::digest(key.subject_public_key_info()).into()];
    let name = ServerName::try_from("san.example").unwrap();
    let connecting =
        TlsSocket::connect(Box::new(End(wire)), make(&options, Protocol::Iscsi).unwrap(), name);
    let mut connecting = pin!(connecting);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(socket) = connecting.as_mut().poll(&mut context) {
            server.exchange();
            return (socket.unwrap(), server);
        }
        server.exchange();
    }
}

/// Reads until nothing is left, with reads of `len` bytes.
fn read_all(socket: &TlsSocket, len: usize) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let mut part = vec![0; len];
        match socket.read(&mut [IoSliceMut::new(&mut part)]) {
            Ok(0) => return Ok(all),
            Ok(count) => all.extend(&part[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(all),
            Err(error) => return Err(error),
        }
    }
}

#[test]
fn a_read_fills_its_slices_from_several_records() {
    let (socket, mut server) = connected();
    let sent: Vec<u8> = (0..40_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    server.send(&sent);
    let (mut first, mut second) = (vec![0; 100], vec![0; 39_900]);
    let mut slices = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
    assert_eq!(socket.read(&mut slices).unwrap(), sent.len());
    assert_eq!([first, second].concat(), sent);
}

/// The task has found nothing to read, and waits. Then another thread reads a part of what has arrived meanwhile.
#[test]
fn a_read_that_leaves_bytes_wakes_the_task() {
    let (socket, mut server) = connected();
    drop(read_all(&socket, 100));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    assert!(socket.poll_readable(&mut context).is_pending());
    server.send(&[7; 100]);
    let mut part = [0; 10];
    assert_eq!(socket.read_unasked(&mut [IoSliceMut::new(&mut part)]).unwrap(), 10);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert!(socket.poll_readable(&mut context).is_ready());
    assert_eq!(read_all(&socket, 7).unwrap(), [7; 90]);
    assert!(socket.poll_readable(&mut context).is_pending());
}

#[test]
fn bytes_before_an_error_are_read_first() {
    let (socket, mut server) = connected();
    server.send(b"the last words");
    // A record with a wrong authentication tag.
    server.wire.lock().unwrap().to_client.extend([23, 3, 3, 0, 17].into_iter().chain([0; 17]));
    let mut bytes = [0; 100];
    assert_eq!(socket.read(&mut [IoSliceMut::new(&mut bytes)]).unwrap(), 14);
    assert_eq!(&bytes[..14], b"the last words");
    assert_eq!(read_all(&socket, 100).unwrap_err().kind(), ErrorKind::InvalidData);
}

#[test]
fn what_a_write_has_taken_is_sent_when_there_is_room() {
    let (socket, mut server) = connected();
    server.wire.lock().unwrap().room = 0;
    assert_eq!(socket.write(&[IoSlice::new(b"first")], false).unwrap(), 5);
    assert!(socket.has_unsent());
    let error = socket.write(&[IoSlice::new(b"second")], false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    let mut context = Context::from_waker(Waker::noop());
    assert!(socket.poll_writable(&mut context).is_pending());
    server.wire.lock().unwrap().room = 10;
    assert!(socket.poll_writable(&mut context).is_pending(), "a part is left");
    server.wire.lock().unwrap().room = 1000;
    assert!(socket.poll_writable(&mut context).is_ready());
    assert!(!socket.has_unsent());
    assert_eq!(server.exchange(), b"first");
}

/// After the last write no other one would return the error.
#[test]
fn an_error_of_a_late_write_is_returned_by_a_read() {
    let (socket, server) = connected();
    drop(read_all(&socket, 100));
    server.wire.lock().unwrap().room = 0;
    socket.write(&[IoSlice::new(b"first")], false).unwrap();
    server.wire.lock().unwrap().is_broken = true;
    let mut context = Context::from_waker(Waker::noop());
    assert!(socket.poll_writable(&mut context).is_ready());
    assert!(socket.poll_readable(&mut context).is_ready());
    assert_eq!(read_all(&socket, 100).unwrap_err().kind(), ErrorKind::BrokenPipe);
}

#[test]
fn an_abortive_close_sends_nothing_and_another_one_sends_close_notify() {
    for is_abortive in [false, true] {
        let (socket, mut server) = connected();
        server.wire.lock().unwrap().room = 0;
        socket.write(&[IoSlice::new(b"first")], false).unwrap();
        server.wire.lock().unwrap().room = 1000;
        if is_abortive {
            socket.set_abortive();
        }
        drop(socket);
        let received = server.exchange();
        let has_closed = server.connection.process_new_packets().unwrap().peer_has_closed();
        assert_eq!((received.is_empty(), has_closed), (is_abortive, !is_abortive));
    }
}

#[test]
fn the_peer_is_asked_for_new_keys_after_enough_bytes() {
    let (socket, mut server) = connected();
    socket.state().renewal = 100;
    for (len, is_asked) in [(60, false), (60, true), (60, false)] {
        server.send(&vec![7; len]);
        assert_eq!(read_all(&socket, 200).unwrap().len(), len);
        let has_sent = !server.wire.lock().unwrap().to_server.is_empty();
        assert_eq!(has_sent, is_asked, "nothing was written");
    }
}

#[test]
fn the_rest_of_a_record_that_was_read_in_part_makes_the_socket_readable() {
    let (socket, mut server) = connected();
    server.send(&[7; 40_000]);
    let late = server.wire.lock().unwrap().to_client.split_off(20_000);
    assert_eq!(read_all(&socket, 40_000).unwrap().len(), 16_384);
    socket.set_receive_low_water(40_000 - 16_384).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    assert!(socket.poll_readable(&mut context).is_pending());
    server.wire.lock().unwrap().to_client.extend(late);
    assert!(socket.poll_readable(&mut context).is_ready());
}

#[test]
fn a_limit_of_the_rate_leaves_room_for_the_frames_of_records() {
    let (socket, server) = connected();
    socket.limit_pacing(Some("16384kbit".parse().unwrap())).unwrap();
    assert_eq!(server.wire.lock().unwrap().pacing, Some("16406kbit".parse().unwrap()));
    socket.limit_pacing(Some(Rate::MAX)).unwrap();
    assert_eq!(server.wire.lock().unwrap().pacing, Some(Rate::MAX));
    socket.limit_pacing(None).unwrap();
    assert_eq!(server.wire.lock().unwrap().pacing, None);
}

#[test]
fn the_cipher_is_named_in_reports() {
    let (socket, _server) = connected();
    assert!(socket.encryption().unwrap().starts_with("TLS13_"), "{:?}", socket.encryption());
}

//! Serves the connection of a client.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use iscsi_initiator::device::Extent;
use iscsi_nbd::server::{
    Expected, Handshake, HandshakeEvent, Negotiated, Transmission, TransmissionEvent,
};
use iscsi_nbd::{Command, Export, OptionError, ProtocolError, Request};
use thiserror::Error as ThisError;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;

use crate::listen::Stream;
use crate::memory::{Held, Memory, Share};
use crate::outbox::{self, Reply};
use crate::pace::Pace;
use crate::requests::Requests;
use crate::stop::Stop;
use crate::tls::ClientTls;

/// Time limit of a handshake. During the handshake a connection takes a place that another client could use.
const HANDSHAKE: Duration = Duration::from_secs(30);
/// Bytes of one read during the handshake, in which options may have any length.
pub(crate) const INPUT_LEN: usize = 64 << 10;
/// Bytes of one read while a request is awaited. They are few, because there may be thousands of idle clients.
const IDLE_LEN: usize = 4 << 10;
/// Maximum number of concurrent requests of a client.
const MAX_REQUESTS: usize = 512;
/// Memory for a write before its first byte has arrived, in bytes. After that, the memory grows to twice the
/// bytes that have arrived.
const FIRST_PART: usize = 256 << 10;
/// Data shorter than this are copied out of the input buffer: otherwise they would keep the whole buffer in
/// memory.
const SHORT: usize = 16 << 10;

/// Maximum memory for a request for block status, in bytes: the device's extents, those extents after the
/// changes in the write-behind window, the parts within the request, and the reply in each of a few contexts.
const STATUS_LEN: u32 = 768 << 10;
const _: () = assert!(Extent::MAX_REPORTED * 8 * size_of::<Extent>() <= STATUS_LEN as usize);

/// Reasons why a connection ended early.
#[derive(Debug, ThisError)]
pub(crate) enum Broken {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error("the handshake took longer than {} s", HANDSHAKE.as_secs())]
    SlowHandshake,
}

/// The reason why a connection receives no more requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    /// The client sent a disconnect request.
    Goodbye,
    /// The connection was closed or lost.
    Gone,
    /// The server stops.
    Stopped,
}

/// Parts of the server that a connection uses.
pub(crate) struct Client {
    pub(crate) export: Arc<Export>,
    pub(crate) tls: Arc<ClientTls>,
    pub(crate) memory: Memory,
    pub(crate) stop: Stop,
}

impl Client {
    /// Serves the connection to its end. `begin` is called after the handshake.
    pub(crate) async fn serve(
        &self,
        stream: Box<dyn Stream>,
        begin: impl FnOnce(&Negotiated, &Transmission) -> Requests,
    ) -> Result<(), Broken> {
        let mut input = BytesMut::new();
        let handshake = timeout(HANDSHAKE, self.shake_hands(stream, &mut input));
        let Some(handshake) = self.stop.unless(handshake).await else { return Ok(()) };
        let Some((negotiated, stream)) = handshake.map_err(|_| Broken::SlowHandshake)?? else {
            return Ok(());
        };
        let (mut reader, writer) = tokio::io::split(stream);
        // The handshake may have left a large input buffer. Thousands of clients may be idle, so each gets a
        // small one.
        let input = BytesMut::from(&input[..]);
        let transmission = Transmission::new(&negotiated);
        let requests = Arc::new(begin(&negotiated, &transmission));
        let (replies, outgoing) = mpsc::unbounded_channel();
        let stop = self.stop.clone();
        let sender = tokio::spawn(async move { outbox::send_all(outgoing, writer, &stop).await });
        let desk = Desk {
            requests: Arc::clone(&requests),
            replies,
            memory: self.memory.for_client(),
            places: Arc::new(Semaphore::new(MAX_REQUESTS)),
        };
        let received = {
            let receiving = desk.receive(&mut reader, input, transmission);
            tokio::pin!(receiving);
            tokio::select! {
                biased;
                () = self.stop.requested() => Ok(End::Stopped),
                // `replies` is closed when `send_all` has failed.
                () = desk.replies.closed() => Ok(End::Gone),
                received = &mut receiving => received,
            }
        };
        // The requests in flight still hold senders, so `sender` ends after their replies.
        drop(desk);
        let sent = sender.await.map_err(io::Error::other).flatten();
        // A client disconnects only after it has received all replies. If the server stops, it has sent all
        // replies.
        let has_all = matches!(received, Ok(End::Goodbye | End::Stopped)) && sent.is_ok();
        requests.losses.end(has_all);
        received?;
        Ok(sent?)
    }

    /// Returns the negotiated options, and the stream, which is encrypted if the client has started TLS; `None` if the client aborts
    /// the handshake.
    async fn shake_hands(
        &self,
        mut stream: Box<dyn Stream>,
        input: &mut BytesMut,
    ) -> Result<Option<(Negotiated, Box<dyn Stream>)>, Broken> {
        let mut handshake = Handshake::new().with_tls(self.tls.policy());
        loop {
            let received = handshake.receive(input);
            if let Ok(Some(event)) = &received {
                self.answer_option(&mut handshake, event);
            }
            while let Some(bytes) = handshake.poll_transmit() {
                stream.write_all(&bytes).await?;
            }
            stream.flush().await?;
            match received? {
                Some(HandshakeEvent::Negotiated(negotiated)) => {
                    return Ok(Some((negotiated, stream)));
                }
                Some(HandshakeEvent::Aborted) => return Ok(None),
                Some(HandshakeEvent::StartTls) => stream = self.tls.accept(stream).await?,
                Some(HandshakeEvent::List | HandshakeEvent::Export(_)) => continue,
                None => {}
            }
            input.reserve(INPUT_LEN);
            if stream.read_buf(input).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Answers the options about exports. There is one export, under its name and as the default export.
    fn answer_option(&self, handshake: &mut Handshake, event: &HandshakeEvent) {
        match event {
            HandshakeEvent::List => {
                let description = self.export.description.as_deref();
                handshake.answer_list([(self.export.name.as_str(), description)]);
            }
            HandshakeEvent::Export(name) if name.is_empty() || *name == self.export.name => {
                handshake.answer_export(Export::clone(&self.export));
            }
            HandshakeEvent::Export(_) => handshake.refuse(OptionError::Unknown),
            HandshakeEvent::StartTls | HandshakeEvent::Negotiated(_) | HandshakeEvent::Aborted => {}
        }
    }
}

/// Receives the requests of a client, and starts their execution.
struct Desk {
    requests: Arc<Requests>,
    replies: mpsc::UnboundedSender<Reply>,
    memory: Share,
    places: Arc<Semaphore>,
}

impl Desk {
    /// Receives requests until the client disconnects.
    async fn receive(
        &self,
        reader: &mut (impl AsyncRead + Unpin),
        mut input: BytesMut,
        mut transmission: Transmission,
    ) -> Result<End, Broken> {
        let mut held = None;
        let mut pace = Pace::of_sending();
        loop {
            while let Some(event) = transmission.receive(&mut input)? {
                pace.renew();
                match event {
                    TransmissionEvent::Request(request) => {
                        let held =
                            self.memory.hold(answer_len(&request, self.requests.has_cache)).await;
                        self.begin(request, Bytes::new(), held).await;
                    }
                    TransmissionEvent::Write(request, data) => {
                        let data = if data.len() < SHORT {
                            Bytes::copy_from_slice(&data)
                        } else {
                            // Gives the data a buffer of their own, which is released when their request has
                            // ended.
                            input = BytesMut::from(&input[..]);
                            data
                        };
                        let held = match held.take() {
                            Some(held) => held,
                            None => self.memory.hold(request.length).await,
                        };
                        self.begin(request, data, held).await;
                    }
                    TransmissionEvent::Refused(refused) => {
                        let held = self.memory.hold(0).await;
                        let head = self.requests.replies.refuse(&refused);
                        self.reply(head, Bytes::new(), held);
                    }
                    TransmissionEvent::Disconnect => return Ok(End::Goodbye),
                }
            }
            let owes = match transmission.expected() {
                Expected::Payload(len) => {
                    held = Some(self.take_data(reader, &mut input, len, &mut pace).await?);
                    continue;
                }
                Expected::Request(_) => !input.is_empty(),
                Expected::Skipped(_) => true,
            };
            input.reserve(IDLE_LEN);
            let read = reader.read_buf(&mut input);
            let read = if owes { pace.wait(read).await } else { read.await };
            let count = match read {
                // A client that is killed sends no close_notify.
                Err(error) if !owes && error.kind() == io::ErrorKind::UnexpectedEof => 0,
                count => count?,
            };
            if count == 0 {
                return Ok(End::Gone);
            }
        }
    }

    /// Reads the data of a write. Memory is taken as the data arrive: a client cannot take memory by announcing
    /// a length.
    async fn take_data(
        &self,
        reader: &mut (impl AsyncRead + Unpin),
        input: &mut BytesMut,
        len: usize,
        pace: &mut Pace,
    ) -> Result<Held, Broken> {
        let (mut held, mut taken) = (Held::default(), 0);
        while input.len() < len {
            if input.len() >= taken {
                let more = taken.max(FIRST_PART).min(len - taken);
                let more32 = u32::try_from(more).unwrap_or(u32::MAX);
                // While there is no room in memory, the data stay in the socket.
                self.memory.extend(&mut held, more32).await;
                taken += more;
                input.reserve(taken - input.len().min(taken));
            }
            let mut rest = (&mut *reader).take(taken.saturating_sub(input.len()) as u64);
            if input.len() < taken && pace.wait(rest.read_buf(input)).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
        Ok(held)
    }

    /// Executes a request in a separate task. The task continues even if the client disconnects.
    async fn begin(&self, request: Request, data: Bytes, held: Held) {
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        let (requests, replies) = (Arc::clone(&self.requests), self.replies.clone());
        tokio::spawn(async move {
            let _place: Option<OwnedSemaphorePermit> = place;
            // The client may have disconnected, so an error is ignored.
            let send = |(head, data)| drop(replies.send(Reply { head, data, held }));
            requests.answer(request, data, send).await;
        });
    }

    fn reply(&self, head: Bytes, data: Bytes, held: Held) {
        drop(self.replies.send(Reply { head, data, held }));
    }
}

/// Returns the memory that the reply to a request needs, in bytes. `has_cache` says whether there is a cache
/// for reads.
const fn answer_len(request: &Request, has_cache: bool) -> u32 {
    match request.command {
        Command::Read { .. } => request.length,
        // With a cache, many extents are requested from the device even if the client wants one.
        Command::BlockStatus { one: false } => STATUS_LEN,
        Command::BlockStatus { one: true } if has_cache => STATUS_LEN,
        Command::BlockStatus { .. }
        | Command::Write { .. }
        | Command::Flush
        | Command::Trim { .. }
        | Command::Cache
        | Command::WriteZeroes { .. } => 0,
    }
}

#[cfg(test)]
mod tests {
    use iscsi_initiator::device::{Device, DeviceFuture, DeviceLimits};
    use tokio::io::DuplexStream;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::export::describe;
    use crate::pace::PERIOD;
    #[cfg(feature = "tls")]
    use crate::{args::TlsMode, tls::tests::Certificate};

    #[derive(Debug)]
    struct Nothing;

    impl Device for Nothing {
        fn capacity(&self) -> u64 {
            1 << 30
        }

        fn limits(&self) -> DeviceLimits {
            DeviceLimits::default()
        }

        fn read_into(&self, _: u64, buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
            Box::pin(async { Ok(buffer) })
        }

        fn write_at(&self, _: u64, _: Vec<Bytes>) -> DeviceFuture<'_, ()> {
            Box::pin(async { Ok(()) })
        }

        fn flush(&self) -> DeviceFuture<'_, ()> {
            Box::pin(async { Ok(()) })
        }
    }

    fn client(stop: Stop) -> Client {
        let export = Arc::new(describe(&Nothing, "", false));
        let tls = Arc::default();
        Client { export, tls, memory: Memory::new(128 << 20, 64), stop }
    }

    fn requests(negotiated: &Negotiated, transmission: &Transmission) -> Requests {
        Requests {
            device: Arc::new(Nothing),
            replies: transmission.replies(),
            contexts: negotiated.contexts.clone(),
            has_cache: false,
            losses: crate::losses::Losses::default().connection(),
            counters: Arc::default(),
        }
    }

    /// FIXED_NEWSTYLE and NO_ZEROES; NBD_OPT_EXPORT_NAME of the default export.
    const HELLO: &[u8] = b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0";

    /// Serves a client that executes `does` at its end of the stream. The client stays connected for 10 minutes
    /// at most. Returns the result of `does`, the end of the connection, and the time until that end.
    async fn served<T>(
        does: impl AsyncFnOnce(&mut DuplexStream) -> T,
    ) -> (T, Result<(), Broken>, Duration) {
        served_by(client(Stop::never()), does).await
    }

    async fn served_by<T>(
        client: Client,
        does: impl AsyncFnOnce(&mut DuplexStream) -> T,
    ) -> (T, Result<(), Broken>, Duration) {
        let (mine, mut theirs) = tokio::io::duplex(1 << 16);
        let start = Instant::now();
        let served = timeout(Duration::from_secs(600), client.serve(Box::new(mine), requests));
        let served = async { (served.await.unwrap_or(Ok(())), start.elapsed()) };
        // The client stays connected after `does` has ended.
        let (done, (ended, after)) = tokio::join!(does(&mut theirs), served);
        (done, ended, after)
    }

    /// Sends `words` after a handshake without options, then nothing more. Does not read replies.
    async fn send_words(words: &[u8]) -> (io::Result<()>, Result<(), Broken>, Duration) {
        served(async |stream| stream.write_all(&[HELLO, words].concat()).await).await
    }

    fn is_slow(ended: &Result<(), Broken>) -> bool {
        matches!(ended, Err(Broken::Io(error)) if error.kind() == io::ErrorKind::TimedOut)
    }

    /// Returns the head of a request with this command type and length.
    fn request(kind: u16, len: u32) -> Vec<u8> {
        let mut head = vec![0x25, 0x60, 0x95, 0x13, 0, 0];
        head.extend_from_slice(&kind.to_be_bytes());
        head.extend_from_slice(&[0; 16]);
        head.extend_from_slice(&len.to_be_bytes());
        head
    }

    #[tokio::test(start_paused = true)]
    async fn who_stops_within_a_request_is_let_go_and_who_says_nothing_is_not() {
        let write = request(1, 32 << 20);
        for (words, is_let_go) in [
            (&write[..], true),
            (&[&write[..], &[7; 5000]].concat(), true),
            (&write[..27], true),
            (&[&request(1, 512)[..], &[7; 512], &[0x25]].concat(), true),
            // This request is refused, and its data are skipped.
            (&[&request(1, 64 << 20)[..], &[7; 5000]].concat(), true),
            (&request(99, 0), false),
            (&[], false),
        ] {
            let (_, ended, after) = send_words(words).await;
            assert_eq!(is_slow(&ended), is_let_go, "{words:?}: {ended:?}");
            assert_eq!(after, if is_let_go { PERIOD } else { Duration::from_secs(600) });
        }
    }

    /// Each client sends a write of 32 MiB at `rate` bytes per second. A client below the minimum rate is
    /// disconnected.
    #[tokio::test(start_paused = true)]
    async fn who_sends_data_too_slowly_is_let_go_and_who_is_slow_is_not() {
        for (rate, is_let_go) in [(1, true), (60 << 10, true), (70 << 10, false)] {
            let (sent, ended, after) = served(async |stream| {
                stream.write_all(&[HELLO, &request(1, 32 << 20)].concat()).await?;
                let mut left = 32 << 20;
                while left > 0 {
                    sleep(Duration::from_secs(1)).await;
                    let now = left.min(rate);
                    stream.write_all(&vec![7; now]).await?;
                    left -= now;
                }
                // Reads the greeting, the export information and the reply.
                stream.read_exact(&mut [0; 18 + 10 + 16]).await.map(drop)
            })
            .await;
            assert_eq!(
                (is_slow(&ended), sent.is_err()),
                (is_let_go, is_let_go),
                "{rate}: {ended:?}"
            );
            assert!(!is_let_go || after < PERIOD * 2, "{rate}: {after:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_handshake_has_a_time_limit_whatever_the_client_says_meanwhile() {
        let nothing = served(async |_| ()).await;
        let options = served(async |stream| {
            drop(stream.write_all(b"\0\0\0\x03").await);
            // Sends NBD_OPT_LIST repeatedly, and reads nothing.
            while stream.write_all(b"IHAVEOPT\0\0\0\x03\0\0\0\0").await.is_ok() {
                sleep(Duration::from_millis(100)).await;
            }
        })
        .await;
        for (_, ended, after) in [nothing, options] {
            assert!(matches!(ended, Err(Broken::SlowHandshake)), "{ended:?}");
            assert_eq!(after, HANDSHAKE);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_asks_for_thousands_of_options_is_let_go() {
        let options = b"IHAVEOPT\0\0\0\x03\0\0\0\0".repeat(10_000);
        let (_, ended, after) = served(async |stream| {
            let (mut reader, mut writer) = tokio::io::split(stream);
            let said = [&b"\0\0\0\x03"[..], &options].concat();
            let mut answers = Vec::new();
            drop(tokio::join!(writer.write_all(&said), reader.read_to_end(&mut answers)));
        })
        .await;
        assert!(matches!(ended, Err(Broken::Protocol(ProtocolError::Options(_)))), "{ended:?}");
        assert_eq!(after, Duration::ZERO);
    }

    /// Replies that the client does not read wait in limited memory, even if they have no data. When the memory
    /// is full, no more requests are read.
    #[tokio::test(start_paused = true)]
    async fn no_more_is_read_of_a_client_that_takes_no_refusals() {
        const REQUESTS: usize = 100_000;
        let (said, ended, _) = send_words(&request(99, 0).repeat(REQUESTS)).await;
        assert_eq!(said.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert!(is_slow(&ended), "{ended:?}");
    }

    /// NBD_OPT_STARTTLS, and the reply that accepts it.
    #[cfg(feature = "tls")]
    const START: &[u8] = b"IHAVEOPT\0\0\0\x05\0\0\0\0";
    #[cfg(feature = "tls")]
    const STARTED: &[u8] = b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x05\0\0\0\x01\0\0\0\0";

    /// Starts TLS at a server that requires it, and executes `does` after the server has agreed.
    #[cfg(feature = "tls")]
    async fn tls_started<T>(
        certificate: &Certificate,
        does: impl AsyncFnOnce(&mut DuplexStream) -> T,
    ) -> (T, Result<(), Broken>, Duration) {
        let tls = Arc::new(certificate.serve(TlsMode::Require));
        let client = Client { tls, ..client(Stop::never()) };
        served_by(client, async |stream| {
            stream.write_all(&[&[0, 0, 0, 3], START].concat()).await.unwrap();
            let mut answer = [0; 18 + 20];
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(answer[18..], *STARTED);
            does(stream).await
        })
        .await
    }

    #[cfg(feature = "tls")]
    #[tokio::test(start_paused = true)]
    async fn a_client_learns_of_the_export_over_tls_only() {
        let certificate = Certificate::new();
        let tls = Arc::new(certificate.serve(TlsMode::Require));
        let client = Client { tls, ..client(Stop::never()) };
        // NBD_OPT_LIST, and NBD_OPT_GO for the default export.
        let asks =
            [&b"IHAVEOPT\0\0\0\x03\0\0\0\0"[..], b"IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0"];
        let (answers, ended, _) = served_by(client, async |stream| {
            stream.write_all(&[&[0, 0, 0, 3], asks.concat().as_slice()].concat()).await.unwrap();
            let mut answers = [0; 18 + 2 * 20];
            stream.read_exact(&mut answers).await.unwrap();
            // NBD_OPT_ABORT.
            stream.write_all(b"IHAVEOPT\0\0\0\x02\0\0\0\0").await.unwrap();
            stream.read_exact(&mut [0; 20]).await.unwrap();
            answers
        })
        .await;
        ended.unwrap();
        for (answer, option) in answers[18..].chunks(20).zip([3, 7]) {
            // NBD_REP_ERR_TLS_REQD, without data.
            assert_eq!(answer[8..], [0, 0, 0, option, 0x80, 0, 0, 5, 0, 0, 0, 0]);
        }

        let (size, ended, _) = tls_started(&certificate, async |stream| {
            let mut stream = certificate.secure(stream).await;
            stream.write_all(&HELLO[4..]).await.unwrap();
            let mut export = [0; 10];
            stream.read_exact(&mut export).await.unwrap();
            // NBD_CMD_DISC.
            stream.write_all(&request(2, 0)).await.unwrap();
            stream.flush().await.unwrap();
            stream.read_to_end(&mut Vec::new()).await.unwrap();
            export
        })
        .await;
        ended.unwrap();
        assert_eq!(size[..8], (1_u64 << 30).to_be_bytes());
    }

    #[cfg(feature = "tls")]
    #[tokio::test(start_paused = true)]
    async fn who_does_not_go_on_with_tls_is_let_go() {
        let certificate = Certificate::new();
        let ((), ended, after) = tls_started(&certificate, async |_| ()).await;
        assert!(matches!(ended, Err(Broken::SlowHandshake)), "{ended:?}");
        assert_eq!(after, HANDSHAKE);
        let ((), ended, _) = tls_started(&certificate, async |stream| {
            stream.write_all(b"IHAVEOPT\0\0\0\x03\0\0\0\0").await.unwrap();
            stream.read_to_end(&mut Vec::new()).await.unwrap();
        })
        .await;
        let is_refused =
            matches!(&ended, Err(Broken::Io(error)) if error.kind() == io::ErrorKind::InvalidData);
        assert!(is_refused, "{ended:?}");
    }
}

//! A client, from its first byte to its last.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use iscsi_nbd::server::{
    Expected, Handshake, HandshakeEvent, Negotiated, Transmission, TransmissionEvent,
};
use iscsi_nbd::{Command, Export, OptionError, ProtocolError, Request};
use thiserror::Error as ThisError;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;

use crate::memory::{Held, Memory};
use crate::outbox::{self, Reply};
use crate::requests::Requests;
use crate::stop::Stop;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(60);
/// A client that has announced data and sends nothing for so long holds memory that others need: it is let go.
const PATIENCE: Duration = Duration::from_secs(60);
/// Room for what comes while it is not known how much it is, bytes: an option of any length.
const INPUT_LEN: usize = 64 << 10;
/// The same while nothing but requests is awaited: thousands of clients may have nothing to say.
const IDLE_LEN: usize = 4 << 10;
/// Requests of a client at once.
const MAX_REQUESTS: usize = 512;
/// Data so short are copied out of what was read, so that they do not keep the rest of it in memory.
const SHORT: usize = 16 << 10;

/// Why a connection ended before its client wanted.
#[derive(Debug, ThisError)]
pub(crate) enum Broken {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error("the handshake took longer than {} s", HANDSHAKE.as_secs())]
    SlowHandshake,
}

/// How the requests of a connection have come to their end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    /// The client has said so.
    Goodbye,
    /// The client is gone, for all that is known.
    Gone,
    /// The server takes no more.
    Stopped,
}

/// What a connection needs of its server.
pub(crate) struct Client {
    pub(crate) export: Arc<Export>,
    pub(crate) memory: Memory,
    pub(crate) stop: Stop,
}

impl Client {
    /// Serves it to its end. `begin` is called once its client has come through the handshake.
    pub(crate) async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + 'static,
        begin: impl FnOnce(&Negotiated, &Transmission) -> Requests,
    ) -> Result<(), Broken> {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut input = BytesMut::new();
        let handshake = self.shake_hands(&mut reader, &mut writer, &mut input);
        let handshake = self.stop.unless(timeout(HANDSHAKE, handshake)).await;
        let Some(handshake) = handshake else { return Ok(()) };
        let Some(mut negotiated) = handshake.map_err(|_| Broken::SlowHandshake)?? else {
            return Ok(());
        };
        // Thousands of clients may have nothing to say: they do not keep the room for options.
        let input = BytesMut::from(&input[..]);
        if !negotiated.knows_block_sizes {
            // Who was not told of blocks need not keep to them.
            negotiated.export.block_sizes.minimum = 1;
        }
        let transmission = Transmission::new(&negotiated);
        let requests = Arc::new(begin(&negotiated, &transmission));
        let (replies, outgoing) = mpsc::unbounded_channel();
        let sender = tokio::spawn(outbox::send_all(outgoing, writer));
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
                // Nobody takes replies any more.
                () = desk.replies.closed() => Ok(End::Gone),
                received = &mut receiving => received,
            }
        };
        // What is under way is answered.
        drop(desk);
        let sent = sender.await.map_err(io::Error::other).flatten();
        // Who says goodbye has all answers. Who is there at the end is sent all of them.
        let has_all = matches!(received, Ok(End::Goodbye | End::Stopped)) && sent.is_ok();
        requests.told.end(has_all);
        received?;
        Ok(sent?)
    }

    /// What was agreed on; `None` if the client has thought better of it.
    async fn shake_hands(
        &self,
        reader: &mut (impl AsyncRead + Unpin),
        writer: &mut (impl AsyncWrite + Unpin),
        input: &mut BytesMut,
    ) -> Result<Option<Negotiated>, Broken> {
        let mut handshake = Handshake::new();
        loop {
            let received = handshake.receive(input);
            if let Ok(Some(event)) = &received {
                self.tell(&mut handshake, event);
            }
            while let Some(bytes) = handshake.poll_transmit() {
                writer.write_all(&bytes).await?;
            }
            match received? {
                Some(HandshakeEvent::Negotiated(negotiated)) => return Ok(Some(negotiated)),
                Some(HandshakeEvent::Aborted) => return Ok(None),
                Some(HandshakeEvent::List | HandshakeEvent::Export(_)) => continue,
                None => {}
            }
            input.reserve(INPUT_LEN);
            if reader.read_buf(input).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Answers what a client asks of exports: there is one, by its name and as the default.
    fn tell(&self, handshake: &mut Handshake, event: &HandshakeEvent) {
        match event {
            HandshakeEvent::List => {
                let description = self.export.description.as_deref();
                handshake.answer_list([(self.export.name.as_str(), description)]);
            }
            HandshakeEvent::Export(name) if name.is_empty() || *name == self.export.name => {
                handshake.answer_export(Export::clone(&self.export));
            }
            HandshakeEvent::Export(_) => handshake.refuse(OptionError::Unknown),
            HandshakeEvent::Negotiated(_) | HandshakeEvent::Aborted => {}
        }
    }
}

/// Takes requests, and hands them on.
struct Desk {
    requests: Arc<Requests>,
    replies: mpsc::UnboundedSender<Reply>,
    memory: Memory,
    places: Arc<Semaphore>,
}

impl Desk {
    /// Until the client says goodbye, or is gone.
    async fn receive(
        &self,
        reader: &mut (impl AsyncRead + Unpin),
        mut input: BytesMut,
        mut transmission: Transmission,
    ) -> Result<End, Broken> {
        let mut held = None;
        loop {
            while let Some(event) = transmission.receive(&mut input)? {
                match event {
                    TransmissionEvent::Request(request) => {
                        let held = self.memory.hold(answer_len(&request)).await;
                        self.begin(request, Bytes::new(), held).await;
                    }
                    TransmissionEvent::Write(request, data) => {
                        let data =
                            if data.len() < SHORT { Bytes::copy_from_slice(&data) } else { data };
                        let held = match held.take() {
                            Some(held) => Some(held),
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
            match transmission.expected() {
                Expected::Payload(len) => {
                    // Before it is read: what a client sends stays on its way until there is room.
                    let len32 = u32::try_from(len).unwrap_or(u32::MAX);
                    held = self.memory.hold(len32).await;
                    while input.len() < len {
                        input.reserve(len - input.len());
                        let missing = (len - input.len()) as u64;
                        let mut rest = (&mut *reader).take(missing);
                        let read = timeout(PATIENCE, rest.read_buf(&mut input)).await;
                        if read.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? == 0 {
                            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                        }
                    }
                }
                Expected::Request(_) | Expected::Skipped(_) => {
                    input.reserve(IDLE_LEN);
                    if reader.read_buf(&mut input).await? == 0 {
                        return Ok(End::Gone);
                    }
                }
            }
        }
    }

    /// Carries out a request in a task of its own, which ends whether or not the client is still there.
    async fn begin(&self, request: Request, data: Bytes, held: Option<Held>) {
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        let (requests, replies) = (Arc::clone(&self.requests), self.replies.clone());
        tokio::spawn(async move {
            let _place: Option<OwnedSemaphorePermit> = place;
            let (head, data) = requests.answer(request, data).await;
            // The client may be gone.
            drop(replies.send(Reply { head, data, held }));
        });
    }

    fn reply(&self, head: Bytes, data: Bytes, held: Option<Held>) {
        drop(self.replies.send(Reply { head, data, held }));
    }
}

/// The memory that the answer to a request takes, bytes.
const fn answer_len(request: &Request) -> u32 {
    match request.command {
        Command::Read { .. } => request.length,
        // As many descriptors as there may be.
        Command::BlockStatus { one: false } => 1 << 20,
        Command::BlockStatus { one: true }
        | Command::Write { .. }
        | Command::Flush
        | Command::Trim { .. }
        | Command::Cache
        | Command::WriteZeroes { .. } => 0,
    }
}

#[cfg(test)]
mod tests {
    use iscsi_initiator::device::{Device, DeviceLimits, IoFuture};
    use tokio::time::Instant;

    use super::*;
    use crate::export::describe;

    #[derive(Debug)]
    struct Nothing;

    impl Device for Nothing {
        fn capacity(&self) -> u64 {
            1 << 30
        }

        fn limits(&self) -> DeviceLimits {
            DeviceLimits::default()
        }

        fn read_into(&self, _: u64, buffer: BytesMut) -> IoFuture<'_, BytesMut> {
            Box::pin(async { Ok(buffer) })
        }

        fn write_at(&self, _: u64, _: Vec<Bytes>) -> IoFuture<'_, ()> {
            Box::pin(async { Ok(()) })
        }

        fn flush(&self) -> IoFuture<'_, ()> {
            Box::pin(async { Ok(()) })
        }
    }

    /// Serves a client that says this after a handshake without options, and then nothing, and takes no replies;
    /// whether all of it is taken, how it ends, and when.
    async fn served(words: &[u8]) -> (io::Result<()>, Result<(), Broken>, Duration) {
        let client = Client {
            export: Arc::new(describe(&Nothing, "", false)),
            memory: Memory::new(64 << 20),
            stop: Stop::never(),
        };
        let (mine, mut theirs) = tokio::io::duplex(1 << 16);
        // FIXED_NEWSTYLE and NO_ZEROES; NBD_OPT_EXPORT_NAME of the default export.
        theirs.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0").await.unwrap();
        let start = Instant::now();
        let result = client.serve(mine, |negotiated, transmission| Requests {
            device: Arc::new(Nothing),
            replies: transmission.replies(),
            contexts: negotiated.contexts.clone(),
            has_cache: false,
            told: crate::losses::Losses::default().connection(),
            counters: Arc::default(),
        });
        let served = timeout(Duration::from_secs(600), result);
        let (said, ended) = tokio::join!(theirs.write_all(words), served);
        (said, ended.unwrap_or(Ok(())), start.elapsed())
    }

    /// The head of a request of this kind, of so many bytes.
    fn request(kind: u16, len: u32) -> Vec<u8> {
        let mut head = vec![0x25, 0x60, 0x95, 0x13, 0, 0];
        head.extend_from_slice(&kind.to_be_bytes());
        head.extend_from_slice(&[0; 16]);
        head.extend_from_slice(&len.to_be_bytes());
        head
    }

    #[tokio::test(start_paused = true)]
    async fn who_announces_data_and_sends_none_is_let_go_and_who_says_nothing_is_not() {
        // A write.
        let (_, ended, after) = served(&request(1, 32 << 20)).await;
        assert!(matches!(ended, Err(Broken::Io(error)) if error.kind() == io::ErrorKind::TimedOut));
        assert_eq!(after, PATIENCE);
        let (_, ended, after) = served(&[]).await;
        assert!(ended.is_ok());
        assert_eq!(after, Duration::from_secs(600));
    }

    /// Replies that nobody takes wait in memory that is counted, whether they bring data or a refusal.
    #[tokio::test(start_paused = true)]
    async fn no_more_is_read_of_a_client_that_takes_no_refusals() {
        const REQUESTS: usize = 100_000;
        let (said, ended, _) = served(&request(99, 0).repeat(REQUESTS)).await;
        assert_eq!(said.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert!(matches!(ended, Err(Broken::Io(error)) if error.kind() == io::ErrorKind::TimedOut));
    }
}

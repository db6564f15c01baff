//! Executes the requests of a client.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use iscsi_initiator::device::{Device, DeviceError, DeviceErrorKind, DeviceResult};
use iscsi_nbd::server::Replies;
use iscsi_nbd::{Command, MetaContext, Request};

use crate::export::{errno, failure, status};
use crate::losses::ConnectionLosses;

/// Bytes of one read for NBD_CMD_CACHE, which fills the cache.
const CACHED_AT_ONCE: u64 = 64 << 10;

/// Counters of requests and bytes, since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) clients: AtomicU64,
    pub(crate) clients_gone: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
}

/// State that the requests of one connection share.
#[derive(Debug)]
pub(crate) struct Requests {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) replies: Replies,
    pub(crate) contexts: Vec<MetaContext>,
    pub(crate) has_cache: bool,
    pub(crate) losses: ConnectionLosses,
    pub(crate) counters: Arc<Counters>,
}

/// The reply to a request: its head, and the data that follow the head.
pub(crate) type Answer = (Bytes, Bytes);

impl Requests {
    /// Executes a request with its data, and sends the reply.
    pub(crate) async fn answer(
        &self,
        request: Request,
        data: Bytes,
        send: impl FnOnce(Answer) + Send,
    ) {
        self.counters.requests.fetch_add(1, Ordering::Relaxed);
        let reports = self.losses.count();
        match (change(request.command), self.carry_out(&request, data).await) {
            (Some(Change { is_durable }), Ok(answer)) => {
                self.losses.answer_change(reports, is_durable, |sound| match sound {
                    Ok(()) => send(answer),
                    Err(error) => send(self.failed(&request, &error)),
                });
            }
            (None, Ok(answer)) => send(answer),
            (_, Err(error)) => send(self.failed(&request, &error)),
        }
    }

    fn failed(&self, request: &Request, error: &DeviceError) -> Answer {
        self.counters.failed.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(?request, %error, "a request has failed");
        (self.replies.error(request.cookie, errno(error), &error.to_string()), Bytes::new())
    }

    async fn carry_out(&self, request: &Request, data: Bytes) -> DeviceResult<Answer> {
        let (device, offset, len) = (&self.device, request.offset, u64::from(request.length));
        let is_durable = match request.command {
            Command::Read { .. } => {
                let len = usize::try_from(len).map_err(io::Error::other)?;
                let data = device.read_at(offset, len).await?;
                self.counters.bytes_read.fetch_add(data.len() as u64, Ordering::Relaxed);
                return Ok((Bytes::from(self.replies.read(request)), data));
            }
            Command::BlockStatus { .. } => return self.block_status(request).await,
            Command::Write { fua } => {
                self.counters.bytes_written.fetch_add(len, Ordering::Relaxed);
                device.write_at(offset, vec![data]).await?;
                fua
            }
            Command::WriteZeroes { fua, no_hole, fast } => {
                self.write_zeroes(request, no_hole, fast).await?;
                fua
            }
            Command::Trim { fua } => {
                device.discard(offset, len).await?;
                fua
            }
            Command::Flush => {
                self.losses.flush(&**device).await.map_err(as_loss)?;
                false
            }
            Command::Cache => {
                self.cache(offset, len).await?;
                false
            }
        };
        if is_durable {
            self.losses.flush_for_write(&**device).await.map_err(as_loss)?;
        }
        Ok((Bytes::from(self.replies.done(request.cookie)), Bytes::new()))
    }

    async fn write_zeroes(&self, request: &Request, no_hole: bool, fast: bool) -> DeviceResult<()> {
        let (device, offset, len) = (&self.device, request.offset, u64::from(request.length));
        if fast && !device.limits().has_fast_zeroes {
            return Err(DeviceErrorKind::Unsupported.into());
        }
        if no_hole {
            device.write_allocated_zeroes(offset, len).await
        } else {
            device.write_zeroes(offset, len).await
        }
    }

    /// Reads data into the cache, because the client will request them soon. Does nothing without a cache.
    async fn cache(&self, offset: u64, len: u64) -> DeviceResult<()> {
        if !self.has_cache {
            return Ok(());
        }
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let count = (end - at).min(CACHED_AT_ONCE);
            self.device.read_at(at, usize::try_from(count).map_err(io::Error::other)?).await?;
            at += count;
        }
        Ok(())
    }

    async fn block_status(&self, request: &Request) -> DeviceResult<Answer> {
        let (offset, len) = (request.offset, u64::from(request.length));
        let extents = if matches!(request.command, Command::BlockStatus { one: true }) {
            self.device.first_extent(offset, len).await?.into_iter().collect()
        } else {
            self.device.extents(offset, len).await?
        };
        let mut answer = Vec::new();
        for (at, context) in (1..).zip(&self.contexts) {
            let is_done = at == self.contexts.len();
            let extents = extents.iter().map(status);
            let chunk = self.replies.block_status(request, context.id, extents, is_done);
            answer.extend_from_slice(&chunk.ok_or(DeviceErrorKind::InvalidInput)?);
        }
        Ok((answer.into(), Bytes::new()))
    }
}

/// A command that changes the data of the device.
struct Change {
    /// Whether the data must be on the medium before the reply (FUA).
    is_durable: bool,
}

const fn change(command: Command) -> Option<Change> {
    match command {
        Command::Write { fua } | Command::WriteZeroes { fua, .. } | Command::Trim { fua } => {
            Some(Change { is_durable: fua })
        }
        Command::Read { .. } | Command::BlockStatus { .. } | Command::Flush | Command::Cache => {
            None
        }
    }
}

/// Replaces the error "no space" by an I/O error. A flush reports the failure of earlier writes only once: a
/// client that gets "no space" waits and flushes again later, and that flush would succeed.
fn as_loss(error: DeviceError) -> DeviceError {
    let is_full = failure(&error) == DeviceErrorKind::OutOfSpace;
    if is_full { error.with_kind(DeviceErrorKind::Other) } else { error }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use bytes::BytesMut;
    use iscsi_initiator::device::{DeviceFuture, DeviceLimits};
    use iscsi_nbd::Cookie;
    use iscsi_nbd::server::{Handshake, HandshakeEvent, Transmission};
    use tokio::sync::Notify;

    use super::*;
    use crate::export::describe;
    use crate::losses::Losses;

    /// A device that delays its responses to changes, and whose first flush reports a loss.
    #[derive(Debug, Default)]
    struct Late {
        goes_on: Notify,
        has_reported: AtomicBool,
    }

    impl Late {
        fn change(&self) -> DeviceFuture<'_, ()> {
            Box::pin(async {
                self.goes_on.notified().await;
                Ok(())
            })
        }
    }

    impl Device for Late {
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
            self.change()
        }

        fn write_zeroes(&self, _: u64, _: u64) -> DeviceFuture<'_, ()> {
            self.change()
        }

        fn discard(&self, _: u64, _: u64) -> DeviceFuture<'_, ()> {
            self.change()
        }

        fn flush(&self) -> DeviceFuture<'_, ()> {
            let has_reported = self.has_reported.swap(true, Ordering::Relaxed);
            Box::pin(async move {
                if has_reported { Ok(()) } else { Err(DeviceErrorKind::LostWrites.into()) }
            })
        }
    }

    /// Returns the replies for a client that selects the default export without options.
    fn replies(device: &Late) -> Replies {
        let mut input = BytesMut::from(&b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0"[..]);
        let mut handshake = Handshake::new();
        loop {
            match handshake.receive(&mut input).unwrap().unwrap() {
                HandshakeEvent::Negotiated(negotiated) => {
                    return Transmission::new(&negotiated).replies();
                }
                HandshakeEvent::Export(_) => handshake.answer_export(describe(device, "", false)),
                HandshakeEvent::List | HandshakeEvent::StartTls | HandshakeEvent::Aborted => {
                    unreachable!()
                }
            }
        }
    }

    /// The device may have had the data of the change when it lost its writes. So a change with FUA fails, and
    /// after any other change the next flush reports a loss.
    #[tokio::test]
    async fn a_change_that_a_report_of_a_loss_overtakes_may_be_lost() {
        for fua in [false, true] {
            for command in [
                Command::Write { fua },
                Command::Trim { fua },
                Command::WriteZeroes { fua, no_hole: false, fast: false },
            ] {
                let device = Arc::new(Late::default());
                let requests = Requests {
                    device: Arc::clone(&device) as Arc<dyn Device>,
                    replies: replies(&device),
                    contexts: Vec::new(),
                    has_cache: false,
                    losses: Losses::default().connection(),
                    counters: Arc::default(),
                };
                let request = Request { cookie: Cookie(1), command, offset: 0, length: 512 };
                let is_answered = AtomicBool::new(false);
                let send = |_| is_answered.store(true, Ordering::Relaxed);
                let flush = async {
                    requests.losses.flush(&*device).await.unwrap_err();
                    assert!(!is_answered.load(Ordering::Relaxed));
                    device.goes_on.notify_one();
                };
                tokio::join!(requests.answer(request, Bytes::new(), send), flush);
                assert!(is_answered.load(Ordering::Relaxed));
                let failed = requests.counters.failed.load(Ordering::Relaxed);
                let told = requests.losses.flush(&*device).await;
                assert_eq!((failed, told.is_err()), (fua.into(), !fua), "{command:?}");
                requests.losses.flush(&*device).await.unwrap();
            }
        }
    }
}

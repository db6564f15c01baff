//! Sends the replies of a connection to its client.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::memory::Held;
use crate::pace::Pace;
use crate::stop::Stop;

/// Bytes up to which replies with no data or short data are combined in one send.
const TOGETHER: usize = 64 << 10;

/// A reply to a client, and the memory that its request holds.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) head: Bytes,
    pub(crate) data: Bytes,
    pub(crate) held: Held,
}

/// Sends replies until all their senders are dropped.
///
/// # Errors
/// If the connection is lost, or the client takes its replies too slowly ([`Pace`]).
pub(crate) async fn send_all(
    mut replies: UnboundedReceiver<Reply>,
    mut stream: impl AsyncWrite + Unpin,
    stop: &Stop,
) -> io::Result<()> {
    let mut together = BytesMut::new();
    let mut pace = Pace::of_taking();
    while let Some(first) = next_reply(&mut replies, &mut pace).await {
        let (mut next, mut held) = (Some(first), Vec::new());
        while let Some(reply) = next {
            held.push(reply.held);
            together.put_slice(&reply.head);
            if reply.data.len() + together.len() > TOGETHER {
                send(&mut stream, &together, &mut pace, stop).await?;
                together.clear();
                send(&mut stream, &reply.data, &mut pace, stop).await?;
            } else {
                together.put_slice(&reply.data);
            }
            next = if together.len() < TOGETHER { replies.try_recv().ok() } else { None };
        }
        send(&mut stream, &together, &mut pace, stop).await?;
        together.clear();
        settle(&mut stream, false, &mut pace, stop).await?;
    }
    settle(&mut stream, true, &mut pace, stop).await
}

/// Waits for the next reply. While there is no reply to send, the pace of the client is not measured: a new
/// period begins with the next reply.
async fn next_reply(replies: &mut UnboundedReceiver<Reply>, pace: &mut Pace) -> Option<Reply> {
    if let Ok(reply) = replies.try_recv() {
        return Some(reply);
    }
    pace.renew();
    replies.recv().await
}

/// Sends bytes. Returns an error if the client takes them too slowly.
async fn send(
    stream: &mut (impl AsyncWrite + Unpin),
    mut bytes: &[u8],
    pace: &mut Pace,
    stop: &Stop,
) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = tokio::select! {
            biased;
            sent = pace.wait(stream.write(bytes)) => sent?,
            () = stop.requested(), if !pace.is_last() => {
                pace.hurry();
                continue;
            }
        };
        if sent == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[sent..];
    }
    Ok(())
}

/// Sends the bytes that an encrypted stream holds, and closes it if that is asked for. Returns an error if the client takes them too
/// slowly.
async fn settle(
    stream: &mut (impl AsyncWrite + Unpin),
    closes: bool,
    pace: &mut Pace,
    stop: &Stop,
) -> io::Result<()> {
    loop {
        let settled = async {
            let settled = if closes { stream.shutdown().await } else { stream.flush().await };
            settled.map(|()| 0)
        };
        tokio::select! {
            biased;
            settled = pace.wait(settled) => return settled.map(drop),
            () = stop.requested(), if !pace.is_last() => pace.hurry(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};
    use std::time::Duration;

    use tokio::io::AsyncReadExt;

    use tokio::sync::mpsc::unbounded_channel;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::pace::{LAST_PERIOD, PERIOD};

    fn reply(head: &'static str, data: Vec<u8>) -> Reply {
        Reply {
            head: Bytes::from_static(head.as_bytes()),
            data: data.into(),
            held: Held::default(),
        }
    }

    async fn sent_all(
        outgoing: UnboundedReceiver<Reply>,
        stream: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        send_all(outgoing, stream, &Stop::never()).await
    }

    #[tokio::test]
    async fn replies_go_out_in_order_short_and_long_ones() {
        let (replies, outgoing) = unbounded_channel();
        let (mine, mut theirs) = tokio::io::duplex(1000);
        let sender = tokio::spawn(sent_all(outgoing, mine));
        for len in [0, 10, TOGETHER, 3, TOGETHER + 1, 0] {
            replies.send(reply("head", vec![7; len])).unwrap();
        }
        drop(replies);
        let mut all = Vec::new();
        theirs.read_to_end(&mut all).await.unwrap();
        sender.await.unwrap().unwrap();
        let expected =
            [0, 10, TOGETHER, 3, TOGETHER + 1, 0].map(|len| [&b"head"[..], &vec![7; len]].concat());
        assert!(all == expected.concat());
    }

    /// Serves a client that takes `bytes` of a long reply every 10 seconds. Returns when the client is
    /// disconnected.
    async fn let_go_after(bytes: usize) -> Option<Duration> {
        const LONG: usize = 32 << 20;
        let (replies, outgoing) = unbounded_channel();
        let (mine, mut theirs) = tokio::io::duplex(1 << 10);
        let start = Instant::now();
        let sender = tokio::spawn(async move { (sent_all(outgoing, mine).await, start.elapsed()) });
        replies.send(reply("slow", vec![1; LONG])).unwrap();
        let mut taken = vec![0; bytes];
        for _ in 0..LONG / bytes {
            sleep(PERIOD / 6).await;
            if theirs.read_exact(&mut taken).await.is_err() {
                let (ended, after) = sender.await.unwrap();
                assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
                return Some(after);
            }
        }
        None
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_replies_too_slowly_is_let_go_and_who_is_slow_is_not() {
        for bytes in [1, 600 << 10] {
            let after = let_go_after(bytes).await.expect("it stays for ever");
            assert!(after <= PERIOD * 2, "{bytes}: {after:?}");
        }
        assert_eq!(let_go_after(800 << 10).await, None);
    }

    /// A server that stops waits for a client at most `LAST_PERIOD`, whether the client takes nothing, or would
    /// otherwise be fast enough.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_stops_does_not_wait_for_slow_clients() {
        for bytes in [800 << 10, 0] {
            let (replies, outgoing) = unbounded_channel();
            let (mine, mut theirs) = tokio::io::duplex(1 << 10);
            let (button, stop) = Stop::new();
            let sender = tokio::spawn(async move { send_all(outgoing, mine, &stop).await });
            replies.send(reply("slow", vec![1; 32 << 20])).unwrap();
            sleep(PERIOD / 2).await;
            assert!(!sender.is_finished());
            button.press();
            let start = Instant::now();
            let taker = tokio::spawn(async move {
                let mut taken = vec![0; bytes];
                while theirs.read_exact(&mut taken).await.is_ok() {
                    sleep(PERIOD / 6).await;
                }
            });
            let error = sender.await.unwrap().unwrap_err();
            assert_eq!((error.kind(), start.elapsed()), (io::ErrorKind::TimedOut, LAST_PERIOD));
            taker.abort();
        }
    }

    /// A stream that holds bytes until it is flushed, as one over TLS does, and is never closed if it is stuck.
    struct Holding {
        below: tokio::io::DuplexStream,
        held: Vec<u8>,
        is_stuck: bool,
    }

    impl AsyncWrite for Holding {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.held.extend(bytes);
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            let this = self.get_mut();
            while !this.held.is_empty() {
                let sent = ready!(Pin::new(&mut this.below).poll_write(context, &this.held))?;
                this.held.drain(..sent);
            }
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            if self.is_stuck { Poll::Pending } else { self.poll_flush(context) }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reply_leaves_a_stream_that_holds_it_until_it_is_flushed() {
        let (replies, outgoing) = unbounded_channel();
        let (below, mut theirs) = tokio::io::duplex(100);
        let stream = Holding { below, held: Vec::new(), is_stuck: false };
        let sender = tokio::spawn(sent_all(outgoing, stream));
        replies.send(reply("head", vec![7; 10])).unwrap();
        let mut taken = [0; 14];
        theirs.read_exact(&mut taken).await.unwrap();
        assert!(!sender.is_finished());
        drop(replies);
        sender.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_cannot_be_closed_is_given_up() {
        for (is_stopped, time) in [(false, PERIOD), (true, LAST_PERIOD)] {
            let (below, _theirs) = tokio::io::duplex(100);
            let stream = Holding { below, held: Vec::new(), is_stuck: true };
            let (button, stop) = Stop::new();
            if is_stopped {
                button.press();
            }
            let start = Instant::now();
            let (replies, outgoing) = unbounded_channel();
            drop(replies);
            let error = send_all(outgoing, stream, &stop).await.unwrap_err();
            assert_eq!((error.kind(), start.elapsed()), (io::ErrorKind::TimedOut, time));
        }
    }

    /// Pauses between two replies do not count against the rate of a client.
    #[tokio::test(start_paused = true)]
    async fn who_takes_every_short_reply_is_served_for_ever() {
        let (replies, outgoing) = unbounded_channel();
        let (mine, mut theirs) = tokio::io::duplex(1);
        let sender = tokio::spawn(sent_all(outgoing, mine));
        for _ in 0..100 {
            replies.send(reply("head", Vec::new())).unwrap();
            sleep(PERIOD / 2).await;
            theirs.read_exact(&mut [0; 4]).await.unwrap();
            sleep(PERIOD).await;
        }
        assert!(!sender.is_finished());
    }
}

//! The replies of a connection, on their way to its client.

use std::io;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

use crate::memory::Held;

/// A client that takes nothing for so long holds memory that others need: it is let go.
const PATIENCE: Duration = Duration::from_secs(60);
/// Replies without data, and short data, are sent together up to so many bytes.
const TOGETHER: usize = 64 << 10;

/// A reply, with the memory of its request.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) head: Bytes,
    pub(crate) data: Bytes,
    pub(crate) held: Option<Held>,
}

/// Sends replies until nobody has any more.
///
/// # Errors
/// When the client is gone, or takes nothing for a minute.
pub(crate) async fn send_all(
    mut replies: UnboundedReceiver<Reply>,
    mut stream: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut together = BytesMut::new();
    while let Some(first) = replies.recv().await {
        let (mut next, mut held) = (Some(first), Vec::new());
        while let Some(reply) = next {
            held.extend(reply.held);
            together.put_slice(&reply.head);
            if reply.data.len() + together.len() > TOGETHER {
                send(&mut stream, &together).await?;
                together.clear();
                send(&mut stream, &reply.data).await?;
            } else {
                together.put_slice(&reply.data);
            }
            next = if together.len() < TOGETHER { replies.try_recv().ok() } else { None };
        }
        send(&mut stream, &together).await?;
        together.clear();
    }
    stream.shutdown().await
}

/// Sends bytes, as long as some of them go.
async fn send(stream: &mut (impl AsyncWrite + Unpin), mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = timeout(PATIENCE, stream.write(bytes)).await;
        let sent = sent.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        if sent == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[sent..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    fn reply(head: &'static str, data: Vec<u8>) -> Reply {
        Reply { head: Bytes::from_static(head.as_bytes()), data: data.into(), held: None }
    }

    #[tokio::test]
    async fn replies_go_out_in_order_short_and_long_ones() {
        let (replies, outgoing) = unbounded_channel();
        let (mine, mut theirs) = tokio::io::duplex(1000);
        let sender = tokio::spawn(send_all(outgoing, mine));
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

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_for_a_minute_is_let_go_and_who_is_slow_is_not() {
        let (replies, outgoing) = unbounded_channel();
        let (mine, mut theirs) = tokio::io::duplex(1);
        let sender = tokio::spawn(send_all(outgoing, mine));
        replies.send(reply("slow", vec![1; 20])).unwrap();
        for _ in 0..9 {
            tokio::time::sleep(PATIENCE * 9 / 10).await;
            theirs.read_u8().await.unwrap();
        }
        assert!(!sender.is_finished());
        let error = sender.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(replies);
    }
}

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

//! Refuses clients while all places are taken.

use std::sync::Arc;
use std::time::Duration;

use iscsi_nbd::OptionError;
use iscsi_nbd::server::{Handshake, HandshakeEvent};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::connection::INPUT_LEN;
use crate::listen::{Stream, Visitor};
use crate::tls::ClientTls;

/// Maximum number of clients to which the reason is sent concurrently. The connections of further clients are
/// closed without a message.
const MAX_REFUSALS: usize = 16;
/// Time limit to send the reason to a client.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Least time between two lines of the log.
const BETWEEN_LINES: Duration = Duration::from_secs(10);
/// The reason, for the user of the client program.
const MESSAGE: &str =
    "the server has as many clients as it may have; end one of them, or raise its --max-clients";

/// Refuses clients, and logs their number from time to time.
#[derive(Debug)]
pub(crate) struct FullHouse {
    max_clients: usize,
    tls: Arc<ClientTls>,
    refusing: JoinSet<()>,
    lines: Seldom,
}

impl FullHouse {
    pub(crate) fn new(max_clients: usize, tls: Arc<ClientTls>) -> Self {
        Self { max_clients, tls, refusing: JoinSet::new(), lines: Seldom::default() }
    }

    /// Refuses a client.
    pub(crate) fn refuse(&mut self, visitor: Visitor) {
        if let Some(count) = self.lines.count() {
            let max = self.max_clients;
            tracing::warn!(
                clients = count,
                "all {max} places are taken: clients were refused (--max-clients)"
            );
        }
        while self.refusing.try_join_next().is_some() {}
        if self.refusing.len() < MAX_REFUSALS {
            let tls = Arc::clone(&self.tls);
            self.refusing.spawn(async move { refuse_client(visitor.into_parts().0, &tls).await });
        }
    }
}

/// Sends the reason as the reply to the first options of a client; after STARTTLS over the encrypted connection.
async fn refuse_client(stream: Box<dyn Stream>, tls: &ClientTls) {
    // The client is refused whether or not it receives the reason.
    drop(timeout(REFUSAL_TIMEOUT, refuse_all(stream, tls)).await);
}

async fn refuse_all(mut stream: Box<dyn Stream>, tls: &ClientTls) -> std::io::Result<()> {
    let mut handshake = Handshake::new().with_tls(tls.policy());
    let mut input = bytes::BytesMut::new();
    loop {
        let received = handshake.receive(&mut input);
        if let Ok(Some(HandshakeEvent::List | HandshakeEvent::Export(_))) = &received {
            handshake.refuse_because(OptionError::Policy, MESSAGE);
        }
        while let Some(bytes) = handshake.poll_transmit() {
            stream.write_all(&bytes).await?;
        }
        stream.flush().await?;
        match received {
            Ok(Some(HandshakeEvent::List | HandshakeEvent::Export(_))) => continue,
            Ok(Some(HandshakeEvent::StartTls)) => stream = tls.accept(stream).await?,
            Ok(Some(HandshakeEvent::Negotiated(_) | HandshakeEvent::Aborted)) | Err(_) => {
                return stream.shutdown().await;
            }
            Ok(None) => {}
        }
        input.reserve(INPUT_LEN);
        if stream.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
    }
}

/// Limits the log to one line per [`BETWEEN_LINES`].
#[derive(Debug, Default)]
pub(crate) struct Seldom {
    last: Option<Instant>,
    count: u64,
}

impl Seldom {
    /// Counts an event. If a line is due, returns the number of events since the last line.
    pub(crate) fn count(&mut self) -> Option<u64> {
        self.count += 1;
        if self.last.is_some_and(|last| last.elapsed() < BETWEEN_LINES) {
            return None;
        }
        self.last = Some(Instant::now());
        Some(std::mem::take(&mut self.count))
    }
}

#[cfg(test)]
mod tests {
    use iscsi_nbd::client::{Goal, Handshake as ClientHandshake, HandshakeError, HandshakeOutcome};
    use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
    use tokio::task::JoinHandle;
    use tokio::time::advance;

    use super::*;
    #[cfg(feature = "tls")]
    use crate::{args::TlsMode, tls::tests::Certificate};

    #[tokio::test(start_paused = true)]
    async fn a_line_counts_what_came_since_the_last() {
        let mut lines = Seldom::default();
        assert_eq!(lines.count(), Some(1));
        for _ in 0..1000 {
            assert_eq!(lines.count(), None);
        }
        advance(BETWEEN_LINES).await;
        assert_eq!(lines.count(), Some(1001));
        assert_eq!(lines.count(), None);
    }

    fn goals() -> [Goal; 2] {
        [Goal::Export { name: "disk".to_owned(), contexts: Vec::new() }, Goal::List]
    }

    /// Returns the error that this project's NBD client gets, or `None` if the connection is closed, or TLS is started, without an
    /// error.
    async fn client_error(
        handshake: &mut ClientHandshake,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) -> Option<HandshakeError> {
        let mut input = bytes::BytesMut::new();
        loop {
            let received = handshake.receive(&mut input);
            while let Some(bytes) = handshake.poll_transmit() {
                stream.write_all(&bytes).await.unwrap();
            }
            stream.flush().await.unwrap();
            match received {
                Ok(Some(HandshakeOutcome::StartTls)) => return None,
                Ok(outcome) => assert_eq!(outcome, None),
                Err(error) => return Some(error),
            }
            if stream.read_buf(&mut input).await.unwrap() == 0 {
                return None;
            }
        }
    }

    fn refuse(tls: ClientTls) -> (DuplexStream, JoinHandle<()>) {
        let (mine, theirs) = tokio::io::duplex(1 << 16);
        (theirs, tokio::spawn(async move { refuse_client(Box::new(mine), &tls).await }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_hears_why_it_is_refused() {
        for goal in goals() {
            let (mut stream, refusing) = refuse(ClientTls::default());
            let mut handshake = ClientHandshake::new(goal);
            let error = client_error(&mut handshake, &mut stream).await.expect("it is told");
            assert!(error.to_string().contains("--max-clients"), "{error}");
            drop(stream);
            refusing.await.unwrap();
        }
    }

    #[cfg(feature = "tls")]
    #[tokio::test(start_paused = true)]
    async fn a_client_over_tls_hears_why_it_is_refused() {
        let certificate = Certificate::new();
        for (mode, goal) in [TlsMode::Allow, TlsMode::Require].into_iter().zip(goals()) {
            let (mut stream, refusing) = refuse(certificate.serve(mode));
            let mut handshake = ClientHandshake::new(goal).over_tls();
            assert_eq!(client_error(&mut handshake, &mut stream).await, None);
            let mut stream = certificate.secure(stream).await;
            let error = client_error(&mut handshake, &mut stream).await.expect("it is told");
            assert!(error.to_string().contains("--max-clients"), "{error}");
            drop(stream);
            refusing.await.unwrap();
        }
    }

    /// An old client uses NBD_OPT_EXPORT_NAME, to which the protocol has no refusing reply, so the connection
    /// is closed.
    #[tokio::test(start_paused = true)]
    async fn an_old_client_and_one_that_says_nothing_are_hung_up_on() {
        for words in [&b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0"[..], b""] {
            let begun = Instant::now();
            let (mut theirs, refusing) = refuse(ClientTls::default());
            theirs.write_all(words).await.unwrap();
            let mut answer = Vec::new();
            theirs.read_to_end(&mut answer).await.unwrap();
            refusing.await.unwrap();
            assert_eq!(answer.len(), 18, "the greeting and nothing else");
            assert!(begun.elapsed() <= REFUSAL_TIMEOUT);
        }
    }
}

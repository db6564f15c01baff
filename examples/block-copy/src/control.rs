//! Serves the socket that takes commands while copies run.

pub(crate) mod handle;
pub(crate) mod orders;

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use iscsi_examples_common::named_socket::NamedSocket;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio::time::sleep;

use self::orders::Orders;
use crate::classes::clients::MAX_CLIENTS;
use crate::classes::lines::{Line, Lines};
use crate::classes::protocol::{Reply, SHARE};
use crate::error::Error;
use crate::output::json_line;

/// Maximum number of concurrent connections: those of the clients, which share the tree of traffic classes of
/// this process, and some for commands.
const MAX_CONNECTIONS: usize = MAX_CLIENTS + 16;
/// Pause after a failed `accept`.
const PAUSE: Duration = Duration::from_millis(100);

/// The socket on which the program receives commands.
#[derive(Debug)]
pub(crate) struct ControlSocket(NamedSocket);

impl ControlSocket {
    /// Listens at a path. Replaces a socket that an ended process has left. It is an error if the path is any
    /// other file, or a socket where a process listens.
    ///
    /// # Errors
    /// [`Error::ControlTaken`], or [`Error::Control`] with the error of the system.
    pub(crate) fn bind(path: &Path) -> Result<Self, Error> {
        let socket = NamedSocket::bind(path).map_err(|cause| {
            if cause.kind() == ErrorKind::AddrInUse {
                return Error::ControlTaken(path.into());
            }
            Error::Control { path: path.into(), cause }
        })?;
        Ok(Self(socket))
    }

    /// Accepts connections and executes their commands. Never returns.
    pub(crate) async fn serve(&self, orders: &Orders) -> Infallible {
        let mut connections = JoinSet::new();
        loop {
            let has_room = connections.len() < MAX_CONNECTIONS;
            tokio::select! {
                accepted = self.0.listener().accept(), if has_room => match accepted {
                    Ok((stream, _)) => drop(connections.spawn(converse(stream, orders.clone()))),
                    // `accept` has failed because too many files are open, or because the client has closed its
                    // connection already.
                    Err(_) => sleep(PAUSE).await,
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }
}

/// Answers each line of a connection with one line, until the connection ends or a line is too long. After a
/// line that asks to share the tree of traffic classes, the other process is served as a client.
async fn converse(stream: UnixStream, orders: Orders) -> io::Result<()> {
    let process = stream.peer_cred().ok().and_then(|peer| peer.pid());
    let (reader, mut writer) = stream.into_split();
    let mut lines = Lines::new(reader);
    while let Some(Line { text, is_whole }) = lines.next().await? {
        let answer = match class_to_share(&text) {
            Some(class) => match orders.admit(class, process) {
                Ok(client) => return client.serve(lines, writer).await,
                Err(error) => Reply::Error(error).to_string(),
            },
            None => json_line(&orders.obey(&text)),
        };
        writer.write_all(answer.as_bytes()).await?;
        if !is_whole {
            return Ok(());
        }
    }
    Ok(())
}

/// Returns the class that a client asks to share, if the line is such a request. `Some(None)` is the default
/// class.
fn class_to_share(order: &str) -> Option<Option<&str>> {
    let class = order.trim().strip_prefix(SHARE)?;
    let is_word = class.is_empty() || class.starts_with(char::is_whitespace);
    is_word.then(|| Some(class.trim()).filter(|class| !class.is_empty()))
}

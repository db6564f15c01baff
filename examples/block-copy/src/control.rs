//! The socket that takes orders while copies run.

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use iscsi_examples_common::named_socket::NamedSocket;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::clients::MAX_CLIENTS;
use crate::error::Error;
use crate::lines::{Line, Lines};
use crate::orders::Orders;
use crate::output::json_line;
use crate::sharing::{SHARE, Told};

/// Connections at once: those of processes that share the tree, and some for orders.
const MAX_CONNECTIONS: usize = MAX_CLIENTS + 16;
/// How long after a connection that could not be had the next one is asked for.
const PAUSE: Duration = Duration::from_millis(100);

/// Where orders come from.
#[derive(Debug)]
pub(crate) struct ControlSocket(NamedSocket);

impl ControlSocket {
    /// Listens at a path. What is there and is no socket, or one where somebody listens, is left alone; a
    /// socket that a process has left is replaced.
    ///
    /// # Errors
    /// [`Error::ControlTaken`], or [`Error::Control`] with the system's reason.
    pub(crate) fn bind(path: &Path) -> Result<Self, Error> {
        let socket = NamedSocket::bind(path).map_err(|cause| {
            if cause.kind() == ErrorKind::AddrInUse {
                return Error::ControlTaken(path.into());
            }
            Error::Control { path: path.into(), cause }
        })?;
        Ok(Self(socket))
    }

    /// Takes orders for ever.
    pub(crate) async fn serve(&self, orders: &Orders) -> Infallible {
        let mut connections = JoinSet::new();
        loop {
            let has_room = connections.len() < MAX_CONNECTIONS;
            tokio::select! {
                accepted = self.0.listener().accept(), if has_room => match accepted {
                    Ok((stream, _)) => drop(connections.spawn(converse(stream, orders.clone()))),
                    // Too many files are open, or whoever came is gone.
                    Err(_) => sleep(PAUSE).await,
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }
}

/// Answers each line of a connection with one, until its end, or one that is too long; or serves a process
/// that shares the tree.
async fn converse(stream: UnixStream, orders: Orders) -> io::Result<()> {
    let process = stream.peer_cred().ok().and_then(|peer| peer.pid());
    let (reader, mut writer) = stream.into_split();
    let mut lines = Lines::new(reader);
    while let Some(Line { text, is_whole }) = lines.next().await? {
        let answer = match class_to_share(&text) {
            Some(class) => match orders.admit(class, process) {
                Ok(client) => return client.serve(lines, writer).await,
                Err(error) => Told::Error(error).to_string(),
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

/// The class that a process wants to share, or the default one, if that is what the order says.
fn class_to_share(order: &str) -> Option<Option<&str>> {
    let class = order.trim().strip_prefix(SHARE)?;
    let is_word = class.is_empty() || class.starts_with(char::is_whitespace);
    is_word.then(|| Some(class.trim()).filter(|class| !class.is_empty()))
}

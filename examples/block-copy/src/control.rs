//! The socket that takes orders while copies run.

use std::convert::Infallible;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::clients::MAX_CLIENTS;
use crate::error::Error;
use crate::lines::{Line, Lines};
use crate::orders::Orders;
use crate::sharing::{SHARE, Told};

/// Connections at once: those of processes that share the tree, and some for orders.
const MAX_CONNECTIONS: usize = MAX_CLIENTS + 16;
/// Connections that wait.
const BACKLOG: i32 = 16;
/// How long after a connection that could not be had the next one is asked for.
const PAUSE: Duration = Duration::from_millis(100);
/// Only the user whose process it is.
const MODE: u32 = 0o600;

/// A Unix socket with a name in the file system, which goes with it.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode: another process may have put its own in the place.
    file: (u64, u64),
}

impl ControlSocket {
    /// Listens at a path. What is there and is no socket, or one where somebody listens, is left alone; a
    /// socket that a process has left is replaced.
    ///
    /// # Errors
    /// [`Error::ControlTaken`], or [`Error::Control`] with the system's reason.
    pub(crate) fn bind(path: &Path) -> Result<Self, Error> {
        let failed = |cause| Error::Control { path: path.into(), cause };
        let listener = match listen(path) {
            Err(cause) if cause.kind() == ErrorKind::AddrInUse => {
                if !is_left(path).map_err(failed)? {
                    return Err(Error::ControlTaken(path.into()));
                }
                fs::remove_file(path).map_err(failed)?;
                listen(path).map_err(failed)?
            }
            listener => listener.map_err(failed)?,
        };
        let listener = UnixListener::from_std(listener.into()).map_err(failed)?;
        Ok(Self { listener, path: path.into(), file: place(path).map_err(failed)? })
    }

    /// Takes orders for ever.
    pub(crate) async fn serve(&self, orders: &Orders) -> Infallible {
        let mut connections = JoinSet::new();
        loop {
            let has_room = connections.len() < MAX_CONNECTIONS;
            tokio::select! {
                accepted = self.listener.accept(), if has_room => match accepted {
                    Ok((stream, _)) => drop(connections.spawn(converse(stream, orders.clone()))),
                    // Too many files are open, or whoever came is gone.
                    Err(_) => sleep(PAUSE).await,
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if place(&self.path).is_ok_and(|file| file == self.file) {
            drop(fs::remove_file(&self.path));
        }
    }
}

/// A socket at a path, which nobody else can connect to at any time: its mode is set before it has a name.
fn listen(path: &Path) -> io::Result<Socket> {
    let socket = File::from(OwnedFd::from(Socket::new(Domain::UNIX, Type::STREAM, None)?));
    socket.set_permissions(Permissions::from_mode(MODE))?;
    let socket = Socket::from(OwnedFd::from(socket));
    socket.bind(&SockAddr::unix(path)?)?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Whether a process has left the socket and nobody listens there.
fn is_left(path: &Path) -> io::Result<bool> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(ErrorKind::AlreadyExists.into());
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // Whoever takes no more connections now is there all the same.
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Err(cause) if cause.kind() == ErrorKind::ConnectionRefused => Ok(true),
        Err(cause) if cause.kind() != ErrorKind::WouldBlock => Err(cause),
        _ => Ok(false),
    }
}

fn place(path: &Path) -> io::Result<(u64, u64)> {
    let file = fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
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
            None => format!("{}\n", orders.obey(&text)),
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

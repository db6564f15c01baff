//! A Unix socket with a name in the file system, which goes with it.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::UnixListener;

/// Connections that wait to be taken.
const BACKLOG: i32 = 64;
/// Only the user whose process it is.
const MODE: u32 = 0o600;

/// A socket that listens at a path, and takes the path away when it is dropped.
#[derive(Debug)]
pub struct NamedSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode: another process may have put its own in the place.
    file: (u64, u64),
}

impl NamedSocket {
    /// Listens at a path, for processes of the same user. What is there and is no socket, or one where
    /// somebody listens, is left alone; a socket that a process has left is replaced.
    ///
    /// # Errors
    /// [`ErrorKind::AddrInUse`] if somebody listens there, or the system's reason.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let listener = match listen(path) {
            Err(cause) if cause.kind() == ErrorKind::AddrInUse => {
                if !is_left(path)? {
                    return Err(cause);
                }
                fs::remove_file(path)?;
                listen(path)?
            }
            listener => listener?,
        };
        let listener = UnixListener::from_std(listener.into())?;
        Ok(Self { listener, path: path.into(), file: place(path)? })
    }

    /// What takes connections.
    #[must_use]
    pub const fn listener(&self) -> &UnixListener {
        &self.listener
    }
}

impl Drop for NamedSocket {
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

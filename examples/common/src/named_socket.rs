//! A listening Unix socket with a path in the file system. The path is removed with the socket.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Group, chown};
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::UnixListener;

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 64;
/// Permission bits that admit the owner only.
const MODE: u32 = 0o600;

/// Permissions and group of a Unix socket. They determine which other users may connect.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SocketAccess {
    /// Permission bits as for `chmod`. To connect, a user needs write permission.
    pub mode: u32,
    /// The group of the socket; `None` is the group of the process.
    pub group: Option<Gid>,
}

impl Default for SocketAccess {
    /// Returns the permissions that admit the owner only.
    fn default() -> Self {
        Self { mode: MODE, group: None }
    }
}

/// Parses permissions of three or four octal digits, as `chmod` takes them.
///
/// # Errors
/// A sentence with the expected form.
pub fn parse_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|_| (3..=4).contains(&text.len()));
    mode.filter(|mode| *mode <= 0o777)
        .ok_or_else(|| "write three octal digits, as 660: owner, group, others".to_owned())
}

/// Finds a group of this host by name or number.
///
/// # Errors
/// If this host has no such group.
pub fn parse_group(text: &str) -> Result<Gid, String> {
    if let Ok(number) = text.parse() {
        return Ok(Gid::from_raw(number));
    }
    let found = Group::from_name(text).ok().flatten();
    found.map(|group| group.gid).ok_or_else(|| "this host has no such group".to_owned())
}

/// A listening socket with a path. Dropping it removes the path, unless another socket is there.
#[derive(Debug)]
pub struct NamedSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the socket, to recognise whether another process has replaced the path.
    file: (u64, u64),
}

impl NamedSocket {
    /// Listens at a path, for processes of the same user. Replaces a socket that an ended process has left. It
    /// is an error if the path is no socket, or if another process listens there.
    ///
    /// # Errors
    /// [`ErrorKind::AddrInUse`] if another process listens there, or the error of the system.
    pub fn bind(path: &Path) -> io::Result<Self> {
        Self::bind_for(path, SocketAccess::default())
    }

    /// Listens at a path, like [`bind`](Self::bind), with the permissions and the group of `access`.
    ///
    /// # Errors
    /// The errors of [`bind`](Self::bind).
    pub fn bind_for(path: &Path, access: SocketAccess) -> io::Result<Self> {
        let listener = match listen(path, access) {
            Err(cause) if cause.kind() == ErrorKind::AddrInUse => {
                if !is_left(path)? {
                    return Err(cause);
                }
                fs::remove_file(path)?;
                listen(path, access)?
            }
            listener => listener?,
        };
        let listener = UnixListener::from_std(listener.into())?;
        Ok(Self { listener, path: path.into(), file: place(path)? })
    }

    /// Returns the socket that accepts connections.
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

/// Listens at a path. The socket is created for the owner only. It gets its permissions and its group before it
/// listens, so no other user can connect in between. The permissions are set after `bind`, which would apply
/// the umask to them.
fn listen(path: &Path, access: SocketAccess) -> io::Result<Socket> {
    let socket = File::from(OwnedFd::from(Socket::new(Domain::UNIX, Type::STREAM, None)?));
    socket.set_permissions(Permissions::from_mode(MODE))?;
    let socket = Socket::from(OwnedFd::from(socket));
    let address = SockAddr::unix(path).map_err(|_| {
        let why = "the path is too long for a socket: at most 107 bytes";
        io::Error::new(ErrorKind::InvalidFilename, why)
    })?;
    socket.bind(&address)?;
    if access != SocketAccess::default() {
        let grant = || {
            chown(path, None, access.group)?;
            fs::set_permissions(path, Permissions::from_mode(access.mode))
        };
        // After an error, remove the socket: no process would listen there.
        grant().inspect_err(|_| drop(fs::remove_file(path)))?;
    }
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Returns whether an ended process has left the socket, so that no process listens there.
fn is_left(path: &Path) -> io::Result<bool> {
    let kind = fs::symlink_metadata(path)?.file_type();
    if !kind.is_socket() {
        let what = if kind.is_dir() { "a directory" } else { "a file" };
        let why = format!("there is {what} that is no socket");
        return Err(io::Error::new(ErrorKind::AlreadyExists, why));
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // If the backlog is full, a process is still listening. A blocking `connect` would wait for room in the
    // backlog.
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

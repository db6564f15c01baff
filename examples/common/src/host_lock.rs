//! Locks that exclude other processes of this host.
//!
//! A lock is a listening Unix socket with an abstract name. The kernel gives the name to one process at a time,
//! and frees it when that process ends for any reason. So an ended process leaves nothing behind, the lock also
//! excludes processes of other users, and no folder or file system is needed. A process that does not get the
//! lock finds out from the socket which process holds it. A lock is valid within a network namespace:
//! containers with separate namespaces do not see each other's locks.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::UnixStream;

/// Prefix of the names of all locks, after the zero byte that makes them abstract.
const LOCKS: &str = "iscsi-initiator/lock/";
const CHILDREN: &str = "iscsi-initiator/children/";
/// Maximum number of connections that wait to be accepted. No connection is accepted: a process connects only
/// to read the process id of the peer. If the backlog is full, it does not find out which process holds the
/// lock.
const BACKLOG: i32 = 128;
/// File that lists the sockets of the network namespace, one per line. An abstract name is after `@`.
const SOCKETS: &str = "/proc/net/unix";

/// A lock that this process holds. Dropping it releases the lock.
#[derive(Debug)]
pub struct HostLock {
    _socket: Socket,
}

/// Reasons why a lock cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// A process holds the lock. Its process id, if that is known.
    #[error("{}", process(*.0))]
    Held(Option<u32>),
    /// The operating system cannot provide the lock.
    #[error("{0}")]
    System(#[from] io::Error),
}

impl HostLock {
    /// Takes the lock for the file, unit or other thing that all processes identify by `key`.
    ///
    /// # Errors
    /// [`LockError`].
    pub fn take(key: &str) -> Result<Self, LockError> {
        let name = format!("{LOCKS}{}", digest(key));
        match listen(&name) {
            Ok(socket) => Ok(Self { _socket: socket }),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                // The holder may have ended meanwhile. Then the next attempt of the caller succeeds.
                Err(LockError::Held(holder(&name).unwrap_or_default()))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// A lock that a child process and all processes that it starts inherit. [`ChildLock::left`] reports the lock
/// as long as one of these processes lives, unless the parent has [released](Self::release) it.
#[derive(Debug, Default)]
pub struct ChildLock {
    sockets: Vec<Socket>,
}

impl ChildLock {
    /// Creates a lock for a child that works for the files or units with these keys.
    ///
    /// # Errors
    /// The error of the system.
    pub fn new(keys: &[String]) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = |key: &String| {
            let process = std::process::id();
            format!("{CHILDREN}{}/{process}-{number}", digest(key))
        };
        let sockets = keys.iter().map(|key| listen(&name(key)));
        Ok(Self { sockets: sockets.collect::<io::Result<_>>()? })
    }

    /// Returns the descriptors that the child must inherit.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(AsFd::as_fd)
    }

    /// Releases the lock. Call it after the child has ended normally: processes that the child has left running
    /// on purpose then hold no lock.
    pub fn release(&self) {
        for socket in &self.sockets {
            // After this, no process can connect to the socket, even if another process still has its
            // descriptor.
            drop(socket.shutdown(Shutdown::Both));
        }
    }

    /// Returns the process id of a parent whose child still lives and works for `key`; `None` if there is no
    /// such child. The id is 0 if it is unknown.
    ///
    /// # Errors
    /// The error of the system.
    pub fn left(key: &str) -> io::Result<Option<u32>> {
        let prefix = format!("{CHILDREN}{}/", digest(key));
        let sockets = fs::read_to_string(SOCKETS)?;
        let names = sockets.lines().filter_map(|line| line.split_once(" @"));
        for (_, name) in names.filter(|(_, name)| name.starts_with(&prefix)) {
            if let Ok(process) = holder(name) {
                let told = name[prefix.len()..].split('-').next().and_then(|id| id.parse().ok());
                return Ok(Some(process.or(told).unwrap_or_default()));
            }
        }
        Ok(None)
    }
}

impl Drop for ChildLock {
    fn drop(&mut self) {
        self.release();
    }
}

/// Returns the part of a lock's name that depends on the key. It has a fixed length.
fn digest(key: &str) -> String {
    blake3::hash(key.as_bytes()).to_hex()[..40].to_owned()
}

fn listen(name: &str) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&address(name)?)?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

fn address(name: &str) -> io::Result<SockAddr> {
    SockAddr::unix(format!("\0{name}"))
}

/// Returns the process id of the process that listens under a name, if the process is visible from this one.
///
/// # Errors
/// If no process listens.
fn holder(name: &str) -> io::Result<Option<u32>> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&address(name)?) {
        Ok(()) => {}
        // The backlog is full: a process listens, but its id is unknown.
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
        Err(error) => return Err(error),
    }
    let stream = std::os::unix::net::UnixStream::from(socket);
    let peer = UnixStream::from_std(stream).and_then(|stream| stream.peer_cred());
    let process = peer.ok().and_then(|peer| peer.pid());
    Ok(process.and_then(|process| u32::try_from(process).ok()).filter(|process| *process > 0))
}

/// Returns a process as readable text.
fn process(id: Option<u32>) -> String {
    id.map_or_else(|| "another process".to_owned(), |id| format!("process {id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> String {
        format!("test of host_lock, process {}, {name}", std::process::id())
    }

    #[tokio::test]
    async fn a_lock_is_of_one_holder_at_a_time() {
        let key = key("one holder");
        let first = HostLock::take(&key).unwrap();
        let _other = HostLock::take(&(key.clone() + "!")).unwrap();
        for _ in 0..3 {
            let refused = HostLock::take(&key).unwrap_err();
            assert_eq!(refused.to_string(), format!("process {}", std::process::id()));
        }
        drop(first);
        HostLock::take(&key).unwrap();
    }

    /// Each refused process takes a place in the backlog forever. When the backlog is full, the lock must still
    /// exclude.
    #[tokio::test]
    async fn many_may_ask() {
        let key = key("many");
        let _lock = HostLock::take(&key).unwrap();
        for _ in 0..2 * BACKLOG {
            assert!(matches!(HostLock::take(&key), Err(LockError::Held(_))));
        }
    }

    #[tokio::test]
    async fn a_child_holds_its_lock_until_that_is_released() {
        let key = key("child");
        assert_eq!(ChildLock::left(&key).unwrap(), None);
        let keys = [key.clone()];
        let lock = ChildLock::new(&keys).unwrap();
        // These copies stand for those of a child that outlives its parent.
        let copies: Vec<_> =
            lock.descriptors().map(|held| held.try_clone_to_owned().unwrap()).collect();
        assert_eq!(ChildLock::left(&key).unwrap(), Some(std::process::id()));
        lock.release();
        assert_eq!(ChildLock::left(&key).unwrap(), None);
        drop(copies);
        let [first, second] = [(); 2].map(|()| ChildLock::new(&keys).unwrap());
        drop(first);
        assert!(ChildLock::left(&key).unwrap().is_some(), "of the second");
        drop(second);
        assert_eq!(ChildLock::left(&key).unwrap(), None);
    }
}

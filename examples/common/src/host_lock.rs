//! Locks among the processes of this host.
//!
//! A lock is a listening Unix socket with an abstract name. The kernel lets one process have the name, and takes it
//! back when that process ends, whatever ends it. So nothing is left behind, any user finds the lock of any other
//! one, and no folder or file system has a say. A process that does not get the lock learns from the socket which
//! process has it. A lock is valid within a network namespace: containers with separate ones do not see each
//! other's locks.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::UnixStream;

/// How the names of all locks begin, behind the zero that makes them abstract.
const LOCKS: &str = "iscsi-initiator/lock/";
const CHILDREN: &str = "iscsi-initiator/children/";
/// Those who ask wait here, and are never taken: more than these learn no process from it.
const BACKLOG: i32 = 128;
/// The sockets of the network namespace, one a line, an abstract name behind `@`.
const SOCKETS: &str = "/proc/net/unix";

/// A lock that this process has, until it is dropped.
#[derive(Debug)]
pub struct HostLock {
    _socket: Socket,
}

/// Reasons why there is no lock.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// A process has it; which one, as far as that can be seen.
    #[error("{}", process(*.0))]
    Held(Option<u32>),
    /// The system has none.
    #[error("{0}")]
    System(#[from] io::Error),
}

impl HostLock {
    /// Takes the lock of a thing. What makes it the same thing for every process is its `key`.
    ///
    /// # Errors
    /// [`LockError`].
    pub fn take(key: &str) -> Result<Self, LockError> {
        let name = format!("{LOCKS}{}", digest(key));
        match listen(&name) {
            Ok(socket) => Ok(Self { _socket: socket }),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                // It may be gone by now, which the next try finds.
                Err(LockError::Held(holder(&name).unwrap_or_default()))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// What a process that was started holds, with all that it has started: as long as any of them lives, and the process
/// that has started it has not [released](Self::release) it, [`ChildLock::left`] finds it.
#[derive(Debug, Default)]
pub struct ChildLock {
    sockets: Vec<Socket>,
}

impl ChildLock {
    /// A lock for a child that works for the things of these keys.
    ///
    /// # Errors
    /// Those of the system.
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

    /// Returns the descriptors that the child shall inherit.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(AsFd::as_fd)
    }

    /// The child has ended as it should. What it has left running on purpose holds nothing any more.
    pub fn release(&self) {
        for socket in &self.sockets {
            // Then nobody can connect to it, whoever has the descriptor.
            drop(socket.shutdown(Shutdown::Both));
        }
    }

    /// A process that is gone and whose child for the thing of this key still lives, if there is any.
    ///
    /// # Errors
    /// Those of the system.
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

/// What the name of a lock has of a key, which may be of any length.
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

/// The process that listens under a name, if it can be seen from here.
///
/// # Errors
/// When nobody listens.
fn holder(name: &str) -> io::Result<Option<u32>> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&address(name)?) {
        Ok(()) => {}
        // Too many ask.
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
        Err(error) => return Err(error),
    }
    let stream = std::os::unix::net::UnixStream::from(socket);
    let peer = UnixStream::from_std(stream).and_then(|stream| stream.peer_cred());
    let process = peer.ok().and_then(|peer| peer.pid());
    Ok(process.and_then(|process| u32::try_from(process).ok()).filter(|process| *process > 0))
}

/// A process for people.
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

    /// Whoever is refused takes a place that nobody gives back.
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
        // As a child has it that outlives its parent.
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

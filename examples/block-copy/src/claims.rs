//! Claims the files and units of copies, so that no copy interferes with another copy, in this process or on
//! this host.

pub(crate) mod named_files;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use iscsi_examples_common::host_lock::{ChildLock, HostLock, LockError};
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use tokio::time::{Instant, sleep};

use self::named_files::NamedFile;
use crate::end::Medium;
use crate::ends::Ends;
use crate::error::Error;
use crate::side::Side;

/// Time limit to wait for a command that an ended process has started. When a process ends, a guard process
/// soon kills its commands.
const LEFT: Duration = Duration::from_secs(5);
/// Interval between two checks whether a command of an ended process still runs.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The files and units that the copies of a process read and write. If one copy writes a file or unit, no other
/// copy may read or write it, and no other process of this host may write it. Clones share the claims.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    claims: Vec<Claim>,
    locks: Vec<HostLock>,
}

#[derive(Debug)]
struct Claim {
    copy: Arc<str>,
    /// Role of the file or unit in the copy, for error messages.
    what: &'static str,
    is_written: bool,
    media: Vec<Medium>,
}

impl Claim {
    fn of_end(copy: &Arc<str>, side: Side, ends: &Ends) -> Self {
        let end = match side {
            Side::Source => &ends.source,
            Side::Destination => &ends.destination,
        };
        let is_written = side == Side::Destination;
        Self { copy: Arc::clone(copy), what: side.into(), is_written, media: end.media() }
    }

    fn of_file(copy: &Arc<str>, file: &NamedFile) -> Self {
        let (what, is_written, media) = (file.what, file.is_written(), file.lasting_media());
        Self { copy: Arc::clone(copy), what, is_written, media }
    }

    /// Returns whether one of the two claims writes what the other claim reads or writes.
    fn collides(&self, other: &Self) -> bool {
        let is_written = self.is_written || other.is_written;
        is_written && self.media.iter().any(|medium| other.media.contains(medium))
    }
}

impl Claims {
    /// Claims a file that belongs to the whole run and not to a copy.
    pub(crate) fn claim_of_run(&self, file: &NamedFile) {
        let claim = Claim::of_file(&"this run".into(), file);
        self.lock().claims.push(claim);
    }

    /// Claims the source and the destination of the copy `copy`, and the files that its options name. The
    /// claims stay after the copy has ended: a copy that is opened later would overwrite its result.
    ///
    /// # Errors
    /// [`Error::Claimed`]; [`Error::Locked`] and [`Error::CommandLeft`] if another process uses them.
    pub(crate) async fn claim(
        &self,
        copy: &Arc<str>,
        ends: &Ends,
        files: &[NamedFile],
    ) -> Result<(), Error> {
        let sides = [Side::Source, Side::Destination].map(|side| Claim::of_end(copy, side, ends));
        let files = files.iter().map(|file| Claim::of_file(copy, file));
        let own: Vec<_> = sides.into_iter().chain(files).collect();
        let written = own.iter().filter(|claim| claim.is_written);
        let written = written.flat_map(|claim| {
            let media = claim.media.iter();
            media.map(|medium| (medium.to_string(), claim.what))
        });
        // The map removes duplicates: a file of an option may be the destination.
        let written: BTreeMap<_, _> = written.collect();
        self.claim_here(own)?;
        let locks = lock(&written)?;
        self.lock().locks.extend(locks);
        await_commands(&keys(ends)).await
    }

    /// Claims the files and units against the other copies of this process.
    fn claim_here(&self, own: Vec<Claim>) -> Result<(), Error> {
        let mut state = self.lock();
        for claim in &own {
            if let Some(other) = state.claims.iter().find(|other| claim.collides(other)) {
                let (what, as_its, copy) = (claim.what, other.what, Arc::clone(&other.copy));
                return Err(Error::Claimed { what, copy, as_its });
            }
        }
        state.claims.extend(own);
        Ok(())
    }

    /// Claims a checkpoint or a digest file for a run that makes no copy.
    ///
    /// # Errors
    /// [`Error::Locked`].
    pub(crate) fn claim_kept(&self, file: &NamedFile) -> Result<(), Error> {
        let keys = file.lasting_media().into_iter().map(|medium| (medium.to_string(), file.what));
        let locks = lock(&keys.collect())?;
        self.lock().locks.extend(locks);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the lock keys of the destination. A command that lists changes holds these locks while it runs.
pub(crate) fn keys(ends: &Ends) -> Vec<String> {
    ends.destination.media().iter().map(ToString::to_string).collect()
}

/// Locks everything that the copy writes, against other processes of this host. `written` maps each lock key to
/// the role in the copy.
fn lock(written: &BTreeMap<String, &'static str>) -> Result<Vec<HostLock>, Error> {
    let mut locks = Vec::new();
    for (key, what) in written {
        match HostLock::take(key) {
            Ok(lock) => locks.push(lock),
            Err(held @ LockError::Held(_)) => {
                return Err(Error::Locked { what, holder: held.to_string() });
            }
            // A sandbox may forbid sockets. Then the copy runs without a lock.
            Err(LockError::System(error)) => {
                tracing::warn!(%error, "nothing keeps other processes of this host from writing to the {what}");
            }
        }
    }
    Ok(locks)
}

/// Waits until no command that an ended process has started holds a lock with one of these keys. The command
/// may fetch and clear the list of changes, and then no copy would receive the list.
async fn await_commands(keys: &[String]) -> Result<(), Error> {
    let end = Instant::now() + LEFT;
    for key in keys {
        loop {
            match ChildLock::left(key) {
                Ok(None) => break,
                Ok(Some(process)) if Instant::now() >= end || is_there(process) => {
                    return Err(Error::CommandLeft(process));
                }
                Ok(Some(_)) => sleep(POLL_INTERVAL).await,
                Err(error) => {
                    tracing::warn!(%error, "whether a command of --ranges-from was left running is not known");
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Returns whether a process exists, or may exist.
fn is_there(process: u32) -> bool {
    let id = i32::try_from(process).ok().filter(|id| *id > 0).map(Pid::from_raw);
    id.is_some_and(|id| kill(id, None) != Err(Errno::ESRCH))
}

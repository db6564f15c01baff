//! What copies read and write, so that none of them gets in the way of another: within this process, and on this host.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use iscsi_examples_common::host_lock::{ChildLock, HostLock, LockError};
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use tokio::time::{Instant, sleep};

use crate::end::Medium;
use crate::ends::Ends;
use crate::error::Error;
use crate::named_files::NamedFile;
use crate::side::Side;

/// How long a command is waited for that a process has left which is gone: it is about to be ended.
const LEFT: Duration = Duration::from_secs(5);
/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// The files and units that the copies of a process read and write, from when they are opened on: what one
/// writes no other one may read or write, and no other process of this host may write. Clones are the same.
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
    /// What it is to the copy.
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

    /// Whether one of two copies writes what the other one reads or writes.
    fn collides(&self, other: &Self) -> bool {
        let is_written = self.is_written || other.is_written;
        is_written && self.media.iter().any(|medium| other.media.contains(medium))
    }
}

impl Claims {
    /// Claims a file that is no copy's, and is read.
    pub(crate) fn claim_read(&self, what: &'static str, path: &Path) {
        let claim = Claim::of_file(&"this run".into(), &NamedFile::read(what, path));
        self.lock().claims.push(claim);
    }

    /// Claims both ends, and the files that are named beside them, for the copy of this name. One that has ended keeps
    /// them: whoever is opened late would overwrite what it has copied.
    ///
    /// # Errors
    /// [`Error::Claimed`]; [`Error::Locked`] and [`Error::CommandLeft`] where another process is at work.
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
        // The destination is a file that is named as well.
        let written: BTreeMap<_, _> = written.collect();
        self.claim_here(own)?;
        let locks = lock(&written)?;
        self.lock().locks.extend(locks);
        await_commands(&keys(ends)).await
    }

    /// Claims against the other copies of this process.
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

    /// Claims a file that is kept of copies, where none is made.
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

/// What a command works for that tells what has changed: a copy to this destination.
pub(crate) fn keys(ends: &Ends) -> Vec<String> {
    ends.destination.media().iter().map(ToString::to_string).collect()
}

/// The locks of what is written, which other processes of this host may have: by their keys, what each is to the copy.
fn lock(written: &BTreeMap<String, &'static str>) -> Result<Vec<HostLock>, Error> {
    let mut locks = Vec::new();
    for (key, what) in written {
        match HostLock::take(key) {
            Ok(lock) => locks.push(lock),
            Err(held @ LockError::Held(_)) => {
                return Err(Error::Locked { what, holder: held.to_string() });
            }
            // Where a sandbox has no sockets, copies go on as they would without a lock.
            Err(LockError::System(error)) => {
                tracing::warn!(%error, "nothing keeps other processes of this host from writing to the {what}");
            }
        }
    }
    Ok(locks)
}

/// Waits until no command of a process that is gone works for these things any more: it takes what has changed, and tells
/// nobody.
async fn await_commands(keys: &[String]) -> Result<(), Error> {
    let end = Instant::now() + LEFT;
    for key in keys {
        loop {
            match ChildLock::left(key) {
                Ok(None) => break,
                Ok(Some(process)) if Instant::now() >= end || is_there(process) => {
                    return Err(Error::CommandLeft(process));
                }
                Ok(Some(_)) => sleep(LOOK).await,
                Err(error) => {
                    tracing::warn!(%error, "whether a command of --ranges-from was left running is not known");
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Whether a process is there, or may be.
fn is_there(process: u32) -> bool {
    let id = i32::try_from(process).ok().filter(|id| *id > 0).map(Pid::from_raw);
    id.is_some_and(|id| kill(id, None) != Err(Errno::ESRCH))
}

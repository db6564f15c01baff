//! One process of the host, which works on its files.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iscsi_copy::IoFuture;
use iscsi_copy::simulation::{HostFiles, KeptFile, NewFile};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::files::Files;
use super::vouching::Vouching;
use crate::rng::Rng;

/// Largest number of changes that a killed process still makes.
const MAX_CHANGES: u64 = 6;

/// A process of a host. Clones share its state.
#[derive(Clone)]
pub(crate) struct Process {
    files: Files,
    vouching: Arc<Vouching>,
    works: Arc<Mutex<Works>>,
}

/// Work for the threads of a process.
struct Works {
    under_way: BTreeMap<u64, Box<dyn FnOnce() + Send>>,
    begun: u64,
    /// Longest duration of one piece of work, milliseconds.
    max_time: u64,
    has_ended: bool,
    rng: Rng,
}

impl Process {
    pub(crate) fn new(files: &Files, vouching: &Arc<Vouching>, mut rng: Rng) -> Self {
        let (under_way, max_time) = (BTreeMap::new(), 1 << rng.within(1..12));
        let works = Works { under_way, begun: 0, max_time, has_ended: false, rng };
        let works = Arc::new(Mutex::new(works));
        Self { files: files.clone(), vouching: Arc::clone(vouching), works }
    }

    /// Kills the process. Its running work on files is cut off after a random number of changes.
    pub(crate) fn end(&self) {
        let mut works = self.works();
        works.has_ended = true;
        let (under_way, mut rng) = (std::mem::take(&mut works.under_way), works.rng.fork());
        drop(works);
        for (_, work) in under_way {
            self.files.killed_in(work, rng.within(0..MAX_CHANGES));
        }
    }

    /// Runs the work with this number, unless it has run already. Then checks the digests and the checkpoint.
    fn work(&self, number: u64) {
        let work = self.works().under_way.remove(&number);
        if let Some(work) = work {
            work();
            self.vouching.judge();
        }
    }

    fn works(&self) -> MutexGuard<'_, Works> {
        self.works.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Process")
    }
}

impl HostFiles for Process {
    fn read(&self, path: &Path, title: &str) -> io::Result<Option<Vec<u8>>> {
        let Some(mut text) = self.files.text(path) else { return Ok(None) };
        if !text.starts_with(title.as_bytes()) {
            text.truncate(title.len());
        }
        Ok(Some(text))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        let (files, number) = (self.files.clone(), self.files.create()?);
        Ok(Box::new(Open { files, number, path: path.to_owned() }))
    }

    fn run(&self, work: Box<dyn FnOnce() + Send>) -> IoFuture<'_, ()> {
        let (done, is_done) = oneshot::channel::<()>();
        let mut works = self.works();
        if !works.has_ended {
            works.begun += 1;
            let (number, max_time) = (works.begun, works.max_time);
            let [before, after] = [(); 2].map(|()| works.rng.any_scale(max_time));
            works.under_way.insert(number, work);
            let process = self.clone();
            tokio::spawn(async move {
                sleep(before).await;
                process.work(number);
                sleep(after).await;
                _ = done.send(());
            });
        }
        drop(works);
        Box::pin(async move { is_done.await.map_err(io::Error::other) })
    }
}

/// An open file of a process.
#[derive(Debug)]
struct Open {
    files: Files,
    number: usize,
    path: PathBuf,
}

impl NewFile for Open {
    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        self.files.write(self.number, self.files.len(self.number), text)
    }

    fn sync(&self) -> io::Result<()> {
        self.files.sync(self.number)
    }

    fn take_place(self: Box<Self>) -> io::Result<Box<dyn KeptFile>> {
        self.files.name(self.number, &self.path)?;
        Ok(self)
    }
}

impl KeptFile for Open {
    fn sync_name(&self) -> io::Result<()> {
        self.files.sync_names()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.files.set_len(self.number, usize::try_from(len).unwrap_or(usize::MAX))
    }

    fn write_at(&self, text: &[u8], offset: u64) -> io::Result<()> {
        self.files.write(self.number, usize::try_from(offset).unwrap_or(usize::MAX), text)
    }

    fn sync(&self) -> io::Result<()> {
        self.files.sync(self.number)
    }
}

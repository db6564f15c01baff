//! The files of a simulated host. They survive its processes. After a crash of the host, only synced data and
//! names are certain to exist.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::rng::Rng;

/// Percentage of changes that fail while failures are on.
const FAILURES: u64 = 2;

/// The files of one host. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Files(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    files: Vec<File>,
    /// The file at each path: the current one, and the one after a crash.
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    /// Names that a crash may still undo, in the order in which they were given.
    given: Vec<(PathBuf, usize)>,
    /// Number of changes that a process which is being killed may still make; `None` while no process is being
    /// killed.
    allowance: Option<u64>,
    /// Whether changes may fail.
    fails: bool,
    /// Number of changes so far.
    changes: u64,
    rng: Rng,
}

/// The data of a file.
#[derive(Debug, Default)]
struct File {
    /// Data that processes read.
    text: Vec<u8>,
    /// Data after a crash that loses everything that was not synced.
    durable: Vec<u8>,
    /// Changes that were not synced, in order.
    unsynced: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Change {
    Length(usize),
    Text { at: usize, text: Vec<u8> },
}

impl Change {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Self::Length(len) => to.resize(*len, 0),
            Self::Text { at, text } => {
                let end = at + text.len();
                to.resize(to.len().max(end), 0);
                to[*at..end].copy_from_slice(text);
            }
        }
    }

    /// Returns the change as a crash may leave it: a part of it, or zeros.
    fn torn(&self, rng: &mut Rng) -> Self {
        match self {
            Self::Length(_) => self.clone(),
            Self::Text { at, text } => {
                let mut text = text[..rng.index(0..text.len() + 1)].to_vec();
                if rng.percent(25) {
                    text.fill(0);
                }
                Self::Text { at: *at, text }
            }
        }
    }
}

impl File {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.text);
        self.unsynced.push(change);
    }

    /// Puts a random number of unsynced changes on the medium, in order.
    fn sync_some(&mut self, rng: &mut Rng) {
        let unsynced = mem::take(&mut self.unsynced);
        let whole = rng.index(0..unsynced.len() + 1);
        unsynced[..whole].iter().for_each(|change| change.apply(&mut self.durable));
        if let Some(change) = unsynced.get(whole).filter(|_| rng.percent(50)) {
            change.torn(rng).apply(&mut self.durable);
        }
    }

    fn sync(&mut self) {
        mem::take(&mut self.unsynced).iter().for_each(|change| change.apply(&mut self.durable));
    }
}

impl Files {
    pub(crate) fn new(rng: Rng) -> Self {
        Self(Arc::new(Mutex::new(State {
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            given: Vec::new(),
            allowance: None,
            fails: false,
            changes: 0,
            rng,
        })))
    }

    /// Returns the data of the file at a path.
    pub(crate) fn text(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        state.names.get(path).map(|number| state.files[*number].text.clone())
    }

    /// Returns the data of the file at a path after a crash that loses everything unsynced.
    pub(crate) fn durable_text(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        state.durable_names.get(path).map(|number| state.files[*number].durable.clone())
    }

    /// Returns the number of changes so far.
    pub(crate) fn changes(&self) -> u64 {
        self.state().changes
    }

    /// Switches failures on or off.
    pub(crate) fn fail(&self, fails: bool) {
        self.state().fails = fails;
    }

    /// Runs the work that a killed process had begun; `changes` further changes take effect.
    pub(crate) fn killed_in(&self, work: impl FnOnce(), changes: u64) {
        self.state().allowance = Some(changes);
        work();
        self.state().allowance = None;
    }

    /// Removes a file, durably, as the user would.
    pub(crate) fn remove(&self, path: &Path) {
        let mut state = self.state();
        state.changes += 1;
        state.names.remove(path);
        state.durable_names.remove(path);
        state.given.retain(|(given, _)| given != path);
    }

    /// Crashes the host. Of each file, and of the names, a random number of the first unsynced changes survives.
    pub(crate) fn crash(&self) {
        let mut state = self.state();
        let State { files, names, durable_names, given, rng, changes, .. } = &mut *state;
        *changes += 1;
        for file in files.iter_mut() {
            file.sync_some(rng);
            file.text.clone_from(&file.durable);
        }
        let count = rng.index(0..given.len() + 1);
        durable_names.extend(mem::take(given).into_iter().take(count));
        names.clone_from(durable_names);
    }

    /// Makes a file without a name; returns its number.
    pub(super) fn create(&self) -> io::Result<usize> {
        self.state().may_change()?;
        let mut state = self.state();
        state.files.push(File::default());
        Ok(state.files.len() - 1)
    }

    pub(super) fn len(&self, number: usize) -> usize {
        self.state().files[number].text.len()
    }

    pub(super) fn set_len(&self, number: usize, len: usize) -> io::Result<()> {
        let mut state = self.state();
        state.may_change()?;
        state.files[number].change(Change::Length(len));
        Ok(())
    }

    pub(super) fn write(&self, number: usize, at: usize, text: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let change = Change::Text { at, text: text.to_vec() };
        let may_change = state.may_change();
        if may_change.is_err() {
            let part = state.rng.index(0..text.len() + 1);
            state.files[number].change(Change::Text { at, text: text[..part].to_vec() });
            return may_change;
        }
        state.files[number].change(change);
        Ok(())
    }

    /// Syncs a file. A failed sync is reported once, as by the kernel: later syncs succeed without reporting it.
    pub(super) fn sync(&self, number: usize) -> io::Result<()> {
        let mut state = self.state();
        let is_dead = state.is_dead();
        let may_change = state.may_change();
        let State { files, rng, .. } = &mut *state;
        match may_change {
            Ok(()) => files[number].sync(),
            // A part of the changes may have reached the medium.
            Err(_) if !is_dead => files[number].sync_some(rng),
            Err(_) => {}
        }
        may_change
    }

    pub(super) fn name(&self, number: usize, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.may_change()?;
        state.names.insert(path.to_owned(), number);
        state.given.push((path.to_owned(), number));
        Ok(())
    }

    pub(super) fn sync_names(&self) -> io::Result<()> {
        let mut state = self.state();
        state.may_change()?;
        let given = mem::take(&mut state.given);
        state.durable_names.extend(given);
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_dead(&self) -> bool {
        self.allowance == Some(0)
    }

    /// Counts a change, and fails if it does not take effect.
    fn may_change(&mut self) -> io::Result<()> {
        self.changes += 1;
        if self.is_dead() {
            return Err(ErrorKind::Interrupted.into());
        }
        if let Some(left) = &mut self.allowance {
            *left -= 1;
        }
        if self.fails && self.rng.percent(FAILURES) {
            return Err(ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

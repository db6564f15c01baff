//! Feeds a file of digests whose checks are right over lines that may not be, with any bytes behind it. No byte may have
//! two digests, the file that is written in its place must be read the same, and what is forgotten must not be read again.
#![no_main]

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iscsi_copy::simulation::{HostFiles, KeptFile, NewFile};
use iscsi_copy::{DigestFile, Digests, Identity, IoFuture};
use iscsi_fuzz as _;
use libfuzzer_sys::fuzz_target;

/// A host with one file, in memory.
#[derive(Clone, Debug)]
struct OneFile(Arc<Mutex<Vec<u8>>>);

/// A file that is not in its place yet.
#[derive(Debug)]
struct Written(OneFile, Vec<u8>);

impl OneFile {
    fn text(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HostFiles for OneFile {
    fn read(&self, _path: &Path, _title: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(Some(self.text().clone()))
    }

    fn create(&self, _path: &Path) -> io::Result<Box<dyn NewFile>> {
        Ok(Box::new(Written(self.clone(), Vec::new())))
    }

    fn run(&self, work: Box<dyn FnOnce() + Send>) -> IoFuture<'_, ()> {
        work();
        Box::pin(async { Ok(()) })
    }
}

impl NewFile for Written {
    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        self.1.extend_from_slice(text);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn take_place(self: Box<Self>) -> io::Result<Box<dyn KeptFile>> {
        let Self(file, text) = *self;
        *file.text() = text;
        Ok(Box::new(file))
    }
}

impl KeptFile for OneFile {
    fn sync_name(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.text().resize(usize::try_from(len).map_err(io::Error::other)?, 0);
        Ok(())
    }

    fn write_at(&self, text: &[u8], offset: u64) -> io::Result<()> {
        let at = usize::try_from(offset).map_err(io::Error::other)?;
        self.text().truncate(at);
        self.text().extend_from_slice(text);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Replaces each line that consists of `!` alone by the check of all lines before it. Without one, no file that
/// the fuzzer makes would be read further than to its first check.
fn with_checks(text: &[u8]) -> Vec<u8> {
    let mut made = Vec::with_capacity(text.len());
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if line == b"!\n" {
            let check = format!("# check {}\n", blake3::hash(&made));
            made.extend_from_slice(check.as_bytes());
        } else {
            made.extend_from_slice(line);
        }
    }
    made
}

fuzz_target!(|data: &[u8]| {
    let file = OneFile(Arc::new(Mutex::new(with_checks(data))));
    let [source, unit] = ["source", "unit"].map(|name| Identity::new(name, 1 << 20));
    let Ok(Some(digests)) = Digests::load_on(&file, "digests", &unit) else { return };
    assert_eq!(digests.bytes(), digests.ranges().bytes(), "a byte has two digests");
    let opened = DigestFile::open_on(Arc::new(file.clone()), "digests", &source, &unit, 4096);
    let opened = opened.expect("what can be loaded can be opened");
    let load = || Digests::load_on(&file, "digests", &unit).ok().flatten();
    assert_eq!(load(), Some(digests));
    opened.forget().expect("memory has no errors");
    assert!(load().is_some_and(|digests| digests.is_empty()), "a digest is still there");
});

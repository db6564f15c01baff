//! Streams, whose bytes can only be read or written in sequence.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::sync::Arc;

use iscsi_copy::{Destination, FileOptions, Source};
use iscsi_examples_common::standard_output;

use crate::error::Error;
use crate::error::refusal::Refusal;
use crate::side::Side;

/// A pipe, a terminal, a character device, or a file that another process has opened.
#[derive(Clone, Debug)]
pub struct StreamEnd {
    file: Arc<File>,
    name: Arc<str>,
    /// The source for all reads of this stream. It keeps bytes that were peeked, so that the next read returns
    /// them.
    source: Source,
    /// Holds a destination that is a block device open exclusively, so that no other program uses it.
    claim: Option<Arc<File>>,
}

impl StreamEnd {
    pub(super) fn new(file: File, name: Arc<str>) -> Self {
        let file = Arc::new(file);
        Self { source: Source::pipe(Arc::clone(&file)), file, name, claim: None }
    }

    /// Opens standard input as a source, or standard output as a destination.
    pub(super) fn standard(side: Side, overrides_use: bool) -> Result<Self, Error> {
        let (descriptor, name) = match side {
            Side::Source => (io::stdin().as_fd().try_clone_to_owned(), "standard input"),
            Side::Destination => (io::stdout().as_fd().try_clone_to_owned(), "standard output"),
        };
        let name: Arc<str> = name.into();
        let failed =
            |cause: io::Error| Error::File { side, name: Arc::clone(&name), cause: cause.into() };
        let mut end = Self::new(descriptor.map_err(failed)?.into(), Arc::clone(&name));
        if side == Side::Destination {
            if standard_output::is_nowhere() {
                return Err(Refusal::Nowhere.into());
            }
            let is_block_device =
                end.file.metadata().is_ok_and(|file| file.file_type().is_block_device());
            if is_block_device && !overrides_use {
                let claim = FileOptions::new().open("/proc/self/fd/1").map_err(failed)?;
                end.claim = Some(claim.0.into());
            }
        }
        Ok(end)
    }

    pub(super) const fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn is_standard_output(&self) -> bool {
        self.file.metadata().is_ok_and(|file| standard_output::is(&file))
    }

    pub(super) fn to_source(&self) -> Source {
        self.source.clone()
    }

    pub(super) fn to_destination(&self) -> Destination {
        Destination::pipe(Arc::clone(&self.file))
    }
}

impl fmt::Display for StreamEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

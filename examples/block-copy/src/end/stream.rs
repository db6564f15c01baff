//! Streams: what comes next, and nothing else.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use iscsi_copy::{Destination, Source};
use iscsi_examples_common::standard_output;

use crate::error::Error;
use crate::side::Side;

/// A pipe, a terminal, a character device, or a file that somebody else has opened.
#[derive(Clone, Debug)]
pub struct StreamEnd {
    file: Arc<File>,
    name: Arc<str>,
}

impl StreamEnd {
    pub(super) fn new(file: File, name: Arc<str>) -> Self {
        Self { file: Arc::new(file), name }
    }

    /// Standard input as a source, standard output as a destination.
    pub(super) fn standard(side: Side) -> Result<Self, Error> {
        let (descriptor, name) = match side {
            Side::Source => (io::stdin().as_fd().try_clone_to_owned(), "standard input"),
            Side::Destination => (io::stdout().as_fd().try_clone_to_owned(), "standard output"),
        };
        let name: Arc<str> = name.into();
        match descriptor {
            Ok(descriptor) => Ok(Self::new(descriptor.into(), name)),
            Err(cause) => Err(Error::File { side, name, cause }),
        }
    }

    pub(super) const fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn is_standard_output(&self) -> bool {
        self.file.metadata().is_ok_and(|file| standard_output::is(&file))
    }

    pub(super) fn to_source(&self) -> Source {
        Source::pipe(Arc::clone(&self.file))
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

//! A copy.

use crate::control::Control;
use crate::copied::Copied;
use crate::destination::Destination;
use crate::engine::Engine;
use crate::error::Failure;
use crate::options::Options;
use crate::progress::{Events, Teller};
use crate::source::Source;

/// A copy from a source to a destination. Nothing happens before it [runs](Self::run).
///
/// Only the parts of the source that hold data are read, as far as it tells; zeros are made the
/// cheapest way that the destination has, or not at all where it reads as zeros. Memory is
/// bounded. When the copy has ended well, all of it is flushed; where the destination says in between
/// that it may have lost what was not flushed, that is copied again, and no more.
#[derive(Debug)]
pub struct Copy {
    source: Source,
    destination: Destination,
    options: Options,
    control: Control,
    teller: Teller,
}

impl Copy {
    /// A copy of all that the source has, to the same place of the destination.
    pub fn new(source: Source, destination: Destination) -> Self {
        let teller = Teller::new();
        let control = Control::new(teller.shown());
        Self { source, destination, options: Options::default(), control, teller }
    }

    /// The same copy with other options.
    #[must_use]
    pub fn with_options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// A hand on it, also while it runs.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// What will happen in it.
    pub fn events(&self) -> Events {
        self.teller.events()
    }

    /// Copies all, and flushes it. A future that is dropped leaves the copy where it is; what is under
    /// way may be written or not.
    ///
    /// # Errors
    /// The first thing that went wrong, and how far it came. What had been written by then is flushed,
    /// unless the destination is what failed.
    pub async fn run(self) -> Result<Copied, Failure> {
        let Self { source, destination, options, control, teller } = self;
        let engine = Engine::new(source, destination, options, control, teller);
        engine.run().await
    }
}

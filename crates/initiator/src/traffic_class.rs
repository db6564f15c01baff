//! The class of requests that a disk belongs to.

use std::sync::Arc;

use iscsi_shaper::{Class, Rate};
use tokio::sync::watch;

use crate::scheduler::{Charge, Scheduler};

/// So many [`Class::TIME_SLICE`]s are a second.
const SLICES: u64 = 20;

/// A class of requests that share a rate, as [`Options::class`](crate::Options::class) takes it. Clones are the same.
///
/// Most are of a [`Shaper`](crate::Shaper) of this process. Where another process keeps the tree, a
/// [`Scheduler`] of the caller's asks there:
///
/// ```
/// use std::sync::Arc;
///
/// use iscsi_initiator::shaping::{Charge, Granting, Rate, Scheduler};
/// use iscsi_initiator::{Options, TrafficClass};
///
/// /// Whoever keeps the tree.
/// #[derive(Debug)]
/// struct Remote;
///
/// impl Scheduler for Remote {
///     fn grant(&self, bytes: u64) -> Granting<'_> {
///         // Here it would ask, and wait for the answer.
///         Box::pin(async move { Charge::new(bytes, |moved| println!("{moved} bytes")) })
///     }
///
///     fn ceil(&self) -> Rate {
///         Rate::Unlimited
///     }
/// }
///
/// let class = TrafficClass::new(Arc::new(Remote));
/// let options = Options::default().with_class(Some(class.clone()));
/// ```
#[derive(Clone, Debug)]
pub struct TrafficClass {
    scheduler: Arc<dyn Scheduler>,
    passage: Arc<watch::Sender<Passage>>,
}

/// Whether requests are let to the scheduler.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Passage {
    #[default]
    Open,
    Paused,
    Closed,
}

impl TrafficClass {
    /// A class whose requests are let pass by a scheduler.
    #[must_use]
    pub fn new(scheduler: Arc<dyn Scheduler>) -> Self {
        Self { scheduler, passage: Arc::default() }
    }

    /// Lets no further request of this handle pass, whatever the rates. Others of the class have what it
    /// leaves; what was sent goes on to its end.
    pub fn pause(&self) {
        self.turn(Passage::Paused);
    }

    /// Lets requests pass again after a [pause](Self::pause).
    pub fn resume(&self) {
        self.turn(Passage::Open);
    }

    /// Lets no request of this handle pass for ever: what waits ends with
    /// [`Error::ClassClosed`](crate::Error::ClassClosed), and so does what is asked from now on. What was sent goes on to
    /// its end, and flushes are not ruled.
    pub fn close(&self) {
        self.turn(Passage::Closed);
    }

    /// The most that may pass at this time.
    #[must_use]
    pub fn ceil(&self) -> Rate {
        self.scheduler.ceil()
    }

    /// Waits until a request of so many bytes may be sent; `None` if the class is [closed](Self::close).
    ///
    /// A [`Disk`](crate::Disk) does so by itself. This is for what else shares the rate.
    pub async fn pass(&self, bytes: u64) -> Option<Charge> {
        let mut passage = self.passage.subscribe();
        loop {
            let now = *passage.borrow_and_update();
            match now {
                Passage::Closed => return None,
                // The sender lives as long as this.
                Passage::Paused => _ = passage.changed().await,
                Passage::Open => tokio::select! {
                    biased;
                    // It leaves the class, which may have others to serve.
                    _ = passage.changed() => {}
                    charge = self.scheduler.grant(bytes) => return Some(charge),
                },
            }
        }
    }

    /// The longest that a request should be, bytes; `None` without a limit.
    pub(crate) fn max_request_len(&self) -> Option<u64> {
        self.ceil().bytes_in(Class::TIME_SLICE)
    }

    /// What may pass in a second at most, bytes; `None` without a limit.
    pub(crate) fn bytes_in_second(&self) -> Option<u64> {
        self.max_request_len().map(|bytes| bytes.saturating_mul(SLICES))
    }

    /// A class that is closed stays so.
    fn turn(&self, next: Passage) {
        self.passage.send_if_modified(|passage| {
            let is_new = *passage != Passage::Closed && *passage != next;
            if is_new {
                *passage = next;
            }
            is_new
        });
    }
}

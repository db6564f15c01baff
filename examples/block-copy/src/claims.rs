//! What the copies of a process read and write, so that none of them gets in the way of another.

use std::sync::{Arc, Mutex, PoisonError};

use iscsi_initiator::TargetAddress;

use crate::end::Medium;
use crate::ends::Ends;
use crate::error::Error;
use crate::side::Side;

/// The files and units that the copies of a process read and write, from when they are opened on: what one
/// writes no other one may read or write. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims(Arc<Mutex<Vec<Claim>>>);

#[derive(Debug)]
struct Claim {
    copy: Arc<str>,
    side: Side,
    medium: Medium,
    /// Two units behind two portals may have one name, where one is a clone of the other.
    portal: Option<TargetAddress>,
}

impl Claim {
    /// Whether one of two copies writes what the other one reads or writes.
    fn collides(&self, other: &Self) -> bool {
        let is_written = [self.side, other.side].contains(&Side::Destination);
        is_written && self.medium == other.medium && self.portal == other.portal
    }
}

impl Claims {
    /// Claims both ends for the copy of this name. One that has ended keeps them: whoever is opened late would
    /// overwrite what it has copied.
    ///
    /// # Errors
    /// [`Error::Claimed`].
    pub(crate) fn claim(&self, copy: &Arc<str>, ends: &Ends) -> Result<(), Error> {
        let mut claims = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sides = [(Side::Source, &ends.source), (Side::Destination, &ends.destination)];
        let own = sides.into_iter().flat_map(|(side, end)| {
            let media = end.media().into_iter();
            media.map(move |(medium, portal)| Claim {
                copy: Arc::clone(copy),
                side,
                medium,
                portal,
            })
        });
        let own: Vec<_> = own.collect();
        for claim in &own {
            if let Some(other) = claims.iter().find(|other| claim.collides(other)) {
                let (side, as_its, copy) = (claim.side, other.side, Arc::clone(&other.copy));
                return Err(Error::Claimed { side, copy, as_its });
            }
        }
        claims.extend(own);
        Ok(())
    }
}

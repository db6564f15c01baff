//! Ends the requests that earlier, killed runs may still have in flight at the destination, and records the sessions of this run
//! for the next one.
//!
//! A process that was killed leaves sessions at a target, which may carry out what they were sent, however late: after what
//! this run writes, and older than that. So they are ended before anything is written. For that the next run is told of the sessions of
//! this one, before it writes as well.

use std::sync::Arc;

use super::Engine;
use crate::error::CopyError;
use crate::progress::Event;

impl Engine {
    /// Ends what is left of earlier runs, and keeps by what a later one ends what is left of this.
    ///
    /// # Errors
    /// When the file of digests cannot be written: what it says of a file would be taken for what it was left as.
    pub(super) async fn end_earlier(&mut self) -> Result<(), CopyError> {
        let Some(device) = self.destination.shared() else { return Ok(()) };
        let own = device.leaves();
        for told in self.sessions_of_earlier().await {
            // Passes of one process are no earlier runs to each other.
            if own.as_ref() == Some(&told) {
                continue;
            }
            if let Err(error) = device.end_left(&told).await {
                self.teller.tell(Event::NotEnded(error.to_string()));
                self.unended.push(told);
            }
        }
        let sessions: Vec<_> = self.unended.iter().cloned().chain(own).collect();
        if let Some(digesting) = &self.digesting {
            let sessions = sessions.clone();
            let begun = digesting.file.blocking(move |file| file.begin(sessions)).await;
            begun.map_err(CopyError::Digests)?;
        }
        if let Some(store) = self.options.checkpoint.clone() {
            store.begin(sessions);
            let (flushed, total) = (self.ledger.flushed().clone(), self.total_so_far());
            let kept = store.keep(flushed, self.unreadable.clone(), total).await;
            kept.unwrap_or_else(|error| self.teller.tell(Event::NotSaved(error.to_string())));
        }
        Ok(())
    }

    async fn sessions_of_earlier(&self) -> Vec<String> {
        let mut sessions = self.digesting.as_ref().map(|digesting| digesting.file.sessions());
        if let Some(store) = &self.options.checkpoint {
            let kept = store.sessions().await;
            let kept = kept.inspect_err(|error| {
                self.teller.tell(Event::NotEnded(error.to_string()));
            });
            sessions.get_or_insert_default().extend(kept.unwrap_or_default());
        }
        let mut sessions = sessions.unwrap_or_default();
        sessions.sort_unstable();
        sessions.dedup();
        sessions
    }

    /// Keeps how the destination is left. No write is under way for this copy; a device may have more to say.
    pub(super) async fn end_kept(&mut self, is_complete: bool) {
        let device = self.destination.shared();
        let own = device.as_ref().filter(|device| !device.is_settled());
        let own = own.and_then(|device| device.leaves());
        let sessions: Vec<_> = self.unended.iter().cloned().chain(own).collect();
        self.close_digests(is_complete, &sessions).await;
        let Some(store) = self.options.checkpoint.as_ref().map(Arc::clone) else { return };
        if let Err(error) = store.end(sessions).await {
            self.teller.tell(Event::NotSaved(error.to_string()));
        }
    }
}

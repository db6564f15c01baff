//! Ends the sessions that earlier, killed runs may have left at the destination, and records the sessions of
//! this run for the next run.
//!
//! A killed process leaves sessions at a target. The target may still execute their requests later, so that
//! older data overwrites the data of this run. So this run ends these sessions before it writes anything. To
//! make that possible, each run records its own sessions before it writes anything.

use super::account::Account;
use super::saving::Saving;
use crate::digests::digesting::Digesting;
use crate::ends::destination::Destination;
use crate::error::CopyError;
use crate::progress::{Event, Reporter};

impl Saving {
    /// Ends the sessions of earlier runs, and records the sessions of this one.
    ///
    /// Returns an error if the file of digests cannot be written: its old record of how the destination was
    /// left would then be taken for valid.
    pub(super) async fn end_earlier(
        &mut self,
        destination: &Destination,
        digesting: Option<&Digesting>,
        account: &Account,
        source_len: Option<u64>,
    ) -> Result<(), CopyError> {
        let Some(device) = destination.shared() else { return Ok(()) };
        let own = device.leaves();
        for told in self.sessions_of_earlier(digesting, &account.reporter).await {
            // A pass does not treat the sessions of earlier passes of the same process as left by an earlier run.
            if own.as_ref() == Some(&told) {
                continue;
            }
            if let Err(error) = device.end_left(&told).await {
                account.reporter.report(Event::NotEnded(error.to_string()));
                self.unended.push(told);
            }
        }
        let sessions: Vec<_> = self.unended.iter().cloned().chain(own).collect();
        if let Some(digesting) = digesting {
            let sessions = sessions.clone();
            let begun = digesting.file.blocking(move |file| file.begin_run(sessions)).await;
            begun.map_err(CopyError::Digests)?;
        }
        if let Some(store) = &self.store {
            store.begin_run(sessions);
            let (flushed, total) = (account.ledger.flushed().clone(), account.total(source_len));
            let kept = store.keep(flushed, account.unreadable.clone(), total).await;
            kept.unwrap_or_else(|error| {
                account.reporter.report(Event::NotSaved(error.to_string()))
            });
        }
        Ok(())
    }

    async fn sessions_of_earlier(
        &self,
        digesting: Option<&Digesting>,
        reporter: &Reporter,
    ) -> Vec<String> {
        let mut sessions = digesting.map(|digesting| digesting.file.sessions());
        if let Some(store) = &self.store {
            let kept = store.sessions().await;
            let kept =
                kept.inspect_err(|error| reporter.report(Event::NotEnded(error.to_string())));
            sessions.get_or_insert_default().extend(kept.unwrap_or_default());
        }
        let mut sessions = sessions.unwrap_or_default();
        sessions.sort_unstable();
        sessions.dedup();
        sessions
    }

    /// Records in which state the destination is left. This copy has no write in flight; the device may still
    /// have requests of its own in flight.
    pub(super) async fn close(
        &self,
        is_complete: bool,
        destination: &Destination,
        digesting: Option<&mut Digesting>,
        reporter: &Reporter,
    ) {
        let device = destination.shared();
        let own = device.as_ref().filter(|device| !device.is_settled());
        let own = own.and_then(|device| device.leaves());
        let sessions: Vec<_> = self.unended.iter().cloned().chain(own).collect();
        if let Some(digesting) = digesting {
            digesting.close(is_complete, &sessions, reporter).await;
        }
        let Some(store) = &self.store else { return };
        if let Err(error) = store.end_run(sessions).await {
            reporter.report(Event::NotSaved(error.to_string()));
        }
    }
}

//! Reconnects lost connections.

use std::sync::Arc;
use std::time::Duration;

use iscsi_nbd::{BASE_ALLOCATION, Export};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::connection::Connection;
use super::link_state::{End, LinkState};
use super::losses::Losses;
use super::sameness::difference;
use super::uri::NbdUri;

/// Pause after the first attempt to connect; it doubles with each attempt up to [`MAX_PAUSE`].
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause between two attempts.
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(2);

/// The task that reconnects the lost connections of a device.
#[derive(Debug)]
pub(super) struct Reopening {
    uri: NbdUri,
    /// The export as it was when the device was opened.
    export: Export,
    state: watch::Sender<LinkState>,
    losses: Arc<Losses>,
    /// Time since which no connection is open; `None` while one is.
    away: Option<Instant>,
    /// Time without a connection in earlier outages since the last reply. It counts towards the time limit, so
    /// that a server that accepts every connection and never replies is given up.
    spent: Duration,
    /// Pause before the next attempt; zero before the first.
    pause: Duration,
}

impl Reopening {
    pub(super) fn new(
        uri: &NbdUri,
        export: &Export,
        state: watch::Sender<LinkState>,
        losses: Arc<Losses>,
    ) -> Self {
        let (uri, export, zero) = (uri.clone(), export.clone(), Duration::ZERO);
        Self { uri, export, state, losses, away: None, spent: zero, pause: zero }
    }

    /// Reconnects lost connections until that cannot succeed any more.
    pub(super) async fn run(mut self) {
        loop {
            self.losses.news().await;
            loop {
                let lost = self.state.borrow().lost();
                let Some((at, lost)) = lost else { break };
                if let Err(end) = self.replace(at, &lost).await {
                    self.state.send_modify(|state| state.end = Some(end));
                    return;
                }
            }
        }
    }

    /// Replaces a lost connection with a new one.
    ///
    /// Returns an error if reconnecting is given up.
    async fn replace(&mut self, at: usize, lost: &Connection) -> Result<(), End> {
        let why = lost.why_lost().unwrap_or_default();
        if self.losses.has_answered() {
            (self.spent, self.pause) = (Duration::ZERO, Duration::ZERO);
        }
        let mut last = None;
        loop {
            let breach = self.state.borrow().breach();
            if let Some(breach) = breach {
                return Err(End::Protocol(breach));
            }
            let left = self.patience_left(&why)?;
            if left.is_some_and(|left| left.is_zero()) {
                let seconds = self.uri.retry_timeout().as_secs();
                let last = last.unwrap_or_else(|| "the server does not answer".to_owned());
                return Err(End::Away { why, seconds, last });
            }
            tokio::select! {
                biased;
                // If another connection is lost meanwhile, none may be open any more: then requests wait, and
                // the time limit applies.
                () = self.losses.news(), if left.is_none() => {}
                () = sleep(left.map_or(self.pause, |left| self.pause.min(left))) => {}
            }
            self.pause = (self.pause * 2).clamp(FIRST_PAUSE, MAX_PAUSE);
            let opening = Connection::open(&self.uri, &[BASE_ALLOCATION], Arc::clone(&self.losses));
            let opening = timeout(left.unwrap_or(Duration::MAX), Box::pin(opening));
            // If time runs out, keep the error of the earlier attempt: it says more than the timeout.
            let Ok(opened) = opening.await else { continue };
            let failure = match opened {
                Ok((connection, negotiated)) => {
                    match difference(&self.export, &negotiated.export) {
                        None => {
                            self.publish(at, connection);
                            return Ok(());
                        }
                        Some(what) if left.is_some() => {
                            return Err(End::Changed(what));
                        }
                        Some(what) => what,
                    }
                }
                Err(error) => error.to_string(),
            };
            tracing::debug!(error = %failure, "{}: a connection is not open again yet", self.uri);
            last = Some(failure);
        }
    }

    fn publish(&mut self, at: usize, connection: Connection) {
        if let Some(since) = self.away.take() {
            if self.spent.is_zero() {
                tracing::warn!("{}: the server is back", self.uri.name());
            }
            self.spent = since.elapsed();
        }
        self.state.send_modify(|state| {
            if let Some(place) = state.connections.get_mut(at) {
                *place = Arc::new(connection);
            }
        });
    }

    /// Returns how long requests still wait for a connection; `None` while another connection is open.
    ///
    /// # Errors
    /// Returns an error if requests do not wait at all, or have waited for the time limit.
    fn patience_left(&mut self, why: &str) -> Result<Option<Duration>, End> {
        if !self.state.borrow().is_away() {
            return Ok(None);
        }
        let (patience, now) = (self.uri.retry_timeout(), Instant::now());
        if patience.is_zero() {
            return Err(End::Lost);
        }
        if self.away.is_none() && self.spent.is_zero() {
            let (name, seconds) = (self.uri.name(), patience.as_secs());
            tracing::warn!(
                "{name}: the connection is lost: {why}; the server is waited for, {seconds} s at most"
            );
        }
        let since = *self.away.get_or_insert_with(|| now.checked_sub(self.spent).unwrap_or(now));
        Ok(Some(patience.saturating_sub(now - since)))
    }
}

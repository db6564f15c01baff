//! Pings: NOP-Out and its answer (RFC 7143 §11.18).

use std::time::Duration;

use iscsi_initiator::{Error, Session};
use tokio::time::sleep;

use crate::stop::Stop;

/// Number of pings, enough to show how much the round trip varies.
const COUNT: usize = 10;
/// Pause between two pings.
const APART: Duration = Duration::from_millis(50);

/// Sends 10 pings with pauses, on an idle session.
///
/// The round trips measured before an error or a request to stop are returned with it.
pub async fn idle(session: &Session, stop: &Stop) -> (Vec<Duration>, Option<Error>) {
    let mut samples = Vec::with_capacity(COUNT);
    let work = async {
        while samples.len() < COUNT {
            samples.push(session.ping().await?);
            sleep(APART).await;
        }
        Ok(())
    };
    let error = stop.unless(work).await.and_then(Result::err);
    (samples, error)
}

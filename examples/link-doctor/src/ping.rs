//! Measures round trips with pings: NOP-Out and NOP-In (RFC 7143 §11.18).

use std::time::Duration;

use iscsi_initiator::{Error, Session};
use tokio::time::sleep;

use crate::stop::Stop;

/// Number of pings. They are enough to show how much the round trip varies.
const COUNT: usize = 10;
/// Pause between two pings.
const APART: Duration = Duration::from_millis(50);

/// Sends 10 pings with pauses, on an idle session. Returns their round trips, and the error that ended them
/// early, if any.
///
/// After an error or a request to stop, the round trips measured before are returned.
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

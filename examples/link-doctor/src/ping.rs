//! Pings: NOP-Out and its answer (RFC 7143 §11.18).

use std::time::Duration;

use iscsi_initiator::{Error, Session};
use tokio::time::sleep;

use crate::stop::Stop;

/// How many pings say how much the round trip varies.
const COUNT: usize = 10;
/// The pause between two of them.
const APART: Duration = Duration::from_millis(50);

/// Pings some times, a little apart, on a session that has nothing else to do.
///
/// What was measured before an error or the wish to stop is returned with it.
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

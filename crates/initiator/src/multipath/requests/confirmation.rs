//! Confirms that all sessions of a disk still lead to its unit.

use tokio::task::JoinSet;

use crate::error::Error;
use crate::multipath::paths::Paths;
use crate::multipath::requests::request::Request;

/// Confirms over all sessions that take requests, concurrently, which unit they lead to. A session that is
/// lost meanwhile is confirmed by its reconnect. If no session is left, waits for the next one.
///
/// # Errors
/// The errors of [`LogicalUnit::confirm`](crate::LogicalUnit) for any of the sessions, or the reason why
/// there is no session.
pub(crate) async fn confirm(paths: &Paths) -> Result<(), Error> {
    loop {
        let mut questions = JoinSet::new();
        for (id, path) in paths.in_use() {
            questions.spawn(async move { (id, path.unit.confirm().await) });
        }
        let mut is_confirmed = false;
        while let Some(answer) = questions.join_next().await {
            match answer {
                Ok((_, Ok(()))) => is_confirmed = true,
                Ok((id, Err(error))) if error.is_of_session() => {
                    paths.remove_lost(id, &error);
                }
                Ok((_, Err(error))) => return Err(error),
                Err(_) => {}
            }
        }
        if is_confirmed {
            return Ok(());
        }
        Request::await_path(paths).await?;
    }
}

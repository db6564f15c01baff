//! Measures the session's state machine, with one task for each session, or with many tasks that share a
//! session.

use iscsi_initiator::Url;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::args::AloneArgs;
use crate::session_alone::{Alone, BLOCK, WARM_UP};
use crate::usage::Usage;
use crate::{Trouble, session_shared};

/// Runs the load. Returns the resources that the measured part used.
pub(crate) fn run(args: &AloneArgs) -> Result<Value, Trouble> {
    args.runtime.build()?.block_on(measure(args))
}

async fn measure(args: &AloneArgs) -> Result<Value, Trouble> {
    if !args.io.0.is_multiple_of(BLOCK) || args.io.0 == 0 || args.depth == 0 {
        return Err("a read has whole blocks of 512 bytes, and one at least is under way".into());
    }
    let count = args.bytes.0 / args.io.0 / u64::from(args.disks.max(1));
    if count == 0 {
        return Err("that is less than one read of each session".into());
    }
    let url = Url::parse(&args.url)?;
    let mut sessions = Vec::new();
    for number in 0..args.disks {
        sessions.push(Alone::open(&url, number, args).await?);
    }
    if args.tasks {
        return session_shared::measure(sessions, count).await;
    }
    let sessions = carry_out(sessions, WARM_UP * u64::from(args.depth)).await?;
    let begun = Usage::of_program()?;
    let sessions = carry_out(sessions, count).await?;
    let taken = Usage::of_program()?.since(&begun);
    drop(sessions);
    Ok(taken)
}

/// Executes `count` reads on each session, and returns the sessions at the end.
async fn carry_out(sessions: Vec<Alone>, count: u64) -> Result<Vec<Alone>, Trouble> {
    let mut under_way: JoinSet<_> =
        sessions.into_iter().map(|session| session.read(count)).collect();
    let mut sessions = Vec::with_capacity(under_way.len());
    while let Some(session) = under_way.join_next().await {
        sessions.push(session??);
    }
    Ok(sessions)
}

//! Polls an idle unit for changes ([`Options::poll`](crate::Options::poll)).

use iscsi_multipath::{CommandNumber, PathId};
use iscsi_pdu::scsi::{Cdb, SenseKey};

use crate::error::Error;
use crate::multipath::paths::Paths;
use crate::multipath::paths::path::Path;
use crate::state::budget::Budget;
use crate::unit::logical_unit::LogicalUnit;
use crate::unit::retry::MAX_ATTENTIONS;

/// Returns the number of the next command of each session.
pub(super) fn next_commands(paths: &Paths) -> Vec<(PathId, CommandNumber)> {
    let open = paths.open().into_iter();
    open.map(|(id, path)| (id, path.unit.state().next_command())).collect()
}

/// Returns whether no request waits, and no command is in flight.
pub(super) fn is_quiet(paths: &Paths) -> bool {
    let is_answered = |path: &Path| {
        let state = path.unit.state();
        state.lock().is_idle(state.path())
    };
    paths.open().iter().all(|(_, path)| is_answered(path)) && !paths.serve_waiting()
}

/// Receives the unit's pending reports of changes, and finds out what follows from them: the identity of the
/// unit, and its size. Takes no part of the budget of requests, and is not counted as a request.
///
/// # Errors
/// The unit does not take a command of the poll, or the session ends.
pub(super) async fn poll_changes(unit: LogicalUnit) -> Result<(), Error> {
    let asking = unit.with_questions(Budget::new(1, 1));
    // Several reports may be pending in the unit. Each report takes the place of a response.
    for _ in 0..=MAX_ATTENTIONS {
        let answer = asking.execute(unit.command(Cdb::test_unit_ready())).await;
        match answer {
            Err(error) if is_report(&error) => {}
            answer => {
                unit.recognized().await?;
                return answer.map(drop);
            }
        }
    }
    unit.recognized().await
}

/// Returns whether the unit has sent a report in place of a response (SAM-5 §5.14, SPC-4 §4.5.5).
fn is_report(error: &Error) -> bool {
    error.sense().is_some_and(|sense| sense.deferred || sense.key == SenseKey::UnitAttention)
}

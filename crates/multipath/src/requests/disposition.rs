//! Defines the consequences of the end of an attempt: one table for every kind of request and every end.
//!
//! | end | request of a disk | request of a unit over one session |
//! |---|---|---|
//! | success | complete | complete |
//! | UNIT ATTENTION, deferred error | retry immediately, a few times | the same |
//! | withdrawn before it was sent | retry immediately | the same |
//! | INVALID COMMAND OPERATION CODE of a 16-byte command | retry in 10 bytes | the same |
//! | the port does not serve the unit, and another one does | failover immediately | |
//! | the port does not serve the unit, and none does | pause, if the disk looks for other ports or the unit reports the states of its ports; otherwise the path is set aside | pause while the port changes its state |
//! | BUSY, TASK SET FULL, becoming ready | pause | pause, a few times |
//! | TASK ABORTED, timed out | pause | fail |
//! | ABORTED COMMAND | pause, for a shorter time | pause, a few times |
//! | damaged data | pause, for a shorter time | fail |
//! | another unit | the path is set aside, if there is another one; pause, if the disk looks for other ports; otherwise fail | fail |
//! | session or connection lost | retry over the next path | fail |
//! | RESERVATION CONFLICT | fail, with the reservation that the unit reports | the same |
//! | any other | fail | fail |

use iscsi_pdu::scsi::AccessState;

use super::end::End;

/// The paths over which a request may be sent.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Scope {
    /// Any path of a disk, which has other paths, or may get other paths.
    Disk,
    /// Only the session over which the request was submitted to the unit.
    Unit,
}

/// Other facts that the consequence depends on: about the request so far, and about the other paths.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Facts {
    /// Whether every disk supports the command (READ, WRITE, SYNCHRONIZE CACHE), so that a refusal may be about
    /// the port.
    pub is_plain: bool,
    /// Whether the command has a shorter form.
    pub can_shorten: bool,
    /// Whether the request may still be retried after a UNIT ATTENTION.
    pub attentions_left: bool,
    /// Whether the request may still pause ([`Scope::Unit`]).
    pub pauses_left: bool,
    /// Whether the port may still take time to change its state ([`Scope::Unit`]).
    pub transition_left: bool,
    /// Whether another port may be tried without a pause, because few ports in a row have refused the
    /// request.
    pub refusals_left: bool,
    /// Whether the unit reports the states of its port groups.
    pub follows_access: bool,
    /// Whether another path that responds leads through a port that serves the unit.
    pub others_serve: bool,
    /// Whether another path takes requests.
    pub has_other_path: bool,
    /// Whether sessions are opened at other portals when no port serves the unit.
    pub discovers_ports: bool,
}

/// Consequence of the end of an attempt.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Disposition {
    /// The request has succeeded.
    Complete,
    /// The request has failed.
    Fail,
    /// The request has failed. The unit can report more about the reservation that caused the conflict.
    FailByReservation,
    /// The same command is sent over the same path again.
    RetryImmediately,
    /// The command is sent over the same path again, in its 10-byte form.
    RetryShorter,
    /// The request is sent through another port immediately.
    Failover,
    /// The request is retried after a pause, within this time limit. Until then, other paths are preferred to
    /// its path.
    Pause(Limit),
    /// The path takes no more requests, and the request is sent over another path.
    SetPathAside,
    /// The path, or one of its connections, is lost. The request is sent over any path with credit.
    NextPath,
}

/// Limit of the retries of a request.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Limit {
    /// The disk's time limit for temporary errors.
    RetryTimeout,
    /// A shorter time limit, because the command itself, or the link, may be the cause.
    AbortedTimeout,
    /// A number of pauses.
    Pauses,
    /// The time that a port may take to change its state.
    Transition,
}

/// Returns the consequence of `end`.
pub const fn dispose(end: End, scope: Scope, facts: &Facts) -> Disposition {
    match end {
        End::Good => Disposition::Complete,
        End::Withdrawn => Disposition::RetryImmediately,
        End::Attention if facts.attentions_left => Disposition::RetryImmediately,
        End::UnknownCommand if facts.can_shorten => Disposition::RetryShorter,
        End::ReservationConflict => Disposition::FailByReservation,
        End::Attention | End::UnknownCommand | End::Refused | End::NoAnswer => Disposition::Fail,
        End::Busy
        | End::TaskAborted
        | End::BecomingReady
        | End::Port(_)
        | End::InvalidField
        | End::AbortedCommand
        | End::Damaged
        | End::TimedOut
        | End::ConnectionLost
        | End::SessionLost
        | End::OtherUnit => match scope {
            Scope::Disk => of_disk(end, facts),
            Scope::Unit => of_unit(end, facts),
        },
    }
}

const fn of_unit(end: End, facts: &Facts) -> Disposition {
    let is_changing = matches!(end, End::Port(AccessState::Transitioning));
    let passes = matches!(end, End::Busy | End::BecomingReady | End::AbortedCommand);
    if is_changing && facts.transition_left {
        Disposition::Pause(Limit::Transition)
    } else if passes && facts.pauses_left {
        Disposition::Pause(Limit::Pauses)
    } else {
        Disposition::Fail
    }
}

const fn of_disk(end: End, facts: &Facts) -> Disposition {
    if refuses_by_port(end, facts) && facts.refusals_left && facts.others_serve {
        return Disposition::Failover;
    }
    if matches!(end, End::SessionLost | End::ConnectionLost) {
        return Disposition::NextPath;
    }
    // A port that is changing its state may serve the unit soon.
    let passes = matches!(
        end,
        End::Busy
            | End::TaskAborted
            | End::BecomingReady
            | End::TimedOut
            | End::Port(AccessState::Transitioning)
    );
    let is_of_path = matches!(end, End::Port(_) | End::OtherUnit);
    if passes || awaits_port(end, facts) {
        return Disposition::Pause(Limit::RetryTimeout);
    }
    if matches!(end, End::AbortedCommand | End::Damaged) {
        return Disposition::Pause(Limit::AbortedTimeout);
    }
    // LOGICAL UNIT OFFLINE may be a state of the unit itself, so the path is not set aside.
    let is_useless = is_of_path && !matches!(end, End::Port(AccessState::Offline));
    if is_useless && facts.has_other_path {
        return Disposition::SetPathAside;
    }
    Disposition::Fail
}

/// Returns whether the port has refused the command because of its state. Returns `false` if the unit does not
/// report the states of its ports.
pub const fn refuses_by_port(end: End, facts: &Facts) -> bool {
    let is_refused = matches!(end, End::Port(_));
    // INVALID FIELD IN CDB for a command that the unit supports means that the port is out of use, if another
    // port accepts commands.
    let is_senseless = matches!(end, End::InvalidField) && facts.is_plain && facts.others_serve;
    facts.follows_access && (is_refused || is_senseless)
}

/// Returns whether to wait for a port that serves the unit, while none does. A port may change its state, but
/// a path that leads to another unit never leads to this unit again.
const fn awaits_port(end: End, facts: &Facts) -> bool {
    if matches!(end, End::OtherUnit) {
        return !facts.has_other_path && facts.discovers_ports;
    }
    let none_serves = !facts.has_other_path || facts.follows_access && !facts.others_serve;
    let may_change = facts.discovers_ports || facts.follows_access;
    matches!(end, End::Port(_)) && none_serves && may_change
}

#[cfg(test)]
mod tests;

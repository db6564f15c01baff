//! Applies the consequences of the end of an attempt.

use std::time::Instant;

use iscsi_pdu::scsi::AccessState;

use super::disposition::{Disposition, Facts, Limit, Scope, dispose, refuses_by_port};
use super::end::End;
use super::history::AfterLoss;
use super::output::{Failure, Output, Report, RequestId};
use super::request::State;
use super::{AttemptEnd, RequestLimits, Requests};
use crate::ids::PathId;
use crate::paths::PathPermit;

impl<E: Clone> Requests<E> {
    /// Decides the consequence of the failure of an attempt, and applies it.
    pub(super) fn failed(
        &mut self,
        request: RequestId,
        permit: PathPermit,
        end: AttemptEnd<E>,
        now: Instant,
    ) {
        let path = permit.path();
        let Some(facts) = self.facts(request, path, now) else { return };
        let disposition = dispose(end.end, Scope::Disk, &facts);
        if let Some(access) = end.access.filter(|_| refuses_by_port(end.end, &facts)) {
            // Record the state of the port, so that other requests avoid it; otherwise each of them would be
            // refused there as well.
            self.set_access([(path, access)], now);
            self.outputs.push_back(Output::PortRefused(path, access));
            if let Some(record) = self.requests.get_mut(request.0) {
                record.history().count_refusal();
            }
        }
        let needs_port = self.ports.discovers_ports
            && matches!(disposition, Disposition::Pause(_))
            && matches!(end.end, End::Port(_) | End::OtherUnit)
            && end.end != End::Port(AccessState::Transitioning);
        if needs_port {
            self.outputs.push_back(Output::PortNeeded);
        }
        let is_last_copy =
            self.requests.get(request.0).is_some_and(|record| record.attempts.is_empty());
        let stays =
            matches!(disposition, Disposition::RetryImmediately | Disposition::RetryShorter);
        if stays && self.selector.contains(path) {
            self.retry_here(request, permit, end.end);
        } else if stays && is_last_copy {
            // The unit has responded over this path, but the path was lost before the command could be sent
            // again.
            self.retry(request, true, now);
        } else if !is_last_copy {
            self.copy_failed(request, permit, disposition, end, now);
        } else if let Disposition::Pause(limit) = disposition {
            self.pause(request, permit, limit, end, now);
        } else {
            self.leave(request, permit, disposition, end, now);
        }
    }

    fn facts(&self, request: RequestId, path: PathId, now: Instant) -> Option<Facts> {
        let record = self.requests.get(request.0)?;
        Some(Facts {
            is_plain: record.spec.is_plain,
            can_shorten: record.spec.can_shorten && !record.is_short,
            attentions_left: record.attentions < self.limits.max_attentions,
            refusals_left: record.refusals_left(),
            follows_access: self.ports.follows_access,
            others_serve: self.selector.others_serve(path, now),
            has_other_path: !self.selector.is_last(path),
            discovers_ports: self.ports.discovers_ports,
            ..Facts::default()
        })
    }

    /// Sends the command over the same path again. The request keeps its place there.
    fn retry_here(&mut self, request: RequestId, permit: PathPermit, end: End) {
        let Some(record) = self.requests.get_mut(request.0) else { return };
        if end == End::Attention {
            record.attentions += 1;
            self.outputs.push_back(Output::Retried(permit.path()));
        }
        record.is_short |= end == End::UnknownCommand;
        self.send(request, permit, false);
    }

    /// Handles the failure of one of two copies; the end of the other copy decides about the request. If the
    /// port has refused the failed copy, the request is hedged again.
    fn copy_failed(
        &mut self,
        request: RequestId,
        permit: PathPermit,
        disposition: Disposition,
        end: AttemptEnd<E>,
        now: Instant,
    ) {
        if let Some(record) = self.requests.get_mut(request.0)
            && let Some(error) = end.error.filter(|_| end.may_have_executed)
        {
            record.history().may_have_executed(error);
        }
        self.selector.release(&permit);
        if disposition == Disposition::Failover {
            self.arm_hedge(request, now);
        }
        self.released(permit.path(), now);
    }

    /// Takes the request off its path: it is sent over another path, or fails.
    fn leave(
        &mut self,
        request: RequestId,
        permit: PathPermit,
        disposition: Disposition,
        end: AttemptEnd<E>,
        now: Instant,
    ) {
        let path = permit.path();
        self.selector.release(&permit);
        let Some(error) = end.error else { return };
        match disposition {
            Disposition::Failover => {
                self.outputs.push_back(Output::Retried(path));
                self.retry(request, true, now);
            }
            Disposition::SetPathAside => {
                if !self.selector.is_closing(path) {
                    self.selector.close(path);
                    self.outputs.push_back(Output::PathSetAside(path, error));
                }
                self.retry(request, false, now);
            }
            Disposition::NextPath => {
                if end.end == End::SessionLost {
                    // Nothing more is sent over this path. The caller reports the loss of the path next.
                    self.selector.close(path);
                }
                self.lost(request, &error, end.may_have_executed, now);
            }
            Disposition::FailByReservation => {
                self.complete(request, Err(Failure::Reservation(error)));
            }
            Disposition::Fail
            | Disposition::Complete
            | Disposition::Pause(_)
            | Disposition::RetryImmediately
            | Disposition::RetryShorter => {
                self.complete(request, Err(Failure::Attempt(error)));
            }
        }
        self.released(path, now);
    }

    /// Pauses a request that the unit refuses now. The request keeps its place on the path.
    fn pause(
        &mut self,
        request: RequestId,
        permit: PathPermit,
        limit: Limit,
        end: AttemptEnd<E>,
        now: Instant,
    ) {
        let RequestLimits { retry_timeout, aborted_timeout, pauses, .. } = self.limits;
        // Drop a second copy that waits for a path: it would take a place during the pause, in addition to the
        // place that the request keeps.
        self.drop_hedge(request);
        let Some(record) = self.requests.get_mut(request.0) else { return };
        let Some(error) = end.error else { return };
        let limit = match limit {
            Limit::AbortedTimeout => aborted_timeout.min(retry_timeout),
            Limit::RetryTimeout | Limit::Pauses | Limit::Transition => retry_timeout,
        };
        if end.may_have_executed {
            record.history().may_have_executed(error.clone());
        } else {
            record.history().answered();
        }
        self.selector.hold_up(permit.path(), now);
        if let Some(why) = self.refusal.clone() {
            let failure = record.refused(why);
            self.selector.release(&permit);
            self.complete(request, Err(failure));
            return self.released(permit.path(), now);
        }
        // If the unit refuses all requests, the time that this request has waited since it was submitted counts
        // as time in which the unit has refused it.
        let since = record.asked.max(*self.refused_since.get_or_insert(now));
        let pause = record.history().pause(pauses, limit, (retry_timeout, since), now);
        let Some(pause) = pause else {
            let error = record.history().take_executed().unwrap_or(error);
            self.selector.release(&permit);
            self.complete(request, Err(Failure::Attempt(error)));
            return self.released(permit.path(), now);
        };
        record.state = State::Pausing { permit };
        self.set_timer(request, now.checked_add(pause));
        self.outputs.push_back(Output::Report(request, Report::Held(error, limit)));
    }

    /// Retries a pausing request: its pause is over, or a port has changed its state.
    pub(super) fn end_pause(&mut self, request: RequestId, is_early: bool, now: Instant) {
        let Some(record) = self.requests.get_mut(request.0) else { return };
        let State::Pausing { permit } = record.state else { return };
        if is_early {
            record.history().shorten_pauses();
        }
        self.set_timer(request, None);
        self.selector.release(&permit);
        self.outputs.push_back(Output::Retried(permit.path()));
        self.retry(request, true, now);
        self.released(permit.path(), now);
    }

    /// Handles a request whose only remaining attempt was lost together with a session or connection.
    fn lost(&mut self, request: RequestId, error: &E, was_sent: bool, now: Instant) {
        let plain_losses = self.plain_losses;
        self.refused_since = None;
        let Some(record) = self.requests.get_mut(request.0) else { return };
        // A suspect (a request that may be the cause of lost sessions) is always alone on its path.
        let was_alone = record.is_suspect();
        let history = record.history();
        let next = history.lost(was_sent, was_alone, plain_losses);
        let report = match history.ended_alone() {
            0 if history.is_suspect() => Some(Report::SentAlone),
            0 => None,
            times => Some(Report::WasAlone(times, error.clone())),
        };
        if was_sent {
            history.may_have_executed(error.clone());
        }
        match next {
            AfterLoss::Retry => {
                self.outputs.push_back(Output::Report(request, Report::Released));
                let report = report.filter(|_| was_sent);
                self.outputs.extend(report.map(|report| Output::Report(request, report)));
                self.retry(request, false, now);
            }
            AfterLoss::EndsSessions(times) => {
                let cause = error.clone();
                self.complete(request, Err(Failure::EndsSessions { times, cause }));
            }
            AfterLoss::GiveUp => {
                let error = history.take_executed().unwrap_or_else(|| error.clone());
                self.complete(request, Err(Failure::Attempt(error)));
            }
        }
    }

    /// Sends a request again over any path with credit, after the wait for its traffic class. With `is_first`
    /// it goes before other waiting requests.
    pub(super) fn retry(&mut self, request: RequestId, is_first: bool, now: Instant) {
        if let Some(why) = self.refusal.clone() {
            let Some(record) = self.requests.get_mut(request.0) else { return };
            let failure = record.refused(why);
            return self.complete(request, Err(failure));
        }
        self.drop_hedge(request);
        if let Some(record) = self.requests.get_mut(request.0) {
            record.attentions = 0;
        }
        self.make_ready(request, is_first, now);
    }
}

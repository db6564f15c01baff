//! Tracks the losses that were reported to clients, and whether the clients have received the reports.
//!
//! A device reports a loss once to each of its handles, and to a later handle only if no handle has reported
//! it. Here each connection has a handle. That is not enough for its client:
//!
//! - Flushes may be concurrent, and each covers the writes that were answered before the flush was sent. So all
//!   concurrent flushes report the loss.
//! - A write with FUA flushes as well, and its failure says nothing about other writes. So the next flush
//!   reports the loss again.
//! - If the reply to another request reports a loss while a change is in flight, the device may have had the
//!   data of the change and lost them. So a write with FUA fails then, and after any other change the next
//!   flush reports the loss again.
//! - A reply may be lost with its connection. A client that reconnects sends the flush again, and the flush
//!   would succeed. So one flush of each new connection reports the loss again, until a client that has
//!   received a report disconnects in order.
//!
//! Design: `docs/design/serving.md`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iscsi_initiator::device::{Device, DeviceError, DeviceErrorKind, DeviceResult};

use crate::write_behind::is_loss;

/// The loss reports on all connections of a server. Clones share the state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Losses(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Number of open connections on which a loss was reported, and whose client may not have received the
    /// report.
    unconfirmed: usize,
    /// Whether a connection on which a loss was reported has ended before its client is known to have received
    /// the report, and no client has received a report since then.
    may_be_unreceived: bool,
}

/// The loss reports on one connection.
#[derive(Debug)]
pub(crate) struct ConnectionLosses {
    losses: Losses,
    connection: Mutex<Connection>,
}

#[derive(Debug, Default)]
struct Connection {
    /// Number of flushes that have reported a loss of the device.
    reports: u64,
    /// Number of losses that the flushes must report besides those of the device. `paid` counts how many of
    /// them were reported.
    owed: u64,
    paid: u64,
    has_reported: bool,
    has_ended: bool,
}

impl Losses {
    /// Returns the loss reports for a new connection.
    pub(crate) fn connection(&self) -> ConnectionLosses {
        let state = self.state();
        let owed = u64::from(state.unconfirmed > 0 || state.may_be_unreceived);
        let connection = Mutex::new(Connection { owed, ..Connection::default() });
        ConnectionLosses { losses: self.clone(), connection }
    }

    /// Returns whether there was a loss whose report may have reached no client.
    pub(crate) fn may_be_unreceived(&self) -> bool {
        self.state().may_be_unreceived
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionLosses {
    /// Flushes on request of a client.
    pub(crate) async fn flush(&self, device: &dyn Device) -> DeviceResult<()> {
        let (reports, paid) = {
            let connection = self.connection();
            (connection.reports, connection.paid)
        };
        let flushed = device.flush().await;
        let mut connection = self.connection();
        let owes = connection.owed > paid;
        if owes {
            // This flush reports all owed losses, and so also a loss whose report may have reached no client.
            connection.paid = connection.paid.max(connection.owed);
            self.losses.state().may_be_unreceived = false;
        }
        if owes || flushed.as_ref().is_err_and(is_loss) {
            connection.reports += 1;
            self.record_reported(&mut connection);
        }
        let has_reported = connection.reports > reports;
        flushed.and_then(|()| if has_reported { Err(unreceived_loss()) } else { Ok(()) })
    }

    /// Flushes before the reply to a write with FUA.
    pub(crate) async fn flush_for_write(&self, device: &dyn Device) -> DeviceResult<()> {
        let flushed = device.flush().await;
        if flushed.as_ref().is_err_and(is_loss) {
            let mut connection = self.connection();
            connection.owed += 1;
            self.record_reported(&mut connection);
        }
        flushed
    }

    /// Returns the number of times that a flush or a write on the connection has reported a loss.
    pub(crate) fn count(&self) -> u64 {
        self.connection().count()
    }

    /// Sends the reply to a change. `count` is the number of [reports](Self::count) on the connection when the
    /// change began. If another request has reported a loss since, a change that must be on the medium
    /// (`is_durable`) fails. The connection stays locked while the reply is sent, so that no request reports a
    /// loss in between.
    pub(crate) fn answer_change(
        &self,
        count: u64,
        is_durable: bool,
        send: impl FnOnce(DeviceResult<()>),
    ) {
        let mut connection = self.connection();
        let is_sound = connection.count() == count;
        if is_sound || is_durable {
            return send(if is_sound { Ok(()) } else { Err(unreceived_loss()) });
        }
        connection.owed += 1;
        self.record_reported(&mut connection);
        send(Ok(()));
    }

    fn record_reported(&self, connection: &mut Connection) {
        let mut state = self.losses.state();
        // The connection has ended, so its client cannot receive the report.
        state.may_be_unreceived |= connection.has_ended;
        if !connection.has_ended && !std::mem::replace(&mut connection.has_reported, true) {
            state.unconfirmed += 1;
        }
    }

    /// Ends the connection. `has_all` says whether its client has received all replies. A loss that only writes
    /// have reported counts as not received, because no flush has reported it.
    pub(crate) fn end(&self, has_all: bool) {
        let mut connection = self.connection();
        connection.has_ended = true;
        if connection.has_reported {
            let is_heard = has_all && connection.paid >= connection.owed;
            let mut state = self.losses.state();
            state.unconfirmed -= 1;
            state.may_be_unreceived |= !is_heard;
        }
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    const fn count(&self) -> u64 {
        self.reports + self.owed
    }
}

/// Returns the error for a loss whose report may have reached no client.
pub(crate) fn unreceived_loss() -> DeviceError {
    DeviceError::new(
        DeviceErrorKind::LostWrites,
        "writes that were answered before may be lost; the answer to another request has reported it, and may not have arrived",
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::{Bytes, BytesMut};
    use iscsi_initiator::device::{DeviceFuture, DeviceLimits};
    use tokio::time::sleep;

    use super::*;

    /// A handle whose next flushes fail with these errors.
    #[derive(Debug)]
    struct Handle(Mutex<Vec<DeviceError>>);

    impl Handle {
        fn that_tells(losses: usize) -> Self {
            let loss = || DeviceErrorKind::LostWrites.into();
            Self(Mutex::new((0..losses).map(|_| loss()).collect()))
        }
    }

    impl Device for Handle {
        fn capacity(&self) -> u64 {
            0
        }

        fn limits(&self) -> DeviceLimits {
            DeviceLimits::default()
        }

        fn read_into(&self, _: u64, buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
            Box::pin(async { Ok(buffer) })
        }

        fn write_at(&self, _: u64, _: Vec<Bytes>) -> DeviceFuture<'_, ()> {
            Box::pin(async { Ok(()) })
        }

        fn flush(&self) -> DeviceFuture<'_, ()> {
            let failure = self.0.lock().unwrap().pop();
            Box::pin(async {
                sleep(Duration::from_millis(5)).await;
                failure.map_or(Ok(()), Err)
            })
        }
    }

    /// Returns whether the next two flushes of a connection fail.
    async fn two_fail(reports: &ConnectionLosses, device: &Handle) -> [bool; 2] {
        [reports.flush(device).await.is_err(), reports.flush(device).await.is_err()]
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_fails_for_a_loss_leaves_it_to_the_next_flush() {
        let (reports, device) = (Losses::default().connection(), Handle::that_tells(1));
        reports.flush_for_write(&device).await.unwrap_err();
        assert_eq!(two_fail(&reports, &device).await, [true, false]);
        reports.flush_for_write(&device).await.unwrap();
        assert_eq!(two_fail(&reports, &device).await, [false, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_another_request_was_told_while_a_change_was_in_flight_is_told_of_the_change() {
        for is_durable in [false, true] {
            for is_write in [false, true] {
                let (reports, device) = (Losses::default().connection(), Handle::that_tells(1));
                let begun = reports.count();
                // The device has the data of the change, and another request flushes before the reply to the
                // change.
                if is_write {
                    reports.flush_for_write(&device).await.unwrap_err();
                } else {
                    reports.flush(&device).await.unwrap_err();
                }
                reports.answer_change(begun, is_durable, |answer| {
                    assert_eq!(answer.is_err(), is_durable);
                });
                reports.answer_change(reports.count(), is_durable, |answer| answer.unwrap());
                let is_told_again = is_write || !is_durable;
                assert_eq!(two_fail(&reports, &device).await, [is_told_again, false]);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_only_a_write_has_told_before_the_end_nobody_has_heard() {
        for is_flushed in [false, true] {
            let losses = Losses::default();
            let (reports, device) = (losses.connection(), Handle::that_tells(1));
            reports.flush_for_write(&device).await.unwrap_err();
            if is_flushed {
                reports.flush(&device).await.unwrap_err();
            }
            reports.end(true);
            assert_eq!(losses.may_be_unreceived(), !is_flushed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn flushes_that_are_under_way_at_once_are_all_told() {
        for is_write in [false, true] {
            let (reports, device) = (Losses::default().connection(), Handle::that_tells(1));
            if is_write {
                reports.flush_for_write(&device).await.unwrap_err();
            }
            let flushes = tokio::join!(reports.flush(&device), reports.flush(&device), async {
                // The last flush begins before the first one ends.
                sleep(Duration::from_millis(1)).await;
                reports.flush(&device).await
            });
            assert!(flushes.0.is_err() && flushes.1.is_err() && flushes.2.is_err());
            reports.flush(&device).await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_told_over_a_lost_connection_is_told_again() {
        for is_heard in [false, true] {
            let losses = Losses::default();
            let (first, other) = (losses.connection(), losses.connection());
            first.flush(&Handle::that_tells(1)).await.unwrap_err();
            // The server has not noticed yet that the first connection is lost.
            let early = losses.connection();
            first.end(is_heard);
            let late = losses.connection();
            assert_eq!(losses.may_be_unreceived(), !is_heard);
            let device = Handle::that_tells(0);
            assert_eq!(two_fail(&early, &device).await, [true, false]);
            assert_eq!(two_fail(&other, &device).await, [false, false]);
            assert_eq!(two_fail(&late, &device).await, [!is_heard, false]);
            [early, late].iter().for_each(|reports| reports.end(true));
            assert_eq!(two_fail(&losses.connection(), &device).await, [false, false]);
            assert!(!losses.may_be_unreceived());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_told_after_the_end_of_a_connection_is_unheard() {
        let losses = Losses::default();
        let reports = losses.connection();
        reports.end(true);
        reports.flush(&Handle::that_tells(1)).await.unwrap_err();
        assert!(losses.may_be_unreceived());
    }

    #[tokio::test(start_paused = true)]
    async fn what_passes_is_no_loss() {
        let busy = || DeviceErrorKind::Busy.into();
        let device = Handle(Mutex::new(vec![busy(), busy()]));
        let losses = Losses::default();
        let reports = losses.connection();
        reports.flush(&device).await.unwrap_err();
        reports.flush_for_write(&device).await.unwrap_err();
        reports.flush(&device).await.unwrap();
        reports.end(false);
        assert!(!losses.may_be_unreceived());
    }
}

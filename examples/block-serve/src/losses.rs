//! The losses that were reported to clients, and whether the clients have received the reports.
//!
//! A device reports a loss once to each of its handles, and to a later handle only if no handle has reported
//! it. Here each connection has a handle, which is not enough for its client:
//!
//! - Flushes may be concurrent, and each covers what was answered before it was sent. So all of them report the loss.
//! - A write with FUA flushes as well, and its failure says nothing about other writes. So the next flush reports the
//!   loss again.
//! - If the answer to another request reports a loss while a change is in flight, the device may have had the data of
//!   the change and lost them. So a write with FUA fails then, and after any other change the next flush reports the
//!   loss again.
//! - An answer may be lost with its connection. A client that reconnects sends the flush again, and it would succeed.
//!   So one flush of each new connection reports the loss again, until a client that has received a report disconnects
//!   in order.
//!
//! Design: `docs/design/serving.md`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iscsi_initiator::device::{Device, DeviceError, DeviceErrorKind, DeviceResult};

use crate::write_behind::is_loss;

/// The reports to all connections of a server. Clones share the state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Losses(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Connections that have sent a report, and whose client may not have received it.
    told: usize,
    /// Whether one of those connections was lost, without a later report.
    may_be_unreceived: bool,
}

/// The reports to one connection.
#[derive(Debug)]
pub(crate) struct ConnectionLosses {
    losses: Losses,
    connection: Mutex<Connection>,
}

#[derive(Debug, Default)]
struct Connection {
    /// Number of flushes that have reported a loss.
    told: u64,
    /// Losses that its flushes have to report besides those of the device, and how many of these were
    /// reported.
    owed: u64,
    paid: u64,
    has_reported: bool,
    has_ended: bool,
}

impl Losses {
    /// Creates the reports of a new connection.
    pub(crate) fn connection(&self) -> ConnectionLosses {
        let state = self.state();
        let owed = u64::from(state.told > 0 || state.may_be_unreceived);
        let connection = Mutex::new(Connection { owed, ..Connection::default() });
        ConnectionLosses { losses: self.clone(), connection }
    }

    /// Returns whether a reported loss may have reached no client.
    pub(crate) fn may_be_unreceived(&self) -> bool {
        self.state().may_be_unreceived
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionLosses {
    /// Flushes at the request of a client.
    pub(crate) async fn flush(&self, device: &dyn Device) -> DeviceResult<()> {
        let (told, paid) = {
            let connection = self.connection();
            (connection.told, connection.paid)
        };
        let flushed = device.flush().await;
        let mut connection = self.connection();
        let owes = connection.owed > paid;
        if owes {
            // This flush reports the loss that may have reached no client.
            connection.paid = connection.paid.max(connection.owed);
            self.losses.state().may_be_unreceived = false;
        }
        if owes || flushed.as_ref().is_err_and(is_loss) {
            connection.told += 1;
            self.record_reported(&mut connection);
        }
        let is_told = connection.told > told;
        flushed.and_then(|()| if is_told { Err(unheard()) } else { Ok(()) })
    }

    /// Flushes before the answer to a write with FUA.
    pub(crate) async fn flush_for_write(&self, device: &dyn Device) -> DeviceResult<()> {
        let flushed = device.flush().await;
        if flushed.as_ref().is_err_and(is_loss) {
            let mut connection = self.connection();
            connection.owed += 1;
            self.record_reported(&mut connection);
        }
        flushed
    }

    /// Returns how often a flush or a write of the connection has reported a loss.
    pub(crate) fn count(&self) -> u64 {
        self.connection().count()
    }

    /// Answers a change. `count` is the number of [reports](Self::count) on the connection when the change
    /// began. If another request has reported a loss since, the answer to a change that must be on the medium
    /// is `Err`. No answer that reports a loss is sent meanwhile.
    pub(crate) fn answer_change(
        &self,
        count: u64,
        is_durable: bool,
        send: impl FnOnce(DeviceResult<()>),
    ) {
        let mut connection = self.connection();
        let is_sound = connection.count() == count;
        if is_sound || is_durable {
            return send(if is_sound { Ok(()) } else { Err(unheard()) });
        }
        connection.owed += 1;
        self.record_reported(&mut connection);
        send(Ok(()));
    }

    fn record_reported(&self, connection: &mut Connection) {
        let mut state = self.losses.state();
        // After the end of the connection, no report reaches its client.
        state.may_be_unreceived |= connection.has_ended;
        if !connection.has_ended && !std::mem::replace(&mut connection.has_reported, true) {
            state.told += 1;
        }
    }

    /// Ends the connection. `has_all` says whether its client has received all answers. A loss that only a
    /// write has reported counts as not received.
    pub(crate) fn end(&self, has_all: bool) {
        let mut connection = self.connection();
        connection.has_ended = true;
        if connection.has_reported {
            let is_heard = has_all && connection.paid >= connection.owed;
            let mut state = self.losses.state();
            state.told -= 1;
            state.may_be_unreceived |= !is_heard;
        }
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    const fn count(&self) -> u64 {
        self.told + self.owed
    }
}

/// Returns the error for a loss whose report may not have arrived.
pub(crate) fn unheard() -> DeviceError {
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

    /// A handle whose next flushes fail.
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
    async fn two_fail(told: &ConnectionLosses, device: &Handle) -> [bool; 2] {
        [told.flush(device).await.is_err(), told.flush(device).await.is_err()]
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_fails_for_a_loss_leaves_it_to_the_next_flush() {
        let (told, device) = (Losses::default().connection(), Handle::that_tells(1));
        told.flush_for_write(&device).await.unwrap_err();
        assert_eq!(two_fail(&told, &device).await, [true, false]);
        told.flush_for_write(&device).await.unwrap();
        assert_eq!(two_fail(&told, &device).await, [false, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_another_request_was_told_while_a_change_was_in_flight_is_told_of_the_change() {
        for is_durable in [false, true] {
            for is_write in [false, true] {
                let (told, device) = (Losses::default().connection(), Handle::that_tells(1));
                let begun = told.count();
                // The device has the data of the change, and another request flushes before its answer.
                if is_write {
                    told.flush_for_write(&device).await.unwrap_err();
                } else {
                    told.flush(&device).await.unwrap_err();
                }
                told.answer_change(begun, is_durable, |answer| {
                    assert_eq!(answer.is_err(), is_durable);
                });
                told.answer_change(told.count(), is_durable, |answer| answer.unwrap());
                let is_told_again = is_write || !is_durable;
                assert_eq!(two_fail(&told, &device).await, [is_told_again, false]);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_only_a_write_has_told_before_the_end_nobody_has_heard() {
        for is_flushed in [false, true] {
            let losses = Losses::default();
            let (told, device) = (losses.connection(), Handle::that_tells(1));
            told.flush_for_write(&device).await.unwrap_err();
            if is_flushed {
                told.flush(&device).await.unwrap_err();
            }
            told.end(true);
            assert_eq!(losses.may_be_unreceived(), !is_flushed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn flushes_that_are_under_way_at_once_are_all_told() {
        for is_write in [false, true] {
            let (told, device) = (Losses::default().connection(), Handle::that_tells(1));
            if is_write {
                told.flush_for_write(&device).await.unwrap_err();
            }
            let flushes = tokio::join!(told.flush(&device), told.flush(&device), async {
                // The last flush begins before the first one ends.
                sleep(Duration::from_millis(1)).await;
                told.flush(&device).await
            });
            assert!(flushes.0.is_err() && flushes.1.is_err() && flushes.2.is_err());
            told.flush(&device).await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_told_over_a_lost_connection_is_told_again() {
        for is_heard in [false, true] {
            let losses = Losses::default();
            let (first, other) = (losses.connection(), losses.connection());
            first.flush(&Handle::that_tells(1)).await.unwrap_err();
            // The loss of the first connection is not noticed yet.
            let early = losses.connection();
            first.end(is_heard);
            let late = losses.connection();
            assert_eq!(losses.may_be_unreceived(), !is_heard);
            let device = Handle::that_tells(0);
            assert_eq!(two_fail(&early, &device).await, [true, false]);
            assert_eq!(two_fail(&other, &device).await, [false, false]);
            assert_eq!(two_fail(&late, &device).await, [!is_heard, false]);
            [early, late].iter().for_each(|told| told.end(true));
            assert_eq!(two_fail(&losses.connection(), &device).await, [false, false]);
            assert!(!losses.may_be_unreceived());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_told_after_the_end_of_a_connection_is_unheard() {
        let losses = Losses::default();
        let told = losses.connection();
        told.end(true);
        told.flush(&Handle::that_tells(1)).await.unwrap_err();
        assert!(losses.may_be_unreceived());
    }

    #[tokio::test(start_paused = true)]
    async fn what_passes_is_no_loss() {
        let busy = || DeviceErrorKind::Busy.into();
        let device = Handle(Mutex::new(vec![busy(), busy()]));
        let losses = Losses::default();
        let told = losses.connection();
        told.flush(&device).await.unwrap_err();
        told.flush_for_write(&device).await.unwrap_err();
        told.flush(&device).await.unwrap();
        told.end(false);
        assert!(!losses.may_be_unreceived());
    }
}

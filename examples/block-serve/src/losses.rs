//! Which losses clients were told of, and whether they have heard it.
//!
//! A device tells each of its handles of a loss once, and a handle that is made later of what nobody was told. A handle is a
//! connection here, and its client hears too little by that:
//!
//! - Flushes are under way at once, and each vouches for what was answered before it was sent. So all of them are told.
//! - A write with FUA flushes as well, and its failure says nothing of other writes. So the next flush tells it once more.
//! - Where another request is told of a loss while a change is in flight, the device may have had its data by then, and lost them. So a
//!   write with FUA fails then, and for any other change the next flush tells it once more.
//! - An answer may be lost with its connection. A client that comes back asks for the same flush again, and would hear that all is
//!   well. So one flush of each connection that is made tells it once more, until a client that was told has said goodbye.
//!
//! Why it is so: `docs/design/serving.md`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iscsi_initiator::device::{Device, DeviceError, DeviceErrorKind, DeviceResult};

use crate::write_behind::is_loss;

/// What all connections of a server were told. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Losses(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Connections that were told, and may not have heard it.
    told: usize,
    /// One of those was lost, and none was told since.
    is_unheard: bool,
}

/// What one connection was told.
#[derive(Debug)]
pub(crate) struct Told {
    losses: Losses,
    connection: Mutex<Connection>,
}

#[derive(Debug, Default)]
struct Connection {
    /// How often a flush has told of a loss.
    told: u64,
    /// Losses that its flushes have to tell beside those of the device, and how many of them one has told.
    owed: u64,
    paid: u64,
    was_told: bool,
    has_ended: bool,
}

impl Losses {
    /// Another connection has a handle of its own.
    pub(crate) fn connection(&self) -> Told {
        let state = self.state();
        let owed = u64::from(state.told > 0 || state.is_unheard);
        let connection = Mutex::new(Connection { owed, ..Connection::default() });
        Told { losses: self.clone(), connection }
    }

    /// Whether nobody may have heard of a loss that was told.
    pub(crate) fn is_unheard(&self) -> bool {
        self.state().is_unheard
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Told {
    /// Flushes for a client that asks for it.
    pub(crate) async fn flush(&self, device: &dyn Device) -> DeviceResult<()> {
        let (told, paid) = {
            let connection = self.connection();
            (connection.told, connection.paid)
        };
        let flushed = device.flush().await;
        let mut connection = self.connection();
        let owes = connection.owed > paid;
        if owes {
            // What nobody may have heard is told now.
            connection.paid = connection.paid.max(connection.owed);
            self.losses.state().is_unheard = false;
        }
        if owes || flushed.as_ref().is_err_and(is_loss) {
            connection.told += 1;
            self.note_told(&mut connection);
        }
        let is_told = connection.told > told;
        flushed.and_then(|()| if is_told { Err(unheard()) } else { Ok(()) })
    }

    /// Flushes for the answer to a write.
    pub(crate) async fn flush_for_write(&self, device: &dyn Device) -> DeviceResult<()> {
        let flushed = device.flush().await;
        if flushed.as_ref().is_err_and(is_loss) {
            let mut connection = self.connection();
            connection.owed += 1;
            self.note_told(&mut connection);
        }
        flushed
    }

    /// How often the connection was told of a loss, by a flush or by a write.
    pub(crate) fn count(&self) -> u64 {
        self.connection().count()
    }

    /// Answers a change that began when the connection had been told of a loss so [many](Self::count) times. The answer is
    /// `Err` if it is to be on the medium and another request was told of a loss since. No answer that tells of a loss is sent
    /// meanwhile.
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
        self.note_told(&mut connection);
        send(Ok(()));
    }

    fn note_told(&self, connection: &mut Connection) {
        let mut state = self.losses.state();
        // Nobody hears it after the end.
        state.is_unheard |= connection.has_ended;
        if !connection.has_ended && !std::mem::replace(&mut connection.was_told, true) {
            state.told += 1;
        }
    }

    /// The connection ends. `has_all` says whether its client has all answers. What only a write has told nobody has heard.
    pub(crate) fn end(&self, has_all: bool) {
        let mut connection = self.connection();
        connection.has_ended = true;
        if connection.was_told {
            let is_heard = has_all && connection.paid >= connection.owed;
            let mut state = self.losses.state();
            state.told -= 1;
            state.is_unheard |= !is_heard;
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

/// The error that reports a loss whose answer may have been lost.
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

    /// Whether the next two flushes of a connection fail.
    async fn two_fail(told: &Told, device: &Handle) -> [bool; 2] {
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
                // The device has its data, and another request flushes first.
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
            assert_eq!(losses.is_unheard(), !is_flushed);
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
                // The last one begins before the first ends.
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
            // It is not known to be lost yet.
            let early = losses.connection();
            first.end(is_heard);
            let late = losses.connection();
            assert_eq!(losses.is_unheard(), !is_heard);
            let device = Handle::that_tells(0);
            assert_eq!(two_fail(&early, &device).await, [true, false]);
            assert_eq!(two_fail(&other, &device).await, [false, false]);
            assert_eq!(two_fail(&late, &device).await, [!is_heard, false]);
            [early, late].iter().for_each(|told| told.end(true));
            assert_eq!(two_fail(&losses.connection(), &device).await, [false, false]);
            assert!(!losses.is_unheard());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_told_after_the_end_of_a_connection_is_unheard() {
        let losses = Losses::default();
        let told = losses.connection();
        told.end(true);
        told.flush(&Handle::that_tells(1)).await.unwrap_err();
        assert!(losses.is_unheard());
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
        assert!(!losses.is_unheard());
    }
}

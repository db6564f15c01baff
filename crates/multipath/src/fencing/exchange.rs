//! Reads a fact from the unit, or makes a change there, by one command or two.

use iscsi_pdu::scsi::reservation::{
    FullStatus, HeldReservation, PersistentReserveIn, PersistentReserveOut, RegisteredKeys,
    Reservation, ReservationKey,
};
use iscsi_pdu::scsi::{FormatError, SenseKey, Status};

use super::question::{End, ReserveCommand};
use super::registrations::{PathNexus, Registrations};
use super::step::Failure;

/// Allocation length of the first READ FULL STATUS, in bytes: enough for about a hundred registrations.
const FULL_STATUS_LENGTH: u16 = 8192;

#[derive(Debug)]
pub(super) enum Exchange {
    /// READ KEYS, and again if the returned data were truncated.
    Keys {
        allocation_length: u16,
        is_second: bool,
    },
    /// READ RESERVATION.
    Reservation,
    FullStatus(FullStatusReading),
    Change(Change),
}

/// READ FULL STATUS, and again if the returned data were truncated.
#[derive(Clone, Copy, Debug)]
pub(super) struct FullStatusReading {
    allocation_length: u16,
    is_second: bool,
}

/// A change of the registration of a nexus.
#[derive(Debug)]
pub(super) struct Change {
    command: PersistentReserveOut,
    nexus: PathNexus,
    /// Whether no other host is expected to change registrations at the same time.
    is_sole: bool,
    doubt: Option<Doubt>,
}

/// A CHECK CONDITION other than ILLEGAL REQUEST, after which READ FULL STATUS shows whether the unit has made
/// the change. Example: LIO without `/var/target/pr`, where it stores registrations, executes each REGISTER
/// and returns NOT READY, LOGICAL UNIT COMMUNICATION FAILURE.
#[derive(Debug)]
struct Doubt {
    error: ExchangeError,
    reading: FullStatusReading,
}

/// Result of an exchange.
#[derive(Debug)]
pub(super) enum Reply {
    Keys(RegisteredKeys),
    Reservation(Option<Reservation>),
    FullStatus(FullStatus),
    Changed,
    Failed(ExchangeError),
}

/// Reason why an exchange failed.
#[derive(Clone, Debug)]
pub(super) struct ExchangeError {
    pub(super) kind: ErrorKind,
    pub(super) failure: Failure,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ErrorKind {
    /// RESERVATION CONFLICT.
    Conflict,
    /// ILLEGAL REQUEST: the unit does not support the command, or not in this form.
    IllegalRequest,
    /// Another CHECK CONDITION. The change was not made.
    Check,
    /// Another CHECK CONDITION. The change may have been made or not.
    Doubtful,
    /// Another status.
    Status,
    /// No response, or one that cannot be decoded.
    NoAnswer,
}

impl Exchange {
    pub(super) const KEYS: Self =
        Self::Keys { allocation_length: PersistentReserveIn::ALLOCATION_LENGTH, is_second: false };

    pub(super) const FULL_STATUS: Self = Self::FullStatus(FullStatusReading::FIRST);

    pub(super) const fn change(command: PersistentReserveOut, nexus: PathNexus) -> Self {
        Self::Change(Change { command, nexus, is_sole: true, doubt: None })
    }

    /// Creates a change that is made while other hosts may change registrations as well.
    pub(super) const fn change_beside_other(
        command: PersistentReserveOut,
        nexus: PathNexus,
    ) -> Self {
        Self::Change(Change { command, nexus, is_sole: false, doubt: None })
    }

    /// Returns the next command of the exchange.
    pub(super) const fn command(&self) -> ReserveCommand {
        let (action, allocation_length) = match self {
            Self::Keys { allocation_length, .. } => {
                (PersistentReserveIn::ReadKeys, *allocation_length)
            }
            Self::Reservation => (PersistentReserveIn::ReadReservation, HeldReservation::LEN),
            Self::Change(Change { command, doubt: None, .. }) => {
                return ReserveCommand::Out(*command);
            }
            Self::FullStatus(reading)
            | Self::Change(Change { doubt: Some(Doubt { reading, .. }), .. }) => {
                (PersistentReserveIn::ReadFullStatus, reading.allocation_length)
            }
        };
        ReserveCommand::In { action, allocation_length }
    }

    /// Records the end of a command. Returns `None` if another command of the exchange follows.
    pub(super) fn on_end(
        &mut self,
        number: u32,
        end: End<'_>,
        known: &Registrations,
    ) -> Option<Reply> {
        let reply = match self {
            Self::Keys { allocation_length, is_second } => {
                let keys = data_of(number, end).and_then(|data| {
                    RegisteredKeys::decode(data).map_err(ExchangeError::unreadable)
                });
                match keys {
                    Ok(keys) if keys.is_truncated() && !*is_second => {
                        (*allocation_length, *is_second) = (keys.allocation_length(), true);
                        return None;
                    }
                    keys => keys.map(Reply::Keys),
                }
            }
            Self::Reservation => data_of(number, end).and_then(|data| {
                let held = HeldReservation::decode(data).map_err(ExchangeError::unreadable)?;
                Ok(Reply::Reservation(held.reservation))
            }),
            Self::FullStatus(reading) => match reading.on_end(number, end)? {
                Ok(status) => Ok(Reply::FullStatus(status)),
                Err(error) => Err(error),
            },
            Self::Change(change) => return change.on_end(number, end, known),
        };
        Some(reply.unwrap_or_else(Reply::Failed))
    }
}

fn data_of(number: u32, end: End<'_>) -> Result<&[u8], ExchangeError> {
    match end {
        End::Good(data) => Ok(data),
        End::Check(_) | End::Status(_) | End::NoAnswer => Err(ExchangeError::of(number, end)),
    }
}

impl FullStatusReading {
    const FIRST: Self = Self { allocation_length: FULL_STATUS_LENGTH, is_second: false };

    fn on_end(&mut self, number: u32, end: End<'_>) -> Option<Result<FullStatus, ExchangeError>> {
        let status = data_of(number, end)
            .and_then(|data| FullStatus::decode(data).map_err(ExchangeError::unreadable));
        match status {
            Ok(status) if status.is_truncated() && !self.is_second => {
                (self.allocation_length, self.is_second) = (status.allocation_length(), true);
                None
            }
            status => Some(status),
        }
    }
}

impl Change {
    fn on_end(&mut self, number: u32, end: End<'_>, known: &Registrations) -> Option<Reply> {
        let Some(doubt) = &mut self.doubt else { return self.on_answer(number, end) };
        let status = doubt.reading.on_end(number, end)?;
        let wanted = wanted_by(&self.command);
        let is_made =
            status.ok().and_then(|status| known.is_made(&status, wanted, self.nexus, self.is_sole));
        let mut error = doubt.error.clone();
        match is_made {
            Some(true) => {
                tracing::debug!(key = %known.key(), "the unit has made a change of registrations that it ended with an error");
                return Some(Reply::Changed);
            }
            Some(false) => {}
            None => error.kind = ErrorKind::Doubtful,
        }
        Some(Reply::Failed(error))
    }

    fn on_answer(&mut self, number: u32, end: End<'_>) -> Option<Reply> {
        if matches!(end, End::Good(_)) {
            return Some(Reply::Changed);
        }
        let error = ExchangeError::of(number, end);
        if error.kind != ErrorKind::Check {
            return Some(Reply::Failed(error));
        }
        self.doubt = Some(Doubt { error, reading: FullStatusReading::FIRST });
        None
    }
}

/// Returns the key that the nexus has after a change of its registration.
const fn wanted_by(change: &PersistentReserveOut) -> ReservationKey {
    match change {
        PersistentReserveOut::Register { new_key, .. }
        | PersistentReserveOut::RegisterAndIgnoreExistingKey { new_key, .. } => *new_key,
        PersistentReserveOut::Reserve { key, .. }
        | PersistentReserveOut::Release { key, .. }
        | PersistentReserveOut::Clear { key }
        | PersistentReserveOut::Preempt { key, .. }
        | PersistentReserveOut::PreemptAndAbort { key, .. } => *key,
    }
}

impl ExchangeError {
    fn of(number: u32, end: End<'_>) -> Self {
        let kind = match end {
            End::Check(sense) if sense.key == SenseKey::IllegalRequest => ErrorKind::IllegalRequest,
            End::Check(_) => ErrorKind::Check,
            End::Status(Status::RESERVATION_CONFLICT) => ErrorKind::Conflict,
            End::Status(_) => ErrorKind::Status,
            End::Good(_) | End::NoAnswer => ErrorKind::NoAnswer,
        };
        Self { kind, failure: Failure::Question(number) }
    }

    fn unreadable(why: FormatError) -> Self {
        Self { kind: ErrorKind::NoAnswer, failure: Failure::Format(why) }
    }

    /// Returns whether the unit may have made the change, or may still make it.
    pub(super) const fn may_be_made(&self) -> bool {
        matches!(self.kind, ErrorKind::Doubtful | ErrorKind::NoAnswer)
    }
}

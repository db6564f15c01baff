//! Sends the commands of one try, and evaluates their results.

use iscsi_pdu::scsi::vpd::{DeviceIdentification, UnitSerialNumber, page_len};
use iscsi_pdu::scsi::{
    AdditionalSense, DeviceType, ModeParameters, ReadCapacity10, ReadCapacity16, Sense,
    StandardInquiry,
};

use super::step::{Command, End, Failure, Terms};
use crate::access::Access;
use crate::identity::capacity::{Capacity, check_block_size, short_capacity};
use crate::identity::name::{Mismatch, Model, UnitName};
use crate::identity::reasons::Verdict;

/// Allocation length of the first INQUIRY for a page of vital product data, in bytes. Before SPC-3 the
/// allocation length of INQUIRY was one byte, so a unit that reads only one byte would take 256 for 0.
const PAGE_START: u16 = u8::MAX as u16;

/// One try to identify the unit. All commands of the try are sent together.
#[derive(Clone, Debug)]
pub(super) struct Interview {
    inquiry: Part,
    identification: Part,
    serial: Part,
    long_capacity: Part,
    short_capacity: Part,
    mode: Part,
}

#[derive(Clone, Debug)]
enum Part {
    NotNeeded,
    /// The command is sent next. The second INQUIRY for a page comes with the beginning of the page, which
    /// the first one has read.
    Next(Command, Option<Vec<u8>>),
    /// The command was sent, and has this number.
    Asked(u32, Command, Option<Vec<u8>>),
    Ended(Result<Vec<u8>, Unanswered>),
}

/// Reason why a command has no usable result.
#[derive(Clone, Copy, Debug)]
struct Unanswered {
    question: u32,
    why: Why,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Why {
    /// There is no unit, or no session.
    Nothing,
    /// The unit refuses the command.
    Refused,
    /// The port refuses the command because of its state, or may do so.
    RefusedByPort,
    Unknown,
}

/// Result of a try.
#[derive(Debug)]
pub(super) struct Findings {
    /// Whether the unit has responded to MODE SENSE, and has a cache or does not report whether it has one.
    pub(super) may_have_cache: bool,
    /// The capacity of the known unit, or why it is not certain that it is the known unit.
    pub(super) result: Result<Capacity, Doubt>,
}

#[derive(Debug)]
pub(super) enum Doubt {
    /// The path leads to another unit, or to blocks of another size. It is never used again.
    Verdict(Verdict),
    /// A later try may show which unit it is.
    Passing(Failure),
    /// No later try can show which unit it is while the path stays as it is.
    Lasting(Failure),
}

impl Interview {
    pub(super) fn new(name: &UnitName) -> Self {
        let next = |command| Part::Next(command, None);
        let (identification, serial) = match name {
            UnitName::Designator(..) => (next(page(DeviceIdentification::PAGE)), Part::NotNeeded),
            UnitName::SerialNumber(_) => (Part::NotNeeded, next(page(UnitSerialNumber::PAGE))),
            UnitName::Address(..) | UnitName::Model(_) => (Part::NotNeeded, Part::NotNeeded),
        };
        Self {
            inquiry: next(Command::Inquiry),
            identification,
            serial,
            long_capacity: next(Command::ReadCapacity16),
            short_capacity: next(Command::ReadCapacity10),
            mode: next(Command::ModeSense),
        }
    }

    /// Returns the next command, if there is one, and gives it this number.
    pub(super) fn next(&mut self, number: u32) -> Option<Command> {
        self.parts().into_iter().find_map(|part| part.ask(number))
    }

    /// Records the end of a command.
    pub(super) fn on_end(&mut self, number: u32, end: End<'_>, name: &UnitName) {
        self.parts().into_iter().for_each(|part| part.on_end(number, end));
        let is_answered = matches!(self.identification, Part::Ended(_))
            && self.identification.unanswered().is_none();
        if is_answered && matches!(self.serial, Part::NotNeeded) {
            let found = self.identification.read(DeviceIdentification::decode);
            let designator = found.as_ref().and_then(DeviceIdentification::logical_unit_name);
            if !name.is_comparable(designator) {
                self.serial = Part::Next(page(UnitSerialNumber::PAGE), None);
            }
        }
    }

    /// Returns the result, if all commands have ended.
    pub(super) fn findings(&mut self, terms: &Terms) -> Option<Findings> {
        if !self.parts().into_iter().all(|part| part.has_ended()) {
            return None;
        }
        let inquiry = match self.inquired() {
            Ok(inquiry) => inquiry,
            Err(doubt) => return Some(Findings { may_have_cache: false, result: Err(doubt) }),
        };
        if let Some(unanswered) = self.mode.unanswered() {
            return Some(Findings { may_have_cache: false, result: Err(unanswered.doubt()) });
        }
        let mode = self.mode.read(ModeParameters::decode_6);
        let may_have_cache = mode.and_then(|mode| mode.write_cache_enabled()) != Some(false);
        Some(Findings { may_have_cache, result: self.recognized(inquiry, terms) })
    }

    fn inquired(&self) -> Result<StandardInquiry, Doubt> {
        let data = self.inquiry.data().map_err(Unanswered::doubt)?;
        let decoded = StandardInquiry::decode(data);
        let inquiry =
            decoded.map_err(|why| Doubt::Passing(Failure::Format(Command::Inquiry, why)))?;
        if !inquiry.is_present() {
            return Err(Doubt::Lasting(Failure::NoUnit));
        }
        if inquiry.device_type != DeviceType::DIRECT_ACCESS_BLOCK {
            return Err(Doubt::Lasting(Failure::NotADisk(inquiry.device_type)));
        }
        Ok(inquiry)
    }

    fn recognized(&self, inquiry: StandardInquiry, terms: &Terms) -> Result<Capacity, Doubt> {
        for part in [&self.identification, &self.serial] {
            part.unanswered().map_or(Ok(()), |unanswered| Err(unanswered.doubt()))?;
        }
        match self.compare(inquiry, &terms.name) {
            Ok(()) => {}
            Err(Mismatch::Other(found)) => {
                let expected = terms.name.to_string();
                return Err(Doubt::Verdict(Verdict::OtherUnit { expected, found }));
            }
            Err(Mismatch::Unproven(why)) => return Err(Doubt::Passing(Failure::Unproven(why))),
        }
        let capacity = self.capacity()?;
        check_block_size(&terms.capacity, &capacity).map_err(Doubt::Verdict)?;
        Ok(capacity)
    }

    fn compare(&self, inquiry: StandardInquiry, name: &UnitName) -> Result<(), Mismatch> {
        if let UnitName::Address(_, model) | UnitName::Model(model) = name {
            return model.compare(&Model::from(inquiry));
        }
        let identification = self.identification.read(DeviceIdentification::decode);
        let designator = identification.as_ref().and_then(DeviceIdentification::logical_unit_name);
        let serial = self.serial.read(UnitSerialNumber::decode).map(|page| page.serial);
        let serial = serial.filter(|serial| !serial.is_empty());
        name.compare(designator, serial.as_deref())
    }

    /// Returns the capacity that the unit reports. If the unit has more blocks than READ CAPACITY (10) can
    /// count, the result of READ CAPACITY (16) is required: a part of the unit must not count as the whole.
    fn capacity(&self) -> Result<Capacity, Doubt> {
        let why_not_long = match self.long_capacity.data() {
            Ok(data) => match ReadCapacity16::decode(data) {
                Ok(long) => return Ok(long.into()),
                Err(why) => Doubt::Passing(Failure::Format(Command::ReadCapacity16, why)),
            },
            Err(unanswered) if unanswered.is_refusal() => unanswered.doubt(),
            Err(unanswered) => return Err(unanswered.doubt()),
        };
        let data = self.short_capacity.data().map_err(Unanswered::doubt)?;
        let short = ReadCapacity10::decode(data)
            .map_err(|why| Doubt::Passing(Failure::Format(Command::ReadCapacity10, why)))?;
        short_capacity(short).ok_or(why_not_long)
    }

    fn parts(&mut self) -> [&mut Part; 6] {
        let Self { inquiry, identification, serial, long_capacity, short_capacity, mode } = self;
        [inquiry, identification, serial, long_capacity, short_capacity, mode]
    }
}

impl Part {
    fn ask(&mut self, number: u32) -> Option<Command> {
        let Self::Next(command, start) = self else { return None };
        let command = *command;
        *self = Self::Asked(number, command, start.take());
        Some(command)
    }

    fn on_end(&mut self, number: u32, end: End<'_>) {
        let Self::Asked(asked, command, start) = self else { return };
        if *asked != number {
            return;
        }
        let (command, start) = (*command, start.take());
        *self = match (end, start) {
            // The beginning of the page is used if the unit refuses the rest of the page, or the page has no
            // more data.
            (End::Good(data), Some(start)) if data.len() <= start.len() => Self::Ended(Ok(start)),
            (End::Good(data), None) if let Some(rest) = rest_of(command, data) => {
                Self::Next(rest, Some(data.to_vec()))
            }
            (End::Good(data), _) => Self::Ended(Ok(data.to_vec())),
            (End::Check(_) | End::Status(_), Some(start)) if !is_no_unit(end) => {
                Self::Ended(Ok(start))
            }
            (end, _) => Self::Ended(Err(Unanswered { question: number, why: Why::of(end) })),
        };
    }

    const fn has_ended(&self) -> bool {
        matches!(self, Self::NotNeeded | Self::Ended(_))
    }

    fn data(&self) -> Result<&[u8], Unanswered> {
        match self {
            Self::Ended(result) => result.as_deref().map_err(|why| *why),
            Self::NotNeeded | Self::Next(..) | Self::Asked(..) => Ok(&[]),
        }
    }

    /// Returns the decoded result of a command that the unit need not support.
    fn read<T, E>(&self, decode: impl FnOnce(&[u8]) -> Result<T, E>) -> Option<T> {
        let Self::Ended(Ok(data)) = self else { return None };
        decode(data).ok()
    }

    /// Returns why there is no result; a refusal counts as a result.
    fn unanswered(&self) -> Option<Unanswered> {
        self.data().err().filter(|unanswered| !unanswered.is_refusal())
    }
}

impl Unanswered {
    fn is_refusal(self) -> bool {
        matches!(self.why, Why::Refused | Why::RefusedByPort)
    }

    const fn doubt(self) -> Doubt {
        let failure = Failure::Question(self.question);
        match self.why {
            Why::Nothing | Why::RefusedByPort => Doubt::Lasting(failure),
            Why::Refused | Why::Unknown => Doubt::Passing(failure),
        }
    }
}

impl Why {
    fn of(end: End<'_>) -> Self {
        match end {
            End::NoUnit | End::SessionLost => Self::Nothing,
            End::Check(_) if is_no_unit(end) => Self::Nothing,
            End::Check(sense) if is_of_port(sense) => Self::RefusedByPort,
            End::Check(_) | End::Status(_) => Self::Refused,
            End::Good(_) | End::NoAnswer => Self::Unknown,
        }
    }
}

const fn page(code: u8) -> Command {
    Command::Page { code, allocation_length: PAGE_START }
}

/// Returns the command for the whole page, if the page is longer than `start`. A long page is read again only
/// if its beginning does not contain the best name of the unit.
fn rest_of(command: Command, start: &[u8]) -> Option<Command> {
    let Command::Page { code, .. } = command else { return None };
    let len = page_len(start, code).filter(|len| *len > PAGE_START.into())?;
    let is_enough = code == DeviceIdentification::PAGE
        && DeviceIdentification::decode(start).is_ok_and(|page| page.has_registered_name());
    let allocation_length = u16::try_from(len).unwrap_or(u16::MAX);
    (!is_enough).then_some(Command::Page { code, allocation_length })
}

fn is_no_unit(end: End<'_>) -> bool {
    let End::Check(sense) = end else { return false };
    !sense.deferred && sense.additional == AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED
}

fn is_of_port(sense: &Sense) -> bool {
    Access::of_refusal(sense).or_else(|| Access::suspected(sense)).is_some()
}

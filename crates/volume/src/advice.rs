//! Advice for the errors of a volume.

use std::fmt;

use crate::error::Error;
use crate::refusal::SuperblockError;

/// Advice for the user about an [`Error`] of a volume. The text is a part of a sentence.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Advice {
    /// The advice of the error of a unit.
    Unit(&'static str),
    /// The chunk has an invalid length.
    ChooseChunk,
    /// There are too few members, or too many.
    NameUnits,
    /// A member has no room for a chunk.
    SmallerChunk,
    /// The members together hold more than 2^64 bytes.
    FewerUnits,
    /// A chunk is no whole number of a member's blocks.
    OtherChunk,
    /// No block begins where the data do.
    OtherUnit,
    /// A member ends before its data do.
    LargerUnit,
    /// A unit has no name.
    NameAtTarget,
    /// The description and the unit do not agree.
    CorrectUrl,
    /// The order of the members differs from the description.
    OrderUrls,
    /// A unit is named twice.
    NameOnce,
    /// A unit has another capacity than before.
    MakeAgain,
    /// The members have different sizes.
    OneSize,
    /// The unit has no superblock of version 1.2.
    Metadata12,
    /// The superblock is damaged.
    ExamineSuperblock,
    /// The superblock has a field that a volume does not have.
    UseMdadm,
    /// The unit belongs to another array, or is another member of this one.
    OrderUnits,
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unit(advice) => advice,
            Self::ChooseChunk => "choose a power of two from 65536 to 4194304",
            Self::NameUnits => "name each unit of it",
            Self::SmallerChunk => "take a smaller chunk or a larger unit",
            Self::FewerUnits => "take fewer of them",
            Self::OtherChunk => "take another chunk or unit",
            Self::OtherUnit => "take another unit",
            Self::LargerUnit => "take a larger unit",
            Self::NameAtTarget => "give it one at the target",
            Self::CorrectUrl => "correct its URL, or the description",
            Self::OrderUrls => "put the URLs in the order of the names",
            Self::NameOnce => "name each unit once",
            Self::MakeAgain => "make the volume again, or set the unit back",
            Self::OneSize => "make the units of one size",
            Self::Metadata12 => "import and open what md has made with --metadata 1.2 only",
            Self::ExamineSuperblock => "look at it with mdadm --examine",
            Self::UseMdadm => "let mdadm look after that array",
            Self::OrderUnits => "name the units of one array in the order of their roles",
        })
    }
}

impl Error {
    /// Returns what can be done about the error; `None` if nothing is known beyond the text.
    pub fn advice(&self) -> Option<Advice> {
        Some(match self {
            Self::Unit { cause, .. } => return cause.advice().map(Advice::Unit),
            Self::Chunk(_) => Advice::ChooseChunk,
            Self::MemberCount(_) => Advice::NameUnits,
            Self::NoRoom { .. } => Advice::SmallerChunk,
            Self::TooLarge => Advice::FewerUnits,
            Self::BlockSize { .. } => Advice::OtherChunk,
            Self::DataOffset { .. } => Advice::OtherUnit,
            Self::TooSmall { .. } => Advice::LargerUnit,
            Self::Nameless { .. } => Advice::NameAtTarget,
            Self::OtherUnit { .. } => Advice::CorrectUrl,
            Self::WrongOrder { .. } => Advice::OrderUrls,
            Self::SameUnit { .. } => Advice::NameOnce,
            Self::Resized { .. } => Advice::MakeAgain,
            Self::Unequal { .. } => Advice::OneSize,
            Self::Superblock { cause, .. } => match cause {
                SuperblockError::Missing => Advice::Metadata12,
                SuperblockError::Checksum { .. } => Advice::ExamineSuperblock,
                SuperblockError::Unsupported { .. } => Advice::UseMdadm,
                SuperblockError::Mismatch { .. } => Advice::OrderUnits,
            },
            Self::Description(_) | Self::Entropy(_) => return None,
        })
    }
}

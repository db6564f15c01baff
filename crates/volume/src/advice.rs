//! Advice for the errors of a volume.

use std::fmt;

use crate::error::Error;
use crate::refusal::SuperblockError;

/// Advice for the user about an [`Error`] of a volume. The text is a part of a sentence.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Advice {
    /// The advice of an error that a unit returned.
    Unit(&'static str),
    /// The chunk has an invalid length.
    ChooseChunk,
    /// There are too few members, or too many.
    NameUnits,
    /// A member has no room for a chunk.
    SmallerChunk,
    /// The members together hold more than 2^64 bytes.
    FewerUnits,
    /// The chunk is not a multiple of a member's block size.
    OtherChunk,
    /// The data of a member do not begin at the start of a block.
    OtherUnit,
    /// A member is too small for its data.
    LargerUnit,
    /// A unit has no name.
    NameAtTarget,
    /// The URL of a member leads to another unit than the description names.
    CorrectUrl,
    /// The order of the members differs from the description.
    OrderUrls,
    /// Two members are the same unit.
    NameOnce,
    /// The capacity of a unit has changed.
    MakeAgain,
    /// The members have different sizes.
    OneSize,
    /// The unit has no superblock of version 1.2.
    Metadata12,
    /// The superblock is damaged.
    ExamineSuperblock,
    /// The superblock has a field whose value a volume does not support.
    UseMdadm,
    /// The unit belongs to another array, or is another member of this array.
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
    /// Returns the advice to the user; `None` if nothing is known beyond the text.
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

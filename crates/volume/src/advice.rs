//! What a reader of an error of a volume can do about it.

use std::fmt;

use crate::error::Error;
use crate::refusal::SuperblockError;

/// What can be done about an [`Error`] of a volume. The text is a part of a sentence.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Advice {
    /// What can be done about the error of a unit.
    Unit(&'static str),
    /// The chunk is none.
    ChooseChunk,
    /// There are too few members, or too many.
    NameUnits,
    /// A member has no room for a chunk.
    SmallerChunk,
    /// The members hold more than can be counted.
    FewerUnits,
    /// A chunk is no whole number of blocks.
    OtherChunk,
    /// The data do not begin where a block does.
    OtherUnit,
    /// A member ends before its data do.
    LargerUnit,
    /// A unit has no name.
    NameAtTarget,
    /// The description and the unit do not agree.
    CorrectUrl,
    /// Two members have changed places.
    OrderUrls,
    /// A unit is named twice.
    NameOnce,
    /// A unit has another capacity than before.
    MakeAgain,
    /// The members are of several sizes.
    OneSize,
    /// There is no superblock that a volume knows.
    Metadata12,
    /// The superblock is damaged.
    ExamineSuperblock,
    /// The array is of a kind that a volume is not.
    UseMdadm,
    /// The unit is a member of another array, or another member.
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
    /// What can be done about it; `None` where the text says all that is known.
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

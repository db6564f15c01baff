//! Kinds of keys: how the result follows from an offer and an answer (RFC 7143 §6.2).

use super::{TextError, parse_number};

/// The way in which the result of a key is found (RFC 7143 §6.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// One side declares a value, the other does not answer.
    Declaration,
    /// The first value of the offer that the responder supports (RFC 7143 §6.2.1).
    List,
    /// The lesser of two numbers.
    Minimum {
        /// The value where nothing is negotiated.
        default: u32,
        /// The least legal value.
        min: u32,
        /// The greatest legal value.
        max: u32,
    },
    /// The greater of two numbers.
    Maximum {
        /// The value where nothing is negotiated.
        default: u32,
        /// The least legal value.
        min: u32,
        /// The greatest legal value.
        max: u32,
    },
    /// A number that one side declares about itself, without an answer.
    DeclaredNumber {
        /// The value if nothing is declared.
        default: u32,
        /// The least legal value.
        min: u32,
        /// The greatest legal value.
        max: u32,
    },
    /// Yes if both say Yes.
    And {
        /// The value where nothing is negotiated.
        default: bool,
    },
    /// Yes if either says Yes.
    Or {
        /// The value where nothing is negotiated.
        default: bool,
    },
    /// A step of an authentication, in the order of RFC 7143 §12.1.3.
    Authentication,
    /// A key of RFC 3720 that means nothing any more (RFC 7143 §13.25).
    Obsolete {
        /// The one answer to any offer.
        reply: &'static str,
    },
}

impl Kind {
    /// The result of a numerical key: the lesser or the greater number, or what was answered for
    /// a kind that has no result function over numbers.
    pub fn number_result(&self, offered: u32, answered: u32) -> u32 {
        match self {
            Self::Minimum { .. } => offered.min(answered),
            Self::Maximum { .. } => offered.max(answered),
            Self::DeclaredNumber { .. }
            | Self::Declaration
            | Self::List
            | Self::And { .. }
            | Self::Or { .. }
            | Self::Authentication
            | Self::Obsolete { .. } => answered,
        }
    }

    /// The result of a boolean key, or what was answered for a kind that has no result function
    /// over booleans.
    pub const fn boolean_result(&self, offered: bool, answered: bool) -> bool {
        match self {
            Self::And { .. } => offered && answered,
            Self::Or { .. } => offered || answered,
            Self::Minimum { .. }
            | Self::Maximum { .. }
            | Self::DeclaredNumber { .. }
            | Self::Declaration
            | Self::List
            | Self::Authentication
            | Self::Obsolete { .. } => answered,
        }
    }

    /// Reads a value of a numerical key.
    ///
    /// # Errors
    ///
    /// [`TextError::NotNumeric`] for a key of another kind, [`TextError::Number`] for a value that
    /// is no number, [`TextError::OutOfRange`] for one outside the key's range.
    pub fn check_number(&self, value: &str) -> Result<u32, TextError> {
        let (min, max) = self.range().ok_or(TextError::NotNumeric)?;
        let value = parse_number(value)?;
        let number = u32::try_from(value).ok().filter(|number| (min..=max).contains(number));
        number.ok_or(TextError::OutOfRange { value, min, max })
    }

    /// The least and the greatest legal value of a numerical key.
    pub const fn range(&self) -> Option<(u32, u32)> {
        match *self {
            Self::Minimum { min, max, .. }
            | Self::Maximum { min, max, .. }
            | Self::DeclaredNumber { min, max, .. } => Some((min, max)),
            Self::Declaration
            | Self::List
            | Self::And { .. }
            | Self::Or { .. }
            | Self::Authentication
            | Self::Obsolete { .. } => None,
        }
    }

    /// The value of a numerical key where nothing is negotiated.
    pub const fn default_number(&self) -> Option<u32> {
        match *self {
            Self::Minimum { default, .. }
            | Self::Maximum { default, .. }
            | Self::DeclaredNumber { default, .. } => Some(default),
            Self::Declaration
            | Self::List
            | Self::And { .. }
            | Self::Or { .. }
            | Self::Authentication
            | Self::Obsolete { .. } => None,
        }
    }

    /// The value of a boolean key where nothing is negotiated.
    pub const fn default_boolean(&self) -> Option<bool> {
        match *self {
            Self::And { default } | Self::Or { default } => Some(default),
            Self::Minimum { .. }
            | Self::Maximum { .. }
            | Self::DeclaredNumber { .. }
            | Self::Declaration
            | Self::List
            | Self::Authentication
            | Self::Obsolete { .. } => None,
        }
    }
}

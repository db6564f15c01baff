//! Kinds of keys: how an offer and an answer determine the result (RFC 7143 §6.2).

use super::{TextError, parse_number};

/// Kinds of keys, by how their result is determined (RFC 7143 §6.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// One side declares a value, and the other does not answer.
    Declaration,
    /// The first value of the offer that the responder supports (RFC 7143 §6.2.1).
    List,
    /// The lesser of two numbers.
    Minimum {
        /// The value if nothing is negotiated.
        default: u32,
        /// The least valid value.
        min: u32,
        /// The greatest valid value.
        max: u32,
    },
    /// The greater of two numbers.
    Maximum {
        /// The value if nothing is negotiated.
        default: u32,
        /// The least valid value.
        min: u32,
        /// The greatest valid value.
        max: u32,
    },
    /// A number that one side declares about itself, without an answer.
    DeclaredNumber {
        /// The value if nothing is declared.
        default: u32,
        /// The least valid value.
        min: u32,
        /// The greatest valid value.
        max: u32,
    },
    /// The result is Yes if both sides say Yes.
    And {
        /// The value if nothing is negotiated.
        default: bool,
    },
    /// The result is Yes if at least one side says Yes.
    Or {
        /// The value if nothing is negotiated.
        default: bool,
    },
    /// A key in a step of an authentication; the order of the steps is in RFC 7143 §12.1.3.
    Authentication,
    /// A key of RFC 3720 that is obsolete (RFC 7143 §13.25).
    Obsolete {
        /// The answer to any offer.
        reply: &'static str,
    },
}

impl Kind {
    /// Returns the result of a numerical key: the lesser or the greater number. For any other kind, returns
    /// `answered`.
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

    /// Returns the result of a boolean key. For any other kind, returns `answered`.
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
    /// [`TextError::NotNumeric`] for a key of another kind, [`TextError::Number`] for a value that is not a
    /// number, [`TextError::OutOfRange`] for a number outside the key's range.
    pub fn check_number(&self, value: &str) -> Result<u32, TextError> {
        let (min, max) = self.range().ok_or(TextError::NotNumeric)?;
        let value = parse_number(value)?;
        let number = u32::try_from(value).ok().filter(|number| (min..=max).contains(number));
        number.ok_or(TextError::OutOfRange { value, min, max })
    }

    /// Returns the least and the greatest valid value of a numerical key.
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

    /// Returns the value of a numerical key if nothing is negotiated.
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

    /// Returns the value of a boolean key if nothing is negotiated.
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

//! Marks of a source and a destination, from which their identities are made.

use std::ops::Range;
use std::sync::Arc;

use iscsi_block_device::{Device, DeviceError, DeviceErrorKind, DeviceResult};

use super::identity::Identity;

/// Input for the identity of a source or destination: its name or number, and the part of it that is copied.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    what: What,
    /// The bytes that are copied; `None` for all.
    part: Option<Range<u64>>,
}

#[derive(Clone, Debug)]
enum What {
    /// No identity is possible: a stream, for example.
    Nothing,
    /// A device, whose names are queried when the identity is needed.
    Device(Arc<dyn Device>),
    /// An identity that the caller has set.
    Given(Identity),
}

impl Mark {
    pub(crate) const NONE: Self = Self { what: What::Nothing, part: None };

    pub(crate) const fn of(device: Arc<dyn Device>) -> Self {
        Self { what: What::Device(device), part: None }
    }

    /// Returns the mark with a given identity, for the same part.
    pub(crate) fn given(self, identity: Identity) -> Self {
        Self { what: What::Given(identity), ..self }
    }

    /// Returns the mark of a range within the current part.
    pub(crate) fn part(self, range: &Range<u64>) -> Self {
        let before = self.part.unwrap_or(0..u64::MAX);
        let start = before.start.saturating_add(range.start);
        let end = before.start.saturating_add(range.end).min(before.end);
        Self { what: self.what, part: Some(start..end) }
    }

    /// Returns the identity of a source.
    pub(crate) fn source(&self) -> DeviceResult<Identity> {
        self.identity(Identity::of_read)
    }

    /// Returns the identity of a destination.
    pub(crate) fn destination(&self) -> DeviceResult<Identity> {
        self.identity(Identity::of_written)
    }

    fn identity(
        &self,
        of_device: impl FnOnce(&Arc<dyn Device>) -> DeviceResult<Option<Identity>>,
    ) -> DeviceResult<Identity> {
        let identity = match &self.what {
            What::Nothing => None,
            What::Device(device) => of_device(device)?,
            What::Given(identity) => Some(identity.clone()),
        };
        let identity = identity.ok_or_else(|| {
            let why = "nothing says in a later run that it is the same, so a copy of it cannot be resumed; if you know \
                       a name that lasts, set it by with_identity";
            DeviceError::new(DeviceErrorKind::Unsupported, why)
        })?;
        Ok(match &self.part {
            Some(range) => identity.part(range.clone()),
            None => identity,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_part_is_named_by_its_place_on_the_end() {
        let mark = Mark::NONE.given(Identity::new("an end", 9000));
        let whole = mark.source().unwrap().to_string();
        assert_eq!(whole, "an end, 9000 bytes");
        let open = mark.part(&(100..u64::MAX));
        let name = open.source().unwrap().to_string();
        assert_eq!(name, "an end from byte 100, 9000 bytes");
        let name = open.part(&(10..30)).part(&(5..100)).destination().unwrap().to_string();
        assert_eq!(name, "an end from byte 115 to 130, 9000 bytes");
    }

    #[test]
    fn an_end_without_a_name_that_lasts_is_refused_by_a_sentence_that_says_what_to_do() {
        let error = Mark::NONE.source().unwrap_err();
        assert_eq!(error.kind(), DeviceErrorKind::Unsupported);
        assert!(error.to_string().contains("with_identity"), "{error}");
    }
}

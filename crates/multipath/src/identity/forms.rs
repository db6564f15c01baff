//! Which commands a unit does not know.

/// The forms of commands that the unit has refused to know, over any session: one bit for each operation code of the commands of
/// 16 bytes, 80h to 9Fh.
///
/// A unit need not know any of them, whatever READ CAPACITY (16) returns. Each is found out by itself, so that a unit without
/// SYNCHRONIZE CACHE (16) is still read beyond 2 TiB.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct UnknownForms(u32);

impl UnknownForms {
    /// The unit has refused this operation code with INVALID COMMAND OPERATION CODE.
    pub const fn add(&mut self, operation_code: u8) {
        self.0 |= Self::bit(operation_code);
    }

    /// Whether the unit has refused this operation code.
    pub const fn contains(self, operation_code: u8) -> bool {
        self.0 & Self::bit(operation_code) != 0
    }

    /// All of them in one number.
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// The forms that [`to_bits`](Self::to_bits) has returned.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    const fn bit(operation_code: u8) -> u32 {
        if operation_code >> 5 == 4 { 1 << (operation_code & 0x1f) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_of_16_bytes_is_known_by_itself() {
        let mut forms = UnknownForms::default();
        forms.add(0x91);
        forms.add(0x28);
        assert!(forms.contains(0x91) && !forms.contains(0x88));
        assert!(!forms.contains(0x28), "every unit knows the short forms");
        assert_eq!(UnknownForms::from_bits(forms.to_bits()), forms);
    }
}

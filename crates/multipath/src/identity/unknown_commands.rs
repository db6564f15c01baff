//! Records commands that a unit does not support.

/// The command forms that the unit has refused, over any session: one bit for each operation code of the
/// 16-byte commands, 80h to 9Fh.
///
/// A unit need not support any of them, whatever READ CAPACITY (16) returns. Each form is tried separately, so
/// that a unit without SYNCHRONIZE CACHE (16) is still read beyond 2 TiB.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct UnknownCommands(u32);

impl UnknownCommands {
    /// Adds an operation code that the unit has refused with INVALID COMMAND OPERATION CODE.
    pub const fn add(&mut self, operation_code: u8) {
        self.0 |= Self::bit(operation_code);
    }

    /// Returns whether the unit has refused this operation code.
    pub const fn contains(self, operation_code: u8) -> bool {
        self.0 & Self::bit(operation_code) != 0
    }

    /// Packs the refused forms into bits.
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// Unpacks the refused forms from the bits of [`to_bits`](Self::to_bits).
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
        let mut forms = UnknownCommands::default();
        forms.add(0x91);
        forms.add(0x28);
        assert!(forms.contains(0x91) && !forms.contains(0x88));
        assert!(!forms.contains(0x28), "every unit knows the short forms");
        assert_eq!(UnknownCommands::from_bits(forms.to_bits()), forms);
    }
}

//! Unit numbers in the eight bytes of a LUN field (SAM-5 §4.7).

/// Forms in which a target encodes its unit numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LunForm {
    /// Flat space addressing for numbers above 255, as the standard requires.
    #[default]
    Flat,
    /// Flat space addressing for all numbers except 0, which is all zeros in every form. No other form is
    /// accepted.
    AllFlat,
    /// Peripheral addressing for all numbers, with the high bits as a bus, as LIO does.
    Bus,
}

impl LunForm {
    /// Returns the LUN field of a unit number. Numbers above 16383 give the field of 16383.
    #[must_use]
    pub fn encode(self, number: u16) -> u64 {
        let number = number.min(0x3fff);
        let first_flat = match self {
            Self::Flat => 256,
            Self::AllFlat => 1,
            Self::Bus => u16::MAX,
        };
        let method = if number >= first_flat { 0x4000 } else { 0 };
        u64::from(method | number) << 48
    }

    /// Returns the unit number in a LUN field; `None` if the field has another form or more than one level.
    #[must_use]
    pub fn decode(self, field: u64) -> Option<u16> {
        let number = u16::try_from(field >> 48).ok()? & 0x3fff;
        // Flat addressing of small numbers is legal, if unusual.
        let small_flat = self == Self::Flat && field == u64::from(0x4000 | number) << 48;
        (small_flat || self.encode(number) == field).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::LunForm;

    #[test]
    fn every_number_survives() {
        for form in [LunForm::Flat, LunForm::AllFlat, LunForm::Bus] {
            for number in 0..0x4000 {
                assert_eq!(form.decode(form.encode(number)), Some(number));
            }
            assert_eq!(form.decode(3), None);
        }
        assert_eq!(LunForm::Flat.encode(300), 0x412c_0000_0000_0000);
        assert_eq!(LunForm::Bus.encode(300), 0x012c_0000_0000_0000);
        assert_eq!(LunForm::AllFlat.encode(0), 0);
        assert_eq!(LunForm::AllFlat.encode(1), 0x4001_0000_0000_0000);
        assert_eq!(LunForm::AllFlat.decode(0x0001_0000_0000_0000), None);
        assert_eq!(LunForm::Bus.decode(0x412c_0000_0000_0000), None);
        assert_eq!(LunForm::Flat.decode(0x012c_0000_0000_0000), None);
    }
}

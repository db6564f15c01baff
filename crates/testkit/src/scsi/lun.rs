//! LUN numbers in their eight bytes (SAM-5 §4.7).

/// The LUN field of a unit number: peripheral form to 255, flat form to 16383, number 16383 beyond.
#[must_use]
pub fn encode_lun(number: u16) -> u64 {
    let number = number.min(0x3fff);
    let form = if number < 256 { number } else { 0x4000 | number };
    u64::from(form) << 48
}

/// The unit number in a LUN field; `None` for any form but a single level of 8 or 14 bits.
#[must_use]
pub fn decode_lun(field: u64) -> Option<u16> {
    let [high, low, rest @ ..] = field.to_be_bytes();
    let number = u16::from_be_bytes([high & 0x3f, low]);
    let single = rest == [0; 6] && (high == 0 || high >> 6 == 1);
    single.then_some(number)
}

#[cfg(test)]
mod tests {
    use super::{decode_lun, encode_lun};

    #[test]
    fn every_number_survives() {
        for number in 0..0x4000 {
            assert_eq!(decode_lun(encode_lun(number)), Some(number));
        }
        assert_eq!(encode_lun(300), 0x412c_0000_0000_0000);
        assert_eq!(decode_lun(3), None);
    }
}

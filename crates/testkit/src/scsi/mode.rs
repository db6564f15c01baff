//! MODE SENSE: write protection and the caching page (SPC-4 §6.11, §6.12, SBC-3 §6.4.5).

use super::{Sense, Unit, Work, answer, be, operation};

const CACHING: u8 = 0x08;
const ALL_PAGES: u8 = 0x3f;

pub(super) fn mode_sense(unit: &Unit, cdb: [u8; 16]) -> Result<Work, Sense> {
    let pages = match cdb[2] & 0x3f {
        CACHING | ALL_PAGES => caching(),
        0 => Vec::new(),
        _ => return Err(Sense::INVALID_FIELD),
    };
    let protection = if unit.disk.is_read_only() { 0x80 } else { 0 };
    if cdb[0] == operation::MODE_SENSE_6 {
        Ok(answer(with_short_header(protection, &pages), u64::from(cdb[4])))
    } else {
        Ok(answer(with_long_header(protection, &pages), be(&cdb[7..], 2)))
    }
}

/// Caching page with WCE: writes may stay in a cache until a flush.
fn caching() -> Vec<u8> {
    let mut page = vec![CACHING, 18, 0x04];
    page.resize(20, 0);
    page
}

fn with_short_header(protection: u8, pages: &[u8]) -> Vec<u8> {
    let length = u8::try_from(pages.len() + 3).unwrap_or(u8::MAX);
    [&[length, 0, protection, 0], pages].concat()
}

fn with_long_header(protection: u8, pages: &[u8]) -> Vec<u8> {
    let length = u16::try_from(pages.len() + 6).unwrap_or(u16::MAX).to_be_bytes();
    [&length[..], &[0, protection, 0, 0, 0, 0], pages].concat()
}

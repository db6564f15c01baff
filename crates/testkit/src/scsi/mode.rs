//! MODE SENSE: write protection, the caching page and the control page (SPC-4 §6.11, §6.12, §7.5.7,
//! SBC-3 §6.4.5).

use super::operation;
use super::sense::Sense;
use super::unit::Unit;
use super::work::{Work, answer};
use crate::convert::be;
use crate::disk::Cache;

const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0a;
const ALL_PAGES: u8 = 0x3f;

/// WP in the device-specific parameter.
const WRITE_PROTECTED: u8 = 0x80;
const DPO_FUA: u8 = 0x10;
/// Byte 2 of the caching page: WCE.
const WRITE_CACHE_ENABLED: u8 = 0x04;

/// Byte 5 of the control page: TAS.
const TASK_ABORTED_STATUS: u8 = 0x40;

/// Page control: values that MODE SELECT can change. The unit has none.
const CHANGEABLE: u8 = 1;
/// Page control: saved values.
const SAVED: u8 = 3;

pub(super) fn mode_sense(unit: &Unit, cdb: [u8; 16]) -> Result<Work, Sense> {
    let page_control = cdb[2] >> 6;
    if page_control == SAVED {
        return Err(Sense::NOT_SAVED);
    }
    let mut pages = match cdb[2] & 0x3f {
        CACHING => vec![caching(unit)],
        CONTROL => vec![control(unit)],
        ALL_PAGES => vec![caching(unit), control(unit)],
        0 => Vec::new(),
        _ => return Err(Sense::INVALID_FIELD),
    };
    if page_control == CHANGEABLE {
        pages.iter_mut().for_each(|page| page[2..].fill(0));
    }
    let pages = pages.concat();
    let protection = if unit.disk.is_read_only() { WRITE_PROTECTED } else { 0 };
    let fua = if unit.disk.is_volatile() { DPO_FUA } else { 0 };
    let specific = protection | fua;
    if cdb[0] == operation::MODE_SENSE_6 {
        Ok(answer(with_short_header(specific, &pages), u64::from(cdb[4])))
    } else {
        Ok(answer(with_long_header(specific, &pages), be(&cdb[7..], 2)))
    }
}

/// Returns the caching page. WCE means that writes may stay in a cache until a flush.
fn caching(unit: &Unit) -> Vec<u8> {
    let write_cache =
        if unit.disk.cache() == Cache::WriteThrough { 0 } else { WRITE_CACHE_ENABLED };
    let mut page = vec![CACHING, 18, write_cache];
    page.resize(20, 0);
    page
}

/// Returns the control page: commands may be reordered, sense data have fixed format, and a unit may be busy
/// without a time limit.
fn control(unit: &Unit) -> Vec<u8> {
    let aborted = if unit.behavior.task_aborted_status { TASK_ABORTED_STATUS } else { 0 };
    vec![CONTROL, 10, 0, 0x10, 0, aborted, 0, 0, 0xff, 0xff, 0, 0]
}

fn with_short_header(specific: u8, pages: &[u8]) -> Vec<u8> {
    let length = u8::try_from(pages.len() + 3).unwrap_or(u8::MAX);
    [&[length, 0, specific, 0], pages].concat()
}

fn with_long_header(specific: u8, pages: &[u8]) -> Vec<u8> {
    let length = u16::try_from(pages.len() + 6).unwrap_or(u16::MAX).to_be_bytes();
    [&length[..], &[0, specific, 0, 0, 0, 0], pages].concat()
}

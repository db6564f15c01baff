//! Vital product data: identity and limits of a device, page by page (SPC-4 §7.8, SBC-3 §6.5).
//!
//! | Page | Type | What it tells |
//! |---|---|---|
//! | 00 | [`SupportedPages`] | which pages there are |
//! | 80 | [`UnitSerialNumber`] | the vendor's serial number |
//! | 83 | [`DeviceIdentification`] | world wide names of unit, port and target |
//! | B0 | [`BlockLimits`] | how much one command may do |
//! | B1 | [`BlockDeviceCharacteristics`] | what the medium is like |
//! | B2 | [`LogicalBlockProvisioning`] | how blocks are deallocated |
//!
//! Ask for a page only if page 00 lists it: some devices answer for a page they do not have with
//! standard INQUIRY data, which is refused here by its page code.

mod block_characteristics;
mod block_limits;
mod device_identification;
mod provisioning;
mod supported_pages;
mod unit_serial_number;

pub use block_characteristics::{BlockDeviceCharacteristics, MediumRotationRate};
pub use block_limits::BlockLimits;
pub use device_identification::{
    Association, CodeSet, Designator, DesignatorType, DeviceIdentification,
};
pub use provisioning::{LogicalBlockProvisioning, ProvisioningType};
pub use supported_pages::SupportedPages;
pub use unit_serial_number::UnitSerialNumber;

use super::{FormatError, fields::Fields};

/// Length of the header that every page begins with, bytes.
const HEADER_LEN: usize = 4;

/// How long a page is by its own account, header included, bytes: more than `data` if that is only
/// its beginning. `None` if it is another page, or too short to say.
pub fn page_len(data: &[u8], page: u8) -> Option<usize> {
    let &[_, code, high, low, ..] = data else { return None };
    (code == page).then(|| HEADER_LEN + usize::from(u16::from_be_bytes([high, low])))
}

/// The page in `data`, header included, cut to the length it gives itself.
fn page<'a>(data: &'a [u8], code: u8, format: &'static str) -> Result<Fields<'a>, FormatError> {
    let fields = Fields::new(data, format, HEADER_LEN)?;
    let found = fields.u8(1);
    if found != code {
        return Err(FormatError::Field { format, field: "PAGE CODE", value: found.into() });
    }
    Ok(fields.cut(HEADER_LEN + usize::from(fields.u16(2))))
}

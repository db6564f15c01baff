//! Decodes any bytes as SCSI data. The result must be data or an error, without a panic, and must be printable.
#![no_main]

use iscsi_fuzz as _;
use iscsi_pdu::scsi::reservation::{
    FullStatus, HeldReservation, RegisteredKeys, ReservationCapabilities, ReservationKey,
};
use iscsi_pdu::scsi::{
    Cdb, LbaStatus, Lun, ModeParameters, ReadCapacity10, ReadCapacity16, ReportLuns, Sense,
    StandardInquiry, TargetPortGroups, vpd,
};
use libfuzzer_sys::fuzz_target;

fn show(value: &impl std::fmt::Debug) {
    let _ = format!("{value:?}");
}

fuzz_target!(|data: &[u8]| {
    if let Ok(sense) = Sense::decode(data) {
        let _ = format!("{sense}");
    }
    if let Ok(identification) = vpd::DeviceIdentification::decode(data) {
        show(&identification.logical_unit_name());
        show(&(identification.relative_target_port(), identification.target_port_group()));
    }
    show(&StandardInquiry::decode(data));
    show(&vpd::SupportedPages::decode(data));
    show(&vpd::UnitSerialNumber::decode(data));
    show(&vpd::BlockLimits::decode(data));
    show(&vpd::BlockDeviceCharacteristics::decode(data));
    show(&vpd::LogicalBlockProvisioning::decode(data));
    show(&ReadCapacity10::decode(data));
    show(&ReadCapacity16::decode(data));
    show(&ReportLuns::decode(data));
    show(&LbaStatus::decode(data));
    show(&TargetPortGroups::decode(data));
    show(&RegisteredKeys::decode(data));
    show(&HeldReservation::decode(data));
    show(&ReservationCapabilities::decode(data));
    if let Ok(status) = FullStatus::decode(data) {
        for registrant in &status.registrants {
            let _ = format!("{} {}", registrant.key, registrant.initiator_port);
        }
    }
    if let Some(key) = std::str::from_utf8(data).ok().and_then(|text| text.parse().ok()) {
        let key: ReservationKey = key;
        assert_eq!(key.to_string().parse(), Ok(key));
    }
    show(&ModeParameters::decode_6(data));
    show(&ModeParameters::decode_10(data));
    if let Ok(cdb) = Cdb::new(data) {
        show(&cdb);
        assert_eq!(cdb.as_bytes(), data);
    }
    if let Some(lun) = data.first_chunk() {
        let lun = Lun::from_bytes(*lun);
        let _ = format!("{lun} {lun:?}");
        assert!(lun.number().and_then(Lun::new).is_none_or(|again| again.number() == lun.number()));
    }
});

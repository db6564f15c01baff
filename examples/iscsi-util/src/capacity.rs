//! Shows the capacity of a unit: READ CAPACITY and its parameters (SBC-3).

use clap::Args;
use iscsi_initiator::{LogicalUnit, Profile};
use iscsi_pdu::scsi::vpd::ProvisioningType;
use iscsi_tuner::Size;
use serde_json::json;

use crate::connector::Connector;
use crate::error::Error;
use crate::report::Report;
use crate::table::Table;

/// The options of `capacity`.
#[derive(Clone, Debug, Args)]
pub struct Capacity {
    /// Unit: iscsi://HOST/TARGET/LUN.
    pub url: String,
}

impl Capacity {
    /// Reads the capacity and its parameters from the unit.
    ///
    /// # Errors
    /// If the unit does not respond, or is no disk.
    pub async fn run(&self, connector: &Connector) -> Result<Report, Error> {
        let work = async |unit: &LogicalUnit| Ok(connector.unless(unit.profile()).await??);
        let profile = connector.unit(&self.url, work).await?;
        Ok(report(&profile))
    }
}

fn report(profile: &Profile) -> Report {
    let capacity = profile.capacity;
    let provisioning = match profile.provisioning.map(|page| page.provisioning_type) {
        Some(ProvisioningType::Thin) => Some("thin"),
        Some(ProvisioningType::Resource) => Some("resource"),
        Some(ProvisioningType::NotReported | ProvisioningType::Reserved(_)) | None => None,
    };
    let unmapped_reads_zeros =
        capacity.provisioning_management.then_some(capacity.unmapped_reads_zeros);
    let mut table = Table::default();
    let bytes = Size(capacity.bytes());
    table.push(["capacity", &format!("{bytes} ({} bytes)", bytes.0)]);
    table.push(["blocks", &format!("{} of {} bytes", capacity.blocks, capacity.block_size)]);
    table.push(["physical blocks", &format!("{} bytes", capacity.physical_block_size)]);
    table.push(["provisioning", provisioning.unwrap_or("not reported")]);
    let unmapped = match unmapped_reads_zeros {
        Some(true) => "read as zeros",
        Some(false) => "may read as anything",
        None => "none",
    };
    table.push(["unmapped blocks", unmapped]);
    table.push(["write protected", if profile.write_protected { "yes" } else { "no" }]);
    let members = json!({
        "capacity_bytes": bytes.0,
        "blocks": capacity.blocks,
        "block_size_bytes": capacity.block_size,
        "physical_block_size_bytes": capacity.physical_block_size,
        "provisioning": provisioning,
        "provisioning_management": capacity.provisioning_management,
        "unmapped_reads_zeros": unmapped_reads_zeros,
        "write_protected": profile.write_protected,
    });
    Report::new(table.to_string(), members)
}

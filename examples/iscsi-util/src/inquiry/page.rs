//! Decodes INQUIRY pages into named fields.

use std::fmt::{self, Display};
use std::mem;

use iscsi_initiator::Error as InitiatorError;
use iscsi_pdu::scsi::vpd::{
    Association, BlockDeviceCharacteristics, BlockLimits, CodeSet, Designator, DesignatorType,
    DeviceIdentification, LogicalBlockProvisioning, MediumRotationRate, ProvisioningType,
    SupportedPages, UnitSerialNumber,
};
use iscsi_pdu::scsi::{FormatError, StandardInquiry};
use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::table::Table;

/// A page, as readable text and as JSON.
#[derive(Debug)]
pub(super) struct Page {
    /// Code of the page; `None` for the standard data.
    code: Option<u8>,
    fields: Vec<Field>,
    /// The reason why the unit's page is missing; `None` if it is not.
    error: Option<String>,
}

/// One value of a page, for JSON and as readable text.
#[derive(Debug)]
struct Field {
    /// Name of the field in JSON. In text, its underscores are replaced by spaces.
    name: &'static str,
    value: Value,
    /// The readable text. It may have several lines.
    text: String,
}

impl Page {
    /// Returns the standard data as a page.
    pub(super) fn standard(inquiry: &StandardInquiry) -> Self {
        Self::new(None, standard(inquiry))
    }

    /// Returns a page of vital product data. An unknown page is shown as bytes.
    pub(super) fn vital(code: u8, data: &[u8]) -> Result<Self, InitiatorError> {
        let fields = match code {
            SupportedPages::PAGE => SupportedPages::decode(data).map(|page| supported(&page)),
            UnitSerialNumber::PAGE => UnitSerialNumber::decode(data).map(serial_number),
            DeviceIdentification::PAGE => {
                DeviceIdentification::decode(data).map(|page| identification(&page))
            }
            BlockLimits::PAGE => BlockLimits::decode(data).map(|page| limits(&page)),
            BlockDeviceCharacteristics::PAGE => {
                BlockDeviceCharacteristics::decode(data).map(|page| characteristics(&page))
            }
            LogicalBlockProvisioning::PAGE => {
                LogicalBlockProvisioning::decode(data).map(|page| provisioning(&page))
            }
            _ => Ok(vec![Field::new("bytes", hexadecimal(data))]),
        };
        fields.map(|fields| Self::new(Some(code), fields)).map_err(unreadable)
    }

    /// Returns an entry for a page that the unit lists and does not have.
    pub(super) fn missing(code: u8, error: &Error) -> Self {
        Self { code: Some(code), fields: Vec::new(), error: Some(error.to_string()) }
    }

    const fn new(code: Option<u8>, fields: Vec<Field>) -> Self {
        Self { code, fields, error: None }
    }

    /// Returns the page as JSON.
    pub(super) fn to_json(&self) -> Value {
        let fields = self.fields.iter().map(|field| (field.name.to_owned(), field.value.clone()));
        json!({
            "page": self.code.map(|code| format!("{code:02x}")),
            "name": self.name(),
            "fields": fields.collect::<Map<_, _>>(),
            "error": self.error,
        })
    }

    const fn name(&self) -> &'static str {
        match self.code {
            None => "standard INQUIRY data",
            Some(SupportedPages::PAGE) => "supported pages",
            Some(UnitSerialNumber::PAGE) => "unit serial number",
            Some(DeviceIdentification::PAGE) => "device identification",
            Some(BlockLimits::PAGE) => "block limits",
            Some(BlockDeviceCharacteristics::PAGE) => "block device characteristics",
            Some(LogicalBlockProvisioning::PAGE) => "logical block provisioning",
            Some(_) => "not decoded",
        }
    }
}

impl Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => writeln!(f, "page {code:02x}: {}", self.name())?,
            None => writeln!(f, "{}", self.name())?,
        }
        let mut table = Table::default();
        for Field { name, text, .. } in &self.fields {
            let mut name = format!("  {}", name.replace('_', " "));
            for line in text.split('\n') {
                table.push([mem::take(&mut name), line.to_owned()]);
            }
        }
        if let Some(error) = &self.error {
            table.push([format!("  {error}")]);
        }
        write!(f, "{table}")
    }
}

impl Field {
    /// Creates a field whose text is derived from its JSON value.
    fn new(name: &'static str, value: impl Into<Value>) -> Self {
        let value = value.into();
        let text = match &value {
            Value::Null => "not reported".to_owned(),
            Value::Bool(true) => "yes".to_owned(),
            Value::Bool(false) => "no".to_owned(),
            Value::String(text) => text.trim_end().to_owned(),
            Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
        };
        Self { name, value, text }
    }

    /// Creates a field with a separate readable text.
    fn with_text(name: &'static str, value: impl Into<Value>, text: impl Into<String>) -> Self {
        Self { name, value: value.into(), text: text.into() }
    }

    /// Creates a field for a number of blocks.
    fn blocks(name: &'static str, blocks: Option<u64>) -> Self {
        match blocks {
            Some(1) => Self::with_text(name, 1, "1 block"),
            Some(blocks) => Self::with_text(name, blocks, format!("{blocks} blocks")),
            None => Self::new(name, Value::Null),
        }
    }
}

/// Returns the error for data that do not have the format of the standard.
pub(super) fn unreadable(why: FormatError) -> InitiatorError {
    InitiatorError::malformed_answer("INQUIRY", why)
}

fn standard(inquiry: &StandardInquiry) -> Vec<Field> {
    let standard = match inquiry.version {
        3 => " (SPC)",
        4 => " (SPC-2)",
        5 => " (SPC-3)",
        6 => " (SPC-4)",
        7 => " (SPC-5)",
        _ => "",
    };
    vec![
        Field::new("device_type", inquiry.device_type.to_string()),
        Field::new("qualifier", inquiry.qualifier),
        Field::new("vendor", inquiry.vendor.trim()),
        Field::new("product", inquiry.product.trim()),
        Field::new("revision", inquiry.revision.trim()),
        Field::with_text("version", inquiry.version, format!("{}{standard}", inquiry.version)),
        Field::new("removable", inquiry.removable),
        Field::new("asymmetric_access", inquiry.target_port_group_support.to_string()),
        Field::new("third_party_copy", inquiry.third_party_copy),
        Field::new("protection_information", inquiry.protect),
        Field::new("command_queuing", inquiry.command_queuing),
    ]
}

fn supported(page: &SupportedPages) -> Vec<Field> {
    let pages: Vec<_> = page.pages.iter().map(|code| format!("{code:02x}")).collect();
    vec![Field::with_text("pages", pages.clone(), pages.join(" "))]
}

fn serial_number(page: UnitSerialNumber) -> Vec<Field> {
    vec![Field::new("serial_number", page.serial)]
}

fn identification(page: &DeviceIdentification) -> Vec<Field> {
    let names: Vec<_> = page.designators.iter().map(designator).collect();
    let lines = page.designators.iter().map(|name| {
        format!("{name} ({}, {})", kind(name.designator_type), association(name.association))
    });
    let lines: Vec<_> = lines.collect();
    let unit = page.logical_unit_name().map(ToString::to_string);
    vec![
        Field::new("logical_unit_name", unit),
        Field::with_text("designators", names, lines.join("\n")),
    ]
}

fn designator(name: &Designator) -> Value {
    json!({
        "name": name.to_string(),
        "association": association(name.association),
        "type": kind(name.designator_type),
        "code_set": match name.code_set {
            CodeSet::Binary => "binary",
            CodeSet::Ascii => "ascii",
            CodeSet::Utf8 => "utf-8",
            CodeSet::Reserved(_) => "reserved",
        },
        "bytes": hexadecimal(&name.bytes),
    })
}

const fn association(association: Association) -> &'static str {
    match association {
        Association::LogicalUnit => "logical unit",
        Association::TargetPort => "target port",
        Association::TargetDevice => "target device",
        Association::Reserved => "reserved",
    }
}

const fn kind(kind: DesignatorType) -> &'static str {
    match kind {
        DesignatorType::VendorSpecific => "vendor specific",
        DesignatorType::T10VendorId => "T10 vendor identification",
        DesignatorType::Eui64 => "EUI-64",
        DesignatorType::Naa => "NAA",
        DesignatorType::RelativeTargetPort => "relative target port",
        DesignatorType::TargetPortGroup => "target port group",
        DesignatorType::LogicalUnitGroup => "logical unit group",
        DesignatorType::Md5LogicalUnit => "MD5 logical unit identifier",
        DesignatorType::ScsiNameString => "SCSI name string",
        DesignatorType::ProtocolSpecificPort => "protocol specific port",
        DesignatorType::Uuid => "UUID",
        DesignatorType::Reserved(_) => "reserved",
    }
}

fn limits(page: &BlockLimits) -> Vec<Field> {
    let granularity = page.optimal_transfer_length_granularity.map(u64::from);
    vec![
        Field::blocks("maximum_transfer_length", page.maximum_transfer_length.map(u64::from)),
        Field::blocks("optimal_transfer_length", page.optimal_transfer_length.map(u64::from)),
        Field::blocks("optimal_transfer_length_granularity", granularity),
        Field::blocks(
            "maximum_compare_and_write_length",
            Some(page.maximum_compare_and_write_length.into()),
        ),
        Field::blocks("maximum_unmap_lba_count", Some(page.maximum_unmap_lba_count.into())),
        Field::new(
            "maximum_unmap_block_descriptor_count",
            page.maximum_unmap_block_descriptor_count,
        ),
        Field::blocks("optimal_unmap_granularity", page.optimal_unmap_granularity.map(u64::from)),
        Field::blocks(
            "unmap_granularity_alignment",
            page.unmap_granularity_alignment.map(u64::from),
        ),
        Field::blocks("maximum_write_same_length", page.maximum_write_same_length),
        Field::new("write_same_needs_length", page.write_same_needs_length),
    ]
}

fn characteristics(page: &BlockDeviceCharacteristics) -> Vec<Field> {
    let name = "medium_rotation_rate";
    let rate = match page.medium_rotation_rate {
        MediumRotationRate::NonRotating => Field::with_text(name, 0, "does not rotate"),
        MediumRotationRate::PerMinute(rate) => {
            Field::with_text(name, rate, format!("{rate} a minute"))
        }
        MediumRotationRate::NotReported | MediumRotationRate::Reserved(_) => {
            Field::new(name, Value::Null)
        }
    };
    let form_factor = Some(page.nominal_form_factor).filter(|code| *code > 0);
    vec![
        rate,
        Field::new("nominal_form_factor", form_factor),
        Field::new("force_unit_access_behavior", page.fuab),
        Field::new("zoned", page.zoned),
    ]
}

fn provisioning(page: &LogicalBlockProvisioning) -> Vec<Field> {
    let kind = match page.provisioning_type {
        ProvisioningType::Thin => Some("thin"),
        ProvisioningType::Resource => Some("resource"),
        ProvisioningType::NotReported | ProvisioningType::Reserved(_) => None,
    };
    vec![
        Field::new("provisioning_type", kind),
        Field::new("unmap", page.unmap),
        Field::new("write_same_16_unmaps", page.write_same_16),
        Field::new("write_same_10_unmaps", page.write_same_10),
        Field::new("unmapped_reads_zeros", page.unmapped_reads_zeros),
        Field::new("anchor", page.anchor),
        Field::new("threshold_exponent", page.threshold_exponent),
    ]
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

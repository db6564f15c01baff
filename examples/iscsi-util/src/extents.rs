//! Which parts of a unit hold data: GET LBA STATUS (SBC-3 §5.3).

use std::collections::BTreeMap;

use clap::Args;
use iscsi_initiator::device::{Extent, ExtentState};
use iscsi_initiator::tuning::Size;
use iscsi_initiator::{Disk, Error as InitiatorError, Session};
use serde_json::{Value, json};

use crate::connector::Connector;
use crate::error::Error;
use crate::report::Report;
use crate::table::Table;

/// The options of `extents`.
#[derive(Clone, Debug, Args)]
pub struct Extents {
    /// The unit: iscsi://host/target/lun.
    pub url: String,
    /// Where to begin, bytes; K, M, G and T are powers of 1024.
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub offset: Size,
    /// How far to look, bytes; without it to the end of the unit.
    #[arg(long, value_name = "SIZE")]
    pub length: Option<Size>,
}

/// What a unit says of a range.
#[derive(Debug)]
struct Answer {
    /// In order, without a gap; neighbours differ.
    extents: Vec<Extent>,
    /// The unit manages its provisioning, so that it can have blocks without data (LBPME).
    provisioning_management: bool,
}

impl Extents {
    /// Asks the unit.
    ///
    /// # Errors
    /// When it does not answer, is no disk, or ends before the range does.
    pub async fn run(&self, connector: &Connector) -> Result<Report, Error> {
        let work = async |session: &Session, _: &_| {
            let disk = connector.unless(session.disk()).await??;
            // Boxed, since the questions take much room.
            connector.unless(Box::pin(self.ask(&disk))).await?
        };
        let answer = connector.session(&self.url, work).await?;
        Ok(answer.report())
    }

    async fn ask(&self, disk: &Disk) -> Result<Answer, Error> {
        let rest = disk.capacity().saturating_sub(self.offset.0);
        let len = self.length.map_or(rest, |length| length.0);
        let mut extents = disk.extents(self.offset.0, len).await?;
        // The unit may tell less than was asked.
        let end = self.offset.0.saturating_add(len);
        while let Some(last) = extents.last_mut()
            && last.end() < end
        {
            let start = last.end();
            let mut more = disk.extents(start, end - start).await?.into_iter().peekable();
            if more.peek().is_none_or(|next| next.len == 0) {
                return Err(InitiatorError::Unsupported("GET LBA STATUS").into());
            }
            if let Some(next) = more.next_if(|next| next.state == last.state) {
                last.len += next.len;
            }
            extents.extend(more);
        }
        let provisioning_management = disk.profile().capacity.provisioning_management;
        Ok(Answer { extents, provisioning_management })
    }
}

impl Answer {
    fn report(&self) -> Report {
        let mut sums = BTreeMap::from(STATES.map(|state| (name(state), 0)));
        for extent in &self.extents {
            *sums.entry(name(extent.state)).or_default() += extent.len;
        }
        let mut table = Table::default();
        for extent in &self.extents {
            let cells = [extent.offset.to_string(), extent.len.to_string()];
            table.push(cells.into_iter().chain([name(extent.state).to_owned()]));
        }
        let total: Vec<_> = sums
            .iter()
            .filter(|(_, len)| **len > 0)
            .map(|(name, len)| format!("{} {name}", Size(*len)))
            .collect();
        let mut text = format!("{table}total: {}\n", total.join(", "));
        if !self.provisioning_management {
            text.push_str("the unit does not say which of its blocks hold data\n");
        }
        let members = json!({
            "extents": self.extents.iter().map(extent).collect::<Vec<_>>(),
            "bytes": sums,
            "provisioning_management": self.provisioning_management,
        });
        Report::new(text, members)
    }
}

fn extent(extent: &Extent) -> Value {
    json!({ "offset": extent.offset, "length": extent.len, "state": name(extent.state) })
}

const STATES: [ExtentState; 4] =
    [ExtentState::Data, ExtentState::Deallocated, ExtentState::Anchored, ExtentState::Unknown];

const fn name(state: ExtentState) -> &'static str {
    match state {
        ExtentState::Data => "data",
        ExtentState::Deallocated => "deallocated",
        ExtentState::Anchored => "anchored",
        ExtentState::Unknown | _ => "unknown",
    }
}

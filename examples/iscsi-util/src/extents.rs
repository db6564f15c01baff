//! Lists the parts of a unit that hold data: GET LBA STATUS (SBC-3 §5.3).

use std::collections::BTreeMap;

use clap::Args;
use iscsi_examples_common::amounts::parse_length;
use iscsi_examples_common::help::heading;
use iscsi_initiator::device::{Extent, ExtentState};
use iscsi_initiator::{Disk, Session};
use iscsi_tuner::Size;
use serde_json::{Value, json};

use crate::connector::Connector;
use crate::error::Error;
use crate::report::Report;
use crate::table::Table;

/// The options of `extents`.
#[derive(Clone, Debug, Args)]
pub struct Extents {
    /// Unit: iscsi://HOST/TARGET/LUN.
    pub url: String,
    /// First byte of the range.
    ///
    /// K, M, G and T are powers of 1024.
    #[arg(long, value_name = "SIZE", default_value = "0", help_heading = heading::RANGE)]
    pub offset: Size,
    /// Bytes of the range [default: up to the end of the unit].
    #[arg(long, value_name = "SIZE", value_parser = parse_length, help_heading = heading::RANGE)]
    pub length: Option<Size>,
    /// Most extents to list.
    ///
    /// A unit may have one for each of its blocks.
    #[arg(long, value_name = "N", default_value_t = 65_536, help_heading = heading::RANGE)]
    pub max: usize,
}

/// Report of a unit about the extents of a range.
#[derive(Debug, Default)]
struct Answer {
    /// The extents, in order and without a gap. Adjacent extents differ in state.
    extents: Vec<Extent>,
    /// Whether the unit manages its provisioning, so that blocks can be without data (LBPME).
    provisioning_management: bool,
}

impl Extents {
    /// Requests the extents from the unit.
    ///
    /// # Errors
    /// If there is no such unit. An error after the first extent is in the report.
    pub async fn run(&self, connector: &Connector) -> Result<Report, Error> {
        let work = async |session: &Session, _: &_| {
            let disk = connector.unless(session.disk_without_reconnect()).await??;
            let mut answer = Answer::default();
            // Boxed, because the future is large.
            let end = connector.unless(Box::pin(self.ask(&disk, &mut answer))).await;
            match end.flatten().err() {
                // The range is not on the unit, or the unit has not returned any extent.
                Some(error) if answer.extents.is_empty() => Err(error),
                end => Ok(answer.report().ending(end)),
            }
        };
        connector.session(&self.url, work).await
    }

    async fn ask(&self, disk: &Disk, answer: &mut Answer) -> Result<(), Error> {
        answer.provisioning_management = disk.profile().capacity.provisioning_management;
        Error::check_range(self.offset, self.length, disk)?;
        let rest = disk.capacity().saturating_sub(self.offset.0);
        let len = self.length.map_or(rest, |length| length.0);
        let (mut at, end) = (self.offset.0, self.offset.0.saturating_add(len));
        let mut told = 0;
        // A response may cover only the beginning of the requested range, so repeat the request for the rest.
        loop {
            let more = disk.extents(at, end.saturating_sub(at).min(len)).await?;
            told += more.len();
            at = more.last().map_or(end, Extent::end);
            answer.put(more);
            if at >= end {
                return Ok(());
            }
            if told >= self.max {
                return Err(Error::MoreExtents { told: self.max, next: at });
            }
        }
    }
}

impl Answer {
    /// Adds the extents that follow the previous ones. Adjacent extents of the same state are merged.
    fn put(&mut self, more: Vec<Extent>) {
        for next in more {
            match self.extents.last_mut() {
                Some(last) if last.state == next.state => last.len += next.len,
                _ => self.extents.push(next),
            }
        }
    }

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

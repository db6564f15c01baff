//! Measures how fast a unit can be read, or written.

mod load;
mod measured;

use std::time::Duration;

use clap::Args;
use iscsi_examples_common::help::heading;
use iscsi_examples_common::program::ProgramError;
use iscsi_initiator::{Disk, ErrorKind, Options, Sessions, Timeouts};
use iscsi_tuner::{Size, SizeError};
use serde_json::json;
use tokio::time::{Instant, timeout};

use self::load::{Load, Places};
use self::measured::Measured;
use crate::connector::{self, Connector};
use crate::error::Error;
use crate::report::Report;
use crate::table::Table;

const MIN_SIZE: Size = Size(512);
const MAX_SIZE: Size = Size(64 << 20);
/// Maximum number of bytes in flight.
const MAX_IN_FLIGHT: Size = Size(1 << 30);
/// Upper limit: more sessions would crowd out the other clients of the target.
const MAX_SESSIONS: i64 = 64;
/// Time limit of a request. On a slow link a request waits for all requests that were submitted before it.
/// Whether the target is alive is known much sooner from pings.
const COMMAND: Duration = Duration::from_secs(300);
/// Time limit of the logout after reads, when no data can be lost.
const LOGOUT: Duration = Duration::from_secs(3);

/// The options of `perf`.
#[derive(Clone, Debug, Args)]
pub struct Perf {
    /// Unit: iscsi://HOST/TARGET/LUN.
    pub url: String,
    /// Write; the data of the unit are lost.
    ///
    /// Needs --yes.
    #[arg(long, help_heading = heading::MEASUREMENT)]
    pub write: bool,
    /// Access random places, not one after the other.
    #[arg(long, help_heading = heading::MEASUREMENT)]
    pub random: bool,
    /// Bytes of a request, 512 to 64M.
    ///
    /// Whole blocks of the unit; K and M are powers of 1024.
    #[arg(long, value_name = "SIZE", default_value = "4k", value_parser = parse_size, help_heading = heading::MEASUREMENT)]
    pub size: Size,
    /// Concurrent requests, 1 to 1024.
    ///
    /// Together at most 1 GiB.
    #[arg(long, value_name = "N", default_value_t = 32,
          value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = heading::MEASUREMENT)]
    pub depth: u32,
    /// Seconds to go on, 1 to 3600.
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..=3600), help_heading = heading::MEASUREMENT)]
    pub seconds: u64,
    /// Sessions with the unit, 1 to 64.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=MAX_SESSIONS), help_heading = heading::LINK)]
    pub sessions: u32,
    /// Agree that the data of the unit are lost.
    ///
    /// Without it nothing is written.
    #[arg(long, help_heading = heading::CONFIRMATION)]
    pub yes: bool,
}

impl Perf {
    /// Reads or writes until the given time is over.
    ///
    /// # Errors
    /// Without the user's consent to write; if there is no such unit, or it does not fit the options. An error
    /// during the measurement is in the report.
    pub async fn run(&self, connector: &Connector) -> Result<Report, Error> {
        connector::parse(&self.url)?;
        self.check()?;
        let url = connector.url(&self.url).await?;
        let default = Options::default();
        let bytes = default.max_bytes_in_flight().max(self.bytes_in_flight());
        let options = default
            .with_timeouts(Timeouts::default().with_command(Some(COMMAND)))
            .with_sessions(Sessions::Fixed(self.sessions))
            .with_max_bytes_in_flight(bytes);
        let initiator = connector.initiator(options)?;
        let disk = connector.unless(initiator.disk(&url)).await??;
        let result = self.measure(connector, &disk).await;
        connector.portals.of(&disk);
        let end = self.close(connector, &disk).await;
        let (measured, error) = result?;
        Ok(self.report(&measured).ending(error.or(end)))
    }

    /// Checks that the options fit together.
    fn check(&self) -> Result<(), Error> {
        if self.write && !self.yes {
            let why = "writing destroys what the unit holds; add --yes if that is meant";
            return Err(ProgramError::usage(why).into());
        }
        if self.bytes_in_flight() > MAX_IN_FLIGHT.as_usize() {
            return Err(ProgramError::usage(format!(
                "{} requests of {} are more than {MAX_IN_FLIGHT}; choose a smaller --depth or --size",
                self.depth, self.size
            )).into());
        }
        Ok(())
    }

    fn bytes_in_flight(&self) -> usize {
        self.size.as_usize().saturating_mul(self.depth as usize)
    }

    /// Returns the offsets of the requests, which cover the whole unit.
    fn places(&self, disk: &Disk) -> Result<Places, Error> {
        let block_size = u64::from(disk.block_size());
        if !self.size.0.is_multiple_of(block_size) {
            return Err(ProgramError::usage(format!(
                "the unit has blocks of {block_size} bytes; choose a --size of whole blocks"
            ))
            .into());
        }
        let places = Places::new(disk.capacity() / self.size.0, self.size.0, self.random);
        places.ok_or_else(|| {
            let capacity = Size(disk.capacity());
            ProgramError::usage(format!("the unit holds {capacity}; choose a smaller --size"))
                .into()
        })
    }

    async fn measure(
        &self,
        connector: &Connector,
        disk: &Disk,
    ) -> Result<(Measured, Option<Error>), Error> {
        if self.write {
            disk.check_writable()?;
        }
        let places = self.places(disk)?;
        let load = Load { places, size: self.size.as_usize(), write: self.write };
        let before = disk.stats();
        let start = Instant::now();
        let deadline = start + Duration::from_secs(self.seconds);
        let mut error = load.run(disk, self.depth, deadline, &connector.stop).await.err();
        let time = start.elapsed();
        let mut flush = None;
        if self.write && error.is_none() {
            let start = Instant::now();
            error = match connector.stop.hurry(disk.flush()).await {
                Some(result) => result.map_err(Error::from).err(),
                None => Some(Error::Abandoned("a flush")),
            };
            flush = error.is_none().then(|| start.elapsed());
        }
        let requests = disk.stats().since(&before).requests;
        let requests = if self.write { requests.writes } else { requests.reads };
        let status = disk.status();
        let measured =
            Measured { time, requests, flush, retries: disk.retries(), sessions: status.peak };
        let stopped = connector.stop.is_requested().then(|| ProgramError::Interrupted.into());
        Ok((measured, error.or(stopped)))
    }

    /// Logs out. Returns the error if the target may still execute a write.
    async fn close(&self, connector: &Connector, disk: &Disk) -> Option<Error> {
        if self.write {
            let goodbye = connector.stop.hurry(disk.logout()).await;
            return goodbye.map_or(Some(Error::Abandoned("writes")), |result| {
                result.err().filter(|error| error.kind() == ErrorKind::Unsettled).map(Error::from)
            });
        }
        drop(connector.stop.hurry(timeout(LOGOUT, disk.logout())).await);
        None
    }

    fn report(&self, measured: &Measured) -> Report {
        let direction = if self.write { "write" } else { "read" };
        let pattern = if self.random { "random" } else { "sequential" };
        let mut table = Table::default();
        let how = format!("{direction}, {pattern}, {} each, {} in flight", self.size, self.depth);
        table.push(["load", &how]);
        measured.add_rows(&mut table);
        let mut report = Report::new(table.to_string(), measured.to_json());
        report.members.extend([
            ("direction".to_owned(), json!(direction)),
            ("pattern".to_owned(), json!(pattern)),
            ("io_size_bytes".to_owned(), json!(self.size.0)),
            ("queue_depth".to_owned(), json!(self.depth)),
        ]);
        report
    }
}

fn parse_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse().map_err(|error: SizeError| error.to_string())?;
    let fits = (MIN_SIZE..=MAX_SIZE).contains(&size);
    fits.then_some(size).ok_or_else(|| format!("it must lie between {MIN_SIZE} and {MAX_SIZE}"))
}

//! Runs an examination from beginning to end: connects, pings, reads, calculates and closes.

use std::ffi::OsStr;
use std::time::Duration;

use iscsi_examples_common::boxed::{BoxFuture, boxed};
use iscsi_examples_common::program::ProgramError;
use iscsi_examples_common::{place, volume};
use iscsi_initiator::{Disk, Initiator, Negotiated, Options, Reading, Session, Timeouts, Url};
use tokio::time::timeout;

use crate::agreed::Agreed;
use crate::args::{Args, Depth};
use crate::error::Error;
use crate::facts::LinkFacts;
use crate::lio::PortalGroup;
use crate::path::Path;
use crate::ping;
use crate::progress;
use crate::read_test::{ReadTest, Workload};
use crate::report::{Report, Who};
use crate::stop::Stop;
use crate::unit::Unit;
use crate::verdict::Reads;
use crate::writes::{Question, Writes};

/// Time limit of a read. On a slow link a read waits for all reads that were submitted before it. Whether the
/// target is alive is known much sooner from pings.
const COMMAND: Duration = Duration::from_secs(300);
/// Time limit of a logout. It is short, because no data can be lost.
const LOGOUT: Duration = Duration::from_secs(3);
/// Bytes of the longest read in any plan.
const MAX_READ: usize = 4 << 20;

/// Examines the link to the target that the arguments name.
///
/// # Errors
/// If there is no session to examine. If the examination fails later, the report has the measurements before
/// the failure, and the error in [`Report::end`].
pub fn run<'a>(args: &'a Args, stop: &'a Stop) -> BoxFuture<'a, Result<Report, Error>> {
    boxed(async move {
        if volume::path(OsStr::new(&args.url)).is_some() {
            return Err(Error::Volume);
        }
        let mut url = Url::parse(&args.url).map_err(iscsi_initiator::Error::from)?;
        let given = stop.unless(args.passwords.apply(vec![&mut url])).await;
        given.ok_or(ProgramError::Interrupted)?.map_err(ProgramError::from)?;
        let initiator = initiator(args)?;
        progress::connecting(&url);
        let connect = stop.unless(initiator.connect(&url)).await;
        let session = connect.ok_or(ProgramError::Interrupted)??;
        let report = Examination::new(args, &session, stop).report(&initiator, &url).await;
        close(&session, stop).await;
        report
    })
}

/// Logs out. Nothing was written, so a failed logout does no harm.
async fn close(session: &Session, stop: &Stop) {
    drop(stop.hurry(timeout(LOGOUT, session.logout())).await);
}

fn initiator(args: &Args) -> Result<Initiator, Error> {
    let mut options = Options::default()
        .with_timeouts(Timeouts::default().with_command(Some(COMMAND)))
        .with_tuning(args.tuning())
        .with_open_timeout(args.wait.unwrap_or_default());
    if let Depth::Fixed(depth) = args.depth {
        let wanted = MAX_READ.saturating_mul(depth as usize);
        let bytes = options.max_bytes_in_flight().max(wanted);
        options = options.with_max_bytes_in_flight(bytes);
    }
    Ok(place::initiator(args.initiator_name.as_deref(), options)?)
}

/// An examination of a session.
#[derive(Debug)]
struct Examination<'a> {
    args: &'a Args,
    session: &'a Session,
    stop: &'a Stop,
    /// The first error of the examination.
    end: Option<Error>,
}

impl<'a> Examination<'a> {
    fn new(args: &'a Args, session: &'a Session, stop: &'a Stop) -> Self {
        Self { args, session, stop, end: None }
    }

    /// Examines the link. If packets of full length do not arrive, everything after the pings uses a new
    /// session with shorter packets.
    async fn report(mut self, initiator: &Initiator, url: &Url) -> Result<Report, Error> {
        let begun =
            self.stop.hurry(self.session.reading()).await.ok_or(ProgramError::Interrupted)??;
        let pings = self.pings().await;
        let path = self.path(initiator, url).await;
        let again = match path.limit() {
            Some(_) => Some(self.connect_again(initiator, url).await?),
            None => None,
        };
        let with_data = Examination { session: again.as_ref().unwrap_or(self.session), ..self };
        let report = with_data.report_with_data(initiator, url, begun, pings, path).await;
        if let Some(session) = again {
            close(&session, self.stop).await;
        }
        report
    }

    async fn report_with_data(
        mut self,
        initiator: &Initiator,
        url: &Url,
        begun: Reading,
        pings: Vec<Duration>,
        path: Path,
    ) -> Result<Report, Error> {
        let first = match self.stop.hurry(self.session.reading()).await {
            Some(Ok(reading)) => reading,
            // The session has ended, so the report has the reading from the beginning.
            Some(Err(error)) => {
                self.end.get_or_insert(Error::Link(error));
                begun
            }
            None => begun,
        };
        let disk = if url.lun.is_some() { self.disk().await } else { None };
        let read = match &disk {
            Some(disk) => self.read(disk, &first).await,
            None => None,
        };
        let last = read.as_ref().map_or(&first, |read| &read.readings.1);
        let facts = LinkFacts::from(last);
        let tcp = first.measurement().rtt;
        let ping = pings.iter().min().copied();
        let reads = read.as_ref();
        let reads = reads.and_then(|test| Reads::of(test, &facts, tcp.map(|rtt| rtt.min), ping));
        let negotiated = self.session.negotiated();
        if self.stop.is_requested() {
            self.end = Some(ProgramError::Interrupted.into());
        }
        Ok(Report {
            who: self.who(initiator, url, &negotiated),
            agreed: Agreed::new(&negotiated, window_of(&first)),
            unit: disk.as_ref().map(Unit::of),
            is_unit_named: url.lun.is_some(),
            writes: self.writes(&facts, &negotiated, ping, reads),
            facts,
            path,
            tcp,
            pings,
            read,
            reads,
            end: self.end,
        })
    }

    async fn pings(&mut self) -> Vec<Duration> {
        progress::pinging();
        let (samples, error) = ping::idle(self.session, self.stop).await;
        self.end = error.map(Error::Link);
        samples
    }

    /// Checks whether packets of full length arrive, in both directions between this host and the portal.
    async fn path(&mut self, initiator: &Initiator, url: &Url) -> Path {
        if self.end.is_some() {
            return Path::NotTried("pings without data are not answered".to_owned());
        }
        progress::trying_path();
        let mut there = url.clone();
        if let Some(portal) = self.session.portal() {
            there.portal = portal.clone();
        }
        match self.stop.unless(initiator.check_path(there)).await {
            Some(Ok(check)) => Path::Tried(check),
            Some(Err(error)) => Path::NotTried(error.to_string()),
            None => Path::NotTried(ProgramError::Interrupted.to_string()),
        }
    }

    async fn connect_again(&self, initiator: &Initiator, url: &Url) -> Result<Session, Error> {
        let session = self.stop.unless(initiator.connect(url)).await;
        Ok(session.ok_or(ProgramError::Interrupted)??)
    }

    async fn disk(&mut self) -> Option<Disk> {
        if self.end.is_some() {
            return None;
        }
        match self.stop.unless(self.session.disk_without_reconnect()).await? {
            Ok(disk) => Some(disk),
            Err(error) => {
                self.end = Some(Error::Unit(error));
                None
            }
        }
    }

    async fn read(&mut self, disk: &Disk, reading: &Reading) -> Option<ReadTest> {
        let workload = Workload::new(reading.plan(), self.args.depth, window_of(reading), disk);
        let Some(workload) = workload else {
            self.end = Some(Error::Empty);
            return None;
        };
        progress::reading_begins(self.args.seconds);
        let time = Duration::from_secs(self.args.seconds);
        let (test, error) = match ReadTest::run(self.session, disk, workload, time, self.stop).await
        {
            Ok((test, error)) => (Some(test), error),
            Err(error) => (None, Some(error)),
        };
        self.end = error.map(Error::Read);
        test
    }

    fn who(&self, initiator: &Initiator, url: &Url, negotiated: &Negotiated) -> Who {
        let mut portal = url.clone();
        (portal.target, portal.lun) = (None, None);
        let named = portal.to_string();
        if let Some(address) = self.session.portal() {
            portal.portal = address.clone();
        }
        let portal = portal.to_string();
        Who {
            target: self.session.target().map(ToString::to_string).unwrap_or_default(),
            alias: negotiated.target_alias.clone(),
            redirected_from: (portal != named).then_some(named),
            portal,
            initiator: initiator.name().to_string(),
        }
    }

    fn writes(
        &self,
        facts: &LinkFacts,
        negotiated: &Negotiated,
        ping: Option<Duration>,
        reads: Option<Reads>,
    ) -> Writes {
        let plan = &facts.plan;
        let depth = match self.args.depth {
            Depth::Fixed(depth) => depth,
            Depth::Auto => plan.queue_depth.value,
        };
        let target = self.session.target().map(ToString::to_string).unwrap_or_default();
        Writes::new(&Question {
            facts,
            negotiated,
            terms: facts.measurement.terms.unwrap_or_default(),
            workload: (plan.io_size.value, depth),
            answer: ping,
            full_rate: reads.and_then(|reads| reads.full_rate(&plan.link)),
            portal_group: PortalGroup::new(target, negotiated.target_portal_group_tag),
        })
    }
}

/// Returns the number of commands that the target accepts, if it has reported one.
fn window_of(reading: &Reading) -> Option<u32> {
    reading.measurement().terms.and_then(|terms| terms.window)
}

//! Runs the command that the command line names.

use crate::args::{Args, Command};
use crate::connector::{Connector, Portals};
use crate::error::Error;
use crate::report::Report;
use crate::stop::Stop;
use iscsi_examples_common::boxed::{BoxFuture, boxed};

/// Runs the command.
///
/// # Errors
/// If the command has no result at all. If the command fails later, its partial result is returned, with the
/// error in [`Report::end`].
pub fn run<'a>(args: &'a Args, stop: &'a Stop) -> BoxFuture<'a, Result<Report, Error>> {
    boxed(async move {
        let connector = Connector {
            initiator_name: args.initiator_name.clone(),
            passwords: args.passwords.clone(),
            wait: args.wait.unwrap_or_default(),
            portals: Portals::default(),
            stop: stop.clone(),
        };
        let mut report = answer(args, &connector).await?;
        report.members.insert("portals".to_owned(), connector.portals.all().into());
        Ok(report)
    })
}

fn answer<'a>(args: &'a Args, connector: &'a Connector) -> BoxFuture<'a, Result<Report, Error>> {
    boxed(async move {
        match &args.command {
            Command::Discover(discover) => discover.run(connector).await,
            Command::Luns(luns) => luns.run(connector).await,
            Command::Inquiry(inquiry) => inquiry.run(connector).await,
            Command::Capacity(capacity) => capacity.run(connector).await,
            Command::Extents(extents) => extents.run(connector).await,
            Command::Discard(discard) => discard.run(connector).await,
            Command::Ping(ping) => ping.run(connector).await,
            Command::Perf(perf) => perf.run(connector).await,
            Command::Reservations(reservations) => reservations.run(connector).await,
            Command::Register(register) => register.run(connector).await,
            Command::Reserve(reserve) => reserve.reserve(connector).await,
            Command::Release(reserve) => reserve.release(connector).await,
            Command::Preempt(preempt) => preempt.run(connector).await,
            Command::Clear(clear) => clear.run(connector).await,
            Command::PortGroups(groups) => groups.run(connector).await,
            Command::SetPortGroup(group) => group.run(connector).await,
            Command::Volume(volume) => Box::pin(volume.run(connector)).await,
        }
    })
}

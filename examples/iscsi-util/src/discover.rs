//! Lists the targets of a portal: SendTargets (RFC 7143 appendix C).

use clap::Args;
use iscsi_initiator::{DiscoveredTarget, Options, TargetAddress, Url};
use serde_json::{Value, json};

use crate::connector::Connector;
use crate::error::Error;
use crate::report::Report;

/// The options of `discover`.
#[derive(Clone, Debug, Args)]
pub struct Discover {
    /// Portal: iscsi://HOST:PORT.
    ///
    /// A target and a unit in the URL are ignored.
    pub url: String,
}

impl Discover {
    /// Requests the list of targets from the portal.
    ///
    /// # Errors
    /// If the portal does not respond, or its response is invalid.
    pub async fn run(&self, connector: &Connector) -> Result<Report, Error> {
        let url = connector.url(&self.url).await?;
        let initiator = connector.initiator(Options::default())?;
        let targets = connector.unless(initiator.discover(&url)).await??;
        let members = json!({ "targets": targets.iter().map(target).collect::<Vec<_>>() });
        Ok(Report::new(text(&targets), members))
    }
}

fn text(targets: &[DiscoveredTarget]) -> String {
    if targets.is_empty() {
        return "no targets\n".to_owned();
    }
    let lines = targets.iter().flat_map(|target| {
        let portals = target.portals().iter().zip(target.urls()).map(|(portal, url)| {
            let group = portal.portal_group_tag.filter(|_| !target.addresses.is_empty());
            let group = group.map(|tag| format!("  portal group {tag}")).unwrap_or_default();
            format!("  {url}{group}\n")
        });
        [format!("{}\n", target.name)].into_iter().chain(portals).collect::<Vec<_>>()
    });
    lines.collect()
}

fn target(target: &DiscoveredTarget) -> Value {
    json!({
        "name": target.name.to_string(),
        "portals": target.addresses.iter().map(portal).collect::<Vec<_>>(),
        "urls": target.urls().iter().map(Url::to_string).collect::<Vec<_>>(),
    })
}

fn portal(address: &TargetAddress) -> Value {
    json!({
        "host": address.host,
        "port": address.port,
        "portal_group_tag": address.portal_group_tag,
    })
}

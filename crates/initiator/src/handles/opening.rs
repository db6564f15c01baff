//! Waits for a target that is not available yet:
//! [`Options::with_open_timeout`](crate::Options::with_open_timeout).

use std::time::Duration;

use iscsi_multipath::reconnect::{CredentialTries, Outlook};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::boxed::{BoxFuture, boxed};
use crate::error::Error;
use crate::handles::disk::Disk;
use crate::handles::disk::open::open;
use crate::session::Session;
use crate::session::discovered_target::DiscoveredTarget;
use crate::session::node::Node;
use crate::url::{Url, portal_name};

/// Opens a session with the target of a URL, as soon as the target is available.
pub(super) fn connect(node: &Node, url: Url) -> BoxFuture<'_, Result<Session, Error>> {
    boxed(async move { patiently(node, &url, || node.connect(&url)).await })
}

/// Opens the disk of a URL, as soon as the disk is available.
pub(super) fn disk(node: &Node, url: Url) -> BoxFuture<'_, Result<Disk, Error>> {
    boxed(async move { patiently(node, &url, || open(node, url.clone())).await })
}

/// Returns the targets that the portal of a URL reports, as soon as the portal responds.
pub(super) fn discover(
    node: &Node,
    url: Url,
) -> BoxFuture<'_, Result<Vec<DiscoveredTarget>, Error>> {
    boxed(async move {
        let found = patiently(node, &url, || node.discover(url.clone(), None)).await?;
        Ok(DiscoveredTarget::all(found.targets, &url.portal, url.tls.as_ref()))
    })
}

/// Repeats an attempt to open what a URL names, until it succeeds, the open timeout ends, or waiting cannot
/// help. An attempt that is running when the timeout ends is completed.
///
/// # Errors
/// The error of the last attempt.
async fn patiently<'a, T>(
    node: &Node,
    url: &Url,
    mut attempt: impl FnMut() -> BoxFuture<'a, Result<T, Error>>,
) -> Result<T, Error> {
    let options = node.options();
    let of_url = url.parameters.open_timeout.map(|s| Duration::from_secs(s.into()));
    let patience = of_url.unwrap_or(options.waits.open_timeout);
    let mut back_off = options.advanced.reconnect_back_off(node.entropy());
    let mut credentials = CredentialTries::within(patience);
    let begun = Instant::now();
    let mut is_waiting = false;
    loop {
        let error = match attempt().await {
            Err(error) if !patience.is_zero() => error,
            result => return result,
        };
        let least = match error.outlook_of_opening() {
            Outlook::MayPass => Some(Duration::ZERO),
            Outlook::LoginAccepted => {
                // Only refusals in a row count, so an accepted login starts the count again.
                credentials = CredentialTries::within(patience);
                Some(Duration::ZERO)
            }
            Outlook::Credentials => credentials.refused(),
            Outlook::OtherPortal | Outlook::Never => None,
        };
        let Some(least) = least else { return Err(error) };
        let left = patience.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Err(error);
        }
        // The last attempt begins when the time limit ends.
        let pause = back_off.next_pause().max(least).min(left);
        let portal = portal_name(&url.portal);
        if is_waiting {
            info!(%portal, %error, "the target is not there yet");
        } else {
            let seconds = patience.as_secs();
            warn!(%portal, %error, "the target is not there yet; trying again for {seconds} s");
        }
        is_waiting = true;
        sleep(pause).await;
    }
}

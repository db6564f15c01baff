//! Options for the controller that runs the program, such as a Job of Kubernetes.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use iscsi_examples_common::help::heading;
use iscsi_examples_common::metrics::MetricsArgs;
use iscsi_examples_common::time;

use crate::metrics::ProgressName;

/// Time that a pod of Kubernetes has to end, unless its specification says otherwise.
pub(crate) const GRACE: Duration = Duration::from_secs(30);

/// Options for a controller: metrics, the result in a file, and the time to end.
#[derive(Clone, Debug, Args)]
#[group(skip)]
pub struct ControllerArgs {
    /// Where metrics are served.
    #[command(flatten)]
    pub metrics: MetricsArgs,
    /// Name of the progress in per cent: NAME{LABEL="VALUE"}.
    ///
    /// Controllers search the page of --metrics for a name of their own, as
    /// `openstack_populator_progress{ownerUID="..."}`. The number rises to 100, which stays during the verification.
    #[arg(long, value_name = "NAME", requires = "metrics", help_heading = heading::OUTPUT)]
    pub metrics_progress: Option<ProgressName>,
    /// Write the result to this file at the end, as one JSON object.
    ///
    /// At most 4096 bytes, as /dev/termination-log of a container may have.
    #[arg(long, value_name = "FILE", help_heading = heading::OUTPUT)]
    pub termination_log: Option<PathBuf>,
    /// How long the end may take after SIGTERM.
    ///
    /// `10s`, `5min`. Requests in flight are completed and flushed, and the checkpoint is written, within this time. The last
    /// steps may take five seconds, so a shorter time is not kept. After SIGINT and SIGHUP the program takes about three
    /// seconds.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time::parse, help_heading = heading::OUTPUT)]
    pub grace: Duration,
}

impl Default for ControllerArgs {
    fn default() -> Self {
        let metrics = MetricsArgs::default();
        Self { metrics, metrics_progress: None, termination_log: None, grace: GRACE }
    }
}

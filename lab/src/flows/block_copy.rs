//! Runs the flows of block-copy: one process with a job file, which receives commands over its control socket.

use std::fmt::Write;
use std::fs;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::portals::url;
use crate::error::Error;
use crate::peers::{Bench, block_copy};
use crate::process::Group;
use crate::result::Outcome;
use crate::scenario::{Deed, Direction, Flows};

/// Files in the lab's own folder.
const JOBS: &str = "/run/lab-jobs.toml";
const CONTROL: &str = "/run/lab-control";
const END: Duration = Duration::from_secs(10);

/// The running copies: one block-copy process.
pub(super) struct Copies(Group);

impl Copies {
    pub(super) async fn start(flows: &Flows, bench: &Bench) -> Result<Self, Outcome> {
        let failed = |error: Error| Outcome::Failed(error.to_string());
        fs::write(JOBS, job_file(flows, bench))
            .map_err(|cause| failed(Error::File { path: JOBS.into(), cause }))?;
        let mut command = block_copy(&bench.tree)?;
        command.args(["--jobs", JOBS, "--control", CONTROL, "--progress", "none"]);
        command.stdout(Stdio::null()).stderr(Stdio::inherit());
        Group::start(&mut command).map(Self).map_err(failed)
    }

    pub(super) async fn obey(&self, deed: &Deed) -> Result<(), Error> {
        let order = match deed {
            Deed::Rate(rate) => format!("rate {rate}\n"),
            Deed::Pause(flow) => format!("pause {flow}\n"),
            Deed::Resume(flow) => format!("resume {flow}\n"),
        };
        let mut stream = UnixStream::connect(CONTROL).await?;
        stream.write_all(order.as_bytes()).await?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).await?;
        if answer.contains("\"error\":null") {
            return Ok(());
        }
        Err(Error::Tool { program: format!("block-copy: {}", order.trim_end()), message: answer })
    }

    pub(super) async fn end(mut self) {
        self.0.ask_to_end();
        // A process that does not end in time is killed when the group is dropped.
        let _ended = timeout(END, self.0.child.wait()).await;
    }
}

/// Returns the job file of block-copy, with the classes and jobs of the flows.
fn job_file(flows: &Flows, bench: &Bench) -> String {
    let mut text = format!("rate = {:?}\n", flows.rate);
    for (index, flow) in flows.flows.iter().enumerate() {
        let name = &flow.name;
        let image = bench.image.display().to_string();
        let (source, destination) = match flows.direction {
            Direction::Write => (image, url(index)),
            Direction::Read => (url(index), "/dev/null".to_owned()),
        };
        if let Some(share) = &flow.share {
            // Writing to a string cannot fail.
            let _ =
                writeln!(text, "[class.{name}]\nrate = {:?}\nceil = {:?}", share.rate, share.ceil);
        }
        let _ = writeln!(
            text,
            "[[job]]\nname = {name:?}\nsource = {source:?}\ndestination = {destination:?}"
        );
        if flow.share.is_some() {
            let _ = writeln!(text, "class = {name:?}");
        }
    }
    text
}

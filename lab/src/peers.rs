//! Runs the programs that are measured, and parses their output.

mod bench;
mod block_copy;
mod block_serve;
mod end;
mod iperf3;
mod libiscsi;
pub mod multipath;
pub mod open_iscsi;
mod qemu_img;
mod reading;

use tokio::process::Command;

use crate::result::Outcome;
use crate::scenario::{Direction, Measure, Point, Who};
use crate::testbed::{Testbed, traffic, url};

pub use bench::Bench;
pub use block_copy::command as block_copy;
pub(crate) use block_copy::report as block_copy_report;
pub use block_serve::Server;
pub(crate) use end::{garbled, missing, not_started};
pub use reading::Reading;

use end::to_end;

/// Measures one point.
///
/// # Errors
/// An [`Outcome`] other than [`Outcome::Complete`].
pub async fn measure(point: &Point, bench: &Bench, testbed: &Testbed) -> Result<Reading, Outcome> {
    let before = traffic(point.measure.lun);
    let reading = match point.measure.who {
        Who::BlockCopy => block_copy::measure(point, bench).await,
        Who::Iperf3 => return iperf3::measure(point).await,
        Who::Libiscsi => libiscsi::measure(point).await,
        Who::QemuImg => qemu_img::measure(point, bench).await,
        Who::OpenIscsi => open_iscsi::measure(point, bench, testbed).await,
        Who::Program => return measure_program(point, bench).await,
    }?;
    let after = traffic(point.measure.lun);
    // Holes need not be transferred, so the target's count may be lower. There, the unit's bytes are compared
    // instead.
    if !point.measure.is_thin() {
        came_through(point, before, after)?;
    }
    Ok(reading)
}

/// Runs any other program.
async fn measure_program(point: &Point, bench: &Bench) -> Result<Reading, Outcome> {
    let url = url(point.measure.lun);
    let fill = |word: &String| {
        word.replace("{url}", &url)
            .replace("{image}", &bench.image.to_string_lossy())
            .replace("{bytes}", &point.bytes.to_string())
    };
    let words: Vec<_> = point.measure.program.iter().chain(&point.measure.args).map(fill).collect();
    let Some((program, arguments)) = words.split_first() else {
        return Err(Outcome::Skipped("no program is named".to_owned()));
    };
    let mut command = Command::new(program);
    command.args(arguments).env("LAB_URL", &url);
    let ended = to_end(&mut command, point.limit, "that has it").await?;
    let seconds = ended.time.as_secs_f64();
    Ok(Reading { seconds, detail: ended.text().into(), ..Reading::default() })
}

/// The target's count of MiB written and read.
type Traffic = Option<(u64, u64)>;

/// Checks by the target's count that the bytes were transferred. The program's own report does not show that.
fn came_through(point: &Point, before: Traffic, after: Traffic) -> Result<(), Outcome> {
    let (Some(before), Some(after)) = (before, after) else {
        return Err(Outcome::Failed("the target has no count of the traffic".to_owned()));
    };
    let seen = match point.measure.direction {
        Direction::Write => after.0.saturating_sub(before.0),
        Direction::Read => after.1.saturating_sub(before.1),
    };
    let whole = point.bytes >> 20;
    if seen < whole {
        return Err(Outcome::Failed(format!("only {seen} of {whole} MiB came through the target")));
    }
    Ok(())
}

impl Measure {
    /// Returns whether the measurement needs an image to write.
    pub fn writes_image(&self) -> bool {
        let from_file = match self.who {
            Who::BlockCopy | Who::QemuImg | Who::OpenIscsi | Who::Program => true,
            Who::Iperf3 | Who::Libiscsi => false,
        };
        from_file && self.direction == Direction::Write
    }
}

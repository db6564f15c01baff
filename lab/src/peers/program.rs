//! Runs any other program.

use tokio::process::Command;

use super::bench::Bench;
use super::end::to_end;
use super::reading::Reading;
use crate::result::Outcome;
use crate::scenario::Point;
use crate::testbed::url;

pub(super) async fn measure(point: &Point, bench: &Bench) -> Result<Reading, Outcome> {
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

//! Runs the test cases concurrently, and judges their results.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use iscsi_initiator::Error;
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::target::Target;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::liar::Liar;
use crate::life::{BLOCKS, Outcome, TARGET, live};
use crate::row::{End, Job, Row};

/// Values of the time limit that ends a test case: for the first try, and for a retry if the machine was too
/// slow to reach the wrong answer within the first limit.
const SOON: [Duration; 2] = [Duration::from_millis(700), Duration::from_secs(5)];
/// Duration after which a test case counts as hanging. Every limit that ends a test case is shorter: at most four
/// times the longer value of `SOON`.
const HANGS: Duration = Duration::from_secs(40);
/// Number of test cases that run concurrently.
const SIDE_BY_SIDE: usize = 24;
/// Maximum length of an error's sentence, because longer sentences would not be read.
const LONGEST_SENTENCE: usize = 320;

static PANICS: AtomicU32 = AtomicU32::new(0);

/// Runs the test cases of all stages.
pub(crate) async fn run(stages: Vec<(&'static str, Vec<Row>)>) {
    count_panics();
    let room = Arc::new(Semaphore::new(SIDE_BY_SIDE));
    let rows =
        stages.into_iter().flat_map(|(stage, rows)| rows.into_iter().map(move |row| (stage, row)));
    let mut lives = JoinSet::new();
    for (number, (stage, row)) in rows.enumerate() {
        let room = Arc::clone(&room);
        lives.spawn(async move {
            let _room = room.acquire().await;
            let verdict = judge_patiently(&row).await;
            (number, stage, row.name, verdict)
        });
    }
    let mut verdicts = lives.join_all().await;
    verdicts.sort_by_key(|(number, ..)| *number);
    let mut failures = Vec::new();
    for (_, stage, name, verdict) in &verdicts {
        match verdict {
            Ok(said) => println!("{stage:<12} {name}\n{:13}{said}", ""),
            Err(why) => failures.push(format!("{stage}: {name}\n    {why}")),
        }
    }
    assert!(failures.is_empty(), "\n{}\n", failures.join("\n"));
    assert_eq!(PANICS.load(Ordering::Relaxed), 0, "something panicked");
}

/// Counts panics, because a panic in a task of the initiator would not fail the test. Panics in this file are
/// assertions of the tests, and are not counted.
fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let ours = panic.location().is_some_and(|place| place.file() == file!());
            PANICS.fetch_add(u32::from(!ours), Ordering::Relaxed);
            hook(panic);
        }));
    });
}

/// Why a test case fails.
enum Flaw {
    /// A wrong answer was not sent, so the test case has checked nothing.
    NotExecuted(String),
    /// The result of the wrong answer is not the expected one.
    Wrong(String),
}

impl From<String> for Flaw {
    fn from(why: String) -> Self {
        Self::Wrong(why)
    }
}

/// Judges a test case. Retries it with a longer limit if the limit ended it before the wrong answer was sent.
/// If the wrong answer was sent, the first result counts.
async fn judge_patiently(row: &Row) -> Result<String, String> {
    let mut verdict = judge(row, SOON[0]).await;
    if matches!(verdict, Err(Flaw::NotExecuted(_))) && row.limits.is_some() {
        verdict = judge(row, SOON[1]).await;
    }
    verdict.map_err(|(Flaw::NotExecuted(why) | Flaw::Wrong(why))| why)
}

/// Runs a test case once. Returns the sentence of its error, or what is wrong with the result.
async fn judge(row: &Row, soon: Duration) -> Result<String, Flaw> {
    let disk = RamDisk::new(512, BLOCKS);
    disk.fill(7);
    let liar = Liar::start(Target::new(config(row, &disk)), row.clone()).await;
    let Ok(outcome) = timeout(HANGS, live(row, &liar, &disk, soon)).await else {
        return Err(Flaw::Wrong("it hangs".into()));
    };
    if let Some(wrong) = outcome.wrong {
        return Err(Flaw::Wrong(wrong));
    }
    let sentences: Vec<_> = outcome.errors.iter().map(sentence).collect::<Result<_, _>>()?;
    let untold = liar.untold();
    if !untold.is_empty() || (row.lies.is_empty() && !row.by_configuration) {
        return Err(Flaw::NotExecuted(format!("a lie was not told: {untold:?}; {sentences:?}")));
    }
    if row.lies.is_empty() && !liar.violations().is_empty() {
        return Err(format!("against the standard: {:?}", liar.violations()).into());
    }
    if let Some(most) = row.most_sent
        && liar.sent() > most
    {
        return Err(format!("{} bytes were taken, {most} are enough", liar.sent()).into());
    }
    let executes = !matches!(row.job, Job::Discover | Job::Ping | Job::Text);
    if !executes && sentences.first().is_some_and(|said| said.contains("executed")) {
        return Err(format!("nothing was to be executed: {sentences:?}").into());
    }
    Ok(check(row.end, &outcome, &sentences)?)
}

/// Returns a target configuration with small bursts and segments, so that every transfer takes several PDUs.
fn config(row: &Row, disk: &RamDisk) -> TargetConfig {
    let mut config = TargetConfig::new(TARGET, disk.clone());
    config.keys.max_recv_data_segment_length = Some(8 << 10);
    config.keys.first_burst_length = 4 << 10;
    config.keys.max_burst_length = 16 << 10;
    config.keys.max_outstanding_r2t = 2;
    config.keys.default_time2wait = 0;
    config.data_in.pdu = Some(8 << 10);
    (row.target)(&mut config);
    config
}

fn check(end: End, outcome: &Outcome, sentences: &[String]) -> Result<String, String> {
    let (error, said) = match (end, outcome.errors.first().zip(sentences.first())) {
        (End::Survives | End::Open, None) => return Ok("survived".into()),
        (End::Survives, Some((_, said))) => return Err(format!("not survived: {said}")),
        (_, None) => return Err("nothing failed".into()),
        (_, Some(first)) => first,
    };
    let (fault, parts, goes_on) = match end {
        End::Ends(fault, parts) | End::Both(fault, parts) => (fault, parts, false),
        End::Fails(fault, parts) => (fault, parts, true),
        End::Either(parts) => (error.fault(), parts, outcome.works),
        End::Open | End::Survives => (error.fault(), &[][..], outcome.works),
    };
    if outcome.works != goes_on {
        let word = if outcome.works { "goes on" } else { "is over" };
        return Err(format!("the session {word}: {sentences:?}"));
    }
    if let Some(missing) = parts.iter().find(|part| !said.contains(**part)) {
        return Err(format!("{missing:?} is not said: {said}"));
    }
    if error.fault() != fault {
        return Err(format!("it is the fault of {:?}: {said}", error.fault()));
    }
    Ok(said.clone())
}

/// Returns the text of an error with its advice, or what is wrong with the text. The text must be one
/// readable line, without debug output of values.
fn sentence(error: &Error) -> Result<String, String> {
    let said = error.to_string();
    let raw =
        ["\n", "\t", "{", "}", "Some(", "Ok(", "Err(", "::", "[", "  ", ": ;", "\\u", "hunter"];
    if let Some(bad) = raw.iter().find(|bad| said.contains(**bad)) {
        return Err(format!("{bad:?} is no language: {said}"));
    }
    if let Some(bad) = iscsi_testkit::hostile_text::obeyed(said.as_bytes()) {
        return Err(format!("a terminal would obey it: {bad}"));
    }
    if said.is_empty() || said.len() > LONGEST_SENTENCE || said.ends_with(['.', ';', ':', ' ']) {
        return Err(format!("not one sentence: {said}"));
    }
    Ok(error.advice().map_or_else(|| said.clone(), |advice| format!("{said}; {advice}")))
}

/// A read that returns wrong data fails the test case at the first try. The wrong answer is sent only once, so a
/// second try would succeed and hide it.
#[tokio::test]
async fn wrong_data_counts_at_the_first_time() {
    let told = AtomicU32::new(0);
    let row =
        Row::new(Job::Read, "another byte, once").on_send(Opcode::DataIn, 0, move |pdu, _| {
            if told.fetch_add(1, Ordering::Relaxed) == 0 {
                let mut data = pdu.data.to_vec();
                data[0] ^= 1;
                pdu.data = data.into();
            }
        });
    let verdict = judge_patiently(&row.impatient()).await;
    assert!(verdict.is_err_and(|why| why.contains("wrong bytes")));
}

#[tokio::test]
async fn each_lie_of_a_row_has_to_be_told() {
    let row = Row::new(Job::Read, "two lies, one of which nobody hears")
        .on_send(Opcode::DataIn, 0, |_, _| {})
        .on_send(Opcode::LogoutResponse, 7, |_, _| {});
    let verdict = judge_patiently(&row).await;
    assert!(verdict.is_err_and(|why| why.contains("a lie was not told")));
}

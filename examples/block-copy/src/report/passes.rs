//! The report of the passes over a source in use.

use std::fmt;
use std::time::Duration;

use iscsi_copy::{Divergence, EndedPass, Verdict};
use iscsi_tuner::Size;
use serde_json::{Value, json};

use crate::progress::status::mbit_per_s;

/// The report of the passes over a source in use.
#[derive(Clone, Debug)]
pub struct PassesReport {
    /// The ended passes, in order.
    pub ended: Vec<EndedPass>,
    /// The time limit that the user has set for the last pass.
    pub goal: Duration,
    /// Whether the last pass has ended.
    pub is_complete: bool,
    /// Whether the source was frozen during the last pass: no program could write to it.
    pub is_frozen: bool,
}

/// The reason why more passes do not make the last one short enough.
#[derive(Clone, Copy, Debug)]
pub struct NotConverging {
    /// Estimated time of the last pass.
    last: Duration,
    goal: Duration,
    /// Rates in Mbit/s: how fast the source is written to, and how fast it is copied.
    dirtied: f64,
    sent: f64,
    why: Divergence,
}

impl PassesReport {
    /// Returns the reason why more passes would not help, if there is one.
    pub fn not_converging(&self) -> Option<NotConverging> {
        let pass = self.ended.iter().rev().find(|pass| pass.verdict.is_some())?;
        let Some(Verdict::Diverges { last, why }) = pass.verdict else { return None };
        let dirtied = mbit_per_s(pass.dirtied.unwrap_or_default(), pass.time);
        Some(NotConverging { last, goal: self.goal, dirtied, sent: rate(pass), why })
    }

    /// Returns all ended passes as JSON.
    pub(crate) fn to_json(&self) -> Value {
        (0..self.ended.len()).map(|at| self.pass_to_json(at)).collect()
    }

    /// Returns the ended pass with the index `at` as JSON.
    pub(crate) fn pass_to_json(&self, at: usize) -> Value {
        let Some(pass) = self.ended.get(at) else { return Value::Null };
        let (last, left, word) = match &pass.verdict {
            Some(Verdict::Again { last, passes }) => (Some(*last), Some(*passes), Some("again")),
            Some(Verdict::Last { last }) => (Some(*last), Some(1), Some("last")),
            Some(Verdict::Diverges { last, .. }) => (Some(*last), None, Some("not converging")),
            Some(_) | None => (None, None, None),
        };
        let why = self.not_converging().filter(|_| word == Some("not converging"));
        json!({
            "number": at + 1,
            "last": self.is_last(at),
            "bytes": pass.progress.done,
            "bytes_sent": sent(pass),
            "seconds": pass.time.as_secs_f64(),
            "mbit_per_s": rate(pass),
            "bytes_dirtied": pass.dirtied,
            "dirtied_mbit_per_s": pass.dirtied.map(|bytes| mbit_per_s(bytes, pass.time)),
            "last_pass_seconds": last.filter(|last| is_known(*last)).map(|last| last.as_secs_f64()),
            "passes_left": left,
            "verdict": word,
            "why": why.map(|why| why.to_string()),
        })
    }

    /// Returns the ended pass with the index `at` as a line of text.
    pub(crate) fn line(&self, at: usize) -> String {
        let Some(pass) = self.ended.get(at) else { return String::new() };
        let (done, sent) = (Size(pass.progress.done), Size(sent(pass)));
        let (seconds, rate) = (pass.time.as_secs_f64(), rate(pass));
        let which = if self.is_last(at) { ", the last" } else { "" };
        let mut line = format!(
            "pass {}{which}: {done}, {sent} of it sent, in {seconds:.2} s, {rate:.1} Mbit/s",
            at + 1
        );
        if let Some(bytes) = pass.dirtied {
            let rate = mbit_per_s(bytes, pass.time);
            line += &format!("; {} were changed meanwhile, {rate:.1} Mbit/s", Size(bytes));
        }
        let goal = time(self.goal);
        line + &match &pass.verdict {
            Some(Verdict::Again { last, passes }) => format!(
                ": a last pass would take {}, and {goal} is the goal; {passes} more passes will reach it",
                time(*last)
            ),
            Some(Verdict::Last { last }) => {
                format!(": the last pass will take {}, and {goal} is the goal", time(*last))
            }
            Some(Verdict::Diverges { .. }) => {
                let why = self.not_converging().map(|why| why.to_string());
                format!(": not converging: {}", why.unwrap_or_default())
            }
            Some(_) | None => String::new(),
        }
    }

    fn is_last(&self, at: usize) -> bool {
        self.is_complete && at + 1 == self.ended.len()
    }
}

/// Displays the passes as the part of a text that follows the summary of the copy.
impl fmt::Display for PassesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = self.not_converging() {
            let took = self.ended.last().map_or_else(String::new, |pass| time(pass.time));
            let goal = time(why.goal);
            write!(
                f,
                "\nwarning: not converging: the last pass took {took}, and {goal} was the goal"
            )?;
        }
        if !self.is_frozen {
            f.write_str(
                "\nno program was kept from writing to the source during the last pass (--before-last-pass): what \
                 --ranges-from tells from now on is not copied",
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for NotConverging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { last, goal, dirtied, sent, why } = self;
        write!(
            f,
            "a last pass would take {}, and {} is the goal; {why}, which is {dirtied:.1} Mbit/s while {sent:.1} Mbit/s \
             are sent; write less to the source, raise the rate, or allow a longer --downtime",
            time(*last),
            time(*goal)
        )
    }
}

const fn sent(pass: &EndedPass) -> u64 {
    pass.progress.written + pass.progress.zeros_written
}

/// Returns the rate at which a pass sent data, Mbit/s.
fn rate(pass: &EndedPass) -> f64 {
    mbit_per_s(sent(pass), pass.time)
}

/// Returns whether the time could be estimated. After a pass that sent nothing, it could not.
const fn is_known(time: Duration) -> bool {
    time.as_secs() < Duration::MAX.as_secs()
}

fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match time {
        _ if !is_known(time) => "an unknown time".to_owned(),
        _ if seconds < 1.0 => format!("{:.0} ms", seconds * 1e3),
        _ => format!("{seconds:.2} s"),
    }
}

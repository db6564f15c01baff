//! Executes commands to the copies of a process. Commands are lines of text; the responses are JSON objects.

use serde_json::{Value, json};

use crate::args::parse_limit;
use crate::classes::clients::{Client, Clients};
use crate::classes::shared::SharedClass;
use crate::classes::{Classes, ClassesError};
use crate::control::handle::Handle;

/// The copies and classes of a process, which the commands change.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    rule: Rule,
    handles: Vec<Handle>,
    is_of_job_file: bool,
}

/// The tree that has the classes.
#[derive(Clone, Debug)]
enum Rule {
    /// A tree of this process, which other processes may share.
    Tree(Classes, Clients),
    /// The tree of another process.
    Shared(SharedClass),
}

const COMMANDS: &str =
    "rate [CLASS] RATE|off, ceil CLASS RATE|off, pause [JOB], resume [JOB] and status";

impl Orders {
    /// Creates the executor of commands to copies whose classes are in a tree of this process.
    pub(crate) fn new(classes: Classes, handles: Vec<Handle>) -> Self {
        let clients = Clients::new(classes.clone());
        Self { rule: Rule::Tree(classes, clients), handles, is_of_job_file: false }
    }

    /// Creates the executor of commands to a copy whose class is in the tree of another process, the keeper.
    pub(crate) fn sharing(class: SharedClass, handle: Handle) -> Self {
        Self { rule: Rule::Shared(class), handles: vec![handle], is_of_job_file: false }
    }

    /// Says that the copies are those of a job file, whose names the user knows.
    #[must_use]
    pub(crate) fn of_job_file(self) -> Self {
        Self { is_of_job_file: true, ..self }
    }

    /// Returns whether the copies are those of a job file.
    pub(crate) const fn is_of_job_file(&self) -> bool {
        self.is_of_job_file
    }

    /// Returns the copies.
    pub(crate) fn handles(&self) -> &[Handle] {
        &self.handles
    }

    /// Admits another process to the class `class` of the tree, or to the default class.
    ///
    /// # Errors
    /// The reason why the process is not admitted.
    pub(crate) fn admit(
        &self,
        class: Option<&str>,
        process: Option<i32>,
    ) -> Result<Client, String> {
        match &self.rule {
            Rule::Tree(_, clients) => {
                clients.admit(class, process).map_err(|error| error.to_string())
            }
            Rule::Shared(shared) => Err(shared.refusal()),
        }
    }

    /// Executes a command. Returns the new state, or the error if nothing was changed.
    pub(crate) fn obey(&self, line: &str) -> Value {
        let words: Vec<_> = line.split_whitespace().collect();
        match self.carry_out(&words) {
            Ok(()) => self.status(),
            Err(error) => json!({ "error": error }),
        }
    }

    fn carry_out(&self, words: &[&str]) -> Result<(), String> {
        match *words {
            ["status"] => Ok(()),
            ["rate", rate] => {
                let rate = parse_limit(rate)?;
                self.change(|classes| classes.set_rate(None, rate))
            }
            ["rate", class, rate] => {
                let rate = rate.parse().map_err(|error| format!("{error}"))?;
                self.change(|classes| classes.set_rate(Some(class), rate))
            }
            ["ceil", class, ceil] => {
                let ceil = parse_limit(ceil)?;
                self.change(|classes| classes.set_ceil(class, ceil))
            }
            ["pause", ref job @ ..] => self.pause(job, true),
            ["resume", ref job @ ..] => self.pause(job, false),
            _ => Err(format!("{:?} is no order; there are {COMMANDS}", words.join(" "))),
        }
    }

    /// Changes the tree of classes, and announces the change to all processes that share the tree.
    fn change(
        &self,
        change: impl FnOnce(&Classes) -> Result<(), ClassesError>,
    ) -> Result<(), String> {
        match &self.rule {
            Rule::Tree(classes, clients) => {
                change(classes).map_err(|error| error.to_string())?;
                clients.changed();
                Ok(())
            }
            Rule::Shared(shared) => Err(shared.refusal()),
        }
    }

    /// Pauses or resumes the copies with the given name, or all copies without a name.
    fn pause(&self, words: &[&str], is_paused: bool) -> Result<(), String> {
        let name = words.join(" ");
        let handles: Vec<_> =
            self.handles.iter().filter(|handle| name.is_empty() || handle.name() == name).collect();
        if handles.is_empty() {
            return Err(format!("there is no job {name:?}"));
        }
        handles.iter().for_each(|handle| handle.pause(is_paused));
        Ok(())
    }

    fn status(&self) -> Value {
        let jobs: Value = self.handles.iter().map(Handle::to_json).collect();
        match &self.rule {
            Rule::Tree(classes, clients) => json!({
                "error": null,
                "all": classes.to_json(),
                "classes": classes.each_to_json(),
                "clients": clients.to_json(),
                "jobs": jobs,
            }),
            Rule::Shared(shared) => {
                json!({ "error": null, "share": shared.to_json(), "jobs": jobs })
            }
        }
    }
}

#[cfg(any(test, feature = "fuzzing"))]
impl Orders {
    /// Returns commands to two copies: `one`, and `the other` in the class `backup`.
    #[allow(clippy::unwrap_used, reason = "the rates are valid")]
    pub(crate) fn sample() -> Self {
        use iscsi_initiator::shaping::{Class, RateLimit};

        let classes = Classes::new("10mbit".parse().unwrap()).unwrap();
        let class = Class::new("1mbit".parse().unwrap()).with_ceil(RateLimit::Unlimited);
        classes.add("backup", None, class).unwrap();
        let handles = [("one", None), ("the other", Some("backup"))]
            .map(|(name, class)| Handle::new(name, Some(classes.clone()), class));
        Self::new(classes, handles.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_order_is_answered_by_how_all_is() {
        let orders = Orders::sample();
        for (line, pointer, value) in [
            ("status", "/all/rate_bit_per_s", json!(10_000_000)),
            ("rate 2MB/s", "/all/rate_bit_per_s", json!(16_000_000)),
            (" rate  off\r", "/all/rate_bit_per_s", Value::Null),
            ("rate backup 0", "/classes/backup/rate_bit_per_s", json!(0)),
            ("ceil backup 3mbit", "/classes/backup/ceil_bit_per_s", json!(3_000_000)),
            ("pause the other", "/jobs/1/paused", json!(true)),
            ("status", "/jobs/0/paused", json!(false)),
            ("pause", "/jobs/0/paused", json!(true)),
            ("resume one", "/jobs/0/paused", json!(false)),
            ("resume", "/jobs/1/paused", json!(false)),
            ("status", "/jobs/1/class", json!("backup")),
        ] {
            let answer = orders.obey(line);
            assert_eq!(answer["error"], Value::Null, "{line}");
            assert_eq!(answer.pointer(pointer), Some(&value), "{line}: {answer}");
        }
    }

    #[test]
    fn nonsense_is_answered_by_a_sentence_and_changes_nothing() {
        let orders = Orders::sample();
        let before = orders.obey("status");
        for (line, part) in [
            ("", "is no order; there are rate"),
            ("rate", "is no order"),
            ("stop", "\"stop\" is no order"),
            ("rate fast", "\"fast\" is no rate"),
            ("rate 0", "nothing would ever pass"),
            ("rate 1bit", "from 1kbit"),
            ("rate 500kbit", "1000000 bit/s together"),
            ("rate other 1mbit", "no class \"other\""),
            ("rate backup 11mbit", "their parent's is 10 Mbit/s"),
            ("ceil 1mbit", "is no order"),
            ("ceil backup 0", "nothing would ever pass"),
            ("pause three", "no job \"three\""),
        ] {
            let error = orders.obey(line)["error"].as_str().unwrap().to_owned();
            assert!(error.contains(part), "{line}: {error}");
        }
        assert_eq!(orders.obey("status"), before);
    }
}

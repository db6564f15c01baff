//! Orders to the copies of a process, as lines of text, and their answers.

use serde_json::{Value, json};

use crate::args::parse_limit;
use crate::classes::{Classes, ClassesError};
use crate::handle::Handle;

/// All that can be ordered: the copies of a process, and their classes.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    classes: Classes,
    handles: Vec<Handle>,
}

const COMMANDS: &str =
    "rate [CLASS] RATE|off, ceil CLASS RATE|off, pause [JOB], resume [JOB] and status";

impl Orders {
    pub(crate) const fn new(classes: Classes, handles: Vec<Handle>) -> Self {
        Self { classes, handles }
    }

    /// Carries out an order and answers: how everything is then, or why it stays as it was.
    pub(crate) fn obey(&self, line: &str) -> Value {
        let words: Vec<_> = line.split_whitespace().collect();
        match self.carry_out(&words) {
            Ok(()) => self.status(),
            Err(error) => json!({ "error": error }),
        }
    }

    fn carry_out(&self, words: &[&str]) -> Result<(), String> {
        let told = |error: ClassesError| error.to_string();
        match *words {
            ["status"] => Ok(()),
            ["rate", rate] => self.classes.set_rate(None, parse_limit(rate)?).map_err(told),
            ["rate", class, rate] => {
                let rate = rate.parse().map_err(|error| format!("{error}"));
                self.classes.set_rate(Some(class), rate?).map_err(told)
            }
            ["ceil", class, ceil] => self.classes.set_ceil(class, parse_limit(ceil)?).map_err(told),
            ["pause", ref job @ ..] => self.pause(job, true),
            ["resume", ref job @ ..] => self.pause(job, false),
            _ => Err(format!("{:?} is no order; there are {COMMANDS}", words.join(" "))),
        }
    }

    /// Pauses or resumes the copies of a name, or all.
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
        json!({
            "error": null,
            "all": self.classes.to_json(),
            "classes": self.classes.each_to_json(),
            "jobs": self.handles.iter().map(Handle::to_json).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use iscsi_initiator::shaping::{Class, Rate};

    use super::*;

    fn orders() -> Orders {
        let classes = Classes::new("10mbit".parse().unwrap()).unwrap();
        let class = Class::new("1mbit".parse().unwrap()).with_ceil(Rate::Unlimited);
        classes.add("backup", None, class).unwrap();
        let handles = [("one", None), ("the other", Some("backup"))]
            .map(|(name, class)| Handle::new(name, Some(classes.clone()), class));
        Orders::new(classes, handles.into())
    }

    #[test]
    fn each_order_is_answered_by_how_all_is() {
        let orders = orders();
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
        let orders = orders();
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

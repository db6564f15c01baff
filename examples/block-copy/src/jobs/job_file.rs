//! Parses job files: TOML files with traffic classes and the copies that share them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use clap::Parser;
use iscsi_examples_common::command_line::sentence;
use iscsi_examples_common::failure::file_advice;
use iscsi_initiator::shaping::{Class, RateLimit};
use iscsi_tuner::{Size, SizeError};
use serde::Deserialize;
use tokio::task::spawn_blocking;
use toml::Spanned;

use crate::args::Args;
use crate::classes::{Classes, ClassesError};
use crate::error::Error;

/// A parsed job file.
#[derive(Debug)]
pub(crate) struct JobFile {
    pub(crate) classes: Classes,
    pub(crate) jobs: Vec<Entry>,
}

/// One copy of a job file.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) class: Option<String>,
    pub(crate) args: Args,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    rate: Option<String>,
    #[serde(default)]
    class: BTreeMap<String, ClassText>,
    #[serde(default)]
    job: Vec<JobText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassText {
    parent: Option<String>,
    rate: Option<String>,
    ceil: Option<String>,
    burst: Option<String>,
    cburst: Option<String>,
    #[serde(default)]
    priority: u8,
    weight: Option<u64>,
}

#[derive(Deserialize)]
struct JobText {
    name: Option<String>,
    source: String,
    destination: String,
    class: Option<Spanned<String>>,
    /// Options of the copy, by their names on the command line.
    #[serde(flatten)]
    options: BTreeMap<String, toml::Value>,
}

/// Options of the whole program, which a job must not have.
const OF_PROGRAM: [&str; 13] = [
    "control",
    "grace",
    "help",
    "json",
    "json-lines",
    "metrics",
    "metrics-cert",
    "metrics-key",
    "metrics-progress",
    "progress",
    "rate-limit",
    "termination-log",
    "version",
];
/// An option that a job must not have, because the classes are in the job file.
const ELSEWHERE: &str = "share";

impl JobFile {
    /// Reads a job file. A file without copies is an error, unless other processes may share its classes.
    ///
    /// # Errors
    /// [`Error::JobFile`] with what is wrong with the file.
    pub(crate) async fn read(path: &Path, is_shared: bool) -> Result<Self, Error> {
        let failed = |reason: String| Error::JobFile { path: path.into(), reason };
        let file = path.to_owned();
        // The file may be a pipe, so reading may block.
        let text = spawn_blocking(|| fs::read_to_string(file)).await.map_err(io::Error::from);
        let text = text.flatten();
        let text = text.map_err(|cause| failed(format!("{cause}{}", file_advice(cause.kind()))))?;
        let file = if is_shared { Self::parse_any(&text) } else { Self::parse(&text) };
        file.map_err(failed)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let file = Self::parse_any(text)?;
        if file.jobs.is_empty() {
            return Err(
                "there is no [[job]]; add one, or --control PATH to let others share the classes"
                    .to_owned(),
            );
        }
        Ok(file)
    }

    pub(crate) fn parse_any(text: &str) -> Result<Self, String> {
        let file: FileText = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| line(text, span.start));
            let message = error.message().replace('\n', " ");
            format!("line {line}: {message}; correct the line")
        })?;
        let classes = classes(file.rate.as_deref(), file.class)?;
        let mut jobs = Vec::new();
        let (mut names, mut destinations) = (BTreeSet::new(), BTreeSet::new());
        for (index, job) in file.job.into_iter().enumerate() {
            let name = job.name.clone().unwrap_or_else(|| format!("job {}", index + 1));
            if !names.insert(name.clone()) {
                return Err(format!("there are two jobs {name:?}; give one of them another name"));
            }
            if let Some(class) = &job.class {
                classes.paying(Some(class.get_ref())).map_err(|error| {
                    format!("line {}: job {name:?}: {error}", line(text, class.span().start))
                })?;
            }
            let entry = entry(name, job)?;
            let destination = entry.args.destination.clone().unwrap_or_default();
            if destination != "/dev/null" && !destinations.insert(destination) {
                return Err(format!(
                    "job {:?}: another job has this destination as well; choose another destination",
                    entry.name
                ));
            }
            jobs.push(entry);
        }
        Ok(Self { classes, jobs })
    }
}

/// Returns the number of the line that contains the byte `at`.
fn line(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or(text).matches('\n').count() + 1
}

fn rate(text: Option<&str>, default: RateLimit) -> Result<RateLimit, String> {
    text.map_or(Ok(default), |text| text.parse().map_err(|error| format!("{error}")))
}

fn size(text: Option<&str>) -> Result<Option<u64>, String> {
    let size = text.map(|text| text.parse().map_err(|error: SizeError| error.to_string()));
    Ok(size.transpose()?.map(|Size(bytes)| bytes))
}

/// Creates the tree. Each class is added after its parent.
fn classes(root: Option<&str>, mut texts: BTreeMap<String, ClassText>) -> Result<Classes, String> {
    let root = rate(root, RateLimit::Unlimited).map_err(|error| format!("rate: {error}"))?;
    let classes = Classes::new(root).map_err(|error| error.to_string())?;
    while !texts.is_empty() {
        let is_ready = |text: &ClassText| !text.parent.iter().any(|name| texts.contains_key(name));
        let Some(name) =
            texts.iter().find(|(_, text)| is_ready(text)).map(|(name, _)| name.clone())
        else {
            let names: Vec<_> = texts.into_keys().collect();
            return Err(format!(
                "classes below each other: {}; give one of them another parent, or none",
                names.join(", ")
            ));
        };
        let Some(text) = texts.remove(&name) else { continue };
        let added = class(&text).and_then(|class| {
            let added = classes.add(&name, text.parent.as_deref(), class);
            added.map_err(|error: ClassesError| error.to_string())
        });
        added.map_err(|error| format!("class {name:?}: {error}"))?;
    }
    Ok(classes)
}

/// Creates a class. Without a rate, the class has no guaranteed rate and borrows without a limit. With a rate
/// and no ceil, it borrows nothing.
fn class(text: &ClassText) -> Result<Class, String> {
    let rate_text = text.rate.as_deref();
    let guaranteed = rate(rate_text, RateLimit::Zero)?;
    let default = if rate_text.is_some() { guaranteed } else { RateLimit::Unlimited };
    Ok(Class::new(guaranteed)
        .with_ceil(rate(text.ceil.as_deref(), default)?)
        .with_burst(size(text.burst.as_deref())?)
        .with_cburst(size(text.cburst.as_deref())?)
        .with_priority(text.priority)
        .with_weight(text.weight))
}

fn entry(name: String, text: JobText) -> Result<Entry, String> {
    let told = |error: String| format!("job {name:?}: {error}");
    if [&text.source, &text.destination].contains(&&"-".to_owned()) {
        return Err(told(
            "standard input and output are not available to jobs; name a file or a unit".to_owned(),
        ));
    }
    let mut words = vec!["block-copy".to_owned()];
    for (option, value) in &text.options {
        if OF_PROGRAM.contains(&option.as_str()) {
            return Err(told(format!(
                "{option} counts for all jobs; write --{option} on the command line instead"
            )));
        }
        if option == ELSEWHERE {
            return Err(told(
                "the jobs of a file have its classes; leave share out, or run the copy alone with --share".to_owned(),
            ));
        }
        match value {
            toml::Value::Boolean(true) => words.push(format!("--{option}")),
            toml::Value::Boolean(false) => {}
            toml::Value::String(value) => words.push(format!("--{option}={value}")),
            toml::Value::Integer(value) => words.push(format!("--{option}={value}")),
            toml::Value::Float(_)
            | toml::Value::Datetime(_)
            | toml::Value::Array(_)
            | toml::Value::Table(_) => {
                return Err(told(format!("write {option} as a word, a number, true or false")));
            }
        }
    }
    words.extend(["--".to_owned(), text.source, text.destination]);
    let args = Args::try_parse_from(words).map_err(|error| {
        let complaint = sentence(&error.to_string());
        // clap's tip is about arguments after an option, which a job does not have.
        let what = complaint.split("; to pass").next().unwrap_or_default();
        told(format!("{what}; block-copy --help lists the options"))
    })?;
    Ok(Entry { name, class: text.class.map(Spanned::into_inner), args })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::VerifyMode;

    const WHOLE: &str = r#"
        rate = "10mbit"
        [class.backup]
        rate = "4mbit"
        ceil = "off"
        burst = "64K"
        priority = 3
        weight = 2
        [class.apart]
        parent = "backup"
        rate = "1MB/s"
        [[job]]
        source = "a"
        destination = "iscsi://h/t/0"
        class = "apart"
        verify = true
        sessions = 4
        zero-granularity = "off"
        destination-is-zero = false
        [[job]]
        name = "other"
        source = "a"
        destination = "c"
    "#;

    #[tokio::test]
    async fn a_file_is_classes_and_copies_with_the_options_of_the_command_line() {
        // The rates of the child classes exceed the rate of their parent.
        let error = JobFile::parse(WHOLE).unwrap_err();
        assert!(
            error.starts_with("class \"apart\": the rates of the classes are 8000000"),
            "{error}"
        );
        let file = JobFile::parse(&WHOLE.replace("1MB/s", "100kB/s")).unwrap();
        let classes = file.classes.each_to_json();
        assert_eq!(classes["apart"]["ceil_bit_per_s"], 800_000, "it borrows nothing");
        assert_eq!(classes["backup"]["ceil_bit_per_s"], serde_json::Value::Null);
        let [first, second] = &file.jobs[..] else { panic!("{file:?}") };
        assert_eq!((first.name.as_str(), first.class.as_deref()), ("job 1", Some("apart")));
        let content = &first.args.content;
        assert!(content.verify == VerifyMode::Read && !content.destination_is_zero);
        assert!(first.args.link.sessions.is_some());
        assert_eq!((second.name.as_str(), second.class.as_deref()), ("other", None));
    }

    #[tokio::test]
    async fn what_is_wrong_is_told_in_a_line() {
        let job = "[[job]]\nsource = \"a\"\ndestination = \"b\"\n";
        let with = |text: &str| format!("{job}{text}");
        for (text, told) in [
            (String::new(), "there is no [[job]]"),
            ("rate = 1".to_owned(), "line 1: invalid type"),
            ("\nspeed = \"x\"".to_owned(), "line 2: unknown field `speed`"),
            (format!("rate = \"fast\"\n{job}"), "rate: \"fast\" is no rate"),
            (format!("rate = \"0\"\n{job}"), "nothing could ever pass"),
            (with("class = \"x\""), "line 4: job \"job 1\": there is no class \"x\""),
            (
                with("class = \"a\"\n[class.a]\n[class.b]\nparent = \"a\""),
                "line 4: job \"job 1\": there are classes below \"a\"; name one of them",
            ),
            (with("sessions = 65"), "job \"job 1\": invalid value '65'"),
            (with("speed = 65"), "unexpected argument '--speed'"),
            (with("json = true"), "json counts for all jobs"),
            (with("metrics = \"127.0.0.1:1\""), "metrics counts for all jobs"),
            (with("share = \"p\""), "leave share out"),
            (with("verify = []"), "write verify as a word"),
            (with(job), "job \"job 2\": another job has this destination"),
            (
                with("name = \"n\"\n[[job]]\nname = \"n\"\nsource = \"a\"\ndestination = \"c\""),
                "two jobs \"n\"",
            ),
            (job.replace("\"a\"", "\"-\""), "not available to jobs"),
            (with("[class.a]\nparent = \"a\""), "classes below each other: a"),
            (with("[class.a]\nparent = \"b\""), "class \"a\": there is no class \"b\""),
            (with("[class.a]\nrate = \"2mbit\"\nceil = \"1mbit\""), "exceeds the ceil"),
            (with("[class.a]\nburst = \"1MB\""), "class \"a\": "),
            (with("[class.a]\npriority = 8"), "8 is no priority"),
        ] {
            let error = JobFile::parse(&text).unwrap_err();
            assert!(error.contains(told), "{text}\n{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
}

//! Tests of docs/odd-inputs.md: each command line on that page exits with the status and prints the sentence
//! that the page shows.
//!
//! `ODD_INPUTS=write cargo test -p guide odd_inputs` writes status and sentence of each row. A new row needs
//! only its command: ``| `block-copy` | | |``. A sentence that still matches, `...` included, is not changed.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use guide::expect::is_as_shown;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::shell::{PROGRAMS, programs, without_time_stamps};
use crate::world::World;

/// Time limit of a command, much longer than any command takes.
const PATIENCE: Duration = Duration::from_secs(120);
/// Words that no sentence may contain: numbers of the system, debug output, prefixes of other programs, and the
/// passwords on the page.
const FORBIDDEN: [&str; 11] = [
    "os error",
    "Os {",
    "Err(",
    "Some(",
    "kind:",
    "error: ",
    ": : ",
    "source: source",
    "destination: destination",
    "hunter2",
    "panicked",
];
const JOBS: &str = "[[job]]\nsource = \"disk.img\"\ndestination = \"copy.img\"\n";

/// A command line on the page, with its exit status and the sentence that it prints.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Row {
    command: String,
    status: Option<i32>,
    sentence: String,
}

impl Row {
    /// Parses a row of the page.
    fn parse(line: &str) -> Option<Self> {
        const PIPE: &str = "\u{0}";
        let line = line.replace("\\|", PIPE);
        let cells: Vec<_> = line.strip_prefix("| `")?.split('|').collect();
        let [command, status, sentence, _] = cells[..] else { return None };
        let text = |cell: &str| cell.trim().trim_matches('`').trim().replace(PIPE, "|");
        let status = status.trim().parse().ok();
        Some(Self { command: text(command), status, sentence: text(sentence) })
    }

    fn line(&self) -> String {
        let Self { command, sentence, .. } = self;
        let status = self.status.map_or_else(String::new, |status| status.to_string());
        let ticks = if sentence.contains('`') { "``" } else { "`" };
        let [command, sentence] = [command, sentence].map(|text| text.replace('|', "\\|"));
        format!("| `{command}` | {status} | {ticks}{sentence}{ticks} |")
    }

    /// Returns whether status and sentence of `found`, the row of a run, match this row of the page.
    fn allows(&self, found: &Self) -> bool {
        self.status == found.status
            && is_as_shown(std::slice::from_ref(&self.sentence), &found.sentence)
    }

    /// Returns what is wrong with the sentence, even if the page shows the same sentence.
    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if matches!(self.status, None | Some(0)) {
            faults.push("it succeeds, or is ended by a signal".to_owned());
        }
        let program = self.command.split(' ').next().unwrap_or_default();
        if !self.sentence.starts_with(&format!("{program}: ")) {
            faults.push("it does not begin with the name of the program".to_owned());
        }
        let has = |part: &&&str| self.sentence.contains(**part);
        faults.extend(FORBIDDEN.iter().filter(has).map(|part| format!("it has {part:?} in it")));
        faults
    }
}

/// Returns the last line. `None` if a line before it is neither the first line of a copy nor a warning.
fn sentence(printed: &str) -> Option<&str> {
    let printed = printed.trim_end();
    let (before, last) = printed.rsplit_once('\n').unwrap_or(("", printed));
    let is_known = |line: &str| line.starts_with("copying ") || line.starts_with("warning: ");
    before.lines().all(is_known).then_some(last)
}

/// The targets, the files and the servers that the page docs/odd-inputs.md names.
struct Place {
    world: World,
    folder: TempDir,
    programs: PathBuf,
    /// The process of the server, which is killed when this field is dropped.
    _server: Child,
}

impl Place {
    async fn new() -> Self {
        let (world, folder, programs) =
            (World::start().await, tempfile::tempdir().unwrap(), programs());
        let file = |name: &str, content: &[u8]| {
            fs::write(folder.path().join(name), content).unwrap();
        };
        file("disk.img", &[7; 1 << 20]);
        file("large.img", b"");
        fs::File::options()
            .write(true)
            .open(folder.path().join("large.img"))
            .and_then(|large| large.set_len(65 << 20))
            .unwrap();
        file("empty.img", b"");
        file("secret", b"hunter2hunter2\n");
        file("old.map", b"no checkpoint");
        file("broken.toml", b"[[job]\n");
        file("key.toml", format!("{JOBS}speed = 3\n").as_bytes());
        file("twice.toml", JOBS.repeat(2).as_bytes());
        file("class.toml", format!("{JOBS}class = \"backup\"\n").as_bytes());
        fs::create_dir(folder.path().join("folder")).unwrap();
        use std::os::unix::fs::PermissionsExt;
        let private = fs::Permissions::from_mode(0o600);
        for name in ["secret", "empty.img"] {
            fs::set_permissions(folder.path().join(name), private.clone()).unwrap();
        }
        let serve = world.here(
            "exec block-serve iscsi://192.0.2.6/iqn.2026-01.org.example:other/0 --export disk --json \
             --listen tcp:192.0.2.6:10809 --listen unix:served.sock",
        );
        let mut server = shell(&programs, &folder, &serve).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let output = server.stdout.as_mut().unwrap();
        BufReader::new(output).read_line(&mut line).await.unwrap();
        assert!(line.contains("ready"), "there is no server: {line}");
        Self { world, folder, programs, _server: server }
    }

    /// Runs a command of the page here. Returns the row that the page should have.
    async fn run(&self, command: &str) -> Row {
        let mut shell = shell(&self.programs, &self.folder, &self.world.here(command));
        let output = timeout(PATIENCE, shell.output()).await.unwrap().unwrap();
        assert!(output.stdout.is_empty(), "{command} prints a result");
        let printed = self.world.as_on_the_page(&String::from_utf8(output.stderr).unwrap());
        let printed = without_time_stamps(&printed);
        let sentence = sentence(&printed).unwrap_or_else(|| panic!("{command} prints:\n{printed}"));
        Row {
            command: command.to_owned(),
            status: output.status.code(),
            sentence: sentence.to_owned(),
        }
    }
}

fn shell(programs: &Path, folder: &TempDir, command: &str) -> Command {
    let path = std::env::var("PATH").unwrap();
    let mut shell = Command::new("bash");
    shell.args(["-c", command]).current_dir(folder.path()).env_clear();
    shell.env("PATH", format!("{}:{path}", programs.display()));
    shell.env("HOME", folder.path()).env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    shell.stderr(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    shell
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/odd-inputs.md")
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_inputs_end_with_their_sentences() {
    let text = fs::read_to_string(page()).unwrap();
    let writes = std::env::var_os("ODD_INPUTS").is_some_and(|what| what == "write");
    let place = Place::new().await;
    let (mut written, mut complaints, mut count) = (String::new(), String::new(), 0);
    for line in text.lines() {
        let Some(row) = Row::parse(line) else {
            writeln!(written, "{line}").unwrap();
            continue;
        };
        count += 1;
        let program = row.command.split(' ').next().unwrap();
        assert!(PROGRAMS.contains(&program), "{line}");
        let found = place.run(&row.command).await;
        for fault in found.faults() {
            writeln!(complaints, "$ {}\n{}\n{fault}\n", row.command, found.sentence).unwrap();
        }
        if row.allows(&found) {
            writeln!(written, "{}", row.line()).unwrap();
        } else {
            writeln!(written, "{}", found.line()).unwrap();
            let (command, shown, sentence) = (&row.command, &row.sentence, &found.sentence);
            if !writes {
                writeln!(
                    complaints,
                    "$ {command}\nthe page shows {:?}: {shown}\nit ends with {:?}: {sentence}\n",
                    row.status, found.status
                )
                .unwrap();
            }
        }
    }
    for violation in place.world.violations() {
        writeln!(complaints, "{violation}").unwrap();
    }
    if writes {
        fs::write(page(), written).unwrap();
    }
    assert!(complaints.is_empty(), "docs/odd-inputs.md:\n{complaints}");
    assert!(count >= 40, "{count} rows");
}

#[test]
fn rows_are_read_as_they_are_written() {
    for (command, sentence) in [
        ("block-copy a b", "block-copy: no"),
        ("link-doctor --depth x", "link-doctor: '--depth <N|auto>' is wrong"),
        ("iscsi-util", "iscsi-util: unknown field `speed`; correct the line"),
    ] {
        let row =
            Row { command: command.to_owned(), status: Some(2), sentence: sentence.to_owned() };
        assert_eq!(Row::parse(&row.line()), Some(row));
    }
    let empty = Row { command: "block-copy".to_owned(), status: None, sentence: String::new() };
    assert_eq!(Row::parse("| `block-copy` | | |"), Some(empty));
    assert_eq!(Row::parse("| command | status | sentence |"), None);
}

/// A sentence that breaks a rule of the page is reported.
#[test]
fn sentences_that_are_none_are_found() {
    let faults = |status, sentence: &str| {
        let row =
            Row { command: "block-copy a b".to_owned(), status, sentence: sentence.to_owned() };
        row.faults().len()
    };
    assert_eq!(
        faults(Some(1), "block-copy: source a: No such file or directory; check the path"),
        0
    );
    assert_eq!(faults(Some(0), "block-copy: done"), 1);
    assert_eq!(faults(Some(2), "error: unexpected argument"), 2);
    assert_eq!(faults(Some(1), "block-copy: Connection refused (os error 111)"), 1);
    assert_eq!(sentence("warning: a\ncopying b to c\nblock-copy: d\n"), Some("block-copy: d"));
    assert_eq!(sentence("a\nblock-copy: d\n"), None);
}

//! Describes the origin of figures: the machine, the sources, the system's settings.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::result::Machine;
use crate::testbed;

/// Returns the folder of the workspace.
pub fn workspace() -> &'static Path {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR"));
    lab.parent().unwrap_or(lab)
}

/// Returns the first line of a program's output. It is empty if the program does not run.
pub fn first_line(command: &mut Command) -> String {
    let output = command.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).lines().next().unwrap_or_default().trim().to_owned()
}

/// Returns the commit of the sources, followed by `+` if they have uncommitted changes.
pub fn commit() -> String {
    let git =
        |words: &[&str]| first_line(Command::new("git").arg("-C").arg(workspace()).args(words));
    let changed = !git(&["status", "--porcelain", "--untracked-files=no"]).is_empty();
    let commit = git(&["rev-parse", "--short=12", "HEAD"]);
    if changed { format!("{commit}+") } else { commit }
}

/// Returns the current time, RFC 3339, UTC.
pub fn now() -> String {
    first_line(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"]))
}

/// Returns the release of the machine's kernel.
pub fn kernel() -> String {
    read("/proc/sys/kernel/osrelease")
}

/// Describes this machine, without the lab's own kernel, which is not known yet.
pub fn machine() -> Machine {
    Machine {
        processor: entry(&read("/proc/cpuinfo"), "model name"),
        processors: std::thread::available_parallelism()
            .ok()
            .and_then(|number| u32::try_from(number.get()).ok())
            .unwrap_or_default(),
        memory_bytes: memory(&read("/proc/meminfo")),
        kernel: kernel(),
        lab_kernel: String::new(),
        environment: String::new(),
        stolen: None,
    }
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// Time of the processors since the machine was started, in ticks summed over all processors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessorTime {
    all: u64,
    idle: u64,
    stolen: u64,
}

impl ProcessorTime {
    /// Returns the current times; `None` if the system does not report them.
    pub fn now() -> Option<Self> {
        Self::of(&read("/proc/stat"))
    }

    /// Parses the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq and steal. Two
    /// further numbers are contained in user and nice.
    fn of(stat: &str) -> Option<Self> {
        let words = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        let ticks: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
        let idle = ticks.get(3)? + ticks.get(4)?;
        Some(Self { all: ticks.iter().sum(), idle, stolen: *ticks.get(7)? })
    }

    /// Returns the share of the time since `begun` that the hypervisor gave to other machines.
    #[expect(clippy::cast_precision_loss, reason = "no share is that exact")]
    pub fn stolen_since(self, begun: Self) -> f64 {
        let all = self.all.saturating_sub(begun.all).max(1);
        self.stolen.saturating_sub(begun.stolen) as f64 / all as f64
    }

    /// Returns the share of the time since `begun` in which a processor was busy.
    #[expect(clippy::cast_precision_loss, reason = "no share is that exact")]
    pub fn busy_since(self, begun: Self) -> f64 {
        let all = self.all.saturating_sub(begun.all).max(1);
        1.0 - self.idle.saturating_sub(begun.idle) as f64 / all as f64
    }
}

/// Returns the value of the first `NAME : VALUE` line; empty without one.
fn entry(text: &str, name: &str) -> String {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    lines
        .find(|(found, _)| found.trim() == name)
        .map(|(_, value)| value.trim().to_owned())
        .unwrap_or_default()
}

fn memory(meminfo: &str) -> u64 {
    let total = entry(meminfo, "MemTotal");
    let kib = total.split_whitespace().next().and_then(|number| number.parse::<u64>().ok());
    kib.map_or(0, |kib| kib * 1024)
}

/// The settings that affect the rate of a TCP connection.
const SYSTEM: [&str; 7] = [
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.core.default_qdisc",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_available_congestion_control",
];

/// Returns the file of a system limit.
pub fn sysctl_file(name: &str) -> String {
    format!("/proc/sys/{}", name.replace('.', "/"))
}

/// Returns the system limits of this host that affect the rate.
pub fn system() -> BTreeMap<String, String> {
    let value =
        |name: &str| read(sysctl_file(name)).split_whitespace().collect::<Vec<_>>().join(" ");
    SYSTEM.iter().map(|name| ((*name).to_owned(), value(name))).collect()
}

/// Returns the keys and the command depth that the target uses.
pub fn target() -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    let keys = fs::read_dir(testbed::group().join("param")).into_iter().flatten().flatten();
    for key in keys {
        settings.insert(format!("target.{}", key.file_name().to_string_lossy()), read(key.path()));
    }
    let depth = read(testbed::group().join("attrib/default_cmdsn_depth"));
    settings.insert("target.default_cmdsn_depth".to_owned(), depth);
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_whatever_their_blanks() {
        let text = "processor\t: 0\nmodel name\t: Some Processor @ 2 GHz\nmodel name\t: Other\n";
        assert_eq!(entry(text, "model name"), "Some Processor @ 2 GHz");
        assert_eq!(entry(text, "flags"), "");
    }

    #[test]
    fn time_that_goes_to_others_is_a_share_of_all() {
        let begun = ProcessorTime::of("cpu  10 0 10 70 0 0 0 10 5 5\ncpu0 1\n").unwrap();
        let ended = ProcessorTime::of("cpu  20 10 20 110 5 2 3 40 9 9\n").unwrap();
        assert_eq!((begun.all, begun.stolen), (100, 10));
        assert!((ended.stolen_since(begun) - 30.0 / 110.0).abs() < 1e-9);
        // 40 idle ticks, and 5 waiting for a disk.
        assert!((ended.busy_since(begun) - 65.0 / 110.0).abs() < 1e-9);
        assert_eq!(ProcessorTime::of("cpu  1 2 3 4\n"), None, "an old kernel");
        assert_eq!(ProcessorTime::of(""), None);
    }

    #[test]
    fn memory_is_told_in_bytes() {
        assert_eq!(memory("MemTotal:       24096764 kB\nMemFree: 1 kB\n"), 24_096_764 * 1024);
        assert_eq!(memory(""), 0);
    }
}

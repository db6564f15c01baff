//! Environments of a lab: a guest kernel, or network namespaces of the machine's own kernel.

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use crate::args::Where;
use crate::error::Error;
use crate::job::Job;
use crate::process::Group;
use crate::provenance;
use crate::signals::Signals;
use crate::size::Size;

/// The environment of a lab.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Environment {
    /// A Linux kernel that runs as a program (user-mode Linux).
    Guest,
    /// Network namespaces of the machine's own kernel.
    Host,
}

/// How a lab has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ending {
    /// The lab has exited with this status.
    Status(u8),
    /// The time limit has ended the lab.
    Limit,
    /// This signal has ended the lab.
    Interrupt(Signal),
}

impl Environment {
    /// Finds an environment.
    ///
    /// # Errors
    /// [`Error::NoEnvironment`] with the missing part and the package that provides it.
    pub fn find(wanted: Where) -> Result<Self, Error> {
        match wanted {
            Where::Guest => Self::Guest.unless(guest_lacks(), "no guest can be started here"),
            Where::Host => {
                Self::Host.unless(host_lacks(), "this machine's own kernel cannot be the lab")
            }
            Where::Auto => Self::find(Where::Guest).or_else(|guest| {
                Self::find(Where::Host)
                    .map_err(|host| Error::NoEnvironment(format!("{guest}; and {host}")))
            }),
        }
    }

    fn unless(self, lack: Option<String>, refusal: &str) -> Result<Self, Error> {
        lack.map_or(Ok(self), |lack| Err(Error::NoEnvironment(format!("{refusal}: {lack}"))))
    }

    /// Returns the name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Guest => "guest",
            Self::Host => "host",
        }
    }

    /// Runs a job in the environment. However the environment ends, no process of it survives.
    ///
    /// # Errors
    /// [`Error::Start`] if the job cannot be started.
    pub async fn carry_out(
        self,
        job: &Job,
        memory: Size,
        limit: Duration,
    ) -> Result<Ending, Error> {
        let mut signals = Signals::catch()?;
        let job = serde_json::to_string(job)?;
        let program = env::current_exe()?;
        let mut command = match self {
            Self::Guest => in_guest(&program, &job, memory, limit),
            Self::Host => in_namespaces(&program, &job),
        };
        let mut group = Group::start(&mut command)?;
        let ending = tokio::select! {
            status = group.child.wait() => return Ok(Ending::Status(code(status?))),
            signal = signals.next() => Ending::Interrupt(signal),
            () = sleep(limit) => Ending::Limit,
        };
        group.ask_to_end();
        // A process may be stuck in the kernel. The environment ends such processes by itself, so this wait
        // has a limit.
        let _ended = timeout(GRACE, group.child.wait()).await;
        Ok(ending)
    }
}

/// Returns an exit status as a shell reports it.
pub fn code(status: ExitStatus) -> u8 {
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    let code = status.code().or_else(|| signal.map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Time that an environment has to end after its time limit. In case this program is killed, a guest has a time
/// limit of its own, which is later than this program's limit by the same time.
const GRACE: Duration = Duration::from_secs(30);

fn in_guest(program: &Path, job: &str, memory: Size, limit: Duration) -> Command {
    let mut command = Command::new("bash");
    command.arg(scripts().join("boot"));
    command.arg("--memory").arg(format!("{}M", memory.0.div_ceil(1 << 20)));
    command.arg("--timeout").arg((limit + GRACE).as_secs().to_string());
    command.arg("--").arg(program).args(["agent", job]);
    command
}

/// Script that runs in new network and mount namespaces: it prepares them and starts the agent. The kernel
/// removes the namespaces with the last process.
const ENTER: &str =
    "mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && ip link set lo up && exec \"$@\"";

fn in_namespaces(program: &Path, job: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--", "sh", "-c", ENTER, "lab"]);
    command.arg(program).args(["agent", job]);
    command
}

/// Returns the folder of the scripts.
pub fn scripts() -> PathBuf {
    provenance::workspace().join("lab")
}

/// The programs that a guest needs, and the packages that provide them.
const GUEST: [(&str, &str); 5] = [
    ("linux.uml", "user-mode-linux"),
    ("modprobe", "kmod"),
    ("ip", "iproute2"),
    ("tc", "iproute2"),
    ("ethtool", "ethtool"),
];
/// The parts of the kernel that a lab on the host needs.
const HOST: [(&str, &str); 3] =
    [("netem", "sch_netem"), ("LIO", "iscsi_target_mod"), ("pairs of devices", "veth")];

fn guest_lacks() -> Option<String> {
    let (program, package) = GUEST.iter().find(|(program, _)| find(program).is_none())?;
    Some(format!(
        "`{program}` is missing, which the Debian package `{package}` brings (`ci/packages lab` installs it)"
    ))
}

fn host_lacks() -> Option<String> {
    if !geteuid().is_root() {
        return Some("only root may make its namespaces".to_owned());
    }
    let tools = &GUEST[1..];
    if let Some((program, package)) = tools.iter().find(|(program, _)| find(program).is_none()) {
        return Some(format!(
            "`{program}` is missing, which the Debian package `{package}` brings"
        ));
    }
    let (part, module) = HOST.iter().find(|(_, module)| !has_module(module))?;
    Some(format!(
        "it has no {part} (module `{module}`), which a kernel of the Debian package `linux-image-amd64` has"
    ))
}

/// Returns whether the kernel has a module: built in, loaded or loadable.
fn has_module(module: &str) -> bool {
    let loaded = Path::new("/sys/module").join(module).is_dir();
    loaded || {
        let mut modprobe = std::process::Command::new(find("modprobe").unwrap_or_default());
        modprobe.args(["--dry-run", "--quiet", module]);
        modprobe.status().is_ok_and(|status| status.success())
    }
}

/// Finds a program on the search path or in the folders of system programs.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_refuses_the_environment_and_says_why() {
        assert_eq!(Environment::Guest.unless(None, "no").ok(), Some(Environment::Guest));
        let error =
            Environment::Host.unless(Some("no netem".to_owned()), "it cannot be").unwrap_err();
        assert_eq!((error.to_string().as_str(), error.status()), ("it cannot be: no netem", 3));
    }

    #[test]
    fn a_signal_is_told_as_a_shell_does() {
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(code(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(code(ExitStatus::from_raw(9)), 137);
    }

    #[test]
    fn programs_are_looked_for_where_they_may_be() {
        assert!(find("sh").is_some());
        assert_eq!(find("no program has this name"), None);
    }
}

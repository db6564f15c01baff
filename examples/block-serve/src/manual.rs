//! Texts of the help and of the manual page, except the options.

use iscsi_examples_common::exit_status::meaning;
use iscsi_examples_common::help::{
    Documented, LOG_VARIABLE, LOGIN_VARIABLE, Manual, PASSWORD_FILE, TARGET_LOGIN_VARIABLE,
};

use crate::args::Args;

impl Documented for Args {
    const MANUAL: Manual = Manual {
        examples: &[
            (
                "Serve a unit on a Unix socket",
                "block-serve iscsi://10.0.0.5/iqn.2026-01.org.example:disk/0 --listen unix:/run/disk.sock",
            ),
            (
                "Admit clients of the same group, such as QEMU under another user",
                "block-serve iscsi://nas/iqn.2026-01.org.example:a/0 -l unix:/run/d --socket-mode 660",
            ),
            (
                "Fill a unit with nbdcopy, which starts the server",
                "nbdcopy --flush vm.img -- [ block-serve iscsi://10.0.0.5/iqn.2026-01.org.example:disk/0 ]",
            ),
            (
                "Serve a unit that other hosts use as well, read-only",
                "block-serve iscsi://nas/iqn.2026-01.org.example:a/0 -l tcp:127.0.0.1:10809 \\\n--shared --read-only",
            ),
            (
                "Serve a running machine from a service that may be restarted",
                "block-serve iscsi://nas/iqn.2026-01.org.example:a/0 -l unix:/run/d --write-behind 0 --wait 5min",
            ),
        ],
        exit_status: &[
            ("0", "Ended by a signal or --until-last, and all data are flushed."),
            ("1", "An error of this host, such as a missing file, or another one."),
            ("2", "A wrong command line, or one that does not suit the unit."),
            ("65", "Writes may be lost that no client got an error for."),
            meaning::REFUSED,
            meaning::AGAIN,
            meaning::DENIED,
        ],
        environment: &[
            ("LISTEN_FDS, LISTEN_PID", "Sockets that systemd, or another parent, hands over."),
            LOGIN_VARIABLE,
            TARGET_LOGIN_VARIABLE,
            LOG_VARIABLE,
        ],
        files: &[
            (
                "unix:/PATH",
                "The socket. It is removed at the end; the next server replaces one of a killed server.",
            ),
            PASSWORD_FILE,
        ],
    };
}

#[cfg(test)]
mod tests {
    use iscsi_examples_common::help::check::{faults, faults_of_texts};

    use super::*;

    #[test]
    fn the_help_is_short_plain_and_its_examples_parse() {
        assert_eq!(faults::<Args>(), Vec::<String>::new());
    }

    #[test]
    fn the_readme_has_all_options_and_examples() {
        let reference = include_str!("../../../docs/reference/block-serve.md");
        let faults = faults_of_texts::<Args>(include_str!("../README.md"), &[reference]);
        assert_eq!(faults, Vec::<String>::new());
    }
}

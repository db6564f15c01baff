//! Texts of the help and of the manual page, except the options.

use iscsi_examples_common::exit_status::meaning;
use iscsi_examples_common::help::{
    Documented, LOG_VARIABLE, LOGIN_VARIABLE, Manual, PASSWORD_FILE, TARGET_LOGIN_VARIABLE,
};

use crate::args::Args;
use crate::jobs::JobsArgs;

impl Documented for Args {
    const MANUAL: Manual = Manual {
        examples: &[
            (
                "Copy an image to a unit, read it back and compare it",
                "block-copy disk.img iscsi://10.0.0.5/iqn.2026-01.org.example:disk/0 --verify",
            ),
            (
                "Back up a unit into a compressed file",
                "block-copy iscsi://10.0.0.5/iqn.2026-01.org.example:disk/0 - | zstd > disk.zst",
            ),
            (
                "Restore it",
                "zstd -dc disk.zst | block-copy - iscsi://10.0.0.5/iqn.2026-01.org.example:disk/0",
            ),
            (
                "Copy so that the command, if repeated after an interruption, goes on where it was",
                "block-copy disk.img iscsi://10.0.0.5/iqn.2026-01.org.example:disk/0 --checkpoint d.map --resume",
            ),
            (
                "Copy at 40 Mbit/s at most, and print the result as JSON",
                "block-copy disk.img iscsi://10.0.0.5/iqn.2026-01.org.example:disk/0 --rate-limit 40mbit --json",
            ),
        ],
        exit_status: &[
            (
                "0",
                "All is written, flushed and, with --verify, read back equal. No late write can change it.",
            ),
            ("1", "An error of this host, such as a missing file, or another one."),
            ("2", "A wrong command line, or one that does not suit what it names."),
            ("3", "With --on-read-error skip: all is copied but what could not be read."),
            (
                "4",
                "With --when-not-converging stop: the source changed too fast for a short last pass.",
            ),
            meaning::DATA,
            meaning::REFUSED,
            (
                "75",
                "Temporary: the network, the target or this host. The same command may succeed later. Also if all is written \
                 and flushed, but the target may still carry out a write of a lost session.",
            ),
            meaning::DENIED,
            (
                "130",
                "Interrupted by SIGINT, SIGTERM or SIGHUP. A second SIGINT or SIGTERM, more than a second later, ends it immediately.",
            ),
        ],
        environment: &[LOGIN_VARIABLE, TARGET_LOGIN_VARIABLE, LOG_VARIABLE],
        files: &[
            ("checkpoint", "A map of GNU ddrescue (text), replaced as a whole after each flush."),
            ("digests", "A line with the BLAKE3 digest of each MiB (text), replaced as a whole."),
            (
                ".iscsi-copy.*",
                "A new checkpoint or file of digests, beside the old one, until it replaces that.",
            ),
            PASSWORD_FILE,
        ],
    };
}

impl Documented for JobsArgs {
    const MANUAL: Manual = Manual {
        examples: &[
            ("Run the copies of a file", "block-copy --jobs night.toml"),
            (
                "Change the rate of a class meanwhile",
                "block-copy --jobs night.toml --control /run/c & echo rate backup 5mbit | nc -UN /run/c",
            ),
            (
                "Pause a copy",
                "block-copy --jobs night.toml --control /run/c & echo pause mail | nc -UN /run/c",
            ),
            ("Keep classes for other processes", "block-copy --jobs classes.toml --control /run/c"),
            (
                "Print all results as one object",
                "block-copy --jobs night.toml --json --progress none",
            ),
        ],
        exit_status: &[
            ("0", "All copies are complete."),
            ("2", "A wrong command line, or a wrong job file."),
            (
                "1 to 77",
                "75 if a copy that failed may succeed later; otherwise the highest status that a copy would have by itself.",
            ),
            ("130", "Interrupted by SIGINT, SIGTERM or SIGHUP."),
        ],
        environment: &[LOGIN_VARIABLE, TARGET_LOGIN_VARIABLE, LOG_VARIABLE],
        files: &[
            (
                "job file",
                "TOML: `rate`, [class.NAME] tables, and [[job]] tables with the options of a copy.",
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
    fn so_is_the_help_of_jobs() {
        assert_eq!(faults::<JobsArgs>(), Vec::<String>::new());
    }

    #[test]
    fn the_readme_has_all_options_and_examples() {
        let reference = include_str!("../../../docs/reference/block-copy.md");
        let faults = faults_of_texts::<Args>(include_str!("../README.md"), &[reference]);
        assert_eq!(faults, Vec::<String>::new());
    }
}

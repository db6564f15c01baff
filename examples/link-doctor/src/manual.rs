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
                "Examine link and unit",
                "link-doctor iscsi://10.0.0.5/iqn.2026-01.org.example:disk/0",
            ),
            (
                "Examine the link alone, without reading",
                "link-doctor iscsi://10.0.0.5/iqn.2026-01.org.example:disk",
            ),
            (
                "Say the rate of the link, for a better plan",
                "link-doctor iscsi://10.0.0.5/iqn.2026-01.org.example:disk/0 --bandwidth 100mbit",
            ),
            (
                "Try another congestion control for a minute",
                "link-doctor iscsi://10.0.0.5/iqn.2026-01.org.example:disk/0 --congestion bbr --seconds 60",
            ),
            (
                "Print the rate of the reads",
                "link-doctor iscsi://nas/iqn.2026-01.org.example:disk/0 --json | jq .read.goodput_mbit_per_s",
            ),
        ],
        exit_status: &[
            ("0", "The report is complete."),
            ("1", "An error of this host, or another one."),
            ("2", "A wrong command line, or one that does not suit the unit."),
            (
                "3",
                "The report is complete, and packets of full length do not arrive (a path-MTU black hole).",
            ),
            meaning::REFUSED,
            meaning::AGAIN,
            meaning::DENIED,
            ("130", "Interrupted. What was measured by then is reported."),
        ],
        environment: &[LOGIN_VARIABLE, TARGET_LOGIN_VARIABLE, LOG_VARIABLE],
        files: &[PASSWORD_FILE],
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
        let reference = include_str!("../../../docs/reference/link-doctor.md");
        let faults = faults_of_texts::<Args>(include_str!("../README.md"), &[reference]);
        assert_eq!(faults, Vec::<String>::new());
    }
}

//! Texts of the help and of the manual page, except the options.

use iscsi_examples_common::exit_status::meaning;
use iscsi_examples_common::help::{
    Documented, LOG_VARIABLE, LOGIN_VARIABLE, Manual, PASSWORD_FILE, TARGET_LOGIN_VARIABLE,
};

use crate::args::Args;

impl Documented for Args {
    const MANUAL: Manual = Manual {
        examples: &[
            ("List the targets of a portal", "iscsi-util discover iscsi://10.0.0.5"),
            (
                "List the units of a target",
                "iscsi-util luns iscsi://10.0.0.5/iqn.2026-01.org.example:disk",
            ),
            (
                "Measure random reads",
                "iscsi-util perf iscsi://10.0.0.5/iqn.2026-01.org.example:disk/0 --random --depth 64",
            ),
            (
                "End the registrations of a failed host and take its reservation over",
                "iscsi-util preempt iscsi://10.0.0.5/iqn.2026-01.org.example:disk/0 --key 0x1 \\\n--victim 0x2 --type write-exclusive --yes",
            ),
            (
                "Describe two units as one striped device",
                "iscsi-util volume create iscsi://a/iqn.2026-01.org.example:a/0 \\\niscsi://b/iqn.2026-01.org.example:b/0 --output both.toml",
            ),
        ],
        exit_status: &[
            ("0", "The answer is complete."),
            ("1", "An error of this host, such as a file that cannot be written, or another one."),
            ("2", "A wrong command line, or one that does not suit the unit."),
            meaning::REFUSED,
            meaning::AGAIN,
            meaning::DENIED,
            ("130", "Interrupted. What ping and perf measured by then is printed."),
        ],
        environment: &[LOGIN_VARIABLE, TARGET_LOGIN_VARIABLE, LOG_VARIABLE],
        files: &[
            ("volume description", "TOML: the units of a volume, with their names and capacities."),
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
        let reference = include_str!("../../../docs/reference/iscsi-util.md");
        let faults = faults_of_texts::<Args>(include_str!("../README.md"), &[reference]);
        assert_eq!(faults, Vec::<String>::new());
    }
}

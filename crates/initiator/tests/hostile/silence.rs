//! Tests of targets that stop sending, each time at another place: the time limit of that place ends the
//! wait.

use std::time::Duration;

use iscsi_initiator::{Fault, Timeouts};
use iscsi_testkit::opcode::Opcode;

use crate::row::{Job, Row};

const ANSWER: &str = "did not answer in time";

/// Returns a test case whose target is silent from its n-th PDU of this kind on, of which only the first
/// bytes are sent.
fn silent(job: Job, name: &'static str, opcode: Opcode, first: u32, bytes: usize) -> Row {
    Row::new(job, name).on_send(opcode, first, move |_, line| {
        line.keep(bytes);
        line.hush();
    })
}

/// Sets short time limits for pings, and a longer one for commands. The target's host still acknowledges data, so
/// a target that has a command counts as busy: then only the time limit of the command ends the session.
fn signs_of_life(timeouts: Timeouts, soon: Duration) -> Timeouts {
    timeouts
        .with_nop_interval(Some(soon))
        .with_nop_response(soon)
        .with_command(Some(4 * soon))
        .with_task_management(soon)
}

pub(crate) fn rows() -> Vec<Row> {
    use Opcode::{DataIn, LoginResponse, LogoutResponse, NopIn, R2t, ScsiResponse, TextResponse};
    let ends = |row: Row| row.ends(Fault::Network, &[ANSWER]);
    let login = |row: Row| ends(row.limits(|timeouts, soon| timeouts.with_login(soon)));
    let command = |row: Row| ends(row.impatient());
    vec![
        login(silent(Job::Open, "before the login's answer", LoginResponse, 0, 0)),
        login(silent(Job::Open, "in the header of the login's answer", LoginResponse, 0, 47)),
        login(silent(Job::Open, "in the text of the login's answer", LoginResponse, 0, 60)),
        login(
            silent(Job::Open, "in the midst of the authentication", LoginResponse, 1, 0)
                .user("me:hunter-of-initiators@")
                .target(|config| {
                    let chap = iscsi_testkit::config::Chap::new("me", "hunter-of-initiators");
                    config.chap = Some(chap);
                }),
        ),
        login(silent(Job::Discover, "before the login's answer in discovery", LoginResponse, 0, 0)),
        command(silent(Job::Open, "before the first answer of the unit", DataIn, 0, 0)),
        command(silent(Job::Open, "between the answers of the unit", DataIn, 4, 0)),
        command(silent(Job::Discover, "before the list of targets", TextResponse, 0, 0)),
        command(silent(Job::Discover, "in the list of targets", TextResponse, 0, 50)),
        command(silent(Job::Read, "before the data", DataIn, 0, 0)),
        command(silent(Job::Read, "in a header of the data", DataIn, 1, 20)),
        command(silent(Job::Read, "in the midst of the data", DataIn, 1, 1000)),
        command(silent(Job::Read, "before the end of the data", DataIn, 7, 0)),
        command(silent(Job::Write, "before the first R2T", R2t, 0, 0)),
        command(silent(Job::Write, "between the R2Ts", R2t, 1, 0)),
        command(silent(Job::Write, "before the response", ScsiResponse, 0, 0)),
        command(silent(Job::Write, "in the header of the response", ScsiResponse, 0, 40)),
        command(silent(Job::Text, "before the text", TextResponse, 0, 0)),
        ends(
            silent(
                Job::Reset,
                "before the answer to a reset",
                Opcode::TaskManagementResponse,
                0,
                0,
            )
            .impatient(),
        ),
        silent(Job::Ping, "before the answer to a ping", NopIn, 0, 0)
            .limits(signs_of_life)
            .fails_or_ends(&[]),
        silent(Job::Read, "before the data, with signs of life asked for", DataIn, 0, 0)
            .limits(signs_of_life)
            .ends(Fault::Network, &[ANSWER]),
        silent(Job::Logout, "before the answer to a logout", LogoutResponse, 0, 0)
            .limits(|timeouts, soon| timeouts.with_logout(soon)),
        silent(Job::Discover, "before the answer to a logout in discovery", LogoutResponse, 0, 0)
            .limits(|timeouts, soon| timeouts.with_logout(soon)),
    ]
}

//! Tests of `waiting_for`: what the session waits for when it has nothing to send.

use iscsi_pdu::scsi::{Cdb, Lun};
use iscsi_session::{Command, Waiting};
use iscsi_testkit::pdus::{nop_in, scsi_response};
use iscsi_testkit::{expect, send};

use crate::pair::{config, pattern, read, write};
use crate::trace::Trace;

/// Keys with a first burst of one PDU of 512 bytes, then bursts of two PDUs.
const SMALL_BURSTS: [(&str, &str); 3] =
    [("MaxRecvDataSegmentLength", "512"), ("FirstBurstLength", "512"), ("MaxBurstLength", "1024")];

/// Keys with which no data is sent unsolicited.
const SOLICITED: [(&str, &str); 2] = [("InitialR2T", "Yes"), ("ImmediateData", "No")];

impl Trace {
    /// Returns what the session waits for, after everything has been sent.
    fn waits_for(&mut self) -> Waiting {
        self.silence();
        self.session.waiting_for()
    }
}

#[test]
fn nothing_without_commands() {
    let mut trace = Trace::logged_in();
    assert_eq!(trace.waits_for(), Waiting::Nothing);
    let mut trace = Trace::with_closed_window();
    assert_eq!(trace.waits_for(), Waiting::Nothing);
}

#[test]
fn a_login_is_no_command() {
    let mut trace = Trace::new(config());
    assert_eq!(trace.session.waiting_for(), Waiting::Nothing);
    trace.login(&[]);
    assert_eq!(trace.waits_for(), Waiting::Nothing);
}

/// RFC 7143 §11.8: after the first burst of a write, the session waits for the R2T of each burst.
#[test]
fn a_write_beyond_its_first_burst_waits_for_each_r2t() {
    let mut trace = Trace::with_answers(&SMALL_BURSTS);
    let itt = trace.submit(write(0, pattern(2048, 1)));
    assert_eq!(expect!(trace, ScsiCommand).data.len(), 512);
    assert_eq!(trace.waits_for(), Waiting::R2t);

    send!(trace, r2t { itt: itt.get(), ttt: 1, buffer_offset: 512, desired_length: 1024 });
    assert_ne!(trace.session.waiting_for(), Waiting::R2t, "it is the session's turn");
    expect!(trace, DataOut);
    expect!(trace, DataOut);
    assert_eq!(trace.waits_for(), Waiting::R2t, "512 bytes are left");

    send!(
        trace,
        r2t { itt: itt.get(), ttt: 2, r2t_sn: 1, buffer_offset: 1536, desired_length: 512 }
    );
    expect!(trace, DataOut);
    assert_eq!(trace.waits_for(), Waiting::Answers);

    trace.send(scsi_response().itt(itt.get()));
    trace.result(itt).unwrap();
    assert_eq!(trace.waits_for(), Waiting::Nothing);
}

/// RFC 7143 §13.10, §13.11: without unsolicited data even a single block waits for an R2T.
#[test]
fn a_write_that_sends_nothing_unasked_waits_from_the_start() {
    let mut trace = Trace::with_answers(&SOLICITED);
    let itt = trace.submit(write(0, pattern(512, 1)));
    assert!(expect!(trace, ScsiCommand).data.is_empty());
    assert_eq!(trace.waits_for(), Waiting::R2t);
    send!(trace, r2t { itt: itt.get(), ttt: 1, desired_length: 512 });
    expect!(trace, DataOut);
    assert_eq!(trace.waits_for(), Waiting::Answers);
}

#[test]
fn a_write_within_its_first_burst_waits_for_its_status_alone() {
    let mut trace = Trace::logged_in();
    trace.submit(write(0, pattern(4096, 1)));
    expect!(trace, ScsiCommand);
    assert_eq!(trace.waits_for(), Waiting::Answers);
}

/// R2Ts may request the end of the data first (DataSequenceInOrder=No, RFC 7143 §13.19): then the session
/// waits for the R2T of the gap.
#[test]
fn a_gap_is_waited_for() {
    let mut config = config();
    config.offer = config.offer.with_data_sequence_in_order(false);
    let mut answers = SOLICITED.to_vec();
    answers.push(("DataSequenceInOrder", "No"));
    let mut trace = Trace::established(config, &answers);
    let itt = trace.submit(write(0, pattern(1024, 1)));
    expect!(trace, ScsiCommand);
    send!(trace, r2t { itt: itt.get(), ttt: 1, buffer_offset: 512, desired_length: 512 });
    expect!(trace, DataOut);
    assert_eq!(trace.waits_for(), Waiting::R2t);
    send!(trace, r2t { itt: itt.get(), ttt: 2, r2t_sn: 1, desired_length: 512 });
    expect!(trace, DataOut);
    assert_eq!(trace.waits_for(), Waiting::Answers);
}

/// RFC 7143 §4.2.2.1: with a closed window the session waits for the window; when the window opens, it waits
/// for the responses.
#[test]
fn a_closed_window_is_waited_for() {
    let mut trace = Trace::with_closed_window();
    let itt = trace.submit(read(0, 1));
    assert_eq!(trace.waits_for(), Waiting::CommandWindow);
    trace.script.set_window(1);
    trace.send(nop_in());
    expect!(trace, ScsiCommand);
    assert_eq!(trace.waits_for(), Waiting::Answers);
    send!(trace, data_in { itt: itt.get(), data: vec![7; 512], status: 0 });
    assert_eq!(trace.result(itt).unwrap().data, vec![7; 512]);
    assert_eq!(trace.waits_for(), Waiting::Nothing);
}

/// With one command in flight and another held back by the window, the session reports the window.
#[test]
fn the_window_comes_before_the_answers() {
    let mut trace = Trace::with_window(1);
    let first = trace.submit(read(0, 1));
    let second = trace.submit(read(1, 1));
    expect!(trace, ScsiCommand);
    assert_eq!(trace.waits_for(), Waiting::CommandWindow);
    send!(trace, data_in { itt: first.get(), data: vec![7; 512], status: 0 });
    expect!(trace, ScsiCommand);
    assert_eq!(trace.waits_for(), Waiting::Answers);
    send!(trace, data_in { itt: second.get(), data: vec![7; 512], status: 0 });
    assert_eq!(trace.waits_for(), Waiting::Nothing);
}

/// A write that was not sent cannot get an R2T, so the session waits for the window.
#[test]
fn a_write_before_a_closed_window_waits_for_the_window() {
    let mut trace = Trace::with_closed_window();
    trace.submit(write(0, pattern(1 << 20, 1)));
    assert_eq!(trace.waits_for(), Waiting::CommandWindow);
}

/// If one write waits for an R2T and a command waits for the window, the session reports the R2T, because the
/// end of the write opens the window.
#[test]
fn the_r2t_comes_before_the_window() {
    let mut trace = Trace::with_window(1);
    trace.submit(write(0, pattern(1 << 20, 1)));
    trace.submit(read(0, 1));
    trace.pump();
    while trace.script.try_next().is_some() {}
    assert_eq!(trace.waits_for(), Waiting::R2t);
}

#[test]
fn a_read_waits_for_its_data_and_a_command_without_data_for_its_status() {
    for command in [read(0, 1), Command::new(Lun::ZERO, Cdb::test_unit_ready())] {
        let mut trace = Trace::logged_in();
        trace.submit(command);
        expect!(trace, ScsiCommand);
        assert_eq!(trace.waits_for(), Waiting::Answers);
    }
}

/// RFC 7143 §11.18: a ping waits for a response, but is not reported.
#[test]
fn a_ping_does_not_count() {
    let mut trace = Trace::logged_in();
    trace.session.ping(trace.now).unwrap();
    expect!(trace, NopOut);
    assert_eq!(trace.waits_for(), Waiting::Nothing);
}

/// When the session has ended while a write waited for an R2T, it reports that it waits for nothing.
#[test]
fn the_end_of_the_session_ends_the_waiting() {
    let mut trace = Trace::with_answers(&SOLICITED);
    trace.submit(write(0, pattern(512, 1)));
    expect!(trace, ScsiCommand);
    assert_eq!(trace.waits_for(), Waiting::R2t);
    trace.close();
    assert!(trace.ended.is_some());
    assert_eq!(trace.session.waiting_for(), Waiting::Nothing);
}

#[test]
fn data_are_awaited_from_the_command_to_its_end() {
    let mut trace = Trace::logged_in();
    let first = trace.submit(read(0, 4));
    trace.submit(write(8, pattern(512, 1)));
    assert_eq!(trace.session.awaited_data(), 0, "nothing was sent");
    expect!(trace, ScsiCommand);
    expect!(trace, ScsiCommand);
    trace.submit(read(0, 1));
    assert_eq!(trace.session.awaited_data(), 4 * 512);
    expect!(trace, ScsiCommand);
    assert_eq!(trace.session.awaited_data(), 5 * 512);
    send!(trace, scsi_response { itt: first.get(), status: 8 });
    assert_eq!(trace.session.awaited_data(), 512);
}

//! UNH items 6 and 8 to 12: Data-Out, Data-In, R2T.

use iscsi_pdu::scsi::Lun;
use iscsi_testkit::pdu::NO_TAG;
use iscsi_testkit::{expect, send};

use super::{data_out, payload};
use crate::pair::{pattern, read, write};
use crate::trace::{Trace, wire_lun};

/// Keys with which no data is sent unsolicited, and PDUs are small.
const SOLICITED: [(&str, &str); 3] =
    [("InitialR2T", "Yes"), ("ImmediateData", "No"), ("MaxRecvDataSegmentLength", "512")];

/// Keys with a first burst of one PDU, then bursts of two PDUs.
const SMALL_BURSTS: [(&str, &str); 3] =
    [("MaxRecvDataSegmentLength", "512"), ("FirstBurstLength", "512"), ("MaxBurstLength", "1024")];

/// UNH FFP 6.1, 11.3: DataSN starts at 0 for each R2T, and increases by one per PDU.
#[test]
fn ffp_6_1_data_sn_per_sequence() {
    let mut trace = Trace::with_answers(&SOLICITED);
    let itt = trace.submit(write(0, pattern(4096, 1))).get();
    expect!(trace, ScsiCommand);
    for round in 0..2 {
        let offset = round * 2048;
        send!(
            trace,
            r2t {
                itt: itt,
                ttt: round,
                r2t_sn: round,
                buffer_offset: offset,
                desired_length: 2048
            }
        );
        let parts = data_out(&mut trace, 4);
        assert_eq!(parts.iter().map(|pdu| pdu.data_sn()).collect::<Vec<_>>(), [0, 1, 2, 3]);
    }
}

/// UNH FFP 8.1, 16.2.4, WR-24: with unsolicited and solicited data, the first burst is sent, and no more
/// before an R2T.
#[test]
fn ffp_8_1_unsolicited_then_solicited() {
    let mut answers = SMALL_BURSTS.to_vec();
    answers[1].1 = "1024";
    let mut trace = Trace::with_answers(&answers);
    let data = pattern(4096, 1);
    let itt = trace.submit(write(0, data.clone())).get();
    let command = expect!(trace, ScsiCommand { is_final: false });
    let unsolicited = data_out(&mut trace, 1);
    assert!(unsolicited[0].is_final() && unsolicited[0].ttt() == NO_TAG);
    let first = [&command.data[..], &unsolicited[0].data].concat();
    assert_eq!(first, data[..1024]);
    send!(trace, r2t { itt: itt, ttt: 9, buffer_offset: 1024, desired_length: 1024 });
    assert_eq!(payload(&data_out(&mut trace, 2)), data[1024..2048]);
}

/// UNH FFP 8.2, 16.2.2, 16.3.1: with solicited data only, the command is sent, and nothing more until the
/// R2T.
#[test]
fn ffp_8_2_solicited_only() {
    let mut trace = Trace::with_answers(&SOLICITED);
    let itt = trace.submit(write(0, pattern(512, 1))).get();
    let command = expect!(trace, ScsiCommand { is_final: true, writes: true, edtl: 512 });
    assert!(command.data.is_empty());
    trace.advance(std::time::Duration::from_secs(5));
    trace.silence();
    send!(trace, r2t { itt: itt, ttt: 1, desired_length: 512 });
    data_out(&mut trace, 1);
}

/// UNH FFP 8.3, 16.2.3: with unsolicited data only, the whole first burst is sent in Data-Out PDUs.
#[test]
fn ffp_8_3_unsolicited_only() {
    for (len, count) in [(512, 1), (1024, 2), (4096, 2)] {
        let mut answers = SMALL_BURSTS.to_vec();
        answers[1].1 = "1024";
        answers.push(("ImmediateData", "No"));
        let mut trace = Trace::with_answers(&answers);
        let data = pattern(len, 1);
        trace.submit(write(0, data.clone()));
        let command = expect!(trace, ScsiCommand { is_final: false });
        assert!(command.data.is_empty());
        assert_eq!(payload(&data_out(&mut trace, count)), data[..len.min(1024)]);
    }
}

/// UNH FFP 9.1: every Data-Out has the Target Transfer Tag of the R2T and the LUN of the command, whatever
/// the LUN field of the R2T is (SEQ-25, WR-10): some targets leave it at zero.
#[test]
fn ffp_9_1_transfer_tag_and_lun_of_the_command() {
    for lun in [5, 0, 7] {
        let mut trace = Trace::with_answers(&SOLICITED);
        let mut command = write(0, pattern(2048, 1));
        command.lun = Lun::new(5).unwrap();
        let itt = trace.submit(command).get();
        expect!(trace, ScsiCommand { lun: wire_lun(5) });
        send!(trace, r2t { itt: itt, ttt: 0x7fff_fff1, lun: wire_lun(lun), desired_length: 2048 });
        for part in data_out(&mut trace, 4) {
            assert_eq!((part.ttt(), part.lun(), part.itt()), (0x7fff_fff1, wire_lun(5), itt));
        }
        trace.assert_usable();
    }
}

/// UNH FFP 10.1: a status in the last Data-In completes the command.
#[test]
fn ffp_10_1_phase_collapsed_status() {
    let mut trace = Trace::logged_in();
    let itt = trace.submit(read(0, 1));
    expect!(trace, ScsiCommand);
    send!(trace, data_in { itt: itt.get(), data: vec![7; 512], status: 0 });
    assert_eq!(trace.result(itt).unwrap().data, vec![7; 512]);
    trace.assert_usable();
}

/// UNH FFP 11.1.1: no PDU, commands included, has more data than the target's MaxRecvDataSegmentLength.
#[test]
fn ffp_11_1_1_target_segment_length() {
    let mut answers = SMALL_BURSTS.to_vec();
    answers[1].1 = "1024";
    let mut trace = Trace::with_answers(&answers);
    trace.submit(write(0, pattern(4096, 1)));
    assert_eq!(expect!(trace, ScsiCommand).data.len(), 512);
    assert!(data_out(&mut trace, 1).iter().all(|pdu| pdu.data.len() == 512));
}

/// UNH FFP 11.1.2: an empty Data-In in the middle is accepted.
#[test]
fn ffp_11_1_2_empty_data_in() {
    let mut trace = Trace::logged_in();
    let itt = trace.submit(read(0, 2));
    expect!(trace, ScsiCommand);
    let (tag, half) = (itt.get(), vec![1; 512]);
    send!(trace, data_in { itt: tag, data: half.clone(), last: false });
    send!(trace, data_in { itt: tag, data_sn: 1, buffer_offset: 512, last: false });
    send!(trace, data_in { itt: tag, data_sn: 2, buffer_offset: 512, data: half, status: 0 });
    assert_eq!(trace.result(itt).unwrap().data, vec![1; 1024]);
}

/// UNH FFP 11.2.1: only the last PDU of the unsolicited burst has F.
#[test]
fn ffp_11_2_1_final_bit_of_unsolicited_data() {
    for len in [1536, 2048, 4096] {
        let mut answers = SMALL_BURSTS.to_vec();
        answers[1].1 = "2048";
        answers[2].1 = "4096";
        let mut trace = Trace::with_answers(&answers);
        trace.submit(write(0, pattern(len, 1)));
        expect!(trace, ScsiCommand { is_final: false });
        let parts = data_out(&mut trace, len.min(2048) / 512 - 1);
        let finals: Vec<bool> = parts.iter().map(|pdu| pdu.is_final()).collect();
        assert_eq!(finals.iter().filter(|last| **last).count(), 1);
        assert_eq!(finals.last(), Some(&true));
    }
}

/// UNH FFP 11.2.2, 12.2: the last PDU for each R2T has F, even if the length is a multiple of the PDU's
/// length.
#[test]
fn ffp_11_2_2_final_bit_of_solicited_data() {
    let mut trace = Trace::with_answers(&SOLICITED);
    let data = pattern(4096, 1);
    let itt = trace.submit(write(0, data.clone())).get();
    expect!(trace, ScsiCommand);
    send!(trace, r2t { itt: itt, ttt: 1, desired_length: 4096 });
    let parts = data_out(&mut trace, 8);
    assert!(parts[7].is_final() && parts[..7].iter().all(|pdu| !pdu.is_final()));
    assert_eq!(payload(&parts), data);
}

/// UNH FFP 11.4: buffer offsets start at the offset of the R2T, and continue from there.
#[test]
fn ffp_11_4_buffer_offset() {
    let mut trace = Trace::with_answers(&SOLICITED);
    let data = pattern(8192, 1);
    let itt = trace.submit(write(0, data.clone())).get();
    expect!(trace, ScsiCommand);
    send!(trace, r2t { itt: itt, ttt: 1, buffer_offset: 3072, desired_length: 1500 });
    let parts = data_out(&mut trace, 3);
    let offsets: Vec<u32> = parts.iter().map(|pdu| pdu.buffer_offset()).collect();
    assert_eq!(offsets, [3072, 3584, 4096]);
    assert_eq!(payload(&parts), data[3072..4572]);
}

/// UNH FFP 12.1, WR-08: exactly the requested range is sent, with the tag of the R2T.
#[test]
fn ffp_12_1_range_and_tag_of_an_r2t() {
    let mut trace = Trace::with_answers(&SOLICITED);
    let data = pattern(4096, 1);
    let itt = trace.submit(write(0, data.clone())).get();
    expect!(trace, ScsiCommand);
    send!(trace, r2t { itt: itt, ttt: 0xabba_abba, desired_length: 2048 });
    let parts = data_out(&mut trace, 4);
    assert!(parts.iter().all(|pdu| pdu.ttt() == 0xabba_abba));
    assert_eq!(payload(&parts), data[..2048]);
}

/// UNH FFP 12.3, WR-08, WR-09, WR-19, QRK-16: several R2Ts of a task are served in the order of arrival.
#[test]
fn ffp_12_3_order_of_r2ts_in_a_task() {
    let mut answers = SOLICITED.to_vec();
    answers.push(("DataSequenceInOrder", "No"));
    let mut config = crate::pair::config();
    config.offer = config.offer.with_data_sequence_in_order(false);
    let mut trace = Trace::established(config, &answers);
    let itt = trace.submit(write(0, pattern(4096, 1))).get();
    expect!(trace, ScsiCommand);
    for (round, offset) in (0..).zip([3072, 2048, 1024, 0]) {
        trace.script.send(
            iscsi_testkit::pdus::r2t()
                .itt(itt)
                .ttt(round)
                .r2t_sn(round)
                .buffer_offset(offset)
                .desired_length(1024),
        );
    }
    trace.deliver();
    let offsets: Vec<u32> = data_out(&mut trace, 8).iter().map(|pdu| pdu.buffer_offset()).collect();
    assert_eq!(offsets, [3072, 3584, 2048, 2560, 1024, 1536, 0, 512]);
}

/// UNH FFP 12.4: R2Ts of two tasks are both served, whichever arrives first.
#[test]
fn ffp_12_4_r2ts_across_tasks() {
    let mut trace = Trace::with_answers(&SOLICITED);
    let tags = [0, 8].map(|lba| trace.submit(write(lba, pattern(512, 1))));
    tags.iter().for_each(|_| drop(expect!(trace, ScsiCommand)));
    for itt in tags.into_iter().rev() {
        send!(trace, r2t { itt: itt.get(), ttt: itt.get(), desired_length: 512 });
        expect!(trace, DataOut { itt: itt.get(), is_final: true });
        send!(trace, scsi_response { itt: itt.get() });
        assert!(trace.result(itt).is_ok());
    }
}

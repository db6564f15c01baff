//! Writes: immediate, unsolicited and solicited data (RFC 7143 §4.2.5.2).

use crate::pair::{BLOCK, Pair, config, pattern, read, target_config, write};
use iscsi_pdu::scsi::Status;

/// WR-03..06, WR-11, WR-12, KEY-13: every mode of the first burst, every relation of the lengths.
#[test]
fn wr_03_every_mode_and_length_moves_every_byte() {
    let lens = [BLOCK, 2 * BLOCK, 3 * BLOCK, 128 * BLOCK, 129 * BLOCK, 2048 * BLOCK];
    for initial_r2t in [false, true] {
        for immediate_data in [false, true] {
            for first_burst in [512, 1000, 65536] {
                for mrdsl in [512, 515, 8192] {
                    let mut target = target_config(4096);
                    target.record = false;
                    target.keys.initial_r2t = initial_r2t;
                    target.keys.immediate_data = immediate_data;
                    target.keys.first_burst_length = first_burst;
                    target.keys.max_recv_data_segment_length = Some(mrdsl);
                    let mut pair = Pair::logged_in(config(), target);
                    for (seed, len) in lens.into_iter().enumerate() {
                        let data = pattern(len, seed as u64);
                        let done = pair.execute(write(5, data.clone())).unwrap();
                        assert_eq!(done.status, Status::GOOD);
                        assert!(pair.target.disk(0).unwrap().holds(5 * BLOCK as u64, &data));
                        let back = pair.execute(read(5, (len / BLOCK) as u16)).unwrap();
                        assert_eq!(back.data, data);
                    }
                    pair.assert_no_violations();
                }
            }
        }
    }
}

//! Property test: with any agreed parameters and any legal behavior of the target, the disk equals a model.

use std::time::Duration;

use iscsi_pdu::scsi::Status;
use iscsi_session::{Config, DigestOffer};
use iscsi_testkit::config::{R2tOrder, TargetConfig};
use proptest::prelude::*;

use crate::pair::{BLOCK, Cut, Pair, config, pattern, read, target_config, write};

const BLOCKS: usize = 512;

/// Parameters that both sides may agree on, and the way in which the target uses them.
#[derive(Clone, Debug)]
struct Terms {
    flags: u16,
    target_segment: u32,
    initiator_segment: u32,
    first_burst: u32,
    max_burst: u32,
    outstanding: u16,
    window: u32,
    data_in_pdu: u32,
    cut: usize,
    order: u8,
}

fn terms() -> impl Strategy<Value = Terms> {
    let segment = || prop_oneof![Just(512u32), 512..2000u32, Just(8192), Just(65536)];
    let burst = || prop_oneof![Just(512u32), 512..5000u32, Just(65536)];
    let numbers = (segment(), segment(), burst(), burst(), 1..5u16);
    (any::<u16>(), numbers, 1..8u32, 256..9000u32, 1..3000usize, 0..4u8).prop_map(
        |(
            flags,
            (target_segment, initiator_segment, first, max_burst, outstanding),
            window,
            data_in_pdu,
            cut,
            order,
        )| Terms {
            flags,
            target_segment,
            initiator_segment,
            first_burst: first.min(max_burst),
            max_burst,
            outstanding,
            window,
            data_in_pdu,
            cut,
            order,
        },
    )
}

impl Terms {
    fn flag(&self, bit: u16) -> bool {
        self.flags & (1 << bit) != 0
    }

    fn config(&self) -> Config {
        let mut config = config();
        let digest = |on| if on { DigestOffer::Crc32cFirst } else { DigestOffer::Never };
        config.offer = config
            .offer
            .with_header_digest(digest(self.flag(0)))
            .with_data_digest(digest(self.flag(1)))
            .with_initial_r2t(self.flag(2))
            .with_immediate_data(self.flag(3))
            .with_data_pdu_in_order(self.flag(4))
            .with_data_sequence_in_order(self.flag(5))
            .with_max_recv_data_segment_length(self.initiator_segment);
        config
    }

    fn target(&self) -> TargetConfig {
        let mut target = target_config(BLOCKS as u64);
        target.record = false;
        target.window = self.window;
        target.keys.initial_r2t = false;
        target.keys.data_pdu_in_order = false;
        target.keys.data_sequence_in_order = false;
        target.keys.max_recv_data_segment_length = Some(self.target_segment);
        target.keys.first_burst_length = self.first_burst;
        target.keys.max_burst_length = self.max_burst;
        target.keys.max_outstanding_r2t = u32::from(self.outstanding);
        target.data_in.pdu = Some(self.data_in_pdu);
        target.data_in.sequence = self.flag(6).then_some(2048);
        target.data_in.separate_status = self.flag(7);
        target.data_in.zero_exp_data_sn = self.flag(8);
        target.data_in.shuffle_pdus = !self.flag(4);
        target.data_in.shuffle_sequences = !self.flag(5) && self.flag(6);
        target.data_in.interleave = self.flag(9);
        target.r2t.repeat_first = self.flag(10);
        target.r2t.order = match self.order {
            1 if !self.flag(5) => R2tOrder::Falling,
            _ => R2tOrder::Rising,
        };
        target.ping_every = u32::from(self.flag(11)) * 3;
        target
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// WR-07..12, WR-17, RD-07, SEQ-02, SEQ-23, DIG-10 and every rule of the target's checker: the disk
    /// equals the model.
    #[test]
    fn disk_equals_a_model_under_any_terms(
        terms in terms(),
        rounds in prop::collection::vec(prop::collection::vec((any::<bool>(), 1..40usize), 1..10), 1..5),
    ) {
        let mut pair = Pair::new(terms.config(), terms.target());
        pair.cut = Cut::Every(terms.cut);
        pair.drive();
        prop_assert!(pair.session.negotiated().is_some(), "login: {:?}", pair.ended);
        let disk = pair.target.disk(0).unwrap();
        let mut model = disk.read(0, BLOCKS * BLOCK).to_vec();
        for (round, ops) in rounds.iter().enumerate() {
            let mut lba = round * 3;
            let mut reads = Vec::new();
            for (is_write, blocks) in ops {
                let range = lba * BLOCK..(lba + blocks) * BLOCK;
                if *is_write {
                    let data = pattern(range.len(), (round * 100 + lba) as u64);
                    model[range].copy_from_slice(&data);
                    pair.submit(write(lba as u32, data));
                } else {
                    reads.push((pair.submit(read(lba as u32, *blocks as u16)), range));
                }
                lba += blocks;
            }
            pair.drive();
            pair.advance(Duration::from_millis(1));
            prop_assert!(pair.completed.values().all(|done| done.as_ref().is_ok_and(|done| done.status == Status::GOOD)), "{:?}", pair.completed);
            prop_assert_eq!(pair.completed.len(), ops.len());
            for (itt, range) in reads {
                prop_assert!(pair.completed[&itt].as_ref().unwrap().data == model[range]);
            }
            pair.completed.clear();
        }
        prop_assert!(disk.holds(0, &model));
        pair.assert_no_violations();
    }
}

//! Tests that no bytes of an initiator make the target or the checker panic.

use crate::rig::{NAMES, Rig, config, pattern};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::{NO_TAG, Pdu};

/// Returns one PDU of each kind that an initiator sends in full feature phase.
fn kinds(rig: &mut Rig) -> Vec<Pdu> {
    let mut pdus = vec![rig.read(0, 2), rig.write(1, 4, &pattern(512))];
    let mut unmap = vec![0; 24];
    unmap[3] = 16;
    pdus.push(rig.command(0xa0, &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], 24, &unmap));
    pdus.push(rig.command(0xc0, &[0x12, 1, 0x83, 0, 255, 0], 255, &[]));
    for opcode in [
        Opcode::NopOut,
        Opcode::TaskManagementRequest,
        Opcode::TextRequest,
        Opcode::DataOut,
        Opcode::Snack,
        Opcode::LogoutRequest,
    ] {
        let mut pdu = rig.request(opcode);
        pdu.set_u32(20, NO_TAG);
        pdu.data = b"SendTargets=All\0".to_vec().into();
        pdus.push(pdu);
    }
    pdus
}

#[test]
fn every_flipped_bit_of_every_header_is_survived() {
    let count = kinds(&mut Rig::login(config(), &[])).len();
    for kind in 0..count {
        for bit in 0..48 * 8 {
            let mut rig = Rig::login(config(), &[("InitialR2T", "No")]);
            let mut pdus = kinds(&mut rig);
            pdus[kind].header[bit / 8] ^= 1 << (bit % 8);
            for pdu in pdus {
                rig.put(pdu);
                rig.drain();
            }
            assert!(rig.target.active_tasks() <= 64);
        }
    }
}

#[test]
fn every_flipped_bit_of_a_login_is_survived() {
    for bit in 0..48 * 8 {
        let mut rig = Rig::connect(config());
        let mut pdu = Pdu::new(Opcode::LoginRequest);
        pdu.header[0] |= 0x40;
        pdu.header[1] = 0x87;
        pdu.data = NAMES.into_iter().collect::<iscsi_testkit::text::Pairs>().join().into();
        pdu.header[bit / 8] ^= 1 << (bit % 8);
        rig.put(pdu);
        assert!(!rig.drain().is_empty());
    }
}

#[test]
fn noise_is_survived() {
    for seed in 0..200_u32 {
        let mut rig = Rig::login(config(), &[]);
        let start = usize::try_from(seed).unwrap() * 97;
        rig.target.receive(rig.id, &pattern(start + 4000)[start..]);
        rig.drain();
        assert!(rig.target.accepted() == 1);
    }
}

//! An initiator for the tests: it numbers its PDUs, and the test decides everything else.

#![allow(dead_code, reason = "every test file uses a part of it")]

use bytes::{Bytes, BytesMut};
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::frame::Framing;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::{CONTINUE, FINAL, NO_TAG, Pdu};
use iscsi_testkit::target::{ConnId, Target};
use iscsi_testkit::text::Pairs;

pub(crate) const NAME: &str = "iqn.2026-01.org.example:disk";

pub(crate) const NAMES: [(&str, &str); 3] = [
    ("InitiatorName", "iqn.2026-01.org.example:host"),
    ("TargetName", NAME),
    ("SessionType", "Normal"),
];

pub(crate) fn config() -> TargetConfig {
    TargetConfig::new(NAME, RamDisk::new(512, 256))
}

pub(crate) struct Rig {
    pub(crate) target: Target,
    pub(crate) id: ConnId,
    pub(crate) framing: Framing,
    pub(crate) cmd_sn: u32,
    pub(crate) exp_stat_sn: u32,
    pub(crate) next_itt: u32,
    pub(crate) isid: [u8; 6],
    pub(crate) tsih: u16,
    pub(crate) cid: u16,
    stream: BytesMut,
}

impl Rig {
    /// Connects without a login.
    pub(crate) fn connect(config: TargetConfig) -> Self {
        let mut target = Target::new(config);
        let id = target.accept();
        Self {
            target,
            id,
            framing: Framing::PLAIN,
            cmd_sn: 100,
            exp_stat_sn: 0,
            next_itt: 1,
            isid: [0x80, 1, 2, 3, 4, 5],
            tsih: 0,
            cid: 1,
            stream: BytesMut::new(),
        }
    }

    /// Logs in, starting in the operational stage, and offers `keys`.
    pub(crate) fn login(config: TargetConfig, keys: &[(&str, &str)]) -> Self {
        let mut rig = Self::connect(config);
        let response = rig.login_request(1, 3, FINAL, &[&NAMES[..], keys].concat());
        assert_eq!(response.login_status(), 0, "{response:?}");
        assert!(response.is_final());
        rig.tsih = response.tsih();
        let answers = Pairs::split(&response.data).unwrap();
        rig.framing.header_digest = answers.get("HeaderDigest") == Some("CRC32C");
        rig.framing.data_digest = answers.get("DataDigest") == Some("CRC32C");
        rig
    }

    /// Logs in with the same initiator over a new connection; the new session replaces the old one.
    pub(crate) fn log_in_again(self) -> Self {
        let mut target = self.target;
        let id = target.accept();
        let stream = BytesMut::new();
        let mut rig = Self { target, id, framing: Framing::PLAIN, tsih: 0, stream, ..self };
        let response = rig.login_request(1, 3, FINAL, &NAMES);
        assert_eq!(response.login_status(), 0, "{response:?}");
        rig
    }

    pub(crate) fn login_request(
        &mut self,
        csg: u8,
        nsg: u8,
        flags: u8,
        text: &[(&str, &str)],
    ) -> Pdu {
        let nsg = if flags & FINAL == 0 { 0 } else { nsg };
        let mut pdu = Pdu::new(Opcode::LoginRequest);
        pdu.header[0] |= 0x40;
        pdu.header[1] = flags & (FINAL | CONTINUE) | csg << 2 | nsg;
        pdu.set(8, &self.isid);
        pdu.set(14, &self.tsih.to_be_bytes());
        pdu.set(20, &self.cid.to_be_bytes());
        pdu.set_u32(24, self.cmd_sn);
        pdu.data = text.iter().copied().collect::<Pairs>().join().into();
        self.put(pdu);
        self.next()
    }

    /// Sets ExpStatSN, and sends the PDU.
    pub(crate) fn put(&mut self, mut pdu: Pdu) {
        pdu.set_u32(28, self.exp_stat_sn);
        let mut bytes = BytesMut::new();
        self.framing.put(&pdu, &mut bytes);
        self.target.receive(self.id, &bytes);
    }

    /// Removes and returns the next PDU of the target.
    pub(crate) fn next(&mut self) -> Pdu {
        self.try_next().expect("the target has something to say")
    }

    pub(crate) fn try_next(&mut self) -> Option<Pdu> {
        loop {
            if let Some(pdu) = self.framing.take(&mut self.stream, 1 << 24).unwrap() {
                self.count(&pdu);
                return Some(pdu);
            }
            let bytes = self.target.transmit(self.id);
            if bytes.is_empty() {
                return None;
            }
            self.stream.extend_from_slice(&bytes);
        }
    }

    fn count(&mut self, pdu: &Pdu) {
        let open = pdu.is(Opcode::R2t)
            || pdu.is(Opcode::DataIn) && !pdu.has_status()
            || pdu.is(Opcode::NopIn) && pdu.itt() == NO_TAG;
        if !open {
            self.exp_stat_sn = pdu.stat_sn().wrapping_add(1);
        }
    }

    /// Removes and returns all PDUs that the target has to send.
    pub(crate) fn drain(&mut self) -> Vec<Pdu> {
        std::iter::from_fn(|| self.try_next()).collect()
    }

    /// Returns a SCSI command with its CmdSN and tag, without sending it.
    pub(crate) fn command(&mut self, flags: u8, cdb: &[u8], edtl: u32, data: &[u8]) -> Pdu {
        let mut pdu = Pdu::new(Opcode::ScsiCommand);
        pdu.header[1] = flags | 1;
        pdu.set_u32(16, self.next_itt);
        pdu.set_u32(20, edtl);
        pdu.set_u32(24, self.cmd_sn);
        pdu.set(32, cdb);
        pdu.data = Bytes::copy_from_slice(data);
        self.next_itt += 1;
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        pdu
    }

    /// Returns a request of another kind, not immediate, with its CmdSN and tag, without sending it.
    pub(crate) fn request(&mut self, opcode: Opcode) -> Pdu {
        let mut pdu = Pdu::new(opcode);
        pdu.set_u32(16, self.next_itt);
        pdu.set_u32(24, self.cmd_sn);
        self.next_itt += 1;
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        pdu
    }

    pub(crate) fn read(&mut self, lba: u8, blocks: u8) -> Pdu {
        let cdb = [0x28, 0, 0, 0, 0, lba, 0, 0, blocks, 0];
        self.command(0xc0, &cdb, u32::from(blocks) * 512, &[])
    }

    pub(crate) fn write(&mut self, lba: u8, blocks: u8, immediate: &[u8]) -> Pdu {
        let cdb = [0x2a, 0, 0, 0, 0, lba, 0, 0, blocks, 0];
        self.command(0xa0, &cdb, u32::from(blocks) * 512, immediate)
    }

    /// Sends the data that an R2T requests, in PDUs of at most `step` bytes.
    pub(crate) fn answer(&mut self, r2t: &Pdu, data: &[u8], step: usize) {
        let start = r2t.buffer_offset() as usize;
        let end = start + r2t.desired_length() as usize;
        let mut at = start;
        let mut data_sn = 0;
        while at < end {
            let stop = (at + step).min(end);
            let mut pdu = Pdu::new(Opcode::DataOut);
            pdu.header[1] = if stop == end { FINAL } else { 0 };
            pdu.set(8, &r2t.lun().to_be_bytes());
            pdu.set_u32(16, r2t.itt());
            pdu.set_u32(20, r2t.ttt());
            pdu.set_u32(36, data_sn);
            pdu.set_u32(40, u32::try_from(at).unwrap());
            pdu.data = Bytes::copy_from_slice(&data[at..stop]);
            self.put(pdu);
            data_sn += 1;
            at = stop;
        }
    }

    /// Sends one unsolicited Data-Out.
    pub(crate) fn unsolicited(
        &mut self,
        itt: u32,
        data_sn: u32,
        offset: u32,
        data: &[u8],
        last: bool,
    ) {
        let mut pdu = Pdu::new(Opcode::DataOut);
        pdu.header[1] = if last { FINAL } else { 0 };
        pdu.set_u32(16, itt);
        pdu.set_u32(20, NO_TAG);
        pdu.set_u32(36, data_sn);
        pdu.set_u32(40, offset);
        pdu.data = Bytes::copy_from_slice(data);
        self.put(pdu);
    }

    pub(crate) fn assert_no_violations(&self) {
        assert!(self.target.violations().is_empty(), "{:#?}", self.target.violations());
    }
}

/// Returns bytes that depend on their offset.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0_u32..)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13).to_be_bytes()[3])
        .take(length)
        .collect()
}

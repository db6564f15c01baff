//! Sends PDUs: their order, sequence numbers and faults.

use bytes::Bytes;

use super::connection::{Outgoing, Phase};
use super::node::Target;
use crate::conn_id::ConnId;
use crate::fault::Effect;
use crate::frame::Framing;
use crate::opcode::Opcode;
use crate::pdu::Pdu;

/// Bytes after which one call of [`Target::transmit`] stops.
const BATCH: usize = 256 * 1024;

impl Target {
    /// Returns the bytes to send next, about 256 KiB at most; empty if there are none.
    pub fn transmit(&mut self, id: ConnId) -> Bytes {
        let mut pieces = self.transmit_pieces(id, BATCH);
        if pieces.len() > 1 { pieces.concat().into() } else { pieces.pop().unwrap_or_default() }
    }

    /// Returns the bytes to send next as pieces; large data are not copied. Stops after `batch` bytes.
    pub(crate) fn transmit_pieces(&mut self, id: ConnId, batch: usize) -> Vec<Bytes> {
        self.catch_up();
        while let Some(connection) = self.connections.get(id.0)
            && connection.outbox.len() < batch
            && let Some(pdu) = self.next_outgoing(id)
        {
            self.emit(id, pdu);
        }
        let Some(connection) = self.connections.get_mut(id.0) else { return Vec::new() };
        let pieces = connection.outbox.take();
        if matches!(connection.phase, Phase::Closing) && connection.waiting.queue.is_empty() {
            self.close(id);
        }
        pieces
    }

    fn next_outgoing(&mut self, id: ConnId) -> Option<Pdu> {
        let interleave = self.config.data_in.interleave;
        let queue = &mut self.connections.get_mut(id.0)?.waiting.queue;
        let mut read = match queue.pop_front()? {
            Outgoing::Pdu(pdu) => return Some(pdu),
            Outgoing::Read(read) => read,
        };
        let pdu = read.next_pdu();
        match (read.is_done(), interleave) {
            (true, _) => {}
            // The rest of the read goes before the next PDU, which may be the response that ends this read.
            (false, true) => {
                let is_pdu = |outgoing: &Outgoing| matches!(outgoing, Outgoing::Pdu(_));
                let at = queue.iter().position(is_pdu).unwrap_or(queue.len());
                queue.insert(at, Outgoing::Read(read));
            }
            (false, false) => queue.push_front(Outgoing::Read(read)),
        }
        pdu
    }

    /// Numbers a PDU, applies the faults that are due, and puts it into the outbox.
    fn emit(&mut self, id: ConnId, mut pdu: Pdu) {
        if pdu.is(Opcode::ScsiResponse) || pdu.is(Opcode::DataIn) && pdu.has_status() {
            self.end_task(id, pdu.itt());
        }
        self.stamp(id, &mut pdu);
        for fault in self.sending_faults(id, &pdu) {
            if !self.strike(id, &mut pdu, fault.effect) {
                return;
            }
        }
        self.put(id, &pdu);
        self.put_those_behind(id);
    }

    /// Puts the PDUs that a fault held back into the outbox, once enough later PDUs were sent.
    fn put_those_behind(&mut self, id: ConnId) {
        let behind = &mut self.connections[id.0].waiting.behind;
        behind.iter_mut().for_each(|(more, _)| *more = more.saturating_sub(1));
        let due: Vec<_> = behind.extract_if(.., |(more, _)| *more == 0).collect();
        due.iter().for_each(|(_, pdu)| self.put(id, pdu));
    }

    fn end_task(&mut self, id: ConnId, itt: u32) {
        if let Some(session) = self.session_of(id) {
            session.tasks.remove(&itt);
        }
    }

    /// Sets `StatSN`, `ExpCmdSN` and `MaxCmdSN` (RFC 7143 §4.2.2).
    fn stamp(&mut self, id: ConnId, pdu: &mut Pdu) {
        let (exp_cmd_sn, max_cmd_sn) = self.window_of(id);
        let connection = &mut self.connections[id.0];
        pdu.set_u32(28, exp_cmd_sn);
        pdu.set_u32(32, max_cmd_sn);
        if !pdu.is(Opcode::DataIn) || pdu.has_status() {
            pdu.set_u32(24, connection.stat_sn);
        }
        if pdu.uses_stat_sn() {
            connection.stat_sn = connection.stat_sn.wrapping_add(1);
        }
    }

    fn window_of(&mut self, id: ConnId) -> (u32, u32) {
        let login = self.connections[id.0].login_cmd_sn;
        let window = self.config.window;
        match self.session_of(id) {
            Some(session) => (session.exp_cmd_sn, session.max_cmd_sn()),
            None => (login, login.wrapping_add(window).wrapping_sub(1)),
        }
    }

    /// Applies a fault to a PDU. Returns `false` if the PDU must not be sent any more.
    fn strike(&mut self, id: ConnId, pdu: &mut Pdu, effect: Effect) -> bool {
        match effect {
            Effect::Close => self.close(id),
            Effect::Swallow => {}
            Effect::CorruptHeaderDigest => self
                .put_corrupted(id, pdu, |framing, length| framing.header_digest.then_some(length)),
            Effect::CorruptDataDigest => {
                self.put_corrupted(id, pdu, |framing, _| framing.data_digest.then_some(usize::MAX))
            }
            Effect::Duplicate => {
                self.put(id, pdu);
                return true;
            }
            Effect::Before(other) => {
                self.put(id, &other);
                return true;
            }
            Effect::Behind(more) => self.connections[id.0].waiting.behind.push((more, pdu.clone())),
            Effect::SkipStatSn(count) => {
                pdu.set_u32(24, pdu.stat_sn().wrapping_add(count));
                let connection = &mut self.connections[id.0];
                connection.stat_sn = connection.stat_sn.wrapping_add(count);
                return true;
            }
            other @ (Effect::SetByte { .. }
            | Effect::SetWord { .. }
            | Effect::AddWord { .. }
            | Effect::SetData(_)) => {
                edit(pdu, &other);
                return true;
            }
            Effect::Sense(_)
            | Effect::LoseCached(_)
            | Effect::Status(_)
            | Effect::Delay(_)
            | Effect::ExecuteLate(_)
            | Effect::InvertByte => {
                return true;
            }
        }
        false
    }

    /// Puts a PDU with one wrong digest byte into the outbox. `at` returns the index of the byte from the
    /// framing and the length of the headers. An index beyond the PDU means its last byte.
    fn put_corrupted(
        &mut self,
        id: ConnId,
        pdu: &Pdu,
        at: impl FnOnce(Framing, usize) -> Option<usize>,
    ) {
        let start = self.connections[id.0].outbox.len();
        let place = at(self.connections[id.0].framing, 48 + pdu.ahs.len());
        self.put(id, pdu);
        let outbox = &mut self.connections[id.0].outbox;
        let last = outbox.len().saturating_sub(1);
        if let Some(place) = place {
            outbox.corrupt(start.saturating_add(place).min(last), 0x5a);
        }
    }

    fn put(&mut self, id: ConnId, pdu: &Pdu) {
        self.checker.from_target(id, pdu);
        let connection = &mut self.connections[id.0];
        // The digests that a login negotiates start with the PDU after the login (RFC 7143 §13.1).
        let login = pdu.is(Opcode::LoginResponse);
        let framing = if login { Framing::PLAIN } else { connection.framing };
        let before = connection.outbox.len();
        connection.outbox.put(framing, pdu);
        connection.tallies.sent.bytes += (connection.outbox.len() - before) as u64;
        self.cut_after_sent(id);
    }

    fn cut_after_sent(&mut self, id: ConnId) {
        let Some(excess) = self.excess_sent(id) else { return };
        let outbox = &mut self.connections[id.0].outbox;
        outbox.truncate(outbox.len().saturating_sub(crate::convert::index(excess)));
        self.close(id);
    }

    /// Closes the connection once everything that is queued has been sent.
    pub(super) fn close_after_transmit(&mut self, id: ConnId) {
        if let Some(connection) = self.connections.get_mut(id.0)
            && !connection.is_closed()
        {
            connection.phase = Phase::Closing;
        }
    }
}

/// Changes the header or the data as a fault requires.
pub(super) fn edit(pdu: &mut Pdu, effect: &Effect) {
    match effect {
        Effect::SetByte { at, value } => pdu.set(*at, &[*value]),
        Effect::SetWord { at, value } => pdu.set_u32(*at, *value),
        Effect::AddWord { at, value } => pdu.set_u32(*at, pdu.u32_at(*at).wrapping_add(*value)),
        Effect::SetData(data) => pdu.data = data.clone(),
        Effect::Close
        | Effect::Swallow
        | Effect::Duplicate
        | Effect::CorruptHeaderDigest
        | Effect::CorruptDataDigest
        | Effect::Before(_)
        | Effect::Behind(_)
        | Effect::SkipStatSn(_)
        | Effect::Sense(_)
        | Effect::LoseCached(_)
        | Effect::Status(_)
        | Effect::Delay(_)
        | Effect::ExecuteLate(_)
        | Effect::InvertByte => {}
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::config::TargetConfig;
    use crate::disk::RamDisk;
    use crate::text::Pairs;

    const NAME: &str = "iqn.2026-01.org.example:null";

    fn put(target: &mut Target, id: ConnId, pdu: &Pdu) {
        let mut stream = BytesMut::new();
        Framing::PLAIN.put(pdu, &mut stream);
        target.receive_from(id, &mut stream);
    }

    /// Returns a session whose initiator accepts PDUs of 64 KiB.
    fn logged_in(disk: &RamDisk) -> (Target, ConnId) {
        let mut target = Target::new(TargetConfig::new(NAME, disk.clone()));
        let id = target.accept();
        let mut login = Pdu::new(Opcode::LoginRequest);
        (login.header[0], login.header[1]) = (0x43, 0x87);
        login.set(8, &[0x80, 0, 0, 0, 0, 1]);
        let pairs = [
            ("InitiatorName", "iqn.2026-01.org.example:host"),
            ("TargetName", NAME),
            ("SessionType", "Normal"),
            ("MaxRecvDataSegmentLength", "65536"),
        ];
        login.data = pairs.into_iter().collect::<Pairs>().join().into();
        put(&mut target, id, &login);
        assert!(!target.transmit(id).is_empty());
        (target, id)
    }

    /// A read of a null disk: each data piece for the socket is the disk's own buffer of zeros.
    #[test]
    fn what_a_null_disk_sends_is_not_copied() {
        let disk = RamDisk::null(512, 1 << 31);
        let (mut target, id) = logged_in(&disk);
        let mut read = Pdu::new(Opcode::ScsiCommand);
        read.header[1] = 0xc1;
        read.set_u32(16, 1);
        read.set_u32(20, 1 << 20);
        read.set_u32(28, 2);
        read.set(32, &[0x28, 0, 0x12, 0x34, 0x56, 0x78, 0, 8, 0, 0]);
        put(&mut target, id, &read);
        let pieces = target.transmit_pieces(id, usize::MAX);
        let zeros = disk.read(0, 65_536).as_ptr_range();
        let (data, headers): (Vec<_>, Vec<_>) =
            pieces.iter().partition(|piece| piece.len() == 65_536);
        assert_eq!((data.len(), headers.len()), (16, 16));
        assert!(data.iter().all(|piece| piece.as_ptr_range() == zeros));
        assert!(headers.iter().all(|piece| piece.len() == 48));
        assert_eq!(target.violations(), []);
    }
}

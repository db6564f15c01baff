//! Runs a session and the test target in one process, without sockets, for the benches.

use std::io::IoSlice;
use std::time::Instant;

use bytes::{Buf, Bytes, BytesMut};
use iscsi_pdu::{Cid, IscsiName, Isid, Itt};
use iscsi_session::{Command, Config, Offer, Output, Session, SessionKind};
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::target::{ConnId, Target};

const NAME: &str = "iqn.2026-01.org.example:disk";

/// A session that is logged in, with its target.
#[derive(Debug)]
pub struct Pair {
    session: Session,
    target: Target,
    link: ConnId,
    now: Instant,
    answers: Bytes,
}

impl Pair {
    /// Logs in to a RAM disk of 64 MiB with this offer.
    ///
    /// # Errors
    /// The error of the login, as text.
    pub fn new(offer: Offer) -> Result<Self, String> {
        let name = |name: &str| IscsiName::parse(name).map_err(|error| error.to_string());
        let kind = SessionKind::Normal { target_name: name(NAME)? };
        let mut config =
            Config::new(name("iqn.2026-01.org.example:host")?, Isid::random([1, 2, 3], 0), kind);
        config.offer = offer;
        let mut answers = TargetConfig::new(NAME, RamDisk::new(512, 128 * 1024));
        answers.keys.initial_r2t = false;
        answers.keys.first_burst_length = 1 << 20;
        answers.keys.max_burst_length = 1 << 20;
        let mut target = Target::new(answers);
        let link = target.accept();
        let now = Instant::now();
        let session = Session::new(config, |bytes: &mut [u8]| bytes.fill(7), now);
        let mut pair = Self { session, target, link, now, answers: Bytes::new() };
        pair.session.handle_connected(Cid(0), now);
        pair.drive();
        pair.session.negotiated().map(|_| ()).ok_or("the login failed")?;
        Ok(pair)
    }

    /// Submits a command to the session.
    ///
    /// # Errors
    /// The reason why the session does not accept the command, as text.
    pub fn submit(&mut self, command: Command) -> Result<Itt, String> {
        self.session.submit(command, self.now).map_err(|error| error.to_string())
    }

    /// Moves bytes between session and target until neither has any to send. Returns the number of commands
    /// that succeeded.
    pub fn drive(&mut self) -> usize {
        let mut good = 0;
        loop {
            while let Some(output) = self.session.poll_output() {
                good += usize::from(matches!(output, Output::Completed { result: Ok(_), .. }));
            }
            if !(self.carry_to_target() | self.carry_to_session()) {
                return good;
            }
        }
    }

    /// Executes only the sending half of the session: it cuts frames, returns them as slices, and counts them
    /// as sent. Returns the number of bytes.
    pub fn transmit_only(&mut self) -> usize {
        let mut bytes = 0;
        while let Some(mut transmit) = self.session.poll_transmit(Cid(0), self.now) {
            let mut slices = [IoSlice::new(&[]); 1024];
            let count = transmit.chunks_vectored(&mut slices);
            let len = slices.iter().take(count).map(|slice| slice.len()).sum();
            transmit.advance(len);
            bytes += len;
        }
        bytes
    }

    fn carry_to_target(&mut self) -> bool {
        let mut bytes = BytesMut::new();
        while let Some(mut transmit) = self.session.poll_transmit(Cid(0), self.now) {
            bytes.extend_from_slice(&transmit.copy_to_bytes(transmit.remaining()));
        }
        self.target.receive(self.link, &bytes);
        !bytes.is_empty()
    }

    fn carry_to_session(&mut self) -> bool {
        self.answers = self.target.transmit(self.link);
        let any = self.answers.has_remaining();
        while self.answers.has_remaining() {
            let mut filled = 0;
            for slice in &mut self.session.receive_slices(Cid(0)) {
                let len = slice.len().min(self.answers.remaining());
                if let Some(part) = slice.get_mut(..len) {
                    self.answers.copy_to_slice(part);
                }
                filled += len;
            }
            self.session.handle_received(Cid(0), filled, self.now);
        }
        any
    }
}

//! Tests that data that has arrived on a connection is processed, even if the connection cannot be written
//! to.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::support::{TARGET, initiator, soon};
use iscsi_initiator::scsi::{Cdb, Lun};
use iscsi_initiator::{Error, Options};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdus::{Template, async_message, reject, scsi_response};
use iscsi_testkit::script::Script;

/// A target that reads one command. When the test says so, it sends its last PDU and resets the connection,
/// because it has not read everything.
struct Dying {
    address: SocketAddr,
    /// Receives a message when a second command has arrived, which will not be read.
    full: Receiver<()>,
    die: Sender<()>,
    dead: Receiver<()>,
}

impl Dying {
    fn start(last_words: fn(&iscsi_testkit::pdu::Pdu) -> Template) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ((has_more, full), (die, dies)) = (channel(), channel());
        let (died, dead) = channel();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut script = Script::new();
            let mut header = [0; 48];
            stream.read_exact(&mut header).unwrap();
            let len = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
            let mut text = vec![0; len.next_multiple_of(4)];
            stream.read_exact(&mut text).unwrap();
            script.receive(&[&header[..], &text].concat());
            script.answer_login(&[]);
            stream.write_all(&script.transmit()).unwrap();
            stream.read_exact(&mut header).unwrap();
            script.receive(&header);
            let command = script.expect(Opcode::ScsiCommand);
            assert_eq!(TcpStream::peek(&stream, &mut [0]).unwrap(), 1);
            has_more.send(()).unwrap();
            dies.recv().unwrap();
            script.send(last_words(&command));
            stream.write_all(&script.transmit()).unwrap();
            drop(stream);
            died.send(()).unwrap();
        });
        Self { address, full, die, dead }
    }
}

/// Sends two commands, and returns their results. The target sends the PDU that `words` makes of the first one, and
/// resets the connection. The driver notices that only when it writes a third command.
async fn last_words(words: fn(&iscsi_testkit::pdu::Pdu) -> Template) -> [Result<(), Error>; 2] {
    let target = Dying::start(words);
    let url = format!("iscsi://{}/{TARGET}", target.address);
    let session = soon(initiator(Options::default()).connect(url)).await.unwrap();
    let unit = session.logical_unit(Lun::ZERO);
    let execute = || {
        let unit = unit.clone();
        tokio::spawn(async move {
            let command = unit.command(Cdb::test_unit_ready());
            unit.execute(command).await.map(drop)
        })
    };
    let [first, second] = [execute(), execute()];
    soon(tokio::task::spawn_blocking(move || {
        target.full.recv().unwrap();
        target
    }))
    .await
    .map(|target| {
        // The only thread of the runtime waits here, so the driver does not notice the reset until it has
        // the next command to write.
        target.die.send(()).unwrap();
        target.dead.recv().unwrap();
    })
    .unwrap();
    let third = execute();
    assert!(soon(third).await.unwrap().is_err());
    [soon(first).await.unwrap(), soon(second).await.unwrap()]
}

#[tokio::test]
async fn a_status_that_came_before_the_write_failed() {
    let [first, second] = last_words(|command| scsi_response().itt(command.itt())).await;
    first.unwrap();
    let error = second.unwrap_err();
    assert!(error.to_string().contains("may have been executed"), "{error}");
}

#[tokio::test]
async fn a_dropped_session_is_known_by_its_message() {
    let [first, _] = last_words(|_| async_message().event(3).parameters([0, 7, 9])).await;
    let error = first.unwrap_err().to_string();
    assert!(error.contains("dropped the session"), "{error}");
}

#[tokio::test]
async fn a_reject_that_came_before_the_write_failed() {
    // The reason of the Reject: waiting for logout.
    let [first, _] = last_words(|command| reject(command).response(0x0c)).await;
    let error = first.unwrap_err().to_string();
    assert!(error.contains("asked to log out"), "{error}");
}

//! Tests of requests that callers send themselves: the target receives them although the event loop does not
//! run.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crate::support::{TARGET, initiator, soon};
use iscsi_initiator::scsi::{Cdb, Lun};
use iscsi_initiator::{LogicalUnit, Options};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::Pdu;
use iscsi_testkit::pdus::scsi_response;
use iscsi_testkit::script::Script;

/// A target that responds only when the test says so, in the order of the commands.
struct Patient {
    address: SocketAddr,
    commands: Receiver<()>,
    answers: Sender<usize>,
}

impl Patient {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ((has_come, commands), (answers, may_answer)) = (channel(), channel());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut script = Script::new();
            receive(&mut stream, &mut script);
            script.answer_login(&[]);
            stream.write_all(&script.transmit()).unwrap();
            let (mut reader, tasks) = (stream.try_clone().unwrap(), channel::<Pdu>());
            std::thread::spawn(move || {
                let mut numbers = script;
                for count in may_answer {
                    for task in tasks.1.iter().take(count) {
                        numbers.send(scsi_response().itt(task.itt()));
                    }
                    stream.write_all(&numbers.transmit()).unwrap();
                }
            });
            let mut script = Script::in_full_feature();
            while receive(&mut reader, &mut script) {
                drop(tasks.0.send(script.expect(Opcode::ScsiCommand)));
                let _ = has_come.send(());
            }
        });
        Self { address, commands, answers }
    }

    /// Waits until `count` commands have arrived. This blocks the only thread of the runtime, so nothing is
    /// sent meanwhile.
    fn await_commands(&self, count: usize) {
        for _ in 0..count {
            self.commands.recv_timeout(Duration::from_secs(60)).expect("it was not sent");
        }
    }

    fn answer(&self, count: usize) {
        self.answers.send(count).unwrap();
    }
}

/// Receives one PDU. Returns `false` when the connection is closed.
fn receive(stream: &mut TcpStream, script: &mut Script) -> bool {
    let mut header = [0; 48];
    if stream.read_exact(&mut header).is_err() {
        return false;
    }
    let len = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
    let mut data = vec![0; len.next_multiple_of(4)];
    stream.read_exact(&mut data).unwrap();
    script.receive(&[&header[..], &data].concat());
    true
}

/// A command in flight.
type Asked = Pin<Box<dyn Future<Output = ()>>>;

/// Sends a command, and returns without waiting for its response.
async fn ask(unit: &LogicalUnit) -> Asked {
    let unit = unit.clone();
    let mut asked: Asked = Box::pin(async move {
        unit.execute(unit.command(Cdb::test_unit_ready())).await.unwrap();
    });
    let is_waiting = std::future::poll_fn(|context| {
        std::task::Poll::Ready(asked.as_mut().poll(context).is_pending())
    });
    assert!(is_waiting.await, "nobody has answered");
    asked
}

#[tokio::test]
async fn a_lone_request_is_sent_by_its_caller() {
    let target = Patient::start();
    let url = format!("iscsi://{}/{TARGET}", target.address);
    let session = soon(initiator(Options::default()).connect(url)).await.unwrap();
    let unit = session.logical_unit(Lun::ZERO);
    for _ in 0..2 {
        let asked = ask(&unit).await;
        target.await_commands(1);
        target.answer(1);
        soon(asked).await;
    }
}

/// When eight commands are in flight and four more are submitted, the caller of the fourth one sends these
/// four. It does not wait for the other callers that have received their results, although they have not
/// submitted another command.
#[tokio::test]
async fn a_quarter_of_the_small_requests_is_sent_before_the_others_are_made() {
    let target = Patient::start();
    let url = format!("iscsi://{}/{TARGET}", target.address);
    let session = soon(initiator(Options::default()).connect(url)).await.unwrap();
    let unit = session.logical_unit(Lun::ZERO);
    let mut under_way = Vec::new();
    for _ in 0..16 {
        under_way.push(ask(&unit).await);
    }
    let target = soon(tokio::task::spawn_blocking(move || {
        target.await_commands(16);
        target
    }))
    .await
    .unwrap();
    target.answer(8);
    for answered in under_way.drain(..8) {
        soon(answered).await;
    }
    for _ in 0..4 {
        under_way.push(ask(&unit).await);
    }
    target.await_commands(4);
    target.answer(12);
    for answered in under_way {
        soon(answered).await;
    }
}

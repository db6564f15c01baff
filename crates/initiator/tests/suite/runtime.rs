//! Tests that calls outside of a runtime return an error that says so, and do not panic.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use crate::support::{Rig, initiator, soon, until};
use iscsi_initiator::{Advice, Error, ErrorKind, Options, Sessions};
use tokio::runtime::Runtime;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future without a runtime.
fn wait<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

fn is_told<T>(result: Result<T, Error>) -> bool {
    result.is_err_and(|error| error.advice() == Some(Advice::UseRuntime))
}

#[test]
fn what_opens_sessions_says_that_it_wants_a_runtime() {
    let initiator = initiator(Options::default());
    let portal = "iscsi://127.0.0.1:1";
    let unit = format!("{portal}/{}/0", crate::support::TARGET);
    assert!(is_told(wait(initiator.disk(unit.as_str()))));
    assert!(is_told(wait(initiator.connect(unit.as_str()))));
    assert!(is_told(wait(initiator.discover(portal))));
}

#[test]
fn so_does_what_may_have_to_wait() {
    let runtime = Runtime::new().unwrap();
    let options = Options::default().with_sessions(Sessions::Fixed(2));
    let (rig, disk) = runtime.block_on(async {
        let rig = Rig::start(512, 64, |_| {}).await;
        let disk = initiator(options).disk(rig.unit_url(0, "")).await.unwrap();
        (rig, disk)
    });
    assert!(is_told(wait(disk.read_at(0, 512))));
    assert!(is_told(wait(disk.write_at(0, vec![1; 512]))));
    assert!(is_told(wait(disk.flush())));
    assert!(is_told(wait(disk.write_zeroes(0, 512))));
    assert!(is_told(wait(disk.extents(0, 512))));
    assert!(is_told(wait(disk.unit().test_unit_ready())));
    // Nothing was sent before, and the disk still works.
    runtime.block_on(disk.write_at(0, vec![1; 512])).unwrap();
    assert!(rig.disk.holds(0, &[1; 512]));
    wait(disk.sessions()[0].ping()).unwrap();
    // The runtime of the sessions executes their logout.
    wait(disk.logout()).unwrap();
    rig.assert_clean();
}

/// Handles outlive the runtime of their sessions: calls from another runtime return an error.
#[test]
fn what_is_asked_of_sessions_whose_runtime_is_gone_ends() {
    let (runtime, gone) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let rig = runtime.block_on(Rig::start(512, 64, |_| {}));
    let options = Options::default().with_sessions(Sessions::Fixed(2));
    let (session, disk) = gone.block_on(async {
        let initiator = initiator(options);
        let session = initiator.connect(rig.unit_url(0, "")).await.unwrap();
        (session, initiator.disk(rig.unit_url(0, "")).await.unwrap())
    });
    let mut notices = session.notices();
    rig.server.with(|target| target.hold());
    let (unit, writer) = (disk.unit(), disk.clone());
    let sent = runtime.spawn(async move { unit.test_unit_ready().await });
    let write = runtime.spawn(async move { writer.write_at(0, vec![1; 512]).await });
    runtime.block_on(until(|| rig.server.with(|target| target.active_tasks()) == 2));
    drop(gone);
    runtime.block_on(async {
        assert_eq!(
            soon(session.closed()).await.as_ref().err().map(Error::kind),
            Some(ErrorKind::Closed)
        );
        assert_eq!(
            soon(session.logout()).await.as_ref().err().map(Error::kind),
            Some(ErrorKind::Closed)
        );
        assert_eq!(
            soon(session.ping()).await.as_ref().err().map(Error::kind),
            Some(ErrorKind::Closed)
        );
        assert!(soon(notices.recv()).await.is_none() && !session.is_open());
        assert_eq!(
            soon(disk.read_at(0, 512)).await.as_ref().err().map(Error::kind),
            Some(ErrorKind::Closed)
        );
        assert!(soon(sent).await.unwrap().unwrap_err().may_have_executed());
        assert!(soon(write).await.unwrap().unwrap_err().may_have_executed());
        assert!(!disk.is_settled());
        assert_eq!(
            soon(disk.logout()).await.as_ref().err().map(Error::kind),
            Some(ErrorKind::Unsettled)
        );
    });
    rig.assert_clean();
}

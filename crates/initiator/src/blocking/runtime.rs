//! Runs a runtime on a separate thread, and lets other threads wait for futures that use it.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::coop;

use crate::error::{CallerCause, Error};

/// A tokio runtime, which ends when it is dropped.
pub(super) struct Runtime {
    handle: Handle,
    /// Dropping the sender makes the thread end.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Runtime {
    /// Starts the thread and its runtime.
    ///
    /// # Errors
    /// When the system has no more threads or files.
    pub(super) fn start() -> Result<Self, Error> {
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, told) = mpsc::sync_channel(1);
        let run = move || {
            let runtime = match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(tell.send(Err(error))),
            };
            drop(tell.send(Ok(runtime.handle().clone())));
            // Nothing is sent; the wait ends when the sender is dropped with the [`Runtime`].
            drop(runtime.block_on(stopped));
            // The shutdown does not wait for blocking tasks, such as a name lookup, which may take long.
            runtime.shutdown_background();
        };
        let failed =
            |error: std::io::Error| Error::from(CallerCause::RuntimeNotStarted(error.to_string()));
        let thread = thread::Builder::new().name("iscsi-initiator".to_owned());
        let thread = thread.spawn(run).map_err(failed)?;
        let handle = told.recv().map_err(|_| Error::closed())?.map_err(failed)?;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Polls a future on the calling thread until it ends. Its sockets and timers, and the tasks that it
    /// spawns, run on the runtime's thread.
    ///
    /// # Errors
    /// [`CallerCause::InsideRuntime`] in an async task; [`CallerCause::NoRuntime`] at the end of the calling
    /// thread, when its thread-local variables are destroyed.
    pub(super) fn block_on<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        check_may_block()?;
        let _entered = self.handle.enter();
        let parked =
            Arc::new(Parked { thread: thread::current(), is_woken: AtomicBool::new(false) });
        let waker = Waker::from(Arc::clone(&parked));
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
                return Ok(value);
            }
            parked.wait();
        }
    }

    /// Runs a future on the runtime's thread, without waiting for it.
    pub(super) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(future);
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").finish_non_exhaustive()
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        drop(self.stop.take());
        let Some(thread) = self.thread.take() else { return };
        // The last handle may be dropped on the runtime's thread, which cannot wait for its own end.
        if thread.thread().id() != thread::current().id() {
            // The thread does not panic: the runtime catches the panics of tasks.
            drop(thread.join());
        }
    }
}

/// A thread that waits. The flag distinguishes a wake-up of this wait from a wake-up of a nested call.
struct Parked {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Parked {
    fn wait(&self) {
        while !self.is_woken.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Checks that the calling thread may be blocked.
fn check_may_block() -> Result<(), Error> {
    match Handle::try_current() {
        Ok(_) if is_in_async_task() => Err(CallerCause::InsideRuntime.into()),
        Err(error) if error.is_thread_local_destroyed() => Err(CallerCause::NoRuntime.into()),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Returns whether a task is being polled on this thread. To find out, tries more steps than the cooperative
/// budget of a task has. Where blocking is allowed, as in `spawn_blocking`, steps are not counted, so no step is
/// refused.
fn is_in_async_task() -> bool {
    let mut context = Context::from_waker(Waker::noop());
    let mut steps = Vec::new();
    let mut is_counted = false;
    while !is_counted && steps.len() <= usize::from(u8::MAX) {
        match coop::poll_proceed(&mut context) {
            Poll::Ready(step) => steps.push(step),
            Poll::Pending => is_counted = true,
        }
    }
    // Dropping a step restores the budget from before that step, so the first step is dropped last.
    while steps.pop().is_some() {}
    is_counted
}

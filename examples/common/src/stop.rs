//! Requests a program to stop early, usually because of a signal.

use std::fs;
use std::future::pending;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};

/// Time limit of each of the last steps after a request to stop: the requests in flight, the logout, the last
/// message. Together they take at most about three seconds. That is long enough for the flush of a busy disk
/// and the response of a distant target. A second signal ends the program immediately.
pub const HASTE: Duration = Duration::from_secs(1);
/// Time of the last steps after the requests in flight, and of the message at the signal.
const LAST_STEPS: Duration = Duration::from_secs(5);
/// The signal that a process receives when a file would grow beyond its limit (`ulimit -f`).
const FILE_SIZE: SignalKind = SignalKind::from_raw(libc::SIGXFSZ);
/// Time after which a blocked standard error counts as not read by any process. The work may then be blocked by
/// it as well.
const MAX_BLOCKED: Duration = Duration::from_millis(900);
/// Further signals within this time after the first one do not count: `timeout` signals the program and then
/// its process group, and a terminal may signal the same group as a script does.
const ONE_WISH: Duration = Duration::from_secs(1);

/// A request to stop the work of a program, checked by the work. Clones share the state.
#[derive(Clone, Debug)]
pub struct Stop(Arc<State>);

/// The sender of the request to stop.
#[derive(Debug)]
pub struct StopButton(Arc<State>);

/// State of a request to stop. It uses `Notify`, because a `watch` channel would wake its waiters in random
/// order, and the simulation needs the same order each time.
#[derive(Debug, Default)]
struct State {
    is_requested: AtomicBool,
    /// Whether the sender of the request waits: SIGTERM comes from a service manager or a controller.
    is_patient: AtomicBool,
    bell: Notify,
}

impl Stop {
    /// Creates a [`Stop`] that is not requested yet, and the button that requests it.
    #[must_use]
    pub fn new() -> (StopButton, Self) {
        let state = Arc::<State>::default();
        (StopButton(Arc::clone(&state)), Self(state))
    }

    /// Creates a [`Stop`] that is never requested.
    #[must_use]
    pub fn never() -> Self {
        Self::new().1
    }

    /// Creates a [`Stop`] that SIGINT, SIGTERM and SIGHUP request. At the first signal, `report` writes a message
    /// to standard error. A second SIGINT or SIGTERM ends the process with `status`. The first signal does so
    /// as well if no process reads the message of `report`. After this call no signal ends the process by itself,
    /// and neither does a file that grows beyond its limit (SIGXFSZ). A separate thread waits for the signals
    /// until the process ends, so they work even if all other threads are blocked.
    ///
    /// SIGHUP means that the terminal is gone. If SIGHUP was ignored at the start (`nohup`), it stays ignored.
    /// It never counts as the second signal, because the kernel and the shell both send it when one session
    /// drops.
    ///
    /// Signals within a second of the first one do not count.
    ///
    /// # Errors
    /// If the system provides no signals or no thread for the process.
    pub fn at_signal(report: impl FnOnce() + Send + 'static, status: u8) -> io::Result<Self> {
        let (button, stop) = Self::new();
        let (ready, outcome) = mpsc::sync_channel(1);
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let result = watch_signals(button, report, status, || drop(ready.send(Ok(()))));
            // If `ready` was called already, `watch_signals` never returns, so this reports only errors before
            // that.
            drop(result.map_err(|error| ready.send(Err(error))));
        })?;
        outcome.recv().unwrap_or_else(|gone| Err(io::Error::other(gone)))?;
        Ok(stop)
    }

    /// Returns whether a stop was requested.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.is_requested.load(Ordering::SeqCst)
    }

    /// Waits until a stop is requested.
    pub async fn requested(&self) {
        loop {
            let mut rings = pin!(self.0.bell.notified());
            // Subscribes before the check of `is_requested`: a notification between the check and the wait
            // would be missed.
            rings.as_mut().enable();
            if self.is_requested() {
                return;
            }
            rings.await;
        }
    }

    /// Waits for a future, or returns `None` if a stop is requested first.
    pub async fn unless<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            result = work => Some(result),
            () = self.requested() => None,
        }
    }

    /// Waits for a future. After a request to stop, waits at most [`HASTE`], then returns `None`.
    pub async fn hurry<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.finish(HASTE, work).await
    }

    /// Waits for a future. After a SIGTERM, waits so long that the program ends within `grace`; after another request to stop, at
    /// most [`HASTE`]. Then returns `None`.
    pub async fn finish<T>(&self, grace: Duration, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            result = work => Some(result),
            () = async { self.requested().await; sleep(self.rest_of(grace)).await } => None,
        }
    }

    /// Returns how long the requests in flight may take after a request to stop.
    fn rest_of(&self, grace: Duration) -> Duration {
        if self.0.is_patient.load(Ordering::SeqCst) {
            grace.saturating_sub(LAST_STEPS).max(HASTE)
        } else {
            HASTE
        }
    }
}

impl StopButton {
    /// Requests the work to stop, as SIGTERM does.
    fn press_patiently(&self) {
        self.0.is_patient.store(true, Ordering::SeqCst);
        self.press();
    }

    /// Requests the work to stop.
    pub fn press(&self) {
        self.0.is_requested.store(true, Ordering::SeqCst);
        self.0.bell.notify_waiters();
    }
}

/// Handles the signals, and ends the process at the second signal, or if the first message is not read. Returns
/// only if the system provides no signals. Calls `ready` when the handlers are set up.
fn watch_signals(
    button: StopButton,
    report: impl FnOnce() + Send + 'static,
    status: u8,
    ready: impl FnOnce(),
) -> io::Result<()> {
    Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut signals = Signals::new()?;
        // With a handler for SIGXFSZ, a write beyond the limit returns an error, which the program can report.
        drop(signal(FILE_SIZE)?);
        ready();
        let first = signals.any().await;
        press_until_again(button, report, first, async || signals.order().await).await;
        std::process::exit(status.into())
    })
}

/// Calls `report` and presses the button after the first signal. Returns at the next signal that counts, or if
/// `report` blocks. `order` waits for the next SIGINT or SIGTERM.
async fn press_until_again(
    button: StopButton,
    report: impl FnOnce() + Send + 'static,
    first: Wish,
    mut order: impl AsyncFnMut(),
) {
    let until = Instant::now() + ONE_WISH;
    let obey = async {
        if timeout(MAX_BLOCKED, spawn_blocking(report)).await.is_ok() {
            if first == Wish::Terminate {
                button.press_patiently();
            } else {
                button.press();
            }
            pending().await
        }
    };
    let again = async {
        if first == Wish::HangUp {
            // systemd-logind sends SIGTERM to the rest of a dropped session. It belongs to the SIGHUP, so it
            // does not count.
            order().await;
        }
        loop {
            order().await;
            if Instant::now() > until {
                break;
            }
        }
    };
    tokio::select! {
        () = obey => {}
        () = again => {}
    }
}

/// The meaning of a signal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Wish {
    /// SIGINT: a user asks the process to end.
    Interrupt,
    /// SIGTERM: a program asks the process to end.
    Terminate,
    /// SIGHUP: the terminal is gone.
    HangUp,
}

/// The signals that ask the process to end.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// SIGHUP; `None` if it was ignored at the start.
    hang_up: Option<Signal>,
}

impl Signals {
    fn new() -> io::Result<Self> {
        // SIGINT is handled even if it was ignored at the start: a shell without job control ignores it for
        // every background process, although its user did not ask for that.
        let hang_up = (!is_ignored(SignalKind::hangup())).then(|| signal(SignalKind::hangup()));
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: hang_up.transpose()?,
        })
    }

    async fn order(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => (),
            _ = self.terminate.recv() => (),
        }
    }

    async fn any(&mut self) -> Wish {
        let hung_up = async {
            match &mut self.hang_up {
                Some(signal) => signal.recv().await,
                None => pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => Wish::Interrupt,
            _ = self.terminate.recv() => Wish::Terminate,
            _ = hung_up => Wish::HangUp,
        }
    }
}

/// Returns whether a signal is ignored. It reads `/proc`, so that no unsafe call is needed. Without `/proc`, no
/// signal counts as ignored.
fn is_ignored(signal: SignalKind) -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| status_ignores(&status, signal))
}

/// Parses the mask of ignored signals in `/proc/self/status`: bit 0 is signal 1 (proc_pid_status(5)).
fn status_ignores(status: &str, signal: SignalKind) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    let bit = u32::try_from(signal.as_raw_value() - 1).ok().and_then(|bit| 1_u64.checked_shl(bit));
    bit.is_some_and(|bit| mask & bit != 0)
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use tokio::time::sleep_until;

    use super::*;

    #[tokio::test]
    async fn work_goes_on_until_the_button_is_pressed() {
        let (button, stop) = Stop::new();
        assert_eq!(stop.unless(ready(7)).await, Some(7));
        let worker = tokio::spawn({
            let stop = stop.clone();
            async move { stop.unless(pending::<()>()).await }
        });
        assert!(!stop.is_requested());
        button.press();
        assert_eq!(worker.await.unwrap(), None);
        assert!(stop.is_requested());
    }

    #[tokio::test(start_paused = true)]
    async fn what_hurries_is_given_up_a_moment_after_the_wish() {
        let (button, stop) = Stop::new();
        let slow = Duration::from_secs(3600);
        assert_eq!(stop.hurry(sleep(slow)).await, Some(()), "nobody wanted it to stop");
        button.press();
        assert_eq!(stop.hurry(sleep(HASTE / 2)).await, Some(()));
        assert_eq!(stop.hurry(pending::<()>()).await, None);
        assert_eq!(stop.unless(ready(7)).await, Some(7), "what has ended counts");
    }

    /// Returns the time at which the process ends, in milliseconds after the first signal. `signals` has the
    /// times of the further signals, in the same unit.
    async fn ends_at(first: Wish, signals: &[u64]) -> Option<u64> {
        let (button, stop) = Stop::new();
        let start = Instant::now();
        let mut signals = signals.iter().map(|at| start + Duration::from_millis(*at));
        let order = async || match signals.next() {
            Some(at) => sleep_until(at).await,
            None => pending().await,
        };
        let ended = press_until_again(button, || {}, first, order);
        let ended = timeout(Duration::from_secs(60), ended).await.is_ok();
        assert!(stop.is_requested());
        ended.then(|| u64::try_from(start.elapsed().as_millis()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn signals_within_a_second_of_the_first_are_one_wish() {
        for (first, signals, end) in [
            (Wish::Interrupt, &[][..], None),
            (Wish::Interrupt, &[5], None),
            (Wish::Interrupt, &[5, 5, 1000], None),
            (Wish::Interrupt, &[5, 1001], Some(1001)),
            (Wish::Interrupt, &[3000], Some(3000)),
            (Wish::HangUp, &[3000], None),
            (Wish::HangUp, &[5, 3000], Some(3000)),
            (Wish::HangUp, &[3000, 4000], Some(4000)),
        ] {
            assert_eq!(ends_at(first, signals).await, end, "{first:?} {signals:?}");
        }
    }

    #[test]
    fn ignored_signals_are_found_in_the_status_of_the_process() {
        let status = "Name:\tx\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
        assert!(
            status_ignores(status, SignalKind::hangup())
                && status_ignores(status, SignalKind::pipe())
        );
        assert!(!status_ignores(status, SignalKind::interrupt()));
        assert!(
            !status_ignores("", SignalKind::hangup())
                && !status_ignores("SigIgn: x", SignalKind::hangup())
        );
        // The standard library of Rust ignores SIGPIPE in every program.
        assert!(is_ignored(SignalKind::pipe()) && !is_ignored(SignalKind::child()));
    }

    #[tokio::test]
    async fn a_button_that_is_gone_was_not_pressed() {
        let stop = Stop::never();
        let mut requested = Box::pin(stop.requested());
        for _ in 0..10 {
            tokio::select! {
                biased;
                () = &mut requested => panic!("nobody wanted it to stop"),
                () = tokio::task::yield_now() => {}
            }
        }
    }
}

//! The wish to stop early.

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

/// The time that each of the last steps may take once the work shall stop: the requests in flight, the logout,
/// the last message. Together they take about three seconds at most. In that time a busy disk flushes, and a
/// target far away answers; a second signal ends the program immediately.
pub const HASTE: Duration = Duration::from_secs(1);
/// A file is to grow beyond the limit of the process (`ulimit -f`).
const FILE_SIZE: SignalKind = SignalKind::from_raw(libc::SIGXFSZ);
/// A standard error that takes nothing for so long is not read, and the work may be stuck in it.
const UNHEARD: Duration = Duration::from_millis(900);
/// Signals that come within this time of the first one are part of it: `timeout` signals the program and then its process group,
/// and a terminal signals the group that a script signals as well.
const ONE_WISH: Duration = Duration::from_secs(1);

/// Whether a program's work shall stop. Clones are the same wish.
#[derive(Clone, Debug)]
pub struct Stop(Arc<State>);

/// Tells the work to stop.
#[derive(Debug)]
pub struct StopButton(Arc<State>);

/// A `watch` channel would wake those who wait in a random order, and the simulation needs the same one each time.
#[derive(Debug, Default)]
struct State {
    is_requested: AtomicBool,
    bell: Notify,
}

impl Stop {
    /// Creates a wish to stop that is not expressed yet, and the button that expresses it.
    #[must_use]
    pub fn new() -> (StopButton, Self) {
        let state = Arc::<State>::default();
        (StopButton(Arc::clone(&state)), Self(state))
    }

    /// Creates a wish to stop that is never expressed.
    #[must_use]
    pub fn never() -> Self {
        Self::new().1
    }

    /// Creates a wish to stop that SIGINT, SIGTERM and SIGHUP express: at the first of them `tell` says so on
    /// standard error, the second SIGINT or SIGTERM ends the process with `status`. So does the first signal if
    /// the message of `tell` is not read. From now on none of them ends the process by itself, and a file that
    /// grows beyond its limit (SIGXFSZ) does not either. A thread of its own waits for them until the process
    /// ends, whatever else is stuck.
    ///
    /// SIGHUP means that the terminal is gone. It stays ignored where it was ignored at the start (`nohup`). It
    /// never counts as the second signal: the kernel and the shell both send it when one session drops.
    ///
    /// Signals within a second of the first one count as part of it.
    ///
    /// # Errors
    /// When the system does not let the process have its signals, or a thread.
    pub fn at_signal(tell: impl FnOnce() + Send + 'static, status: u8) -> io::Result<Self> {
        let (button, stop) = Self::new();
        let (ready, outcome) = mpsc::sync_channel(1);
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let result = watch_signals(button, tell, status, || drop(ready.send(Ok(()))));
            // Where it began to watch there is no end of it.
            drop(result.map_err(|error| ready.send(Err(error))));
        })?;
        outcome.recv().unwrap_or_else(|gone| Err(io::Error::other(gone)))?;
        Ok(stop)
    }

    /// Whether the wish was expressed.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.is_requested.load(Ordering::SeqCst)
    }

    /// Waits until the work shall stop.
    pub async fn requested(&self) {
        loop {
            let mut rings = pin!(self.0.bell.notified());
            // It hears the bell from now on, so that no ring between the look and the wait is missed.
            rings.as_mut().enable();
            if self.is_requested() {
                return;
            }
            rings.await;
        }
    }

    /// Waits for a future, unless the work shall stop before: then there is `None`.
    pub async fn unless<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            result = work => Some(result),
            () = self.requested() => None,
        }
    }

    /// Waits for a future; once the work shall stop, no longer than [`HASTE`]: then there is `None`.
    pub async fn hurry<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            result = work => Some(result),
            () = async { self.requested().await; sleep(HASTE).await } => None,
        }
    }
}

impl StopButton {
    /// Tells the work to stop.
    pub fn press(&self) {
        self.0.is_requested.store(true, Ordering::SeqCst);
        self.0.bell.notify_waiters();
    }
}

/// Ends the process once it was told to end and does not, or is told again; returns only where the
/// signals cannot be had. `ready` is called when they are.
fn watch_signals(
    button: StopButton,
    tell: impl FnOnce() + Send + 'static,
    status: u8,
    ready: impl FnOnce(),
) -> io::Result<()> {
    Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut signals = Signals::new()?;
        // What is written beyond the limit fails then, and that can be told.
        drop(signal(FILE_SIZE)?);
        ready();
        let first = signals.any().await;
        press_until_again(button, tell, first, async || signals.order().await).await;
        std::process::exit(status.into())
    })
}

/// Presses the button, since the first signal has come; returns at one that is a wish of its own, or where `tell` is stuck.
/// `order` waits for the next SIGINT or SIGTERM.
async fn press_until_again(
    button: StopButton,
    tell: impl FnOnce() + Send + 'static,
    first: Wish,
    mut order: impl AsyncFnMut(),
) {
    let until = Instant::now() + ONE_WISH;
    let obey = async {
        if timeout(UNHEARD, spawn_blocking(tell)).await.is_ok() {
            button.press();
            pending().await
        }
    };
    let again = async {
        if first == Wish::HangUp {
            // What ends the rest of a session that has dropped, as systemd-logind does, sends SIGTERM as well.
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

/// What a signal means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Wish {
    /// Somebody wants the process to end.
    Order,
    /// The terminal is gone.
    HangUp,
}

/// The signals that ask the process to end.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` where it was ignored at the start.
    hang_up: Option<Signal>,
}

impl Signals {
    fn new() -> io::Result<Self> {
        // SIGINT is obeyed even where it was ignored: a shell without job control starts whatever it leaves in the
        // background so, which nobody asked for.
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
            _ = self.interrupt.recv() => Wish::Order,
            _ = self.terminate.recv() => Wish::Order,
            _ = hung_up => Wish::HangUp,
        }
    }
}

/// Whether a signal is ignored. The system tells that in a file as well, so that no unsafe call is needed; where the file
/// is not there, nothing counts as ignored.
fn is_ignored(signal: SignalKind) -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| says_ignored(&status, signal))
}

/// The same by the text of that file: bit 0 of the mask is signal 1 (proc_pid_status(5)).
fn says_ignored(status: &str, signal: SignalKind) -> bool {
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

    /// Signals at these times after the first one, in milliseconds, and the time at which the process ends.
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
            (Wish::Order, &[][..], None),
            (Wish::Order, &[5], None),
            (Wish::Order, &[5, 5, 1000], None),
            (Wish::Order, &[5, 1001], Some(1001)),
            (Wish::Order, &[3000], Some(3000)),
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
            says_ignored(status, SignalKind::hangup()) && says_ignored(status, SignalKind::pipe())
        );
        assert!(!says_ignored(status, SignalKind::interrupt()));
        assert!(
            !says_ignored("", SignalKind::hangup())
                && !says_ignored("SigIgn: x", SignalKind::hangup())
        );
        // The standard library ignores SIGPIPE in every program.
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

//! Detects panics in all tasks. A runtime hides the panic of a task that nothing waits for.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// Message of the first panic of this thread since the last call of `watched`.
    static FIRST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Calls `run`. Returns its result, or `None` if it panicked, and the message of the first panic of this thread
/// meanwhile, even if that was caught.
pub(crate) fn watched<T>(run: impl FnOnce() -> T) -> (Option<T>, Option<String>) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panicked| {
            FIRST.with_borrow_mut(|first| first.get_or_insert_with(|| panicked.to_string()).len());
            before(panicked);
        }));
    });
    FIRST.take();
    let result = panic::catch_unwind(AssertUnwindSafe(run)).ok();
    (result, FIRST.take())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_seen_also_in_a_task_that_nobody_waits_for() {
        let (result, panicked) = watched(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().build()?;
            runtime.block_on(async {
                drop(tokio::spawn(async { panic!("in a task") }));
                tokio::task::yield_now().await;
            });
            std::io::Result::Ok(())
        });
        assert!(matches!(result, Some(Ok(()))), "the task alone has ended");
        assert!(panicked.is_some_and(|why| why.contains("in a task")));
        assert_eq!(watched(|| 1), (Some(1), None), "it is told once");
    }

    #[test]
    fn what_panics_itself_returns_nothing() {
        let (result, panicked) = watched(|| panic!("by itself"));
        assert!(result.is_none_or(|()| false));
        assert!(panicked.is_some_and(|why| why.contains("by itself")));
    }
}

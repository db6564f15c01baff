//! Panics, wherever they happen: a runtime keeps those of a task from whoever does not wait for it.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// What the first panic of this thread has said since it was asked last.
    static FIRST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs something. Says what it returns, unless it has panicked itself, and the first panic that there was
/// meanwhile in this thread, also if somebody has caught it.
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

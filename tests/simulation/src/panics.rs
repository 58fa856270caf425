//! Collection of the product's panics. A panic ends only its task, so a run does not notice it otherwise.

use std::{
    cell::RefCell,
    panic::{self, PanicHookInfo},
    sync::Once,
};

thread_local! {
    /// The panics in this thread, or `None` while no run watches for them.
    static PANICS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Begins to collect the panics of this thread.
pub(crate) fn watch() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !collect(info) {
                previous(info);
            }
        }));
    });
    PANICS.set(Some(Vec::new()));
}

/// Stores a panic and returns `true` if a run watches for panics in this thread. Otherwise, returns `false`.
fn collect(info: &PanicHookInfo<'_>) -> bool {
    PANICS.with_borrow_mut(|panics| {
        let Some(panics) = panics else { return false };
        panics.push(info.to_string().replace('\n', " "));
        true
    })
}

/// Returns the panics since [`watch`], and stops collecting.
pub(crate) fn take() -> Vec<String> {
    PANICS.take().unwrap_or_default()
}

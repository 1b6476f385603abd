//! The messages of libbpf, whose only outlet is a function of the whole process. They are collected for each thread.

use std::cell::RefCell;

use libbpf_rs::PrintLevel;

thread_local! {
    /// Messages of libbpf on this thread.
    static SAID: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn listen(_: PrintLevel, message: String) {
    SAID.with_borrow_mut(|messages| messages.push(message));
}

/// Runs a function that uses libbpf, and returns the messages of this level and above.
pub fn capture<T>(level: PrintLevel, run: impl FnOnce() -> T) -> (T, Vec<String>) {
    SAID.with_borrow_mut(Vec::clear);
    let before = libbpf_rs::set_print(Some((level, listen)));
    let result = run();
    libbpf_rs::set_print(before);
    (result, SAID.take())
}

/// Searches the messages so far, within [`capture`].
pub fn find<T>(what: impl FnMut(&String) -> Option<T>) -> Option<T> {
    SAID.with_borrow(|messages| messages.iter().find_map(what))
}

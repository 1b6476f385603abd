//! The first steps of a process, and its last: it blocks a signal, raises the stack limit, installs a panic hook, and ends at once.

pub mod entry;
pub mod exit;
#[cfg(panic = "abort")]
mod no_unwinding;
pub(crate) mod panic;
pub(crate) mod stack;

/// Places functions where the C library calls them before `main`, and before the constructors of libraries, which take
/// milliseconds.
#[macro_export]
macro_rules! run_before_main {
    () => {
        #[used]
        #[allow(unsafe_code)] // the functions in this section are called
        #[unsafe(link_section = ".preinit_array")]
        static FIRST: [extern "C" fn(); 3] =
            [$crate::runtime::keep_user_signals, $crate::startup::entry::unblock_user_signals, $crate::streams::guard_stdout];
    };
}

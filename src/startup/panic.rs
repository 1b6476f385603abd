//! Reports a panic as an internal error, and ends the process with status 2.

use std::io::Write;

/// After this call, a panic on any thread ends the process. The kernel then releases the process's resources.
pub(crate) fn install() {
    std::panic::set_hook(Box::new(|info| {
        let payload = info.payload();
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let message = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
        let place = info.location().map(|l| format!(" ({}:{})", l.file(), l.line())).unwrap_or_default();
        let mut err = std::io::stderr().lock();
        let _ = writeln!(err, "rbt: internal error: {}{place}", crate::diag::plain(message));
        let _ = writeln!(err, "This is a bug in rbt v{}: please report it with the script and the lines above.", crate::VERSION);
        if std::env::var_os("RUST_BACKTRACE").is_some_and(|v| v != "0") {
            let _ = match cfg!(panic = "abort") {
                true => writeln!(err, "There is no backtrace, because this program has no tables for unwinding."),
                false => writeln!(err, "{}", std::backtrace::Backtrace::force_capture()),
            };
        }
        drop(err);
        super::exit::end(2);
    }));
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    #[test]
    #[ignore = "panics: run by the test below"]
    fn panics() {
        super::install();
        panic!("as it must");
    }

    #[test]
    fn a_panic_is_reported_and_ends_with_2() {
        let exe = std::env::current_exe().unwrap();
        let run = Command::new(exe).args(["--ignored", "--exact", "startup::panic::tests::panics"]).output().unwrap();
        let text = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(2), "{text}");
        assert!(text.contains("rbt: internal error: as it must (src/startup/panic.rs:") && text.contains("please report"), "{text}");
    }
}

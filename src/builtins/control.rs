//! The end of a run, and signals.

use super::{Accepts, Arg, Builtin, CallInfo, CallSite, Codegen, Event, Param, Returns};
use crate::diag::Diagnostic;
use crate::emit::{Builder, Helper, Operand};
use crate::probes::ContextFeatures;
use crate::types::Type;
use crate::value::Value;

/// Signals by name, without `SIG`: signal(7).
const SIGNALS: &[(&str, i32)] = &[
    ("HUP", libc::SIGHUP),
    ("INT", libc::SIGINT),
    ("QUIT", libc::SIGQUIT),
    ("ILL", libc::SIGILL),
    ("TRAP", libc::SIGTRAP),
    ("ABRT", libc::SIGABRT),
    ("BUS", libc::SIGBUS),
    ("FPE", libc::SIGFPE),
    ("KILL", libc::SIGKILL),
    ("USR1", libc::SIGUSR1),
    ("SEGV", libc::SIGSEGV),
    ("USR2", libc::SIGUSR2),
    ("PIPE", libc::SIGPIPE),
    ("ALRM", libc::SIGALRM),
    ("TERM", libc::SIGTERM),
    ("STKFLT", libc::SIGSTKFLT),
    ("CHLD", libc::SIGCHLD),
    ("CONT", libc::SIGCONT),
    ("STOP", libc::SIGSTOP),
    ("TSTP", libc::SIGTSTP),
    ("TTIN", libc::SIGTTIN),
    ("TTOU", libc::SIGTTOU),
    ("URG", libc::SIGURG),
    ("XCPU", libc::SIGXCPU),
    ("XFSZ", libc::SIGXFSZ),
    ("VTALRM", libc::SIGVTALRM),
    ("PROF", libc::SIGPROF),
    ("WINCH", libc::SIGWINCH),
    ("IO", libc::SIGIO),
    ("PWR", libc::SIGPWR),
    ("SYS", libc::SIGSYS),
];
/// `_NSIG` of arch/x86/include/uapi/asm/signal.h.
const LAST: i64 = 64;

pub(super) const ROWS: &[Builtin] = &[
    Builtin {
        name: "exit",
        params: &[Param::optional("status", Accepts::Int)],
        returns: Returns::Always(Type::Void),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Event(&Event {
            ends_probe: true,
            capture: None,
            prepare: |_| {
                Ok(Box::new(|args, host| {
                    let status = match args.first() {
                        Some(Arg::Value(Value::Int(n))) => *n as u8,
                        Some(Arg::Value(Value::Uint(n))) => *n as u8,
                        Some(Arg::Value(Value::Bool(b))) => u8::from(*b),
                        _ => 0,
                    };
                    host.exit(status);
                    Ok(())
                }))
            },
        }),
        doc: "Ends the run with a status from 0 to 255, and leaves the probe. Afterward only `end` probes run. Output of probes that were running at that moment still appears.",
        example: "interval:s:5 { exit(); }",
    },
    Builtin {
        name: "signal",
        params: &[Param::new("signal", Accepts::Any)],
        returns: Returns::By(number),
        needs: ContextFeatures::SIGNAL,
        risky: true,
        codegen: Codegen::Effect(|e, u, args| send(e, u, args, Helper::SendSignal)),
        doc: "Sends a signal to the current process. Write the signal as a name (KILL, SIGKILL) or a number.",
        example: "tracepoint:syscalls:sys_enter_openat /comm == \"stopme\"/ { signal(\"SIGSTOP\"); }",
    },
    Builtin {
        name: "signal_thread",
        params: &[Param::new("signal", Accepts::Any)],
        returns: Returns::By(number),
        needs: ContextFeatures::SIGNAL,
        risky: true,
        codegen: Codegen::Effect(|e, u, args| send(e, u, args, Helper::SendSignalThread)),
        doc: "Sends a signal to the current thread.",
        example: "tracepoint:syscalls:sys_enter_openat /comm == \"stopme\"/ { signal_thread(\"USR1\"); }",
    },
];

/// The name of a signal with `SIG`; none for an unknown number.
pub(super) fn signal_name(number: i32) -> Option<String> {
    let found = SIGNALS.iter().find(|(_, n)| *n == number)?;
    Some(format!("SIG{}", found.0))
}

/// Finds and keeps the number of a literal signal.
fn number(f: &CallInfo) -> Result<Type, Diagnostic> {
    if let Some(name) = f.text(0) {
        let name = String::from_utf8_lossy(name).to_uppercase();
        let bare = |n: &str| SIGNALS.iter().find(|(s, _)| *s == n).map(|(_, n)| i64::from(*n));
        let found = bare(&name).or_else(|| name.strip_prefix("SIG").and_then(bare)).or_else(|| name.parse().ok().filter(valid));
        let Some(n) = found else {
            let d = Diagnostic::error("unknown-signal", f.span(0), format!("there is no signal `{name}`"));
            return Err(d.suggest(name.trim_start_matches("SIG"), SIGNALS.iter().map(|(s, _)| *s)));
        };
        f.bind_consts(&[n]);
        return Ok(Type::Void);
    }
    match (f.int(0), f.args.first().map(|a| &a.ty)) {
        (Some(n), _) if !valid(&n) => {
            Err(Diagnostic::error("out-of-range", f.span(0), format!("signals are 1 to {LAST}, but this is {n}")))
        }
        (Some(_), _) | (None, Some(Type::Int(_) | Type::Enum(_))) => Ok(Type::Void),
        (None, ty) => {
            let ty = ty.map(Type::to_string).unwrap_or_default();
            let message = format!("{} takes a signal number or a literal signal name, but this is {ty}", f.name);
            Err(Diagnostic::error("type-mismatch", f.span(0), message))
        }
    }
}

fn valid(n: &i64) -> bool {
    (1..=LAST).contains(n)
}

fn send<'c>(e: &mut Builder<'_, 'c>, u: &CallSite, args: &[Operand<'c>], helper: Helper) -> Operand<'c> {
    let signal = match (u.consts.first(), args.first()) {
        (Some(n), _) => e.int(*n as u64),
        (None, Some(a)) => e.scalar(a),
        (None, None) => e.int(0),
    };
    let r = e.call(helper, &[signal.into()]);
    e.check(helper, r, 1);
    Operand::void()
}

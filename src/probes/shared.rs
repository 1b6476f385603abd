//! Determines which sites may share a program.

use super::{Attach, Env, ProbeSite, syscall};
use crate::system::Feature;

/// The common properties of sites that share a program: their kind, and a mechanism that distinguishes them at run time.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Shared<'a> {
    /// Tracepoints of system calls.
    SystemCalls(syscall::Shared),
    /// All others.
    Sites(&'static [&'static str], SharingKey<'a>),
}

/// The common properties of sites of one mechanism.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum SharingKey<'a> {
    /// Entries, or exits.
    Syscall(bool),
    /// Nothing.
    Tracepoint,
    /// Registers are read at the same locations; `func` is relative to the offset, and to what the function did before.
    Uprobe(&'a std::path::Path, u64, u64, bool),
    /// The offset, whether it is from a wildcard, and whether it is the return.
    Kprobe(u64, bool, bool),
    /// The file, and the locations of arguments.
    Usdt(&'a std::path::Path, &'a str),
}

/// The key of the sites that may share a program with this one. None if no other site may.
pub fn shared<'a>(site: &'a ProbeSite, env: &Env) -> Option<Shared<'a>> {
    // perf links support cookies
    let cookies = || env.sys.has(Feature::PerfCookie);
    if let Some(call) = syscall::syscall_of_site(site) {
        return syscall::shared(call, cookies(), env).map(Shared::SystemCalls);
    }
    let alike = match &site.attach {
        Attach::Syscall { enter, .. } => SharingKey::Syscall(*enter),
        Attach::Begin
        | Attach::End
        | Attach::Signal
        | Attach::Test { .. }
        | Attach::RawTracepoint { .. }
        | Attach::Trampoline { .. }
        | Attach::Iter { .. }
        | Attach::Perf { .. }
        | Attach::Breakpoint { .. } => return None,
        _ if !cookies() => return None,
        Attach::Tracepoint { .. } => SharingKey::Tracepoint,
        Attach::Uprobe { path, function_offset, stack_check, ret, .. } => SharingKey::Uprobe(path, *function_offset, *stack_check, *ret),
        Attach::Kprobe { offset, wildcard, ret, .. } => SharingKey::Kprobe(*offset, *wildcard, *ret),
        Attach::Usdt { path, args, .. } => SharingKey::Usdt(path, args),
    };
    Some(Shared::Sites(site.kind.names(), alike))
}

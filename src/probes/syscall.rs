//! Tracepoints of system calls (`tracepoint:syscalls:…`): the mechanisms that can serve one, and their costs for the machine.
//!
//! | mechanism | cost for a traced call | cost for every other call |
//! |---|---|---|
//! | trampoline on the call's own function (`__x64_sys_X`) | low | none |
//! | perf tracepoint, which the kernel looks up by the call's number | high | the slow path of entry |
//! | raw tracepoint that all calls share | low | the slow path, and a run of the program |
//!
//! So rbt uses a trampoline if it is equivalent, which it is not on a kernel that preempts programs, and otherwise the perf
//! tracepoint, unless the script traces enough of the system calls that the raw program costs less overall.

use std::borrow::Cow;

use super::{Attach, BodyNeeds, ContextFeatures, ContextField, Env, Lowering, ProbeSite, ProgramType, raw_syscall_event, tracepoint};
use crate::emit::{Builder, Helper, IntValue, Operand};
use crate::settings::Mechanism;
use crate::system::kernel::functions::KERNEL;
use crate::system::kernel::noreturn;
use crate::system::{Feature, TargetInfo, TypeName};
use crate::types::{Int, Space, Type};

/// The category whose events are the entries and exits of system calls.
const CATEGORY: &str = "syscalls";
const ENTER: &str = "sys_enter_";
const EXIT: &str = "sys_exit_";
/// The function in the 64-bit system call table has the architecture's prefix; 32-bit programs, which the tracepoints
/// exclude, call others. On x86, that of a call without arguments is an alias of this one, which the types describe. It
/// serves 32-bit programs as well.
const FUNCTION_WITHOUT_ARGUMENTS: &str = "__do_sys_";
/// The argument of either function.
const ARGUMENT: &str = "struct pt_regs *";
/// In a record: the offset of the number (kernel/trace/trace.h, `struct syscall_trace_enter` and `struct
/// syscall_trace_exit`) …
const NUMBER_AT: u32 = 8;
/// … from this offset on, the arguments or the result, of eight bytes each.
const DATA_OFFSET: u32 = 16;
const U32: Int = Int { bytes: 4, signed: false };
const U64: Int = Int { bytes: 8, signed: false };

/// Maximum number of trampolines for a probe, because each is a program that must be compiled, loaded and attached.
const MAX_TRAMPOLINES: usize = 8;

/// Maximum number of perf events for a probe, because the kernel takes some 50 ms to remove each.
const MAX_EVENTS: usize = 16;

/// Costs of the mechanisms in nanoseconds, in addition to the common cost: every system call takes the slow path as
/// soon as one is traced. Measured on x86-64, Linux 6.18, as the increase in the time of `getppid` and `getuid`, of
/// which the former is traced.
mod cost {
    /// A traced call by a perf tracepoint: the kernel writes the record, and finds the program in a list.
    pub const PERF_RUN: u64 = 168;
    /// Any system call by the raw tracepoint: the program runs and checks the number.
    pub const RAW_RUN: u64 = 53;
}

/// The share of system calls with this name, per thousand, on a busy machine: the mean of a build, PostgreSQL, nginx
/// and Redis, each with its clients, and of an idle desktop. A call that is not listed is rare.
const FREQUENT_SYSCALLS: &[(&str, u64)] = &[
    ("recvfrom", 130),
    ("read", 110),
    ("sendto", 90),
    ("write", 90),
    ("epoll_wait", 80),
    ("futex", 80),
    ("epoll_ctl", 60),
    ("openat", 60),
    ("newfstatat", 60),
    ("close", 50),
    ("lseek", 50),
    ("pread64", 40),
    ("writev", 30),
    ("ppoll", 30),
    ("poll", 30),
    ("recvmsg", 30),
    ("sendmsg", 20),
    ("pwrite64", 20),
    ("readlink", 20),
    ("ioctl", 15),
    ("mmap", 15),
    ("clock_nanosleep", 10),
];
const RARE: u64 = 2;

/// An event of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemCall<'a> {
    /// Its name, as in `sys_enter_NAME`.
    pub name: &'a str,
    /// Entry if true, otherwise exit.
    pub enter: bool,
}

/// The system call of an event, if it belongs to one.
pub fn of<'a>(category: &str, event: &'a str) -> Option<SystemCall<'a>> {
    if category != CATEGORY {
        return None;
    }
    let call = |prefix: &str, enter| event.strip_prefix(prefix).map(|name| SystemCall { name, enter });
    call(ENTER, true).or_else(|| call(EXIT, false))
}

/// Does the exit of the call never happen? The site is of an exit's tracepoint, with any mechanism.
pub fn never_exits(attach: &Attach, sys: &dyn TargetInfo) -> bool {
    if let Attach::Tracepoint { category, event } = attach {
        return of(category, event).is_some_and(|call| !call.enter && noreturn::is_noreturn_syscall(call.name));
    }
    let Attach::Syscall { enter: false, number } = attach else { return false };
    noreturn::syscalls().any(|name| sys.syscall_number(name) == Some(*number))
}

/// The system call of a site that still has its usual mechanism.
pub fn syscall_of_site(site: &ProbeSite) -> Option<SystemCall<'_>> {
    let Attach::Tracepoint { category, event } = &site.attach else { return None };
    of(category, event)
}

/// The system call of a site, whatever mechanism serves it.
pub fn syscall_of_probe(site: &ProbeSite) -> Option<SystemCall<'_>> {
    let (category, event) = site.name.strip_prefix(tracepoint::NAME)?.strip_prefix(':')?.split_once(':')?;
    of(category, event)
}

/// The common properties of system call events that one program can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shared {
    enter: bool,
    /// A call without a number would exclude all others from the raw program.
    numbered: bool,
}

/// The key of the sites that may share a program with this one. Cookies distinguish perf events, and numbers
/// distinguish the calls of a raw program.
pub fn shared(call: SystemCall, cookies: bool, env: &Env) -> Option<Shared> {
    let numbered = !env.settings.refuses(Mechanism::RawSyscalls) && env.sys.syscall_number(call.name).is_some();
    (cookies || numbered).then_some(Shared { enter: call.enter, numbered })
}

/// The mechanism for these sites of one probe, all of system calls.
pub fn choose(sites: &[ProbeSite], needs: &BodyNeeds, env: &Env) -> Lowering {
    let calls: Vec<SystemCall> = sites.iter().filter_map(syscall_of_site).collect();
    if let Some(choice) = (!needs.shares_raw_tracepoint).then(|| by_trampolines(&calls, needs, env)).flatten() {
        return choice;
    }
    let share: u64 =
        calls.iter().map(|call| FREQUENT_SYSCALLS.iter().find(|(name, _)| *name == call.name).map_or(RARE, |(_, share)| *share)).sum();
    let share = share.min(1000);
    // numbers distinguish the sites of one raw program, and cookies those of perf events
    let told_apart = calls.len() == 1 || env.sys.has(Feature::PerfCookie);
    let raw_is_cheaper = cost::RAW_RUN * 1000 < cost::PERF_RUN * share;
    // older kernels pass the registers of user space to a perf tracepoint's program of a system call, from which the
    // kernel unwinds no kernel stack (kernel/trace/trace_syscalls.c, `perf_call_bpf_enter`)
    let takes_a_stack = needs.features.contains(ContextFeatures::STACK) && !env.settings.refuses(Mechanism::RawSyscalls);
    if told_apart && !needs.shares_raw_tracepoint && !takes_a_stack && calls.len() <= MAX_EVENTS && !raw_is_cheaper {
        return Lowering::literal(format!("an estimated {share} of 1,000 system calls are traced"));
    }
    match by_raw_program(&calls, env) {
        Some(attaches) if needs.shares_raw_tracepoint => {
            chosen(Mechanism::RawSyscalls, attaches, "another probe on one of its calls uses it")
        }
        Some(attaches) if takes_a_stack => chosen(Mechanism::RawSyscalls, attaches, "it records a stack"),
        Some(attaches) if calls.len() > MAX_EVENTS => chosen(Mechanism::RawSyscalls, attaches, "many system calls by one program"),
        Some(attaches) => chosen(Mechanism::RawSyscalls, attaches, format!("an estimated {share} of 1,000 system calls are traced")),
        None => Lowering::literal("no raw tracepoint covers a single system call"),
    }
}

fn chosen(mechanism: Mechanism, attaches: Vec<Attach>, why: impl Into<Cow<'static, str>>) -> Lowering {
    Lowering { lowered: Some(mechanism), attaches, why: why.into() }
}

fn by_raw_program(calls: &[SystemCall], env: &Env) -> Option<Vec<Attach>> {
    if env.settings.refuses(Mechanism::RawSyscalls) {
        return None;
    }
    calls.iter().map(|call| Some(Attach::Syscall { enter: call.enter, number: env.sys.syscall_number(call.name)? })).collect()
}

/// The type of the program on [`raw_syscall_event`]: if the kernel describes the arguments, the program reads registers by loads
/// instead of a helper, which takes some 40 ns in every system call of the machine.
pub fn raw_program(env: &Env) -> ProgramType {
    let described = [true, false].into_iter().all(|enter| env.sys.raw_tracepoint(raw_syscall_event(enter)).is_some());
    if described { ProgramType::TypedTracepoint } else { ProgramType::RawTracepoint }
}

/// The number of the system call in the raw program.
pub fn number<'c>(e: &mut Builder<'_, 'c>, enter: bool, env: &Env) -> IntValue<'c> {
    if enter {
        // TP_PROTO(struct pt_regs *regs, long id): include/trace/events/syscalls.h
        return e.load_ctx(8, U64);
    }
    syscall_number(e, env)
}

/// The calls' own functions, if they are equivalent.
///
/// They are for entries: a call that a filter (seccomp) rejects reaches neither. The tracepoint of an exit also fires
/// for rejected calls, and in the child of a `fork`, which the function does not see. So its body must run only after
/// an entry was seen.
fn by_trampolines(calls: &[SystemCall], needs: &BodyNeeds, env: &Env) -> Option<Lowering> {
    let refused = env.settings.refuses(Mechanism::Fentry) || calls.len() > MAX_TRAMPOLINES;
    // a kernel stack would start elsewhere
    if refused || needs.features.contains(ContextFeatures::STACK) || !env.sys.has(Feature::Trampoline) {
        return None;
    }
    // it would skip calls
    if env.sys.has(Feature::PreemptedPrograms) {
        return None;
    }
    let same = |call: &SystemCall| call.enter || needs.only_after_entry && !noreturn::is_noreturn_syscall(call.name);
    let attach = |call: &SystemCall| {
        if !same(call) || env.sys.syscall_number(call.name).is_none() {
            return None;
        }
        let prefixes = [env.sys.arch().syscall_function, FUNCTION_WITHOUT_ARGUMENTS];
        let function = prefixes.map(|prefix| format!("{prefix}{}", call.name)).into_iter().find(|function| {
            let prototype = env.sys.prototype(Some(KERNEL), function);
            prototype.is_some_and(|p| p.returns.is_scalar() && matches!(p.params.as_slice(), [(_, ty)] if ty.to_string() == ARGUMENT))
        });
        Some(Attach::Trampoline { module: KERNEL.into(), program: None, function: function?, exit: !call.enter })
    };
    let attaches: Option<Vec<Attach>> = calls.iter().map(attach).collect();
    Some(chosen(Mechanism::Fentry, attaches?, "other system calls have no overhead"))
}

/// Returns in a 32-bit system call if the traced function also serves those.
pub fn return_if_other_syscall(e: &mut Builder<'_, '_>, site: &ProbeSite, env: &Env) {
    if let Attach::Trampoline { function, .. } = &site.attach
        && function.starts_with(FUNCTION_WITHOUT_ARGUMENTS)
    {
        return_if_compat_syscall(e, env);
    }
}

/// Returns in a 32-bit system call: its number means a different call, and the kernel's own tracepoints exclude it as well
/// (`ARCH_TRACE_IGNORE_COMPAT_SYSCALLS`).
pub fn return_if_compat_syscall(e: &mut Builder<'_, '_>, env: &Env) {
    let Some(status) = compat_status_offset(env) else { return };
    let int = Int { bytes: 4, signed: false };
    // a kernel that supports CPU v4 (6.6) can read a typed task without a helper, which takes 8 ns
    let status = if env.sys.has(Feature::CpuV4) {
        let task = e.call_ptr(Helper::GetCurrentTaskBtf, &[]);
        e.load_typed(task, status, int)
    } else {
        let task = e.call(Helper::GetCurrentTask, &[]);
        let addr = e.add(task, e.int(status.into()));
        e.read_int(Space::Kernel, addr, int)
    };
    let compat = e.and(status, e.int(env.sys.arch().compat.1));
    e.if_(compat, |e| e.ret(None));
}

fn compat_status_offset(env: &Env) -> Option<u32> {
    let Type::Struct(task) = env.sys.type_named(TypeName::Struct, "task_struct")? else { return None };
    let info = env.sys.member(&task, "thread_info")?;
    let Type::Struct(structure) = &info.ty else { return None };
    Some(info.offset + env.sys.member(structure, env.sys.arch().compat.0)?.offset)
}

/// Loads a field of a system call's record, which a trampoline and the raw program find in the registers.
pub fn load_field<'c>(e: &mut Builder<'_, 'c>, site: &ProbeSite, env: &Env, f: &ContextField) -> Option<Operand<'c>> {
    let event = site.name.rsplit(':').next().unwrap_or("");
    let call = of(CATEGORY, event)?;
    let by_trampoline = matches!(site.attach, Attach::Trampoline { .. });
    if !by_trampoline && !matches!(site.attach, Attach::Syscall { .. }) {
        return None;
    }
    let ty = &f.field.ty;
    let word = f.field.offset.saturating_sub(DATA_OFFSET) / 8;
    let value = match (f.field.offset < DATA_OFFSET, call.enter) {
        (true, _) if by_trampoline => e.int(env.sys.syscall_number(call.name).unwrap_or(0).into()),
        (true, _) => syscall_number(e, env),
        (false, true) => {
            let at = env.sys.arch().syscall_args.get(word as usize).copied().unwrap_or(0);
            register(e, &format!("syscall_arg{word}"), at, U64, || by_trampoline || is_typed(env))
        }
        // the raw tracepoint's second argument, or the word after the function's single argument
        (false, false) => e.once("arg1", |e| e.load_ctx(8, U64)),
    };
    debug_assert!(f.field.offset >= NUMBER_AT, "the record's head has no fields");
    Some(match ty.as_int() {
        Some(int) => Operand::reg(ty.clone(), e.fit(value, int)),
        None => Operand::at(ty.clone(), value, Space::Kernel),
    })
}

fn syscall_number<'c>(e: &mut Builder<'_, 'c>, env: &Env) -> IntValue<'c> {
    register(e, "syscall_number", env.sys.arch().syscall_number, U32, || is_typed(env))
}

/// Does the raw program know the types of its arguments?
fn is_typed(env: &Env) -> bool {
    raw_program(env) == ProgramType::TypedTracepoint
}

/// A register of the caller, in the `struct pt_regs` that both mechanisms pass first. Is that pointer typed?
fn register<'c>(e: &mut Builder<'_, 'c>, name: &str, offset: u32, int: Int, typed: impl FnOnce() -> bool) -> IntValue<'c> {
    e.once(name, |e| {
        if typed() {
            let regs = e.load_ctx_pointer(0);
            return e.load_typed(regs, offset, int);
        }
        let regs = e.load_ctx(0, U64);
        let addr = e.add(regs, e.int(offset.into()));
        e.read_int(Space::Kernel, addr, int)
    })
}

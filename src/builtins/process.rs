//! Processes, threads and users.

use super::{Accepts, Builtin, CallInfo, CallSite, Codegen, Decoder, Lit, Param, Returns};
use crate::diag::Diagnostic;
use crate::emit::shared::LoadConstants;
use crate::emit::{Builder, Cmp, Helper, IntValue, KernelType, Operand};
use crate::probes::{self, ContextFeatures};
use crate::settings::Invocation;
use crate::system::machine::users;
use crate::system::{Feature, TypeName};
use crate::types::{Deferred, Int, Space, Type};
use crate::value::Value;

const U32: Int = Int { bytes: 4, signed: false };
const U64: Int = Int { bytes: 8, signed: false };
/// `TASK_COMM_LEN` of include/linux/sched.h.
const COMM: u32 = 16;
/// Size of the name of another process, as defined by the language.
const NAME_SIZE: u32 = 64;
/// `MAX_ERRNO` of include/linux/err.h.
const MAX_ERRNO: i64 = 4095;

const NAMESPACE: &[Param] = &[Param::optional("namespace", Accepts::Word(&["init", "curr_ns"]))];

/// A `struct task_struct *`.
const TASK: &[Param] = &[Param::optional("task", Accepts::Addr)];

const TID: &str = "tid";
const PID: &str = "pid";
const CPID: &str = "cpid";
const NAME_OF_TASK: &str = "comm";
const CURRENT_TASK: &str = "curtask";
/// The name of the builtin that tells whether the current process descends from the command.
pub const FOLLOWED: &str = "followed";
const HAS_COMMAND: &str = "has_cpid";

pub(super) fn is_thread_id(row: &Builtin) -> bool {
    row.name == TID
}

pub(super) fn is_of_task(row: &Builtin) -> bool {
    [PID, TID, NAME_OF_TASK, CURRENT_TASK, CPID, FOLLOWED].contains(&row.name)
}

pub(super) fn is_argument(row: &Builtin, invocation: &Invocation) -> bool {
    row.name == HAS_COMMAND && invocation.late_bound.target
}

/// Does a use of this row ask whether the current process is a descendant of the command?
pub(super) fn is_followed(row: &Builtin) -> bool {
    row.name == FOLLOWED
}

pub(super) const ROWS: &[Builtin] = &[
    Builtin {
        name: PID,
        params: NAMESPACE,
        returns: Returns::By(in_namespace),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, u, _| {
            let both = both_ids(e, u);
            Operand::reg(u.ty.clone(), e.shr(both, e.int(32), false))
        }),
        doc: "Process ID (thread group ID) of the current task. The default is the PID namespace that rbt runs in (curr_ns). `init` selects the initial one.",
        example: "tracepoint:syscalls:sys_enter_openat { @[pid] = count(); }",
    },
    Builtin {
        name: TID,
        params: NAMESPACE,
        returns: Returns::By(in_namespace),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, u, _| {
            let both = both_ids(e, u);
            Operand::reg(u.ty.clone(), e.fit(both, U32))
        }),
        doc: "Thread ID of the current task. `init` and `curr_ns` select the PID namespace, as for pid.",
        example: "tracepoint:syscalls:sys_enter_read { @start[tid] = nsecs; }",
    },
    Builtin {
        name: "uid",
        params: &[],
        returns: Returns::Always(Type::U64),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, _, _| {
            let both = user_ids(e);
            Operand::u64(e.fit(both, U32))
        }),
        doc: "User ID of the current task, in the initial user namespace.",
        example: "tracepoint:syscalls:sys_enter_openat /uid == 0/ { @[comm] = count(); }",
    },
    Builtin {
        name: "gid",
        params: &[],
        returns: Returns::Always(Type::U64),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, _, _| {
            let both = user_ids(e);
            Operand::u64(e.shr(both, e.int(32), false))
        }),
        doc: "Group ID of the current task, in the initial user namespace.",
        example: "tracepoint:syscalls:sys_enter_openat { @[gid] = count(); }",
    },
    Builtin {
        name: "username",
        params: &[],
        returns: Returns::By(|_| Ok(Deferred::plain(USERNAME, 8))),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, u, _| {
            let both = user_ids(e);
            let at = e.alloc(8);
            let uid = e.fit(both, U32);
            e.store(at, 0, 8, uid);
            Operand::mem(u.ty.clone(), at)
        }),
        doc: "Name of the current task's user. rbt looks it up in the user database when it prints it. It is empty if the database does not contain the user.",
        example: "tracepoint:syscalls:sys_enter_execve { printf(\"%s runs %s\\n\", username, str(args.filename)); }",
    },
    Builtin {
        name: NAME_OF_TASK,
        params: &[Param::optional("pid", Accepts::Int)],
        returns: Returns::By(comm_type),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, u, args| {
            if let Some(pid) = args.first() {
                let pid = e.scalar(pid);
                return comm_of(e, u, pid);
            }
            let at = e.once_ptr("comm", |e| {
                let at = e.alloc_known("comm", COMM);
                if let Some(offset) = u.consts.first() {
                    let task = e.call_ptr(Helper::GetCurrentTaskBtf, &[]);
                    (0..COMM / 8).for_each(|word| {
                        let part = e.load_typed(task, *offset as u32 + word * 8, U64);
                        e.store(at, word * 8, 8, part);
                    });
                    return at;
                }
                let (size, zero) = (e.int(COMM.into()), e.int(0));
                // before Linux 6.2 the helper does not zero the bytes after the NUL, but keys must be identical
                (0..COMM / 8).for_each(|word| e.store(at, word * 8, 8, zero));
                e.call(Helper::GetCurrentComm, &[at.into(), size.into()]);
                at
            });
            Operand::mem(u.ty.clone(), at)
        }),
        doc: "Name of the current thread, at most 15 bytes. comm(pid) is the name of another process, in probes where the kernel allows the lookup.",
        example: "tracepoint:syscalls:sys_enter_openat { @[comm] = count(); }",
    },
    Builtin {
        name: CURRENT_TASK,
        params: &[],
        returns: Returns::By(|f| {
            let task = f.sys.type_named(TypeName::Struct, "task_struct");
            if task.is_none() && f.sys.types_missing().is_none() {
                // a snapshot that was made for other scripts may lack it
                let what = format!("the kernel's types (BTF) lack struct task_struct: {} is an integer", f.name);
                f.warn(Diagnostic::warning("no-btf", f.span, what));
            }
            Ok(task.map_or(Type::U64, |t| t.ptr(Space::Kernel)))
        }),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, u, _| Operand::reg(u.ty.clone(), current_task(e))),
        doc: "Pointer to the current task's struct task_struct. On kernels without BTF it is an integer.",
        example: "tracepoint:syscalls:sys_enter_openat { @[curtask.real_parent.comm] = count(); }",
    },
    Builtin {
        name: "ppid",
        params: TASK,
        returns: Returns::Always(Type::int(4)),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Source(
            "macro ppid() { curtask.real_parent.tgid }
             macro ppid(task) { ((struct task_struct *)kptr(task)).real_parent.tgid }",
        ),
        doc: "Process ID of a task's parent. The default is the current task.",
        example: "tracepoint:syscalls:sys_enter_execve { printf(\"%d -> %d\\n\", ppid, pid); }",
    },
    Builtin {
        name: "pcomm",
        params: TASK,
        returns: Returns::Always(Type::Str(COMM)),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Source(
            "macro pcomm() { curtask.real_parent.comm }
             macro pcomm(task) { ((struct task_struct *)kptr(task)).real_parent.comm }",
        ),
        doc: "Name of a task's parent. The default is the current task.",
        example: "tracepoint:syscalls:sys_enter_execve { printf(\"%s -> %s\\n\", pcomm, comm); }",
    },
    Builtin {
        name: "leader_tid",
        params: TASK,
        returns: Returns::Always(Type::int(4)),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Source(
            "macro leader_tid() { curtask.group_leader.pid }
             macro leader_tid(task) { ((struct task_struct *)kptr(task)).group_leader.pid }",
        ),
        doc: "Thread ID of a task's group leader. The default is the current task.",
        example: "tracepoint:syscalls:sys_enter_openat /leader_tid != tid/ { @[comm] = count(); }",
    },
    Builtin {
        name: "leader_comm",
        params: TASK,
        returns: Returns::Always(Type::Str(COMM)),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Source(
            "macro leader_comm() { curtask.group_leader.comm }
             macro leader_comm(task) { ((struct task_struct *)kptr(task)).group_leader.comm }",
        ),
        doc: "Name of a task's group leader. The default is the current task.",
        example: "tracepoint:syscalls:sys_enter_openat { @[leader_comm, comm] = count(); }",
    },
    Builtin {
        name: CPID,
        params: &[],
        returns: Returns::By(|f| {
            if !f.invocation.has_child && !f.invocation.late_bound.target {
                f.warn(
                    Diagnostic::warning("no-command-pid", f.span, format!("`{}` is 0, because rbt runs no command", f.name))
                        .help("add -c COMMAND"),
                );
            }
            Ok(Type::U64)
        }),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, _, _| Operand::u64(e.start(std::mem::offset_of!(LoadConstants, child)))),
        doc: "Process ID of the command that -c runs, or 0 without -c.",
        example: "tracepoint:syscalls:sys_enter_openat /pid == cpid/ { printf(\"%s\\n\", str(args.filename)); }",
    },
    Builtin {
        name: HAS_COMMAND,
        params: &[],
        returns: Returns::Always(Type::Bool),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Known(
            |f| (!f.invocation.late_bound.target).then(|| Lit::Int(f.invocation.has_child.into())),
            |e, u, _| {
                let child = e.start(std::mem::offset_of!(LoadConstants, child));
                Operand::reg(u.ty.clone(), e.cmp(Cmp::Ne, child, e.int(0)))
            },
        ),
        doc: "True if rbt runs a command (-c).",
        example: "begin { if (has_cpid) { printf(\"there is a command\\n\"); } }",
    },
    Builtin {
        name: FOLLOWED,
        params: &[],
        returns: Returns::Always(Type::Bool),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, u, _| Operand::reg(u.ty.clone(), e.followed())),
        doc: "True if the current process is the command of -c or one of its descendants. With --follow, this includes the process of -p and its descendants. It is always true without -c and --follow. In a script that uses it, -c does not limit other probes.",
        example: "tracepoint:syscalls:sys_enter_openat /followed/ { printf(\"%d %s\\n\", pid, str(args.filename)); }",
    },
    Builtin {
        name: "is_err",
        params: &[Param::new("pointer", Accepts::Addr)],
        returns: Returns::Always(Type::Bool),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, u, args| {
            let p = first(e, args);
            Operand::reg(u.ty.clone(), e.cmp(Cmp::Uge, p, e.int(-MAX_ERRNO as u64)))
        }),
        doc: "Returns true if a kernel pointer encodes an error number, that is, if it is one of the last 4095 addresses.",
        example: "begin { if (is_err(-2)) { printf(\"an error\\n\"); } }",
    },
];

pub(super) const DECODERS: &[Decoder] =
    &[Decoder { name: USERNAME, size: 8, from_int: true, decode: |_, bytes, _| Value::Text(users::name(super::word(bytes, 0) as u32)) }];

const USERNAME: &str = "username_t";

/// Kernel functions that look up a task, and release it.
const TASK_FROM_PID: &str = "bpf_task_from_pid";
const TASK_RELEASE: &str = "bpf_task_release";

/// Is it the pointer to the current task?
pub fn is_current_task(row: &Builtin) -> bool {
    row.name == CURRENT_TASK
}

/// The kernel functions that the code of these rows calls, if any: `comm` of another process, if the kernel allows it.
pub(super) fn kernel_functions(row: &Builtin, consts: &[i64]) -> &'static [&'static str] {
    let finds_task = row.name == NAME_OF_TASK && !consts.is_empty();
    if finds_task { &[TASK_FROM_PID, TASK_RELEASE] } else { &[] }
}

/// For another process: keeps the offset of a task's name, if the lookup is allowed.
fn comm_type(f: &CallInfo) -> Result<Type, Diagnostic> {
    let member = || match f.sys.type_named(TypeName::Struct, "task_struct") {
        Some(Type::Struct(task)) => f.sys.member(&task, "comm"),
        _ => None,
    };
    if f.args.is_empty() {
        // Loads take a few nanoseconds, and the helper some 70. Kernels with CPU v4 (6.6) zero the bytes after the NUL
        // (`__set_task_comm` of fs/exec.c).
        if let Some(name) = f.sys.has(Feature::CpuV4).then(member).flatten().filter(|name| name.ty.size() == COMM) {
            f.bind_consts(&[name.offset.into()]);
        }
        return Ok(Type::Str(COMM));
    }
    let name = member();
    match name.filter(|_| probes::may_call(f.site, TASK_FROM_PID, &f.env())) {
        Some(name) => f.bind_consts(&[name.offset.into()]),
        None => {
            let message = format!("{} of a process is not available here: this kernel does not allow the lookup in such probes", f.name);
            f.warn(Diagnostic::warning("no-kfunc", f.span, message).help("it prints as [unknown]"));
        }
    }
    Ok(Type::Str(NAME_SIZE))
}

fn comm_of<'c>(e: &mut Builder<'_, 'c>, u: &CallSite, pid: IntValue<'c>) -> Operand<'c> {
    let word = |e: &mut Builder<'_, 'c>, text: &str| {
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(NAME_SIZE as usize, 0);
        e.text(&bytes)
    };
    let Some(offset) = u.consts.first() else {
        let text = word(e, "[unknown]");
        return Operand::mem(u.ty.clone(), text);
    };
    let ptr = e.alloc(NAME_SIZE);
    e.zero(ptr, NAME_SIZE, 8);
    let task = e.call_kernel_ptr(TASK_FROM_PID, &[KernelType::Struct("task_struct"), KernelType::Number], &[pid.into()]);
    let found = e.not_null(task);
    let branch = e.begin_if(found);
    let name = e.add(e.addr(task), e.int(*offset as u64));
    e.read_str(Space::Kernel, ptr, COMM, name);
    e.call_kernel(TASK_RELEASE, &[KernelType::Nothing, KernelType::Struct("task_struct")], &[task.into()]);
    e.else_(&branch);
    let here = e.rematerialize(ptr);
    e.store_bytes(here, b"N/A\0");
    e.problem("no process has this ID");
    e.end_if(branch);
    let ptr = e.rematerialize(ptr);
    Operand::mem(u.ty.clone(), ptr)
}

/// Without `init`, keeps that the numbers are those of rbt's own PID namespace.
fn in_namespace(f: &CallInfo) -> Result<Type, Diagnostic> {
    if f.word(0) != Some("init") {
        f.bind_consts(&[1]);
    }
    Ok(Type::uint(4))
}

/// Process ID << 32 | thread ID.
fn both_ids<'c>(e: &mut Builder<'_, 'c>, u: &CallSite) -> IntValue<'c> {
    if u.consts.is_empty() { e.ids_in(None) } else { e.ns_pid_tgid() }
}

/// Group ID << 32 | user ID.
fn user_ids<'c>(e: &mut Builder<'_, 'c>) -> IntValue<'c> {
    e.once("uid_gid", |e| e.call(Helper::GetCurrentUidGid, &[]))
}

fn current_task<'c>(e: &mut Builder<'_, 'c>) -> IntValue<'c> {
    e.once("task", |e| e.call(Helper::GetCurrentTask, &[]))
}

fn first<'c>(e: &Builder<'_, 'c>, args: &[Operand<'c>]) -> IntValue<'c> {
    args.first().map_or(e.int(0), |a| e.scalar(a))
}

//! Builtins for probes on kernel functions only.

use super::{Accepts, Builtin, CallInfo, Codegen, Param, Returns};
use crate::diag::Diagnostic;
use crate::emit::{Cmp, Helper, Operand, Repr};
use crate::probes::{Attach, ContextFeatures};
use crate::system::Feature;
use crate::types::Type;

pub(super) const ROWS: &[Builtin] = &[
    Builtin {
        name: "override",
        params: &[Param::new("value", Accepts::Int)],
        returns: Returns::By(|f| {
            let Attach::Kprobe { function, .. } = &f.site.attach else { return Ok(Type::Void) };
            match f.sys.error_injectable(function) {
                // the kernel is at fault if it allows no override at all, not the function
                Some(false) if f.sys.has(Feature::Override) => {
                    let message = format!("the kernel does not allow overriding `{function}`");
                    let d = Diagnostic::error("not-injectable", f.span, message);
                    Err(d.help(
                        "only functions that allow error injection can be overridden: /sys/kernel/debug/error_injection/list lists them",
                    ))
                }
                Some(_) | None => Ok(Type::Void),
            }
        }),
        needs: ContextFeatures::OVERRIDE,
        risky: true,
        codegen: Codegen::Effect(|e, _, args| {
            let value = args.first().map_or(e.int(0), |a| e.scalar(a));
            let ctx = e.ctx();
            e.call(Helper::OverrideReturn, &[ctx.into(), value.into()]);
            Operand::void()
        }),
        doc: "Skips the traced function and makes it return this value. It needs a kernel with CONFIG_BPF_KPROBE_OVERRIDE and a function that allows error injection.",
        example: "kprobe:__x64_sys_getppid /comm == \"orphan\"/ { override(1); }",
    },
    Builtin {
        name: "path",
        params: &[Param::new("path", Accepts::Any), Param::optional("length", Accepts::LitInt)],
        returns: Returns::By(path_type),
        needs: ContextFeatures::TRUSTED,
        risky: false,
        codegen: Codegen::Code(|e, u, args| {
            let cap = u.ty.size();
            let place = match args.first().map(|a| a.repr) {
                Some(Repr::At(place, _) | Repr::Reg(place)) => place,
                Some(Repr::Mem(ptr, _)) => e.addr(ptr),
                Some(Repr::None) | None => e.int(0),
            };
            let to = e.alloc(cap + 1);
            e.zero(to, (cap + 1).next_multiple_of(8), 8);
            let size = e.int(cap.into());
            let r = e.call(Helper::DPath, &[place.into(), to.into(), size.into()]);
            let failed = e.cmp(Cmp::Slt, r, e.int(0));
            e.check(Helper::DPath, r, 1);
            // a failed call leaves no valid path
            e.if_(failed, |e| {
                let zero = e.int(0);
                e.store(to, 0, 1, zero);
            });
            Operand::mem(u.ty.clone(), to)
        }),
        doc: "Returns the full path of a kernel `struct path`, at most max_strlen bytes or the given length. The kernel allows it in certain functions only, such as vfs_getattr and filp_close.",
        example: "fentry:filp_close { printf(\"%s\\n\", path(args.filp.f_path)); }",
    },
];

/// The functions in which programs may use paths: `btf_allowlist_d_path` of kernel/trace/bpf_trace.c, which has never
/// changed.
const D_PATH_FUNCTIONS: &[&str] = &[
    "dentry_open",
    "filp_close",
    "security_file_open",
    "security_file_permission",
    "security_inode_getattr",
    "security_path_truncate",
    "vfs_fallocate",
    "vfs_getattr",
    "vfs_truncate",
];

fn path_type(f: &CallInfo) -> Result<Type, Diagnostic> {
    let ty = f.args.first().map(|a| &a.ty);
    let of = match ty {
        Some(Type::Ptr(to, _)) => Some(&**to),
        other => other,
    };
    if !matches!(of, Some(Type::Struct(s)) if s.name == "path") {
        let ty = ty.map(Type::to_string).unwrap_or_default();
        let d = Diagnostic::error("type-mismatch", f.span(0), format!("path takes a `struct path` or a pointer to one, but this is {ty}"));
        return Err(d.help("for a file, use `path(args.file.f_path)`"));
    }
    f.require_probe_arg(0)?;
    if let Attach::Trampoline { program: None, function, .. } = &f.site.attach
        && !D_PATH_FUNCTIONS.contains(&function.as_str())
    {
        let d = Diagnostic::error("unsupported-in-probe", f.span, format!("the kernel does not allow path() in `{function}`"));
        return Err(d.help(format!("it allows it in iterators, and in {}", D_PATH_FUNCTIONS.join(", "))));
    }
    // both were added in the same version
    if matches!(f.site.attach, Attach::Iter { .. }) && !f.sys.has(Feature::RecursionCheck) {
        let d = Diagnostic::error("unsupported-in-probe", f.span, "the kernel does not allow path() in iterators before Linux 5.12");
        return Err(d.help(format!("it allows it in {}", D_PATH_FUNCTIONS.join(", "))));
    }
    match f.int(1) {
        None => Ok(Type::Str(f.settings.max_strlen as u32)),
        Some(n) if (1..=1 << 16).contains(&n) => Ok(Type::Str(n as u32)),
        Some(n) => {
            Err(Diagnostic::error("out-of-range", f.span(1), format!("a path's length must be from 1 to 65536 bytes, but this is {n}")))
        }
    }
}

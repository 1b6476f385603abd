//! Control groups (version 2), and the containers that they belong to.

use super::{Accepts, Builtin, Codegen, Decoder, Lit, Param, Returns};
use crate::diag::Diagnostic;
use crate::emit::{Helper, Operand};
use crate::probes::ContextFeatures;
use crate::system::machine::cgroup;
use crate::system::machine::container::{self, Container, Owner};
use crate::system::matches;
use crate::types::{Deferred, Type};
use crate::value::Value;

const PATH: &str = "cgroup_path_t";
/// What stands for the names of a container that is gone.
const UNKNOWN: &str = "(unknown)";
/// The ID of a cgroup; the first parameter is the index of the part in [`PARTS`].
const CONTAINER: &str = "container_t";

/// Is this a part of a container?
pub fn names_container(value: &Deferred) -> bool {
    value.tag == CONTAINER
}

/// Parts of a container, as their builtins return them.
const PARTS: &[fn(&Container) -> &str] = &[|c| c.shown(), |c| &c.id, |c| &c.pod, |c| &c.namespace];

/// A builtin that returns the part of the container with this index.
const fn container_part<const PART: u32>(name: &'static str, doc: &'static str, example: &'static str) -> Builtin {
    Builtin {
        name,
        params: OPTIONAL_ID,
        returns: Returns::By(|_| Ok(Deferred::with(CONTAINER, 8, [PART, 0], ""))),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, u, args| {
            let ptr = e.alloc(8);
            let id = match args.first() {
                Some(id) => e.scalar(id),
                None => e.once(CGROUP, |e| e.call(Helper::GetCurrentCgroupId, &[])),
            };
            e.store(ptr, 0, 8, id);
            Operand::mem(u.ty.clone(), ptr)
        }),
        doc,
        example,
    }
}

const CGROUP: &str = "cgroup";
const OPTIONAL_ID: &[Param] = &[Param::optional("id", Accepts::Int)];

pub(super) const ROWS: &[Builtin] = &[
    Builtin {
        name: CGROUP,
        params: &[],
        returns: Returns::Always(Type::U64),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, _, _| Operand::u64(e.once(CGROUP, |e| e.call(Helper::GetCurrentCgroupId, &[])))),
        doc: "ID of the current task's cgroup (version 2).",
        example: "tracepoint:syscalls:sys_enter_openat { @[cgroup] = count(); }",
    },
    Builtin {
        name: "cgroupid",
        params: &[Param::new("path", Accepts::LitStr)],
        returns: Returns::Always(Type::U64),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Fold(|f| {
            let path = String::from_utf8_lossy(f.text(0).unwrap_or_default()).into_owned();
            if !f.sys.knows_cgroups() {
                f.warn(Diagnostic::warning("unknown-cgroup", f.span(0), format!("the machine must have a cgroup (version 2) at `{path}`")));
            }
            f.sys
                .cgroup_id(&path)
                .map(|id| Lit::Int(id as i64))
                .map_err(|m| Diagnostic { help: m.help, ..Diagnostic::error("no-cgroup", f.span(0), m.what) })
        }),
        doc: "Returns the ID of the cgroup at a path. rbt looks it up when it checks the script.",
        example: "tracepoint:syscalls:sys_enter_openat /cgroup == cgroupid(\"/\")/ { @[comm] = count(); }",
    },
    Builtin {
        name: "cgroup_path",
        params: &[Param::new("id", Accepts::Int), Param::optional("hierarchies", Accepts::LitStr)],
        returns: Returns::By(|f| {
            let filter = f.text(1).map_or("*".into(), String::from_utf8_lossy);
            Ok(Deferred::with(PATH, 8, [0, 0], &filter))
        }),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, u, args| {
            let at = e.alloc(8);
            let id = args.first().map_or(e.int(0), |a| e.scalar(a));
            e.store(at, 0, 8, id);
            Operand::mem(u.ty.clone(), at)
        }),
        doc: "Returns the path of a cgroup from its ID, as `unified:/path`. The second argument, a pattern with `*`, selects the hierarchies to include. rbt looks up the path when it prints it.",
        example: "tracepoint:syscalls:sys_enter_openat { @[cgroup_path(cgroup)] = count(); }",
    },
    container_part::<0>(
        "container_name",
        "Returns the name of the container of a cgroup, by the cgroup's ID (default: the current one). If no file has the name, it is the first digits of the container's ID. Outside of containers, it is empty, and for a cgroup that is gone `(unknown)`. rbt looks it up when it prints it, in files of the container runtimes and the kubelet.",
        "tracepoint:syscalls:sys_enter_openat { @[container_name] = count(); }",
    ),
    container_part::<1>(
        "container_id",
        "Returns the ID of the container that a cgroup belongs to. See container_name.",
        "tracepoint:syscalls:sys_enter_openat { @[container_id] = count(); }",
    ),
    container_part::<2>(
        "pod_name",
        "Returns the name of the Kubernetes pod that a cgroup belongs to. Outside of pods, it is empty. See container_name.",
        "tracepoint:syscalls:sys_enter_openat { @[pod_namespace, pod_name] = count(); }",
    ),
    container_part::<3>(
        "pod_namespace",
        "Returns the namespace of the Kubernetes pod that a cgroup belongs to. Outside of pods, it is empty. See container_name.",
        "tracepoint:syscalls:sys_enter_openat { @[pod_namespace] = count(); }",
    ),
];

pub(super) const DECODERS: &[Decoder] = &[
    Decoder {
        name: PATH,
        size: 8,
        from_int: false,
        decode: |tag, bytes, _| {
            let id = super::word(bytes, 0);
            if !matches(&tag.text, "unified") {
                return Value::Text(String::new());
            }
            Value::Text(cgroup::path_of(id).map_or_else(String::new, |path| format!("unified:{path}")))
        },
    },
    Decoder {
        name: CONTAINER,
        size: 8,
        from_int: false,
        decode: |tag, bytes, _| {
            let part = PARTS.get(tag.params[0] as usize);
            Value::Text(match container::owner_of_cgroup(super::word(bytes, 0)) {
                Owner::Container(container) => part.map_or_else(String::new, |part| part(&container).to_owned()),
                Owner::Nobody => String::new(),
                Owner::Unknown => UNKNOWN.into(),
            })
        },
    },
];

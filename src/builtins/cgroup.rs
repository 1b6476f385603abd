//! Control groups (version 2).

use std::path::Path;

use super::{Accepts, Builtin, Decoder, Lit, Lower, Param, Returns};
use crate::diag::Diagnostic;
use crate::emit::{Helper, Operand};
use crate::probes::ContextFeatures;
use crate::system::machine::cgroup::mount;
use crate::system::matches;
use crate::types::{Deferred, Type};
use crate::value::Value;

const PATH: &str = "cgroup_path_t";

pub(super) const ROWS: &[Builtin] = &[
    Builtin {
        name: "cgroup",
        params: &[],
        returns: Returns::Always(Type::U64),
        needs: ContextFeatures::NONE,
        risky: false,
        lower: Lower::Code(|e, _, _| Operand::u64(e.once("cgroup", |e| e.call(Helper::GetCurrentCgroupId, &[])))),
        doc: "ID of the current task's cgroup (version 2).",
        example: "tracepoint:syscalls:sys_enter_openat { @[cgroup] = count(); }",
    },
    Builtin {
        name: "cgroupid",
        params: &[Param::new("path", Accepts::LitStr)],
        returns: Returns::Always(Type::U64),
        needs: ContextFeatures::NONE,
        risky: false,
        lower: Lower::Fold(|f| {
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
        lower: Lower::Code(|e, u, args| {
            let at = e.alloc(8);
            let id = args.first().map_or(e.int(0), |a| e.scalar(a));
            e.store(at, 0, 8, id);
            Operand::mem(u.ty.clone(), at)
        }),
        doc: "Returns the path of a cgroup from its ID, as `unified:/path`. The second argument, a pattern with `*`, selects the hierarchies to include. rbt looks up the path when it prints it.",
        example: "tracepoint:syscalls:sys_enter_openat { @[cgroup_path(cgroup)] = count(); }",
    },
];

pub(super) const DECODERS: &[Decoder] = &[Decoder {
    name: PATH,
    size: 8,
    from_int: false,
    decode: |tag, bytes, _| {
        let id = super::word(bytes, 0);
        if !matches(&tag.text, "unified") {
            return Value::Text(String::new());
        }
        Value::Text(mount().and_then(|root| find(&root, id)).map_or_else(String::new, |path| format!("unified:{path}")))
    },
}];

/// The directory of this inode number (a control group's id is its directory's) below `root`.
fn find(root: &Path, id: u64) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    if std::fs::metadata(root).ok()?.ino() == id {
        return Some("/".into());
    }
    let mut pending = vec![root.to_path_buf()];
    while let Some(dir) = pending.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        for entry in entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
            let path = entry.path();
            if entry.metadata().is_ok_and(|m| m.ino() == id) {
                return path.strip_prefix(root).ok().map(|p| format!("/{}", p.display()));
            }
            pending.push(path);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_found_by_its_inode() {
        use std::os::unix::fs::MetadataExt;
        let dir = std::env::temp_dir().join(format!("cgroup-find-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("a/b")).unwrap();
        let id = std::fs::metadata(dir.join("a/b")).unwrap().ino();
        assert_eq!(find(&dir, id).as_deref(), Some("/a/b"));
        assert_eq!(find(&dir, std::fs::metadata(&dir).unwrap().ino()).as_deref(), Some("/"));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

//! `iter`: visits all tasks, files, sockets, maps or other objects of the kernel once.
//!
//! The kernel calls the program for each object, with BTF's `struct bpf_iter__NAME` as its context, and once more
//! without an object at the end (kernel/bpf/bpf_iter.c). Reading the file of the iterator drives it, and the reader
//! receives what the program writes. For iterators of a run, that is a byte for each object, which limits how far the
//! kernel proceeds before rbt processes the records, so none is lost. A pinned iterator outlives the run, and its
//! `printf` writes to the reader of the file.

use std::mem::offset_of;
use std::path::PathBuf;
use std::rc::Rc;

use super::{
    ArgRef, Attach, Context, ContextFeatures, ContextField, Env, FieldLocation, Info, ProbeKind, ProbeSite, ProgramType, matches, missing,
};
use crate::diag::Diagnostic;
use crate::emit::shared::LoadConstants;
use crate::emit::{Builder, Cmp, Helper, IntValue, Operand};
use crate::syntax::ast::AttachPoint;
use crate::system::{Missing, TargetInfo, TypeName};
use crate::types::{Int, Space, Type};

/// The kind.
#[derive(Debug)]
pub struct Iter;

static INFO: Info = Info {
    names: &["iter", "it"],
    usage: "iter:NAME[:PIN]",
    doc: "Runs once for each kernel object of a kind (tasks, their files and mappings, sockets, BPF maps and programs) after all other probes are attached. `rbt -l 'iter:*'` lists the kinds. The object is a member of `ctx` and of `args`. With PIN, a path (relative to /sys/fs/bpf), rbt pins the iterator to that file instead of running it. Until you remove the file, each read of it runs the probe and returns the output of its printf().",
    example: "iter:task { @[ctx.task.comm] = count(); }",
};

const U64: Int = Int { bytes: 8, signed: false };
const U32: Int = Int { bytes: 4, signed: false };
/// The prefix of the names of contexts' structs.
const PREFIX: &str = "bpf_iter__";
/// A part of the names of structs that only the verifier knows (`BTF_TYPE_SAFE_TRUSTED` of kernel/bpf/verifier.c).
const VARIANT: &str = "__";
/// The member of each context besides its objects.
const META: &str = "meta";
/// The directory of relative pins.
const BPF_FS: &str = "/sys/fs/bpf";

/// The type of `ctx`.
pub fn context_struct(name: &str, sys: &dyn TargetInfo) -> Option<Type> {
    sys.type_named(TypeName::Struct, &format!("{PREFIX}{name}"))
}

/// The members of the context: a pointer to each object, and further information about it.
fn members(name: &str, sys: &dyn TargetInfo) -> Vec<crate::types::Field> {
    let Some(Type::Struct(of)) = context_struct(name, sys) else { return Vec::new() };
    sys.expand(&of).map(|r| r.fields).unwrap_or_default()
}

fn objects(name: &str, sys: &dyn TargetInfo) -> impl Iterator<Item = crate::types::Field> {
    // members without a name are unions around their pointers, for alignment
    members(name, sys).into_iter().filter(|f| f.name != META && !f.name.is_empty())
}

/// Does it visit the elements of one map, which would have to be named?
fn is_map_iterator(name: &str, sys: &dyn TargetInfo) -> bool {
    let names: Vec<String> = objects(name, sys).map(|f| f.name).collect();
    names.len() > 1 && names.iter().any(|n| n == "map")
}

/// The name and the pin of a site.
fn named(site: &ProbeSite) -> (&str, Option<&PathBuf>) {
    let Attach::Iter { name, pin, .. } = &site.attach else { crate::bug!("{} is not an iterator", site.name) };
    (name, pin.as_ref())
}

impl ProbeKind for Iter {
    fn info(&self) -> &Info {
        &INFO
    }

    fn expand(&self, point: &AttachPoint, env: &Env) -> Result<Vec<ProbeSite>, Diagnostic> {
        let parts: Vec<&str> = point.segments.iter().skip(1).map(|s| s.text.as_str()).collect();
        let (what, pin) = match parts.as_slice() {
            [what] if !what.is_empty() => (*what, None),
            [what, pin] if !what.is_empty() && !pin.is_empty() => (*what, Some(*pin)),
            _ => {
                return Err(Diagnostic::error(
                    "bad-probe",
                    point.span,
                    "iter takes a kind of object, and optionally a file to pin the iterator to",
                )
                .help(format!("write {}", self.usage())));
            }
        };
        if let Some(m) = env.sys.types_missing() {
            return Err(missing(point.span, m));
        }
        let site = |name: &str| {
            let pin = pin.map(|p| PathBuf::from(BPF_FS).join(p));
            let of_tasks = objects(name, env.sys).any(|f| f.name == "task");
            let full = match &pin {
                Some(pin) => format!("iter:{name}:{}", pin.display()),
                None => format!("iter:{name}"),
            };
            let attach = Attach::Iter { name: name.into(), pin, of_tasks };
            ProbeSite { kind: super::row("iter"), name: full, attach, span: point.span }
        };
        let usable = |name: &str| -> Result<(), Diagnostic> {
            if is_map_iterator(name, env.sys) {
                let d =
                    Diagnostic::error("unsupported", point.span, format!("iter:{name} iterates over one map, and scripts cannot name one"));
                return Err(d.help("iter:bpf_map iterates over all maps"));
            }
            let of_tasks = objects(name, env.sys).any(|f| f.name == "task");
            let option = match (env.settings.pid, &env.invocation.cgroup) {
                (Some(_), _) => "-p",
                (None, Some(_)) => "--cgroup",
                (None, None) => return Ok(()),
            };
            if !of_tasks {
                let message = format!("{option} limits only iterators over tasks and their resources, not iter:{name}");
                return Err(Diagnostic::error("unsupported-in-probe", point.span, message).help(format!("remove {option}")));
            }
            if let Some(within) = &env.invocation.cgroup
                && (within.level.is_none() || path_to_cgroup(env.sys).is_none())
            {
                let message = format!("{option} cannot limit an iterator here: the depth of the cgroup or the layout of tasks is unknown");
                return Err(Diagnostic::error("unsupported-in-probe", point.span, message).help("use a predicate instead"));
            }
            Ok(())
        };
        if what.contains('*') {
            let mut sites = Vec::new();
            self.list(&[what.to_owned()], env, &mut |name| {
                if let Some(name) = name.strip_prefix("iter:").filter(|n| usable(n).is_ok()) {
                    sites.push(site(name));
                }
            })
            .map_err(|m| missing(point.span, m))?;
            return Ok(sites);
        }
        if context_struct(what, env.sys).is_none() {
            let d = Diagnostic::error("unknown-iterator", point.span, format!("this kernel has no iterator `{what}`"));
            let names = names(env);
            let d = d.suggest(what, names.iter().map(String::as_str));
            return Err(if d.help.is_some() { d } else { d.help("`rbt -l 'iter:*'` lists what is available") });
        }
        usable(what)?;
        Ok(vec![site(what)])
    }

    fn offers(&self) -> ContextFeatures {
        ContextFeatures::CTX.union(ContextFeatures::ARGS).union(ContextFeatures::TRUSTED).union(ContextFeatures::SOCKETS)
    }

    fn context(&self, site: &ProbeSite, env: &Env) -> Result<Context, Diagnostic> {
        let (name, _) = named(site);
        let fields = objects(name, env.sys).map(|mut field| {
            if let Type::Ptr(to, _) = field.ty {
                field.ty = to.ptr(Space::Kernel);
            }
            Rc::new(ContextField { field, location: FieldLocation::Object })
        });
        Ok(Context { features: self.offers(), fields: fields.collect(), space: Some(Space::Kernel), ..Context::default() })
    }

    fn declarations(&self, site: &ProbeSite, env: &Env) -> Result<Vec<String>, Diagnostic> {
        let (name, _) = named(site);
        let spelled = |f: crate::types::Field| {
            let ty = env.sys.kernel_types().and_then(|types| types.member_text(&format!("{PREFIX}{name}"), &f.name));
            format!("{} {}", ty.unwrap_or_else(|| f.ty.to_string()), f.name)
        };
        Ok(objects(name, env.sys).map(spelled).collect())
    }

    fn program(&self, _site: &ProbeSite, _env: &Env) -> ProgramType {
        ProgramType::Iter
    }

    /// Returns if there is no object, or if it belongs to another process. Afterward the verifier knows that the object
    /// exists.
    fn enter(&self, e: &mut Builder<'_, '_>, site: &ProbeSite, env: &Env) {
        let (name, pin) = named(site);
        if pin.is_none() {
            e.return_if_ended();
        }
        for f in objects(name, env.sys).filter(|f| matches!(f.ty, Type::Ptr(..))) {
            let object = word(e, f.offset);
            let is_zero = e.cmp(Cmp::Eq, object, e.int(0));
            e.if_(is_zero, |e| e.ret(None));
            if f.name == "task" {
                only_wanted(e, object, env);
            }
        }
        if pin.is_none()
            && let Some(seq) = sequence(e, env.sys)
        {
            let (byte, one) = (e.text(&[0; 8]), e.int(1));
            e.call(Helper::SeqWrite, &[seq.into(), byte.into(), one.into()]);
        }
    }

    fn load<'c>(&self, e: &mut Builder<'_, 'c>, site: &ProbeSite, _env: &Env, which: &ArgRef, ty: &Type) -> Operand<'c> {
        let field = |e: &mut Builder<'_, 'c>, f: &ContextField| match (&f.field.ty, f.field.ty.as_int()) {
            (Type::Ptr(..), _) => {
                let object = word(e, f.field.offset);
                let object = if e.scope.keeps_pointer_types { object } else { e.forget_pointer_type(object) };
                Operand::reg(f.field.ty.clone(), object)
            }
            (_, Some(int)) => Operand::reg(f.field.ty.clone(), e.load_ctx(f.field.offset, int)),
            (_, None) => crate::bug!("{} is no number", f.field.name),
        };
        match which {
            ArgRef::Ctx => Operand::reg(ty.clone(), e.addr(e.ctx())),
            ArgRef::Named(f) => field(e, f),
            ArgRef::All(fields) => super::load_all(e, fields, ty, field),
            ArgRef::Index(_) | ArgRef::Retval | ArgRef::Func => crate::bug!("{} offers no {which:?}", site.name),
        }
    }

    fn list(&self, pattern: &[String], env: &Env, each: &mut dyn FnMut(&str)) -> Result<(), Missing> {
        if let Some(missing) = env.sys.types_missing() {
            return Err(missing);
        }
        let pattern = pattern.first().map_or("*", String::as_str);
        for name in names(env).iter().filter(|n| matches(pattern, n) && !is_map_iterator(n, env.sys)) {
            each(&format!("iter:{name}"));
        }
        Ok(())
    }
}

/// Returns if a task is excluded: it belongs to another process, or is not in the cgroup.
fn only_wanted<'c>(e: &mut Builder<'_, 'c>, task: IntValue<'c>, env: &Env) {
    let tgid = member(env.sys, "task_struct", "tgid");
    if env.invocation.late_bound.target {
        let (pid, cgroup) = (e.start(offset_of!(LoadConstants, only_pid)), e.start(offset_of!(LoadConstants, cgroup)));
        if let Some(tgid) = tgid {
            let chosen = e.cmp(Cmp::Ne, pid, e.int(0));
            e.if_(chosen, |e| return_if_other_process(e, task, tgid, pid));
        }
        let chosen = e.cmp(Cmp::Ne, cgroup, e.int(0));
        return e.if_(chosen, |e| {
            let level = e.start(offset_of!(LoadConstants, cgroup_level));
            return_if_other_cgroup(e, task, cgroup, level, env.sys);
        });
    }
    if let (Some(pid), Some(tgid)) = (env.settings.pid, tgid) {
        return_if_other_process(e, task, tgid, e.int(pid.into()));
    }
    if let Some((id, level)) = env.invocation.cgroup.as_ref().and_then(|c| Some((c.id, c.level?))) {
        return_if_other_cgroup(e, task, e.int(id), e.int(level.into()), env.sys);
    }
}

/// Returns if a task belongs to another process. `tgid` is the offset of a task's process ID.
fn return_if_other_process<'c>(e: &mut Builder<'_, 'c>, task: IntValue<'c>, tgid: u32, pid: IntValue<'c>) {
    let tgid = read(e, task, tgid, U32);
    let other = e.cmp(Cmp::Ne, tgid, pid);
    e.if_(other, |e| e.ret(None));
}

/// Returns if a task is neither in the cgroup with this ID, which is at this depth, nor below it. False if the kernel's
/// types lack the members needed for this.
pub fn return_if_other_cgroup<'c>(
    e: &mut Builder<'_, 'c>,
    task: IntValue<'c>,
    id: IntValue<'c>,
    level: IntValue<'c>,
    sys: &dyn TargetInfo,
) -> bool {
    let Some(path) = path_to_cgroup(sys) else { return false };
    let mut cgroup = task;
    for offset in path.task_cgroup {
        cgroup = read(e, cgroup, offset, U64);
    }
    let depth = read(e, cgroup, path.level, U32);
    let above = e.cmp(Cmp::Ult, depth, level);
    e.if_(above, |e| e.ret(None));
    let place = e.add(cgroup, e.mul(level, e.int(8)));
    let mut found = read(e, place, path.ancestors, U64);
    for offset in path.node {
        found = read(e, found, offset, U64);
    }
    let other = e.cmp(Cmp::Ne, found, id);
    e.if_(other, |e| e.ret(None));
    true
}

/// A member of a structure in kernel memory.
fn read<'c>(e: &mut Builder<'_, 'c>, base: IntValue<'c>, offset: u32, int: Int) -> IntValue<'c> {
    let addr = e.add(base, e.int(offset.into()));
    e.read_int(Space::Kernel, addr, int)
}

/// Offsets on the path from a task to the IDs of its cgroups.
struct PathToCgroup {
    /// From the task to its own cgroup.
    task_cgroup: [u32; 2],
    /// In a cgroup: the number of its ancestors, and the array of its ancestors and itself, from the root: pointers or
    /// (until Linux 6.0) IDs.
    level: u32,
    ancestors: u32,
    /// From a cgroup to its ID, if they are pointers.
    node: Vec<u32>,
}

fn path_to_cgroup(sys: &dyn TargetInfo) -> Option<PathToCgroup> {
    let (ancestors, node) = match member(sys, "cgroup", "ancestors") {
        Some(pointers) => (pointers, vec![member(sys, "cgroup", "kn")?, member(sys, "kernfs_node", "id")?]),
        None => (member(sys, "cgroup", "ancestor_ids")?, Vec::new()),
    };
    Some(PathToCgroup {
        task_cgroup: [member(sys, "task_struct", "cgroups")?, member(sys, "css_set", "dfl_cgrp")?],
        level: member(sys, "cgroup", "level")?,
        ancestors,
        node,
    })
}

/// A member's offset.
fn member(sys: &dyn TargetInfo, structure: &str, name: &str) -> Option<u32> {
    let Type::Struct(structure) = sys.type_named(TypeName::Struct, structure)? else { return None };
    Some(sys.member(&structure, name)?.offset)
}

/// Sorted, without duplicates: modules repeat those of the kernel.
fn names(env: &Env) -> Vec<String> {
    let mut names = Vec::new();
    env.sys.type_names(TypeName::Struct, &mut |name| {
        names.extend(name.strip_prefix(PREFIX).filter(|n| !n.contains(VARIANT)).map(str::to_owned));
    });
    names.sort_unstable();
    names.dedup();
    names
}

/// A pointer of the context: read once, so that the verifier remembers that it is not null.
fn word<'c>(e: &mut Builder<'_, 'c>, offset: u32) -> IntValue<'c> {
    e.once(&format!("object{offset}"), |e| e.load_ctx(offset, U64))
}

/// The destination of the iterator's output: a `struct seq_file *`.
pub fn sequence<'c>(e: &mut Builder<'_, 'c>, sys: &dyn TargetInfo) -> Option<IntValue<'c>> {
    let Some(Type::Struct(meta)) = sys.type_named(TypeName::Struct, "bpf_iter_meta") else { return None };
    let seq = sys.member(&meta, "seq")?.offset;
    Some(e.once("sequence", |e| {
        let meta = e.load_ptr(e.ctx(), 0);
        e.load_typed(meta, seq, U64)
    }))
}

//! Maps and their elements.

use super::{Accepts, Arg, Builtin, CallSite, Codegen, Event, EventSpec, Handler, MapAction, MapId, Param, Returns, stacks};
use crate::diag::Diagnostic;
use crate::emit::shared::LoadConstants;
use crate::emit::{Builder, Helper, MapKind, Operand, PointerValue};
use crate::host::Host;
use crate::probes::ContextFeatures;
use crate::types::Type;

const DELETE: &str = "delete";

pub(super) fn is_delete(row: &Builtin) -> bool {
    row.name == DELETE
}

/// The builtins by which a program asks about elements.
const ASKS: [&str; 3] = ["has_key", "find", "len"];

pub(super) fn asks_about_map(row: &Builtin) -> bool {
    ASKS.contains(&row.name)
}

/// The builtins by which user space changes a map.
const CHANGES: [&str; 2] = ["clear", "zero"];

pub(super) fn changes_map(row: &Builtin) -> bool {
    CHANGES.contains(&row.name)
}

pub(super) const ROWS: &[Builtin] = &[
    Builtin {
        name: "clear",
        params: &[Param::new("map", Accepts::Map)],
        returns: Returns::Always(Type::Void),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Event(&Event {
            ends_probe: false,
            capture: None,
            prepare: |spec| each_map(spec, |host, map| host.clear_map(map)),
        }),
        doc: "Removes all elements of a map. rbt does this when it handles the event.",
        example: "tracepoint:syscalls:sys_enter_openat { @[comm] = count(); } interval:s:1 { print(@); clear(@); }",
    },
    Builtin {
        name: "zero",
        params: &[Param::new("map", Accepts::Map)],
        returns: Returns::Always(Type::Void),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Event(&Event {
            ends_probe: false,
            capture: None,
            prepare: |spec| each_map(spec, |host, map| host.zero_map(map)),
        }),
        doc: "Sets all values of a map to zero and keeps the keys. rbt does this when it handles the event.",
        example: "tracepoint:syscalls:sys_enter_openat { @[comm] = count(); } interval:s:1 { print(@); zero(@); }",
    },
    Builtin {
        name: DELETE,
        params: &[Param::new("element", Accepts::Element), Param::optional("key", Accepts::Key)],
        returns: Returns::Always(Type::Bool),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Effect(delete),
        doc: "Removes an element at once: `delete(@m, key)` or `delete(@m[key])`. It returns true if the element existed. A map without keys becomes zero.",
        example: "tracepoint:syscalls:sys_enter_read { @start[tid] = nsecs; } tracepoint:syscalls:sys_exit_read { delete(@start, tid); }",
    },
    Builtin {
        name: "has_key",
        params: &[Param::new("map", Accepts::KeyedMap), Param::new("key", Accepts::Key)],
        returns: Returns::Always(Type::Bool),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, u, args| {
            let (Some(id), Some(key)) = (u.map(0), args.get(1)) else { return Operand::void() };
            let key = e.key(Some(key), Some(&key.ty));
            let map = e.script_map(id);
            let found = e.script_element(id, map, key);
            // LLVM would combine two of these tests by pointer arithmetic
            let is = e.not_null(found);
            Operand::reg(u.ty.clone(), e.opaque(is))
        }),
        doc: "Returns true if the map has an element with this key.",
        example: "begin { @seen[1] = 1; if (has_key(@seen, 1)) { printf(\"yes\\n\"); } }",
    },
    Builtin {
        name: "find",
        params: &[Param::new("map", Accepts::KeyedMap), Param::new("key", Accepts::Key), Param::new("variable", Accepts::Any)],
        returns: Returns::Always(Type::Bool),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Source("macro find(@map, key, $value) { if (has_key(@map, key)) { $value = @map[key]; true } else { false } }"),
        doc: "Returns true if the map has an element with this key, and copies its value to the variable.",
        example: "begin { @name[1] = \"one\"; let $name = \"\"; if (find(@name, 1, $name)) { printf(\"%s\\n\", $name); } }",
    },
    Builtin {
        name: "len",
        params: &[Param::new("map_or_stack", Accepts::MapOrValue)],
        returns: Returns::By(|f| match f.args.first() {
            Some(a) if stacks::is_stack(&a.ty) && a.map.is_none() => Ok(Type::I64),
            Some(a) if a.map.as_ref().is_some_and(|m| m.key.is_some()) => Ok(Type::I64),
            Some(a) if a.map.is_some() => {
                Err(Diagnostic::error("map-key-conflict", f.span(0), format!("{} counts elements, and this map has no keys", f.name)))
            }
            Some(a) => {
                Err(Diagnostic::error("type-mismatch", f.span(0), format!("{} takes a map or a stack, but this is {}", f.name, a.ty))
                    .help("for a string, use `strlen`"))
            }
            None => Ok(Type::I64),
        }),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, u, args| {
            let n = match (u.map(0), args.first()) {
                (Some(map), _) => e.elements(map),
                (None, Some(stack)) => stacks::depth(e, stack),
                (None, None) => e.int(0),
            };
            Operand::reg(u.ty.clone(), n)
        }),
        doc: "Returns the number of elements of a map, which it counts one by one, or the number of frames of a stack.",
        example: "tracepoint:syscalls:sys_enter_openat { @[comm] = count(); } interval:s:1 { printf(\"%d\\n\", len(@)); }",
    },
];

pub(super) const MAP_ACTIONS: &[(&str, MapAction)] = &[("clear", MapAction::Cleared), ("zero", MapAction::Zeroed)];

fn each_map(_: &EventSpec, act: fn(&mut dyn Host, MapId) -> anyhow::Result<()>) -> anyhow::Result<Handler> {
    Ok(Box::new(move |args, host| {
        for arg in args {
            if let Arg::Map(map) = arg {
                act(host, *map)?;
            }
        }
        Ok(())
    }))
}

fn delete<'c>(e: &mut Builder<'_, 'c>, u: &CallSite, args: &[Operand<'c>]) -> Operand<'c> {
    let Some(id) = u.map(0) else { return Operand::void() };
    // the key is the second argument, or the first is an element with its key
    let key = args.get(1).or(args.first()).filter(|k| k.ty != Type::Void);
    let Some(key) = key else {
        e.change(id, |e, map| zero_scalar(e, id, map));
        return Operand::reg(u.ty.clone(), e.int(1));
    };
    let key = e.key(Some(key), Some(&key.ty));
    let r = e.change(id, |e, map| e.remove_script_element(id, map, key));
    Operand::reg(u.ty.clone(), e.cmp(crate::emit::Cmp::Eq, r, e.int(0)))
}

/// Zeroes the element of an array, which cannot be removed.
fn zero_scalar<'c>(e: &mut Builder<'_, 'c>, id: MapId, map: PointerValue<'c>) {
    let def = e.script_map_def(id);
    let key = e.key(None, None);
    let zero_slot = |e: &mut Builder<'_, 'c>, slot: PointerValue<'c>| {
        let found = e.not_null(slot);
        e.if_(found, |e| e.zero(slot, def.value_size, 8));
    };
    if def.kind != MapKind::PercpuArray {
        let slot = e.lookup(map, key);
        return zero_slot(e, slot);
    }
    let cpus = e.start(std::mem::offset_of!(LoadConstants, cpus));
    e.count_to(cpus, |e, cpu| {
        let slot = e.call_ptr(Helper::MapLookupPercpuElem, &[map.into(), key.into(), cpu.into()]);
        zero_slot(e, slot);
    });
}

//! Maps whose key is the current thread, as in the usual form of latency scripts: `@start[tid] = nsecs`. Most of their elements
//! are in a table in front of the hash map (`emit/thread_table.rs`), so that a pair of probes takes half the time.
//!
//! - Every key in a program is exactly `tid`.
//! - Values are integers or pointers, which are written at once.
//! - Programs do not visit all elements (`for`, `len`), and do not take their addresses.
//! - The script has few maps, because the table is one more in the kernel, which limits their number.
//! - The size of the map is neither declared nor below the default: such a map refuses elements from that number on, and one
//!   with a table has room for more.

#![allow(clippy::wildcard_enum_match_arm)] // matches on few variants

use std::collections::{BTreeMap, BTreeSet};

use crate::builtins::{self, Accepts, Codegen, MapId};
use crate::probes::Env;
use crate::sema::hir::{self, Call, CallArg, Expr, ExprKind, Node, Stmt, StmtKind};
use crate::settings::{DEFAULT_MAP_KEYS, Mechanism};
use crate::system::Feature;
use crate::system::kernel::object_limits::MAX_MAPS;
use crate::types::Type;

/// The maximum number of places where a script uses such a map: each takes some 20 instructions more.
const MAX_USES: u32 = 64;
/// The maximum number of maps of a script with such maps: half of those that the kernel allows in a program.
const MAX_SCRIPT_MAPS: usize = MAX_MAPS / 2;

/// Those maps.
pub(super) fn of(script: &hir::Script, env: &Env) -> BTreeSet<MapId> {
    // other scripts may use the maps in other ways
    if env.invocation.shares_maps || env.settings.refuses(Mechanism::ThreadTable) || script.maps.len() > MAX_SCRIPT_MAPS {
        return BTreeSet::new();
    }
    let mut uses = Uses::default();
    for probe in &script.probes {
        hir::visit(&probe.body, &mut |node| uses.see(node));
        probe.functions.iter().for_each(|f| hir::visit(&f.body, &mut |node| uses.see(node)));
    }
    let has_form = |id: &MapId| script.maps.get(*id).is_some_and(has_form);
    let by_thread = uses.by_thread.into_iter().filter(|(id, uses)| *uses <= MAX_USES && has_form(id)).map(|(id, _)| id);
    let found: BTreeSet<MapId> = by_thread.filter(|id| !uses.otherwise.contains(id)).collect();
    // a thread takes a cell by an atomic exchange
    if found.is_empty() || env.sys.has(Feature::Fetch) { found } else { BTreeSet::new() }
}

fn has_form(map: &hir::Map) -> bool {
    is_whole_id(map.key.as_ref()) && map.value.is_scalar() && !map.sized && !map.lru && u64::from(map.max_entries) >= DEFAULT_MAP_KEYS
}

/// Has a number of this type room for all IDs?
fn is_whole_id(ty: Option<&Type>) -> bool {
    matches!(ty, Some(Type::Int(int)) if int.bytes >= 4)
}

/// The uses of maps.
#[derive(Default)]
struct Uses {
    /// How often the key is the current thread.
    by_thread: BTreeMap<MapId, u32>,
    /// Maps with other uses.
    otherwise: BTreeSet<MapId>,
}

impl Uses {
    fn see(&mut self, node: Node) {
        match node {
            Node::Stmt(Stmt { kind: StmtKind::SetMap { map, key, .. } | StmtKind::Aggregate { map, key, .. }, .. }) => {
                self.element(*map, key.as_ref());
            }
            Node::Stmt(Stmt { kind: StmtKind::ForMap { map, .. }, .. }) => self.other(*map),
            Node::Expr(Expr { kind, .. }) => match kind {
                ExprKind::Map(map, key) | ExprKind::ReadAgg(map, key) | ExprKind::StepMap { map, key, .. } => {
                    self.element(*map, key.as_deref());
                }
                ExprKind::AddrOf(of) => {
                    if let ExprKind::Map(map, _) = &of.kind {
                        self.other(*map);
                    }
                }
                ExprKind::Call(call) => self.call(call),
                _ => {}
            },
            Node::Stmt(_) => {}
        }
    }

    fn call(&mut self, call: &Call) {
        // user space performs it
        if let Codegen::Event(_) = call.row.codegen {
            return;
        }
        let with_key = |i: usize| call.row.params.get(i).is_some_and(|p| matches!(p.accepts, Accepts::Key));
        for (i, arg) in call.args.iter().enumerate() {
            match (arg, call.args.get(i + 1)) {
                (CallArg::Element(map, key), _) => self.element(*map, Some(key)),
                (CallArg::Map(map), Some(CallArg::Value(key))) if with_key(i + 1) => self.element(*map, Some(key)),
                (CallArg::Map(map), _) => self.other(*map),
                (CallArg::Value(_) | CallArg::Word(_) | CallArg::Type(_), _) => {}
            }
        }
    }

    fn element(&mut self, map: MapId, key: Option<&Expr>) {
        match key {
            Some(key) if is_thread(key) => *self.by_thread.entry(map).or_default() += 1,
            _ => self.other(map),
        }
    }

    fn other(&mut self, map: MapId) {
        self.otherwise.insert(map);
    }
}

/// Is it `tid`, converted at most to a wider number?
fn is_thread(key: &Expr) -> bool {
    match &key.kind {
        ExprKind::Cast(inner, _) => is_whole_id(Some(&key.ty)) && is_thread(inner),
        ExprKind::Call(call) => builtins::is_thread_id(call.row) && call.args.is_empty(),
        _ => false,
    }
}

//! Splits long bodies into chunks, which are functions that the verifier checks separately.
//!
//! For a program in one piece, the verifier's time grows with the square of the number of statements, and thousands of
//! statements have longer sequences of conditions than it accepts (`BPF_COMPLEXITY_LIMIT_JMP_SEQ`). Chunks share only
//! scratch memory, where all variables of such a program live.

use std::collections::BTreeMap;

use super::Gen;
use super::alike::{AlikeStatements, Sharers};
use super::loop_variables::MANY_LOOPS;
use super::stmt::loops_in;
use crate::builtins::{self, Builtin, Codegen};
use crate::emit::{ChunkKind, Cmp, IntValue, Operand, Repr};
use crate::probes::{ArgRef, ContextFeatures};
use crate::sema::hir::{self, CallArg, Expr, ExprKind, Stmt, StmtKind, weight};
use crate::syntax::ast::BinOp;
use crate::types::{Int, Space, Type};

/// The number of statements and expressions at which a body is long.
const MIN_BODY_TO_SPLIT: u64 = 2000;
/// The same for one that runs rarely: its time is that of the compilation.
const MIN_RARE_BODY_TO_SPLIT: u64 = 1000;
/// The number at which statements of a program that runs often share functions even if a call takes about as long as their own code.
const MIN_BODY_TO_SHARE: u64 = 8000;
/// The number at which code that occurs in many places is put into a function. A call costs some 5 ns.
const SHARED: u64 = 300;
/// The least number of statements in a piece. Pieces are larger if there would be too many of them.
const MIN_CHUNK: u64 = 300;
/// The number of pieces of a body that there may be. The kernel allows 256 functions (`BPF_MAX_SUBPROGS` of
/// include/linux/bpf_verifier.h), including loops and others.
pub(super) const MAX_PIECES: u64 = 128;
/// If there are too many functions, there are fewer pieces, down to this number.
pub(super) const MIN_PIECES: u64 = 32;

/// The number of divisions from which on a program would load faster if a function did them. A call takes as long as a division.
const MANY_DIVISIONS: u64 = 1000;

/// The number of uses of a stack, or of a value of the task, from which on a split body takes it once.
const MIN_USES_TO_KEEP: u32 = 16;

/// Maximum nesting of chunks: a chunk that contains a long block is split again.
const MAX_NESTING: u32 = 2;
/// Stack for the temporaries of each chunk: a program and all enclosing functions have 512 bytes together.
const STACK: u32 = 96;

/// The result of a chunk whose end is not where the body continues.
const RETURNED: u64 = 1;
const RETURNED_VALUE: u64 = 2;
const BREAK: u64 = 3;
const CONTINUE: u64 = 4;

/// `MAX_CALL_FRAMES` of include/linux/bpf_verifier.h, minus the program's own and one for the function that reports
/// failures.
const FRAMES: u32 = 6;

const U64: Int = Int { bytes: 8, signed: false };

/// Is it too large for a piece?
pub(super) fn is_large(stmts: &[Stmt]) -> bool {
    weight(stmts) > MIN_CHUNK
}

/// Should it be split?
pub(super) fn is_long(body: &[Stmt], is_rare: bool) -> bool {
    weight(body) >= min_to_split(is_rare)
}

/// Is a body with the functions that it calls so long that code that occurs in many places is put into a function?
pub(super) fn shares_code(body: &[Stmt], functions: &[hir::Function]) -> bool {
    whole_weight(body, functions) >= SHARED
}

/// Are they so long that such a function must be one that the verifier checks once?
pub(super) fn is_split(body: &[Stmt], functions: &[hir::Function], is_rare: bool) -> bool {
    whole_weight(body, functions) >= min_to_split(is_rare)
}

fn min_to_split(is_rare: bool) -> u64 {
    if is_rare { MIN_RARE_BODY_TO_SPLIT } else { MIN_BODY_TO_SPLIT }
}

/// Is a body so full of divisions by unknown numbers that they need a function? See [`ProgramCx::divides_often`](crate::emit::ProgramCx).
pub(super) fn divides_often(body: &[Stmt]) -> bool {
    let mut divisions = 0;
    hir::visit_within(body, &mut |node, around| {
        if let hir::Node::Expr(Expr { kind: ExprKind::Binary(BinOp::Div | BinOp::Mod, _, by), .. }) = node
            && !matches!(by.kind, ExprKind::Int(_))
        {
            divisions += around.times;
        }
    });
    divisions >= MANY_DIVISIONS
}

fn whole_weight(body: &[Stmt], functions: &[hir::Function]) -> u64 {
    functions.iter().fold(weight(body), |sum, function| sum.saturating_add(weight(&function.body)))
}

/// How the body under construction is split.
pub(super) struct Chunks {
    /// Number of statements and expressions in a piece.
    piece: u64,
    /// Pieces so far.
    pub count: u32,
    /// The current nesting of pieces, and its maximum: bodies of loops are functions, too, and the kernel allows eight
    /// nested calls.
    pub within: u32,
    deepest: u32,
    /// The offset in scratch memory of the value of a `return`; allocated at the first.
    value: Option<u32>,
    /// Statements that become functions.
    pub alike: AlikeStatements,
    /// Numbers from the context: where they are in scratch memory. Pieces use these if they cannot take the context.
    context: Vec<(ArgRef, Type, u32)>,
    /// The same for stacks and values of the task, by the names and the types of the builtins.
    values: Vec<(&'static str, Type, u32)>,
}

impl Chunks {
    /// May a piece be split off here?
    pub fn has_room(&self) -> bool {
        self.within < self.deepest
    }
}

impl<'c> Gen<'_, 'c> {
    /// Decides whether a probe's body is split.
    pub(super) fn cut(&mut self, probe: &hir::Probe) {
        // each has a function, unless they share one
        let many_loops = loops_in(&probe.body).0 >= MANY_LOOPS;
        let is_rare = self.e.program.is_rare;
        let is_long = is_long(&probe.body, is_rare);
        if !is_long && !many_loops {
            return;
        }
        let piece = MIN_CHUNK.max(weight(&probe.body) / self.e.options.max_pieces);
        let deepest = MAX_NESTING.min(FRAMES.saturating_sub(self.nesting(&probe.body)));
        let options = &self.e.options;
        let sharers = match (is_rare || options.shares_often, is_long) {
            (true, _) => Sharers::All,
            (false, true) if weight(&probe.body) >= MIN_BODY_TO_SHARE => Sharers::Costly,
            (false, true) => Sharers::Slow,
            (false, false) => Sharers::Loops,
        };
        let alike = match options.shares_statements {
            true => AlikeStatements::of(&probe.body, &options.unlike, sharers),
            false => AlikeStatements::default(),
        };
        self.body.chunks =
            Some(Chunks { piece, count: 0, within: 0, deepest, value: None, alike, context: Vec::new(), values: Vec::new() });
        self.e.spare_stack(STACK);
    }

    /// Stores the numbers from the context that the body uses, if pieces cannot take the context: the verifier checks a piece that
    /// uses it at each call, as a part of the program.
    pub(super) fn keep_context(&mut self, body: &[Stmt]) {
        if self.body.chunks.is_none() || self.e.passes_context() {
            return;
        }
        let knows_pointers = self.e.in_trampoline() || self.e.in_raw_tracepoint();
        let mut used: Vec<(&ArgRef, &Type)> = Vec::new();
        hir::visit(body, &mut |node| {
            let hir::Node::Expr(e) = node else { return };
            let (ExprKind::Context(which) | ExprKind::Call(hir::Call { row: Builtin { codegen: Codegen::Context(which), .. }, .. })) =
                &e.kind
            else {
                return;
            };
            // The verifier may know the target's type, which it forgets in scratch memory.
            let is_known = knows_pointers && matches!(&e.ty, Type::Ptr(_, space) if *space != Space::User);
            let is_number = e.ty.as_int().is_some() && !is_known;
            if is_number && *which != ArgRef::Ctx && !used.contains(&(which, &e.ty)) {
                used.push((which, &e.ty));
            }
        });
        for (which, ty) in used {
            let Repr::Reg(value) = self.context(which, ty).repr else { continue };
            let offset = self.e.alloc_scratch(8);
            let ptr = self.e.scratch_at(offset);
            self.e.store(ptr, 0, 8, value);
            if let Some(chunks) = &mut self.body.chunks {
                chunks.context.push((which.clone(), ty.clone(), offset));
            }
        }
    }

    /// Stores the stacks that many expressions of the body use. They are the same in all of a run, but each piece would take its own.
    /// In programs that run often, the same holds for the name of the task, and in very long ones for its numbers: the verifier would
    /// follow each comparison of such a number to the end of the piece, because it knows which later ones then hold. It knows nothing
    /// about numbers in memory.
    pub(super) fn keep_values(&mut self, body: &[Stmt]) {
        if self.body.chunks.is_none() {
            return;
        }
        let keeps_names = !self.e.program.is_rare;
        let keeps_numbers = keeps_names && weight(body) >= MIN_BODY_TO_SHARE;
        let mut used: Vec<(&hir::Call, u32)> = Vec::new();
        hir::visit(body, &mut |node| {
            let hir::Node::Expr(Expr { kind: ExprKind::Call(call), .. }) = node else { return };
            // its type contains its limit
            let is_constant = |arg: &CallArg| !matches!(arg, CallArg::Value(value) if !matches!(value.kind, ExprKind::Int(_)));
            let is_code = matches!(call.row.codegen, Codegen::Code(_)) && call.args.iter().all(is_constant);
            let is_stack = call.row.needs.intersects(ContextFeatures::STACK);
            let is_kept = is_stack || keeps_names && is_name_of_task(call) || keeps_numbers && is_number_of_task(call);
            if !is_code || !is_kept {
                return;
            }
            match used.iter_mut().find(|(other, _)| other.row.name == call.row.name && other.ty == call.ty) {
                Some((_, number)) => *number += 1,
                None => used.push((call, 1)),
            }
        });
        for (call, _) in used.into_iter().filter(|(_, number)| *number >= MIN_USES_TO_KEEP) {
            let value = self.call(call);
            let size = call.ty.size().max(8);
            let offset = self.e.alloc_scratch(size);
            let ptr = self.e.scratch_at(offset);
            match value.repr {
                Repr::Mem(from, _) => self.e.copy(ptr, from, size, 8),
                Repr::Reg(number) => self.e.store(ptr, 0, 8, number),
                Repr::At(..) | Repr::None => continue,
            }
            if let Some(chunks) = &mut self.body.chunks {
                chunks.values.push((call.row.name, call.ty.clone(), offset));
            }
        }
    }

    /// A value that a piece finds in scratch memory.
    pub(super) fn kept_value(&mut self, call: &hir::Call) -> Option<Operand<'c>> {
        let chunks = self.body.chunks.as_ref().filter(|chunks| chunks.within > 0)?;
        // comm(PID) has the name of another task, and pid(init) the number in another namespace
        if !call.args.is_empty() && !call.row.needs.intersects(ContextFeatures::STACK) {
            return None;
        }
        let (_, _, offset) = chunks.values.iter().find(|(name, ty, _)| *name == call.row.name && *ty == call.ty)?;
        let offset = *offset;
        match call.ty.as_int() {
            Some(int) => {
                let ptr = self.e.scratch_at(offset);
                let value = self.e.load(ptr, 0, U64);
                // LLVM knows the upper half again
                let value = self.e.fit(value, int);
                Some(Operand::reg(call.ty.clone(), value))
            }
            None => Some(Operand::mem(call.ty.clone(), self.e.scratch_address(offset))),
        }
    }

    /// A number from the context that a piece finds in scratch memory.
    pub(super) fn kept_context(&mut self, which: &ArgRef, ty: &Type) -> Option<Operand<'c>> {
        let chunks = self.body.chunks.as_ref().filter(|chunks| chunks.within > 0)?;
        let (_, _, offset) = chunks.context.iter().find(|(kept, kept_ty, _)| kept == which && kept_ty == ty)?;
        let ptr = self.e.scratch_at(*offset);
        Some(Operand::reg(ty.clone(), self.e.load(ptr, 0, U64)))
    }

    /// The nesting depth of loops, including those of called functions.
    pub(super) fn nesting(&self, stmts: &[Stmt]) -> u32 {
        nesting(stmts, self.functions, &mut BTreeMap::new())
    }

    /// Number of statements to combine: 1 if they are not split, or if the first is long.
    pub(super) fn piece(&self, stmts: &[Stmt]) -> usize {
        let Some(chunks) = &self.body.chunks else { return 1 };
        if !chunks.has_room() || chunks.within > 0 && weight(stmts) <= 2 * chunks.piece {
            return 1;
        }
        let mut sum = 0;
        for (i, s) in stmts.iter().enumerate() {
            let w = weight(std::slice::from_ref(s));
            if w > chunks.piece || sum + w > 2 * chunks.piece {
                return i;
            }
            sum += w;
            if sum >= chunks.piece {
                return i + 1;
            }
        }
        stmts.len()
    }

    /// Moves these statements into a function, and calls it.
    pub(super) fn chunk(&mut self, stmts: &[Stmt]) {
        self.chunk_of(stmts, ChunkKind::Piece);
    }

    /// Moves a statement into a function that others may share, and calls it.
    pub(super) fn alike(&mut self, stmt: &Stmt, shape: u64) {
        self.chunk_of(std::slice::from_ref(stmt), ChunkKind::Alike(shape));
    }

    fn chunk_of(&mut self, stmts: &[Stmt], kind: ChunkKind) {
        let Some(chunks) = &mut self.body.chunks else { return self.statements(stmts) };
        chunks.count += 1;
        chunks.within += 1;
        let what = match kind {
            ChunkKind::Piece => "piece",
            ChunkKind::Alike(_) => "alike",
        };
        let name = format!("{what}_{}_{}", self.program, chunks.count);
        let mut chunk = self.e.begin_chunk(&name, kind);
        chunk.builder = self.emit_into(chunk.builder, |g, _| {
            g.e.spare_stack(STACK);
            let around = (g.body.loops.take(), std::mem::take(&mut g.body.depth), g.body.iteration_limit);
            g.own_loops(stmts);
            g.statements(stmts);
            (g.body.loops, g.body.depth, g.body.iteration_limit) = around;
        });
        if let Some(chunks) = &mut self.body.chunks {
            chunks.within -= 1;
        }
        let how = self.e.end_chunk(chunk, 0);
        self.dispatch_jump(stmts, how);
    }

    /// Performs the jump that a chunk's result requests.
    fn dispatch_jump(&mut self, stmts: &[Stmt], how: IntValue<'c>) {
        let ways = self.flow_exits(stmts);
        if !ways.any() {
            return;
        }
        let left = self.e.cmp(Cmp::Ne, how, self.e.int(0));
        let branch = self.e.begin_if(left);
        let value = self.body.chunks.as_ref().and_then(|c| c.value);
        for (possible, code) in [(ways.breaks, BREAK), (ways.continues, CONTINUE)] {
            if possible {
                let is = self.e.cmp(Cmp::Eq, how, self.e.int(code));
                let branch = self.e.begin_if(is);
                self.jump(code == BREAK);
                self.e.else_(&branch);
                self.e.end_if(branch);
            }
        }
        if self.jumps_out_of_chunk() {
            // that of the function around this one, which finds the value at the same place
            self.e.ret(Some(how));
            self.e.else_(&branch);
            return self.e.end_if(branch);
        }
        if let (true, Some(offset)) = (ways.returns, value) {
            let is = self.e.cmp(Cmp::Eq, how, self.e.int(RETURNED_VALUE));
            let branch = self.e.begin_if(is);
            let ptr = self.e.scratch_at(offset);
            let value = self.e.load(ptr, 0, U64);
            self.leave(Some(value));
            self.e.else_(&branch);
            self.e.end_if(branch);
        }
        self.leave(None);
        self.e.else_(&branch);
        self.e.end_if(branch);
    }

    /// Overestimating the exits is harmless.
    fn flow_exits(&self, stmts: &[Stmt]) -> FlowExits {
        let mut w = FlowExits { returns: false, breaks: false, continues: false };
        hir::visit(stmts, &mut |n| match n {
            hir::Node::Stmt(Stmt { kind: StmtKind::Return(_), .. }) => w.returns = true,
            hir::Node::Stmt(Stmt { kind: StmtKind::Break, .. }) => w.breaks = true,
            hir::Node::Stmt(Stmt { kind: StmtKind::Continue, .. }) => w.continues = true,
            // a loop that takes too long ends the program
            hir::Node::Stmt(Stmt { kind: StmtKind::ForRange { .. } | StmtKind::ForMap { .. } | StmtKind::While { .. }, .. }) => {
                w.returns = true
            }
            hir::Node::Expr(hir::Expr { kind: hir::ExprKind::Call(call), .. }) => w.returns |= builtins::ends_probe(call.row),
            hir::Node::Expr(hir::Expr { kind: hir::ExprKind::CallFn(id, _), .. }) => {
                w.returns |= self.functions.get(*id).is_none_or(|f| self.stops(f));
            }
            hir::Node::Stmt(_) | hir::Node::Expr(_) => {}
        });
        w
    }

    /// Does a jump out of the function also leave a chunk?
    pub(super) fn jumps_out_of_chunk(&self) -> bool {
        self.body.depth == 0 && self.body.chunks.as_ref().is_some_and(|c| c.within > 0)
    }

    /// `break` or `continue` of a loop around the piece.
    pub(super) fn jump_out_of_chunk(&mut self, out_of: bool) {
        let code = self.e.int(if out_of { BREAK } else { CONTINUE });
        self.e.ret(Some(code));
    }

    /// `return`
    pub(super) fn return_from_chunk(&mut self, value: Option<IntValue<'c>>) {
        let code = match value {
            Some(value) => {
                let known = self.body.chunks.as_ref().and_then(|c| c.value);
                let offset = known.unwrap_or_else(|| self.e.alloc_scratch(8));
                if let Some(c) = &mut self.body.chunks {
                    c.value = Some(offset);
                }
                let ptr = self.e.scratch_at(offset);
                self.e.store(ptr, 0, 8, value);
                RETURNED_VALUE
            }
            None => RETURNED,
        };
        let code = self.e.int(code);
        self.e.ret(Some(code));
    }
}

/// Is it a text that belongs to the current task?
fn is_name_of_task(call: &hir::Call) -> bool {
    is_of_task(call) && matches!(call.ty, Type::Str(_))
}

/// Is it a number that belongs to the current task?
fn is_number_of_task(call: &hir::Call) -> bool {
    is_of_task(call) && call.ty.as_int().is_some()
}

fn is_of_task(call: &hir::Call) -> bool {
    call.args.is_empty() && builtins::is_same_at_both_ends(call.row)
}

/// The ways to leave some statements, other than at their end.
struct FlowExits {
    returns: bool,
    breaks: bool,
    continues: bool,
}

impl FlowExits {
    fn any(&self) -> bool {
        self.returns || self.breaks || self.continues
    }
}

/// See [`Gen::nesting`]; `known` has the depth of the functions so far.
fn nesting(stmts: &[Stmt], functions: &[hir::Function], known: &mut BTreeMap<hir::FunctionId, u32>) -> u32 {
    let mut deepest = 0;
    hir::visit_within(stmts, &mut |n, around| {
        let here = match n {
            hir::Node::Stmt(Stmt { kind: StmtKind::ForRange { .. } | StmtKind::ForMap { .. } | StmtKind::While { .. }, .. }) => 1,
            hir::Node::Expr(Expr { kind: ExprKind::CallFn(id, _), .. }) => match (known.get(id).copied(), functions.get(*id)) {
                (Some(depth), _) => depth,
                (None, None) => 0,
                (None, Some(f)) => {
                    let depth = nesting(&f.body, functions, known);
                    known.insert(*id, depth);
                    depth
                }
            },
            hir::Node::Stmt(_) | hir::Node::Expr(_) => 0,
        };
        deepest = deepest.max(around.loops + here);
    });
    deepest
}

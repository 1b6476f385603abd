//! The script's functions: a program has a subprogram for each function that it calls, generated at the first call.
//!
//! Numbers are passed in registers as far as those suffice. Further numbers and all other values, including results that are
//! not numbers, are in the frame.

use super::Gen;
use crate::emit::{IN_NUMBERS, IntValue, Operand, Scope, Subprogram};
use crate::sema::hir::{self, Expr};
use crate::types::{Int, Type};

const U64: Int = Int { bytes: 8, signed: false };

/// A function as compiled for a program.
#[derive(Clone)]
pub(super) struct CompiledFunction<'c> {
    code: Subprogram<'c>,
    /// The location of each parameter in the frame; none for those in registers.
    params: Vec<Option<u32>>,
    /// The location of the result in the frame; none for numbers.
    result: Option<u32>,
    /// The location of the state of its loops' limit in the frame, if it has loops.
    loop_state: Option<u32>,
}

/// The function under construction.
#[derive(Clone)]
pub(super) struct CurrentFunction {
    /// Its name in the object.
    pub name: String,
    returns: Type,
    result: Option<u32>,
}

/// The depth of calls that the kernel allows in a program: `MAX_CALL_FRAMES` of include/linux/bpf_verifier.h.
pub(super) const MAX_FRAMES: u32 = 8;

impl<'a, 'c> Gen<'a, 'c> {
    /// The maximum depth of the function under construction. The callers of functions and pieces are unknown, so this
    /// assumes that all loops are nested in one another, and that all functions call one another.
    pub(super) fn frames(&self) -> u32 {
        let pieces = self.body.chunks.as_ref().map_or(0, |c| c.within);
        if self.body.function.is_none() && pieces == 0 {
            return 1 + self.body.depth;
        }
        1 + pieces + self.max_frames
    }

    pub(super) fn call_function(&mut self, id: hir::FunctionId, args: &[Expr]) -> Operand<'c> {
        let Some(f) = self.functions.get(id) else { crate::bug!("a function that is called is there") };
        let compiled = match self.compiled_functions.get(id) {
            Some(Some(compiled)) => compiled.clone(),
            _ => {
                let compiled = self.make(id, f);
                if let Some(place) = self.compiled_functions.get_mut(id) {
                    *place = Some(compiled.clone());
                }
                compiled
            }
        };
        let ops: Vec<Operand<'c>> = args.iter().map(|e| self.expr(e)).collect();
        let (frame, stops) = (self.e.frame(&compiled.code), self.stops(f));
        let mut numbers = Vec::new();
        for ((op, place), e) in ops.iter().zip(&compiled.params).zip(args) {
            match (place, frame) {
                (Some(offset), Some(frame)) => {
                    let ptr = self.e.scratch_address(frame + offset);
                    if e.ty.is_scalar() {
                        let v = self.e.scalar(op);
                        self.e.store(ptr, 0, 8, v);
                    } else {
                        self.e.store_value(ptr, 8, op, &e.ty);
                    }
                }
                _ => numbers.push(self.e.scalar(op)),
            }
        }
        if let (true, Some(frame)) = (stops, frame) {
            let ptr = self.e.scratch_at(frame);
            let zero = self.e.int(0);
            self.e.store(ptr, 0, 8, zero);
        }
        let loop_state = compiled.loop_state.zip(frame).map(|(offset, frame)| frame + offset);
        if let Some(loop_state) = loop_state {
            self.e.copy_loop_state(self.body.loop_state, Some(loop_state));
        }
        let value = self.e.call_subprogram(&compiled.code, frame, &numbers);
        if let Some(loop_state) = loop_state {
            self.e.copy_loop_state(Some(loop_state), self.body.loop_state);
        }
        if let (true, Some(frame)) = (stops, frame) {
            let ptr = self.e.scratch_at(frame);
            let stopped = self.e.load(ptr, 0, U64);
            let branch = self.e.begin_if(stopped);
            self.stop();
            self.e.else_(&branch);
            self.e.end_if(branch);
        }
        match (&f.returns, compiled.result, frame) {
            (Type::Void, ..) => Operand::void(),
            (ty, Some(offset), Some(frame)) => self.e.result_at(ty, frame, offset),
            (ty, ..) => Operand::reg(ty.clone(), value),
        }
    }

    /// Builds a function's subprogram, while its caller is under construction.
    fn make(&mut self, id: hir::FunctionId, f: &'a hir::Function) -> CompiledFunction<'c> {
        let name = format!("fn_{}_{id}_{}", self.program, f.name);
        let mut registers = 0;
        let in_register: Vec<bool> = f
            .vars
            .iter()
            .take(f.params)
            .map(|v| {
                let given = v.ty.is_scalar() && registers < IN_NUMBERS;
                registers += usize::from(given);
                given
            })
            .collect();
        let (mut builder, numbers) = self.e.begin_subprogram(&name, registers);
        // the function serves all calls, not only the first
        builder.scope = Scope::starting_at(builder.scope.span);
        let around = std::mem::take(&mut self.body);
        let (mut params, mut result) = (Vec::new(), None);
        let builder = self.emit_into(builder, |g, _| {
            let size = |ty: &Type| ty.size().max(8) + u32::from(matches!(ty, Type::Str(_)));
            for (v, given) in f.vars.iter().zip(&in_register) {
                params.push(if *given { None } else { Some(g.e.alloc_scratch(size(&v.ty))) });
            }
            result = (f.returns != Type::Void && !f.returns.is_scalar()).then(|| g.e.alloc_scratch(size(&f.returns)));
            g.body.function = Some(CurrentFunction { name, returns: f.returns.clone(), result });
            g.at(f.span);
            if g.stops(f) {
                // the frame has the word that requests the end
                g.e.alloc_scratch(8);
            }
            g.alloc_vars(&f.vars, &f.body, &params);
            let stack_slots: Vec<usize> = in_register.iter().enumerate().filter(|(_, given)| **given).map(|(i, _)| i).collect();
            for (i, v) in stack_slots.into_iter().zip(numbers) {
                let ptr = g.var_ptr(i);
                g.e.store(ptr, 0, 8, v);
            }
            g.block(&f.body);
        });
        let loop_state = std::mem::replace(&mut self.body, around).loop_state;
        CompiledFunction { code: builder.end_subprogram(), params, result, loop_state }
    }

    /// The result of `return`: a number, or nothing after the value was stored where the caller expects it.
    pub(super) fn result(&mut self, op: &Operand<'c>) -> Option<IntValue<'c>> {
        let Some(CurrentFunction { returns, result: Some(offset), .. }) = self.body.function.clone() else {
            return Some(self.e.scalar(op));
        };
        let ptr = self.e.scratch_address(offset);
        self.e.store_value(ptr, 8, op, &returns);
        None
    }

    /// May a call end the program? Its loops may: see [`Gen::break_if_over`].
    pub(super) fn stops(&self, f: &hir::Function) -> bool {
        f.stops || self.nesting(&f.body) > 0
    }

    /// Ends the program, including from within functions.
    pub(super) fn stop(&mut self) {
        if self.body.function.is_some() {
            let ptr = self.e.scratch_at(0);
            let one = self.e.int(1);
            self.e.store(ptr, 0, 8, one);
        }
        self.leave(None);
    }
}

/// The number of functions that a probe's loops and functions become.
pub(super) fn most_frames(probe: &hir::Probe) -> u32 {
    loops(&probe.body) + probe.functions.iter().map(|f| 1 + loops(&f.body)).sum::<u32>()
}

fn loops(stmts: &[hir::Stmt]) -> u32 {
    let mut all = 0;
    hir::visit(stmts, &mut |n| {
        if let hir::Node::Stmt(s) = n {
            all += u32::from(matches!(s.kind, hir::StmtKind::ForRange { .. } | hir::StmtKind::ForMap { .. } | hir::StmtKind::While { .. }));
        }
    });
    all
}

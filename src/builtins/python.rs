//! Call stacks of interpreted Python code: see `emit/python/`.

use super::python_frames::{self, STACK, placeholder};
use super::stacks::{self, DEFAULT_MAX_FRAMES, MODES, NOT_KEPT, limit_of};
use super::{Accepts, Builtin, CallInfo, CallSite, Codegen, Decoder, Param, Returns};
use crate::diag::Diagnostic;
use crate::emit::{Builder, MAX_PYTHON_FRAMES, Operand, ThreadPointer, python_words};
use crate::host::Host;
use crate::probes::ContextFeatures;
use crate::system::{TargetInfo, member_offset};
use crate::types::{Deferred, Type};
use crate::value::{Stack, StackMode, Value};

const PARAMS: &[Param] = &[Param::optional("mode", Accepts::WordOrInt(&["bpftrace", "perf"])), Param::optional("limit", Accepts::LitInt)];

pub(super) const ROWS: &[Builtin] = &[Builtin {
    name: STACK,
    params: PARAMS,
    returns: Returns::By(stack_type),
    needs: ContextFeatures::NONE,
    risky: false,
    codegen: Codegen::Code(emit_walk),
    doc: "The Python call stack of the current thread (CPython 3.8 to 3.15), printed as `function (file:line)`. It has at most 127 frames, or up to the given limit (at most 1022). It is empty for threads that run no Python code. As map keys, equal Python stacks are equal, even in different threads and processes.",
    example: "tracepoint:syscalls:sys_enter_fsync { @[comm, pystack] = count(); }",
}];

pub(super) const DECODERS: &[Decoder] =
    &[Decoder { name: STACK, size: 8, from_int: false, decode: |tag, bytes, host| Value::Stack(decode(tag, bytes, host)) }];

fn stack_type(f: &CallInfo) -> Result<Type, Diagnostic> {
    let thread = thread_pointer(f.sys).ok_or_else(|| {
        let what = format!("{} needs the kernel's description of its types (BTF)", f.name);
        Diagnostic::error("unsupported", f.span, what)
    })?;
    f.bind_consts(&[thread.offset.into(), thread.max_below as i64]);
    let word = f.word(0);
    let mode = MODES.iter().position(|(w, m)| word.map_or(*m == f.settings.stack_mode, |word| *w == word)).unwrap_or(0);
    let at = if f.int(0).is_some() { 0 } else { 1 };
    if at == 0 && f.args.len() > 1 {
        return Err(Diagnostic::error("arity", f.span(1), "nothing may follow the limit, which is the last argument"));
    }
    let limit = match f.int(at) {
        None => DEFAULT_MAX_FRAMES,
        Some(n) if (1..=i64::from(MAX_PYTHON_FRAMES)).contains(&n) => n as u32,
        Some(n) => {
            let message = format!("a Python stack's limit must be from 1 to {MAX_PYTHON_FRAMES} frames, but this is {n}");
            return Err(Diagnostic::error("out-of-range", f.span(at), message));
        }
    };
    let mode_word = MODES.get(mode).filter(|_| mode != 0).map(|(word, _)| (*word).to_owned());
    let written: Vec<String> = mode_word.into_iter().chain((limit != DEFAULT_MAX_FRAMES).then(|| limit.to_string())).collect();
    Ok(Deferred::with(STACK, 8, [mode as u32, limit], &written.join(", ")))
}

/// None if the kernel does not describe its types.
pub(super) fn thread_pointer(sys: &dyn TargetInfo) -> Option<ThreadPointer> {
    let register = &sys.arch().unwind.thread;
    Some(ThreadPointer { offset: member_offset(sys, "task_struct", register.path)?, max_below: register.max_below })
}

/// A stack does not change while a program runs, so it is recorded once.
fn emit_walk<'c>(e: &mut Builder<'_, 'c>, u: &CallSite, _: &[Operand<'c>]) -> Operand<'c> {
    let limit = limit_of(&u.ty);
    let known = format!("{STACK}_{limit}");
    let thread = ThreadPointer { offset: u.const_at(0) as u32, max_below: u.const_at(1) as u64 };
    let ptr = e.once_ptr(&known, |e| {
        let ptr = e.alloc_known(&known, 8);
        let words = python_words(limit);
        let id = e.python_stack((limit, limit == DEFAULT_MAX_FRAMES), thread, |e, frames| {
            let (map, key) = (stacks::stacks(e, words), e.scalar_slot());
            {
                let zero = e.int(0);
                e.store_stack(map, key, (frames, words), 2, zero)
            }
        });
        e.store(ptr, 0, 8, id);
        ptr
    });
    Operand::mem(u.ty.clone(), ptr)
}

fn decode(tag: &Deferred, bytes: &[u8], host: &mut dyn Host) -> Stack {
    let mode = MODES.get(tag.params[0] as usize).map_or(StackMode::Bpftrace, |(_, m)| *m);
    let id = super::word(bytes, 0);
    let words = if id == 0 { Some(Vec::new()) } else { host.stack(python_words(tag.params[1]), id) };
    let Some(words) = words else {
        return Stack { mode, kernel: false, frames: [placeholder(NOT_KEPT.into())].into_iter().collect() };
    };
    let frames = words.chunks_exact(2).filter_map(|frame| match frame {
        &[id, offset] => {
            Some(python_frames::frame(id & !1, offset as u32, host).unwrap_or_else(|| placeholder(format!("[{} frames]", tag.params[1]))))
        }
        _ => None,
    });
    Stack { mode, kernel: false, frames: frames.collect() }
}

//! Call stacks of interpreted Python code: see `emit/python/`.

use super::stacks::{self, MODES, NOT_KEPT, USUAL_FRAMES, limit_of};
use super::{Accepts, Builtin, CallInfo, CallSite, Decoder, Lower, Param, Returns};
use crate::diag::Diagnostic;
use crate::emit::shared::{BEFORE_FIRST, CODE_HASH, CODE_ID, MARKS, OFFSETS, PYTHON_REASON, Reason, TOO_LARGE};
use crate::emit::{Builder, MOST_PYTHON_FRAMES, Operand, python_words};
use crate::host::Host;
use crate::probes::ContextFeatures;
use crate::system::{TargetInfo, TypeName};
use crate::types::{Deferred, Type};
use crate::value::{Frame, Stack, StackMode, Value};

/// The stack's ID. A code object has the same ID in all processes, and so has a stack.
const STACK: &str = "pystack";

const PARAMS: &[Param] = &[Param::optional("mode", Accepts::WordOrInt(&["bpftrace", "perf"])), Param::optional("limit", Accepts::LitInt)];

pub(super) const ROWS: &[Builtin] = &[Builtin {
    name: STACK,
    params: PARAMS,
    returns: Returns::By(stack_type),
    needs: ContextFeatures::NONE,
    risky: false,
    lower: Lower::Code(take),
    doc: "The Python call stack of the current thread (CPython 3.8 to 3.15), printed as `function (file:line)`. It has at most 127 frames, or up to the given limit (at most 1022). It is empty for threads that run no Python code. Threads of all processes with equal Python stacks have equal keys.",
    example: "tracepoint:syscalls:sys_enter_fsync { @[comm, pystack] = count(); }",
}];

pub(super) const DECODERS: &[Decoder] =
    &[Decoder { name: STACK, size: 8, from_int: false, decode: |tag, bytes, host| Value::Stack(decode(tag, bytes, host)) }];

/// Is it such a stack?
pub(super) fn is_tag(tag: &Deferred) -> bool {
    tag.tag == STACK
}

fn stack_type(f: &CallInfo) -> Result<Type, Diagnostic> {
    let thread = thread_pointer(f.sys).ok_or_else(|| {
        let what = format!("{} needs the kernel's description of its types (BTF), and an x86-64 machine", f.name);
        Diagnostic::error("unsupported", f.span, what)
    })?;
    f.keep(&[thread.into()]);
    let word = f.word(0);
    let mode = MODES.iter().position(|(w, m)| word.map_or(*m == f.settings.stack_mode, |word| *w == word)).unwrap_or(0);
    let at = if f.int(0).is_some() { 0 } else { 1 };
    if at == 0 && f.args.len() > 1 {
        return Err(Diagnostic::error("arity", f.span(1), "the limit is the last argument, and there is only one"));
    }
    let limit = match f.int(at) {
        None => USUAL_FRAMES,
        Some(n) if (1..=i64::from(MOST_PYTHON_FRAMES)).contains(&n) => n as u32,
        Some(n) => {
            let message = format!("a Python stack's limit must be from 1 to {MOST_PYTHON_FRAMES} frames, but this is {n}");
            return Err(Diagnostic::error("out-of-range", f.span(at), message));
        }
    };
    let mode_word = MODES.get(mode).filter(|_| mode != 0).map(|(word, _)| (*word).to_owned());
    let written: Vec<String> = mode_word.into_iter().chain((limit != USUAL_FRAMES).then(|| limit.to_string())).collect();
    Ok(Deferred::with(STACK, 8, [mode as u32, limit], &written.join(", ")))
}

/// Offset in `struct task_struct` of what pthread_self(3) returns on x86-64: the base address of the segment `fs`.
fn thread_pointer(sys: &dyn TargetInfo) -> Option<u32> {
    let Type::Struct(task) = sys.type_named(TypeName::Struct, "task_struct")? else { return None };
    let thread = sys.member(&task, "thread")?;
    let Type::Struct(arch) = &thread.ty else { return None };
    Some(thread.offset + sys.member(arch, "fsbase")?.offset)
}

/// A stack does not change while a program runs, so it is recorded once.
fn take<'c>(e: &mut Builder<'_, 'c>, u: &CallSite, _: &[Operand<'c>]) -> Operand<'c> {
    let limit = limit_of(&u.ty);
    let known = format!("{STACK}_{limit}");
    let thread = u.kept(0) as u32;
    let at = e.once_ptr(&known, |e| {
        let at = e.alloc_known(&known, 8);
        let words = python_words(limit);
        let id = e.python_stack((limit, limit == USUAL_FRAMES), thread, |e, frames| {
            let (map, key) = (stacks::stacks(e, words), e.scalar_home());
            {
                let none = e.int(0);
                e.keep_stack(map, key, (frames, words), 2, none)
            }
        });
        e.store(at, 0, 8, id);
        at
    });
    Operand::mem(u.ty.clone(), at)
}

fn decode(tag: &Deferred, bytes: &[u8], host: &mut dyn Host) -> Stack {
    let mode = MODES.get(tag.params[0] as usize).map_or(StackMode::Bpftrace, |(_, m)| *m);
    let id = super::word(bytes, 0);
    let words = if id == 0 { Some(Vec::new()) } else { host.stack(python_words(tag.params[1]), id) };
    let Some(words) = words else {
        return Stack { mode, kernel: false, frames: vec![said(NOT_KEPT.into())] };
    };
    let frames = words.chunks_exact(2).filter_map(|frame| match frame {
        &[id, offset] => Some(self::frame(id & !1, offset as u32, host).unwrap_or_else(|| said(format!("[{} frames]", tag.params[1])))),
        _ => None,
    });
    Stack { mode, kernel: false, frames: frames.collect() }
}

/// Why Python frames may be missing: the counter, and what is said of such stacks at the end.
pub(super) const INCOMPLETE: &[(u64, &str)] = &[
    (Reason::UnknownCode.number(), "have a Python function whose name could not be read or sent"),
    (Reason::TooMany.number(), "are of Python processes with too many threads"),
    (Reason::Unreadable.number(), "have Python frames that could not be read"),
    (Reason::Unsupported.number(), "are of a build of Python that is not supported"),
    (Reason::LeftOut.number(), "have no Python frames, because a probe leaves no room for these"),
];

/// Is the word of a stack of frames of both kinds a Python frame?
pub(super) fn is_frame(word: u64) -> bool {
    word & MARKS == PYTHON_REASON
}

/// The Python frame that is such a word.
pub(super) fn frame_of_word(word: u64, host: &mut dyn Host) -> Frame {
    let code = word & CODE_ID == CODE_ID;
    let offset = match word & OFFSETS {
        BEFORE_FIRST => u32::MAX,
        // beyond any table of lines
        TOO_LARGE => i32::MAX as u32,
        half => (half * 2) as u32,
    };
    let found = if code { frame(word & (CODE_ID | CODE_HASH), offset, host) } else { frame(word & 0xff, (word >> 8) as u8 as u32, host) };
    found.unwrap_or_else(|| said("[more Python frames]".into()))
}

/// None if there are more.
fn frame(id: u64, offset: u32, host: &mut dyn Host) -> Option<Frame> {
    let reasons =
        [Reason::Cut, Reason::UnknownCode, Reason::TooMany, Reason::Unreadable, Reason::Unsupported, Reason::LeftOut, Reason::Gap];
    let frame = match reasons.into_iter().find(|reason| *reason as u64 == id) {
        None => host.python_frame(id, offset).unwrap_or_else(|| said("[unknown function]".into())),
        Some(Reason::Cut) => return None,
        Some(Reason::UnknownCode) => said("[unknown function]".into()),
        Some(Reason::TooMany) => said("[too many threads]".into()),
        Some(Reason::Unreadable) => said("[Python's memory is unreadable]".into()),
        Some(Reason::LeftOut) => said("[Python frames left out]".into()),
        Some(Reason::Gap) => said("[frames missing]".into()),
        Some(Reason::Unsupported) if offset == 0 => said("[this build of Python is not supported]".into()),
        Some(Reason::Unsupported) => said(format!("[Python 3.{offset} is not supported]")),
    };
    Some(frame)
}

/// A word in place of a frame.
fn said(text: String) -> Frame {
    Frame { symbol: Some(text), ..Frame::default() }
}

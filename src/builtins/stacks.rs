//! Call stacks: the kernel hashes them and stores each once, and user space resolves symbols when it prints them.

use super::python_frames::{self, Incomplete, frame_of_word, is_frame};
use super::{Accepts, Builtin, CallInfo, CallSite, Codegen, Decoder, Param, Returns};
use crate::diag::{Diagnostic, plural};
use crate::emit::shared::LoadConstants;
use crate::emit::unwind::{self, CUT, UserStack};
use crate::emit::{Builder, Cmp, CodegenCx, Helper, IntValue, MapDef, MapKind, Operand, PointerValue};
use crate::host::Host;
use crate::probes::ContextFeatures;
use crate::types::{Deferred, Int, Space, Type};
use crate::value::{FramesBuilder, Stack, StackMode, Value};

/// The stack's ID.
const KERNEL: &str = "kstack";
/// The stack's ID, and its process.
const USER: &str = "ustack";

/// `BPF_F_USER_STACK` of include/uapi/linux/bpf.h.
const USER_STACK: u64 = 1 << 8;
/// Default number of frames (bpftrace's).
pub(super) const DEFAULT_MAX_FRAMES: u32 = 127;
/// The maximum of `/proc/sys/kernel/perf_event_max_stack`.
const MAX_FRAMES: u32 = 1024;
/// Size of a stack table in bytes, and number of stacks in it, if the setting leaves it open. The memory is preallocated,
/// which takes 0.12 ms per MB, because on-demand allocation of such large elements often fails.
const TABLE_BYTES: u64 = 16 << 20;
const MAX_STACKS: u64 = 65536;
/// The overhead of a hash map's element, including the key.
const ELEMENT_HEAD: u64 = 56;
/// The bits of an ID that hold the number of frames. The others are a hash of the frames.
const DEPTH_BITS: u32 = 11;
const DEPTH: u64 = (1 << DEPTH_BITS) - 1;
/// Before Linux 5.12, longer stacks are compared by their hash only, because the verifier walks each comparison and accepts
/// 8,192 branches in a row.
const MAX_UNWOUND_FRAMES: u32 = 256;
/// How many other IDs are tried if a different stack has the first.
const MAX_RETRIES: u64 = 4;

/// The only frame of a stack for which its table had no room.
pub(super) const NOT_KEPT: &str = "[not kept]";

const U64: Int = Int { bytes: 8, signed: false };

/// Words for the formats of a stack, by their numbers in [`Deferred::params`].
pub(super) const MODES: &[(&str, StackMode)] =
    &[("bpftrace", StackMode::Bpftrace), ("perf", StackMode::Perf), ("raw", StackMode::Raw), ("build_id", StackMode::BuildId)];

/// Kernel frames have no build ID.
const KERNEL_PARAMS: &[Param] =
    &[Param::optional("mode", Accepts::WordOrInt(&["bpftrace", "perf", "raw"])), Param::optional("limit", Accepts::LitInt)];
const PARAMS: &[Param] =
    &[Param::optional("mode", Accepts::WordOrInt(&["bpftrace", "perf", "raw", "build_id"])), Param::optional("limit", Accepts::LitInt)];

pub(super) const ROWS: &[Builtin] = &[
    Builtin {
        name: KERNEL,
        params: KERNEL_PARAMS,
        returns: Returns::By(|f| stack_type(f, KERNEL, 8)),
        needs: ContextFeatures::STACK,
        risky: false,
        codegen: Codegen::Code(|e, u, _| {
            // BPF_F_SKIP_FIELD_MASK: the low byte of the flags
            let skip = e.own_frames();
            emit_stack_id(e, u, KERNEL, skip)
        }),
        doc: "The kernel call stack. It has at most 127 frames, or up to the given limit (at most 1024). The mode (bpftrace, perf, raw) selects how the stack is printed.",
        example: "profile:hz:99 { @[kstack(perf, 20)] = count(); }",
    },
    Builtin {
        name: USER,
        params: PARAMS,
        returns: Returns::By(|f| stack_type(f, USER, 16)),
        needs: ContextFeatures::STACK,
        risky: false,
        codegen: Codegen::Code(|e, u, _| emit_stack_id(e, u, USER, USER_STACK)),
        doc: "The user-space call stack, unwound by call frame information (.eh_frame), Go's own table, instructions or frame pointers. Python frames replace those of the interpreter's loop, except in the modes raw and build_id. The last line of an incomplete stack gives the reason. Limit and mode are those of kstack. build_id is an additional mode.",
        example: "profile:hz:99 { @[ustack, comm] = count(); }",
    },
    Builtin {
        name: "dw_ustack",
        params: PARAMS,
        returns: Returns::By(|f| stack_type(f, USER, 16)),
        needs: ContextFeatures::STACK,
        risky: false,
        codegen: Codegen::Code(|e, u, _| emit_stack_id(e, u, USER, USER_STACK)),
        doc: "An alias of ustack, for compatibility with bpftrace.",
        example: "config = { unstable_dw_ustack = enable } profile:hz:99 { @[dw_ustack, comm] = count(); }",
    },
];

pub(super) const DECODERS: &[Decoder] = &[
    Decoder { name: KERNEL, size: 8, from_int: false, decode: |tag, bytes, host| Value::Stack(decode(tag, bytes, host, true)) },
    Decoder { name: USER, size: 16, from_int: false, decode: |tag, bytes, host| Value::Stack(decode(tag, bytes, host, false)) },
];

fn stack_type(f: &CallInfo, tag: &str, size: u32) -> Result<Type, Diagnostic> {
    let word = f.word(0);
    let mode = MODES.iter().position(|(w, m)| word.map_or(*m == f.settings.stack_mode, |word| *w == word)).unwrap_or(0);
    let at = if f.int(0).is_some() { 0 } else { 1 };
    if at == 0 && f.args.len() > 1 {
        return Err(Diagnostic::error("arity", f.span(1), "nothing may follow the limit, which is the last argument"));
    }
    if tag == KERNEL {
        f.warn_of_hidden_symbols();
    }
    let limit = match f.int(at) {
        None => DEFAULT_MAX_FRAMES,
        Some(n) if (0..=i64::from(MAX_FRAMES)).contains(&n) => n as u32,
        Some(n) => {
            let message = format!("a stack's limit must be from 0 to {MAX_FRAMES} frames, but this is {n}");
            return Err(Diagnostic::error("out-of-range", f.span(at), message));
        }
    };
    let mode_word = MODES.get(mode).filter(|_| mode != 0).map(|(word, _)| (*word).to_owned());
    let written: Vec<String> = mode_word.into_iter().chain((limit != DEFAULT_MAX_FRAMES).then(|| limit.to_string())).collect();
    Ok(Deferred::with(tag, size, [mode as u32, limit], &written.join(", ")))
}

/// Maximum number of frames in a stack of this type.
pub(super) fn limit_of(ty: &Type) -> u32 {
    if let Type::Deferred(t) = ty { t.params[1] } else { 0 }
}

/// The format of a stack of this type.
fn mode_of(ty: &Type) -> StackMode {
    let number = if let Type::Deferred(t) = ty { t.params[0] as usize } else { 0 };
    MODES.get(number).map_or(StackMode::Bpftrace, |(_, mode)| *mode)
}

/// The map of stacks with this many frames; not 0.
pub(super) fn stacks<'c>(cx: &CodegenCx<'c>, limit: u32) -> PointerValue<'c> {
    let max_stacks = match cx.options.max_stacks {
        0 => (TABLE_BYTES / (ELEMENT_HEAD + u64::from(limit) * 8)).min(MAX_STACKS),
        set => set,
    };
    let max_entries = u32::try_from(max_stacks).unwrap_or(u32::MAX);
    // one more word for the reason why a stack was cut
    let def = MapDef { kind: MapKind::Hash, key_size: 8, value_size: (limit + 1) * 8, max_entries, flags: 0 };
    cx.declare_stacks(limit, def)
}

/// See [`super::declare_stacks`].
pub(super) fn declare(cx: &CodegenCx, ty: &Type) {
    ty.each_deferred(&mut |ty, tag| {
        if python_frames::is_tag(tag) {
            stacks(cx, crate::emit::python_words(limit_of(ty)));
        } else if is_tag(tag) && limit_of(ty) > 0 {
            stacks(cx, limit_of(ty));
        }
    });
}

/// Do values of this type contain a user stack?
pub fn contains_user_stack(ty: &Type) -> bool {
    ty.contains_deferred(&|tag| tag.tag == USER || python_frames::is_tag(tag))
}

/// A stack does not change while a program runs, so it is recorded once.
fn emit_stack_id<'c>(e: &mut Builder<'_, 'c>, u: &CallSite, name: &str, flags: u64) -> Operand<'c> {
    let (limit, size) = (limit_of(&u.ty), u.ty.size());
    // stacks of bare addresses contain only addresses
    let interpreted = matches!(mode_of(&u.ty), StackMode::Bpftrace | StackMode::Perf);
    let known = format!("{name}_{limit}_{interpreted}");
    let ptr = e.once_ptr(&known, |e| {
        let ptr = e.alloc_known(&known, size);
        let id = if limit == 0 { e.int(0) } else { e.stack_id(limit, flags, interpreted) };
        e.store(ptr, 0, 8, id);
        if size > 8 {
            let both = e.ns_pid_tgid();
            let pid = e.shr(both, e.int(32), false);
            e.store(ptr, 8, 8, pid);
        }
        ptr
    });
    Operand::mem(u.ty.clone(), ptr)
}

impl<'c> Builder<'_, 'c> {
    /// At a function's first instruction the frame pointer still belongs to the caller, and a walk along frame pointers
    /// skips the caller (Linux 6.11 and later detect this for user functions that start by pushing it). The return address
    /// is in its register or on top of the stack; this inserts it as the second frame if it is missing. `buffer` is one
    /// frame, then the stack's.
    fn with_caller(&mut self, buffer: PointerValue<'c>) -> PointerValue<'c> {
        let arch = self.target.arch;
        let caller = match arch.return_address {
            Some(register) => self.load_ctx(register, U64),
            None => {
                let sp = self.load_ctx(arch.sp, U64);
                self.read_int(Space::User, sp, U64)
            }
        };
        let (first, second) = (self.load(buffer, 8, U64), self.load(buffer, 16, U64));
        let found = self.cmp(Cmp::Eq, second, caller);
        let nothing = self.or(self.cmp(Cmp::Eq, first, self.int(0)), self.cmp(Cmp::Eq, caller, self.int(0)));
        let keep = self.or(found, nothing);
        let start = self.choose(
            keep,
            |e| e.int(8),
            |e| {
                e.store(buffer, 0, 8, first);
                e.store(buffer, 8, 8, caller);
                e.int(0)
            },
        );
        let start = self.opaque(start);
        self.offset_by(buffer, start)
    }

    /// If a trampoline calls both ends of a function, the kernel may have jumped to it (since Linux 6.19), so that the
    /// function is missing from the stack; this inserts it as the first frame if it is missing. `buffer` as above.
    fn with_function(&mut self, buffer: PointerValue<'c>) -> PointerValue<'c> {
        const ENTRY: u64 = 64;
        let ctx = self.ctx();
        let function = self.once("func", |e| e.call(Helper::GetFuncIp, &[ctx.into()]));
        let first = self.load(buffer, 8, U64);
        let found = self.cmp(Cmp::Ult, self.sub(first, function), self.int(ENTRY));
        let keep = self.or(found, self.cmp(Cmp::Eq, first, self.int(0)));
        let start = self.choose(
            keep,
            |e| e.int(8),
            |e| {
                e.store(buffer, 0, 8, function);
                e.int(0)
            },
        );
        let start = self.opaque(start);
        self.offset_by(buffer, start)
    }

    /// Between a raw tracepoint and `bpf_trace_run…()`, which calls the program, there is a function `__bpf_trace_…`, unless
    /// the compiler turned its only call into a jump (include/trace/bpf_probe.h). If it exists, it is not a frame of the
    /// event: then the first return address follows a call of the function that contains the previous one. `buffer` has two
    /// frames, of which the first is that of `bpf_trace_run…()`, and then the stack.
    fn without_template(&mut self, buffer: PointerValue<'c>) -> PointerValue<'c> {
        /// Maximum distance in bytes from the start of `bpf_trace_run…()`, or a thunk before it, to its call of the
        /// program: some 150.
        const ENTRY: u64 = 1024;
        let start = self.scalar_slot();
        let usual = self.int(8);
        self.store(start, 0, 8, usual);
        let (run, first) = (self.load(buffer, 0, U64), self.load(buffer, 8, U64));
        let nonzero = self.cmp(Cmp::Ne, first, self.int(0));
        self.if_(nonzero, |e| {
            let code = e.read_int(Space::Kernel, e.sub(first, e.int(8)), U64);
            let call = &e.target.arch.call;
            let ((shift, operation), (left, right, low)) = (call.operation, call.distance);
            let is_call = e.cmp(Cmp::Eq, e.and(e.shr(code, e.int(shift), false), e.int(call.mask)), e.int(operation));
            let distance = e.shr(e.shl(code, e.int(left)), e.int(right), true);
            let distance = e.and(distance, e.int(u64::MAX << low));
            let target = e.add(e.sub(first, e.int(call.back)), distance);
            let near = e.cmp(Cmp::Ult, e.sub(run, target), e.int(ENTRY));
            let between = e.and(is_call, near);
            e.if_(between, |e| {
                let next = e.int(16);
                e.store(start, 0, 8, next);
            });
        });
        let start = self.load(start, 0, U64);
        let start = self.opaque(start);
        self.offset_by(buffer, start)
    }

    /// Records the stack that `flags` of `bpf_get_stack` select, stores its frames, and returns its ID; 0 if there are no
    /// frames.
    fn stack_id(&mut self, limit: u32, flags: u64, interpreted: bool) -> IntValue<'c> {
        let map = stacks(self, limit);
        let mark = self.mark();
        let (raw, of_kernel) = (self.in_raw_tracepoint(), flags & USER_STACK == 0);
        // they are preceded by frames that this code may drop or insert
        let lead: u64 = if raw && of_kernel { 16 } else { 8 };
        // a script that requests fewer frames expects that there are more
        let limit_given = limit != DEFAULT_MAX_FRAMES;
        let (frames, cut) = if !of_kernel && self.target.unwind.is_some() {
            self.unwind_stack(limit, flags, (limit_given, interpreted))
        } else {
            (self.get_stack(limit, lead, flags), self.int(0))
        };
        let key = self.alloc(8);
        let id = self.store_stack(map, key, (frames, limit + 1), 1, cut);
        self.release(&mark);
        id
    }

    /// Stores a stack of at most `words` words, which ends at the first zero, in a table, and returns its ID; 0 if it
    /// is empty. `key` has room for a word. A frame has `each` words; the last `no_frames` words are not frames.
    pub(super) fn store_stack(
        &mut self,
        map: PointerValue<'c>,
        key: PointerValue<'c>,
        (frames, words): (PointerValue<'c>, u32),
        each: u64,
        no_frames: IntValue<'c>,
    ) -> IntValue<'c> {
        self.store(key, 0, 8, no_frames);
        let id = match self.target.atomic_fetch.holds() && !self.scope.at_max_call_depth {
            true => {
                let name = format!("stack_id_{words}_{each}");
                self.call_on_memory(&name, [(frames, words * 8), (key, 8)], |e, frames, key| e.hashed_id((frames, words), each, key))
            }
            false => self.hashed_id((frames, words), each, key),
        };
        self.store(key, 0, 8, id);
        let nonzero = self.cmp(Cmp::Ne, id, self.int(0));
        self.if_(nonzero, |e| e.store_frames(map, key, (frames, words)));
        self.load(key, 0, U64)
    }

    /// The ID of a stack by its hash, or 0 if it is empty: see [`Self::keep_stack`]. `no_frames` is the number of words
    /// that are not frames.
    fn hashed_id(&mut self, (frames, words): (PointerValue<'c>, u32), each: u64, no_frames: PointerValue<'c>) -> IntValue<'c> {
        let (seed, zero) = (self.start(std::mem::offset_of!(LoadConstants, seed)), self.int(0));
        // both are hidden from the verifier, which would track the computation otherwise, and the following code for each
        // number of words
        let seed = self.hide_range(seed);
        let [hash, depth] = self.hash_words(frames, words, seed);
        let depth = self.hide_range(depth);
        let depth = self.sub(depth, self.load(no_frames, 0, U64));
        let nonzero = self.cmp(Cmp::Ne, depth, self.int(0));
        let id = self.and(hash, self.int(!DEPTH));
        let depth = if each == 1 { depth } else { self.div(depth, self.int(each), false, false) };
        let id = self.or(id, self.and(depth, self.int(DEPTH)));
        self.select(nonzero, id, zero)
    }

    /// The frames of the user stack by tables, or by frame pointers for code that has no tables here; and 1 if they are
    /// followed by a word with the reason why they end.
    fn unwind_stack(&mut self, limit: u32, flags: u64, (limit_given, interpreted): (bool, bool)) -> (PointerValue<'c>, IntValue<'c>) {
        let stack @ UserStack { frames, usable, .. } = self.unwind_user(limit, limit_given, interpreted);
        let not = self.cmp(Cmp::Eq, usable, self.int(0));
        self.if_(not, |e| {
            let (ctx, size, flags) = (e.ctx(), e.int(u64::from(limit) * 8), e.int(flags));
            let bytes = e.call(Helper::GetStack, &[ctx.into(), frames.into(), size.into(), flags.into()]);
            e.mark_32_bit_stack(stack, bytes, limit - u32::from(limit_given));
        });
        let cut = self.was_cut(stack);
        (frames, cut)
    }

    /// The frames that `bpf_get_stack` returns. `lead`: bytes before them, for frames that are inserted or dropped.
    fn get_stack(&mut self, limit: u32, lead: u64, flags: u64) -> PointerValue<'c> {
        let (raw, of_kernel) = (self.in_raw_tracepoint(), flags & USER_STACK == 0);
        let buffer = self.alloc((limit + 1) * 8 + lead as u32);
        self.zero(buffer, (limit + 1) * 8 + lead as u32, 8);
        let extra = if of_kernel && self.own_frames() > 0 { self.target.arch.extra_frames } else { 0 };
        let (taken, flags_given, size) = match raw && of_kernel {
            // starting at the frame of bpf_trace_run…()
            true => (buffer, flags - 1 + extra, u64::from(limit) * 8 + lead),
            false => (self.offset(buffer, 8), flags + extra, u64::from(limit) * 8),
        };
        let (ctx, size, flags_given) = (self.ctx(), self.int(size), self.int(flags_given));
        self.call(Helper::GetStack, &[ctx.into(), taken.into(), size.into(), flags_given.into()]);
        if !of_kernel && self.program.stack_check != 0 {
            let first = self.load(taken, 0, U64);
            let any = self.cmp(Cmp::Ne, first, self.int(0));
            self.if_(any, |e| {
                let entry = e.before_stack_check(first);
                e.store(taken, 0, 8, entry);
            });
        }
        let frames = match of_kernel {
            true if raw => self.without_template(buffer),
            // kernels that jump are newer than such maps
            true if self.knows_function() && self.target.allocates_in_any_context.holds() => self.with_function(buffer),
            true if self.program.at_kernel_entry && self.own_frames() == 0 && limit > 1 => self.with_caller(buffer),
            false if self.program.at_entry && limit > 1 => self.with_caller(buffer),
            _ => taken,
        };
        // one more frame, which was mistaken for one that is dropped
        let zero = self.int(0);
        self.store(frames, limit * 8, 8, zero);
        frames
    }

    /// Stores frames under the id that is the key. If other frames have that id, it uses another id and stores it in
    /// the key.
    fn store_frames(&mut self, map: PointerValue<'c>, key: PointerValue<'c>, (frames, limit): (PointerValue<'c>, u32)) {
        /// `EEXIST` of errno(3).
        const EXISTS: i64 = -17;
        /// `E2BIG` of errno(3).
        const FULL: i64 = -7;
        // unless the loop is in a function that the verifier checks once, each try costs it as many iterations as a
        // stack has frames
        let tries = if self.target.atomic_fetch.holds() && !self.scope.at_max_call_depth { MAX_RETRIES } else { 2 };
        let done = self.scalar_slot();
        let (no, yes) = (self.int(0), self.int(1));
        self.store(done, 0, 8, no);
        self.count(tries, |e, _| {
            let known = e.lookup(map, key);
            let new = e.cmp(Cmp::Eq, e.not_null(known), e.int(0));
            e.if_(new, |e| {
                let r = e.insert_new(map, key, frames);
                let overtaken = e.cmp(Cmp::Eq, r, e.int(EXISTS as u64));
                // another processor has just inserted it: compare with it
                e.if_(overtaken, |e| e.continue_());
                e.stack_kept(r);
                e.store(done, 0, 8, yes);
                e.break_();
            });
            let same = if e.target.atomic_fetch.holds() || limit <= MAX_UNWOUND_FRAMES { e.same_words(frames, known, limit) } else { yes };
            e.if_(same, |e| {
                e.store(done, 0, 8, yes);
                e.break_();
            });
            let next = e.add(e.load(key, 0, U64), e.int(1 << DEPTH_BITS));
            e.store(key, 0, 8, next);
        });
        let nowhere = self.cmp(Cmp::Eq, self.load(done, 0, U64), no);
        self.if_(nowhere, |e| {
            let full = e.int(FULL as u64);
            e.stack_kept(full);
        });
    }
}

/// Number of frames of a stack, as `len` returns it; none if the type is not a stack.
pub(super) fn is_stack(ty: &Type) -> bool {
    matches!(ty, Type::Deferred(t) if is_tag(t) || python_frames::is_tag(t))
}

/// Is it a user-space stack?
pub(super) fn is_user_stack(tag: &Deferred) -> bool {
    tag.tag == USER
}

/// Is it a stack?
pub(super) fn is_tag(tag: &Deferred) -> bool {
    tag.tag == KERNEL || tag.tag == USER
}

/// The number of frames, which is part of the ID.
pub(super) fn depth<'c>(e: &mut Builder<'_, 'c>, stack: &Operand<'c>) -> IntValue<'c> {
    let ptr = e.in_memory(stack);
    let id = e.load(ptr, 0, U64);
    e.and(id, e.int(DEPTH))
}

/// The reasons why a stack was cut: the number, the text in place of the missing frames, whether the last frame's file
/// adds information, and the message about such stacks at the end.
const REASONS: &[(u64, &str, bool, Incomplete)] = &[
    (unwind::CUT_NO_INFORMATION, "no unwind information", true, ("no_information", "reaches", "reach", "code without unwind information")),
    (unwind::CUT_UNREADABLE, "stack unreadable", false, ("unreadable", "could", "could", "not be read")),
    (
        unwind::CUT_UNSUPPORTED,
        "unwind information not supported",
        true,
        ("not_supported", "reaches", "reach", "code whose unwind information rbt does not support"),
    ),
    (
        unwind::CUT_NOT_LOADED,
        "unwind table not loaded yet",
        true,
        ("not_loaded", "reaches", "reach", "a file whose unwind table was not loaded yet"),
    ),
    (unwind::CUT_NOT_CODE, "not in code", false, ("not_in_code", "leads", "lead", "to an address that is not in code")),
    (
        unwind::CUT_NO_ROOM,
        "no room for the unwind table",
        true,
        ("no_room", "reaches", "reach", "a file whose unwind table exceeds unwind_memory"),
    ),
    (
        unwind::CUT_32_BIT,
        "32-bit code: frame pointers only",
        false,
        ("32_bit", "is", "are", "of 32-bit code, which rbt unwinds by frame pointers only"),
    ),
    (unwind::CUT_CORRUPT, "stack corrupt", false, ("corrupt", "has", "have", "a frame that is not above the one that it called")),
];

/// The text in place of missing frames.
fn cut_reason(reason: u64, frames: usize, file: Option<&str>) -> String {
    match (REASONS.iter().find(|(number, ..)| *number == reason), file) {
        (Some((_, text, true, _)), Some(file)) => format!("[{text}: {file}]"),
        (Some((_, text, ..)), _) => format!("[{text}]"),
        (None, _) => format!("[{frames} frames]"),
    }
}

/// User stacks that were not unwound to their end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncompleteStacks {
    /// The message about them.
    pub msg: String,
    /// Their number by reason.
    pub counts: Vec<(&'static str, u64)>,
}

/// User stacks that were not unwound to their end, from their number by reason; none if there are none.
pub(super) fn incomplete(counts: &[u64]) -> Option<IncompleteStacks> {
    let count = |number: u64| counts.get(number as usize).copied().unwrap_or(0);
    let native = REASONS.iter().map(|(number, .., what)| (count(*number), what));
    let found: Vec<(u64, &Incomplete)> =
        native.chain(python_frames::INCOMPLETE.iter().map(|(number, what)| (count(*number), what))).filter(|(n, _)| *n > 0).collect();
    let parts: Vec<String> = found.iter().map(|(n, (_, one, many, rest))| format!("{} {rest}", plural(*n, one, many))).collect();
    let total: u64 = found.iter().map(|(n, _)| n).sum();
    let msg = format!("{}: {}", plural(total, "user stack is incomplete", "user stacks are incomplete"), parts.join(", "));
    (total > 0).then(|| IncompleteStacks { msg, counts: found.iter().map(|(n, (name, ..))| (*name, *n)).collect() })
}

/// Python and native frames, in order.
fn user_frames(pid: u32, words: &[u64], resolve: bool, host: &mut dyn Host, to: &mut FramesBuilder) {
    for part in words.chunk_by(|a, b| is_frame(*a) == is_frame(*b)) {
        if part.first().is_some_and(|word| is_frame(*word)) {
            for word in part {
                to.push(frame_of_word(*word, host));
            }
        } else {
            host.user_frames(pid, part, resolve, to);
        }
    }
}

/// Did it find no space in its table?
pub(super) fn is_lost(stack: &Stack) -> bool {
    stack.frames.len() == 1 && stack.frames.first().is_some_and(|only| only.addr == 0 && only.symbol.as_deref() == Some(NOT_KEPT))
}

fn decode(tag: &Deferred, bytes: &[u8], host: &mut dyn Host, kernel: bool) -> Stack {
    let mode = MODES.get(tag.params[0] as usize).map_or(StackMode::Bpftrace, |(_, m)| *m);
    let id = super::word(bytes, 0);
    let addrs = if id == 0 { Some(Vec::new()) } else { host.stack(tag.params[1], id) };
    let Some(mut addrs) = addrs else {
        return Stack { mode, kernel, frames: [python_frames::placeholder(NOT_KEPT.into())].into_iter().collect() };
    };
    let cut = addrs.pop_if(|last| !kernel && *last >= CUT).map(|word| word - CUT);
    addrs.truncate(tag.params[1] as usize);
    let resolve = mode != StackMode::Raw;
    let mut frames = host.new_frames(addrs.len() + usize::from(cut.is_some()));
    if kernel {
        host.kernel_frames(&addrs, resolve, &mut frames);
    } else {
        user_frames(super::word(bytes, 1) as u32, &addrs, resolve, host, &mut frames);
    }
    if mode == StackMode::BuildId {
        frames.retain(|frame| !frame.inlined); // a line for each address
    }
    if let Some(reason) = cut {
        let text = cut_reason(reason, addrs.len(), frames.last().and_then(|frame| frame.module.as_deref()));
        frames.push(python_frames::placeholder(text));
    }
    Stack { mode, kernel, frames: frames.finish() }
}

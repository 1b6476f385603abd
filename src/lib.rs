//! rbt is a tracer for Linux. README.md describes its use; this note describes its design.
//!
//! # Glossary
//!
//! | word | meaning |
//! |---|---|
//! | kind | a probe kind, such as `tracepoint`: a row of `probes::KINDS` |
//! | site | one place where a probe attaches; an attach point with a wildcard has many |
//! | mechanism | how a site is attached ([`probes::Attach`]): a perf event, a trampoline, a link for many functions |
//! | lowering | the choice of a cheaper mechanism with the same meaning |
//! | deferred value | a value that user space completes when it prints it: a symbol, a stack, an address |
//! | scratch memory | per-CPU memory for values that do not fit into the 512 bytes of a BPF program's stack; each program has a slot of it |
//! | frame | the part of scratch memory that a call of a script's function uses |
//! | `CodegenCx`, `Builder` | the LLVM module under construction; the builder of one of its functions |
//! | chunk | a function split off a long body, which the verifier checks separately: a piece of it, or a statement like others |
//! | artifact, manifest | the BPF object with everything that user space needs to know about it; only the latter part |
//! | bundle | a compiled script in a file, which `rbt-run` runs |
//! | expansion | the attach points of a program in a bundle, and the sites that come from them |
//! | state | everything that a run has counted, in a form that can be added to that of other runs of the script |
//! | probe counters | per-CPU counters of a probe (`emit::shared::ProbeCounters`): records sent and lost, runs missed |
//! | gate | a check at the start of a program, through which user space limits its runs or records |
//! | weight | the number of runs for which one that passed its gate stands |
//! | problem | a helper call that can fail at run time, counted by its place in the script |
//! | entry | one input at the prompt, which starts and ends separately |
//! | verb, tool | a word that writes a program (`rbt count`); a script that is part of rbt (`rbt opensnoop`) |
//! | snapshot | a file that describes a kernel, to check scripts elsewhere |
//! | finding, outcome, verdict | one message of `rbt check`; a script's result on a kernel; the overall result, also of `--expect` |
//! | sema, compat | the semantic analysis of a script; the implementation of `rbt check` |
//!
//! # The pipe
//!
//! ```text
//! text ─parse─▶ ast::Script ─check─▶ hir::Script ─compile─▶ Artifact ─load─▶ Session ─run─▶ Output ─render─▶ bytes
//!      syntax/  spans,       sema/   typed,       codegen/  ELF +    runtime/ maps,   value   render/
//!               no name              expanded,              manifest          links,
//!               resolved             resolved                                 ring
//! ```
//!
//! A stage is a function from one value to the next, and [`driver`] calls them in order. `ast` and `hir` are different types:
//! in `hir` every expression has a type, every call its row, and every probe concrete sites. Parse and check get facts about the
//! kernel from a [`system::TargetInfo`] and do no input or output themselves, so they need no root and no BPF.
//! A [`codegen::artifact::Artifact`] contains everything that another host needs to run the program.
//!
//! Three kinds of failure have three types: [`diag::Diagnostics`] (the script is wrong), `anyhow::Error` with context (the
//! machine refuses), and a panic through [`bug!`] (rbt is wrong).
//!
//! # The tables
//!
//! An open set is a table, whose rows are plain data and functions. The BPF side and the user-space side of a row are in the same
//! file, and nothing outside the table spells its name. (The verbs write scripts, so `verbs/probe.rs` spells names of kinds.)
//!
//! | set | table | a row adds |
//! |---|---|---|
//! | builtins (variables, functions, aggregations) | `builtins::FAMILIES` | one row in a family's file |
//! | values decoded late (symbols, stacks, addresses) | `builtins::DECODERS` | one row beside the builtin that returns it |
//! | probe kinds | `probes::KINDS` | a file, and two lines in `probes/mod.rs` |
//! | output formats | `render::FORMATS` | a file, and two lines in `render/mod.rs` |
//! | forms of a verdict | `verdict::FORMATS` | a file, and two lines in `verdict/mod.rs` |
//! | functions of expectations (`--expect`) | `expect::FUNCTIONS` | a row |
//! | settings | `settings::SETTINGS` | one row; `with_flag` gives it a flag |
//! | flags of a run | `cli::flags` | one row |
//! | mechanisms that can be turned off | `settings::MECHANISMS` | one row |
//! | types of programs | `emit::ProgramType` | a variant and its row in `emit/program.rs` |
//! | places that are reached very often (a warning) | `probes::hot` | a name in a row |
//! | properties of a mechanism (filters, notes) | `probes::Attach::properties` | one row |
//! | diagnostic codes | `diag::codes` | one row |
//! | processors (registers, calling conventions, system calls) | `system::machine::arch` | a file, and two lines in `system/machine/arch/mod.rs` |
//! | subcommands | `cli::subcommands::SUBCOMMANDS` | a file, its row, and a file that implements `cli::Action` |
//!
//! Closed sets (operators, statements, the shapes of types and values, the mechanisms of attaching) are enums that code matches
//! without `_`, so that the compiler lists every place that a new member affects. [`probes::Attach`] is closed because each
//! mechanism is code in the loader. Kinds share mechanisms, so a new kind rarely needs a new one.
//!
//! # The BPF side
//!
//! - A script becomes one module (`emit::CodegenCx`). Each function has its own builder (`emit::Builder`). Values with a limited
//!   lifetime describe the program (`emit::ProgramCx`) and the current part of it (`emit::Scope`).
//! - LLVM runs `default<O2>` for BPF CPU v3 (v4 if the kernel supports it), but only a short list of passes for parts of long
//!   programs that run rarely, and for scripts whose programs all run once: short `begin` and `end` without loops
//!   (`emit/passes.cpp`). Its back end runs without the passes that change nothing in such code, and for scripts that run
//!   once, or are long and run rarely, without those that only make code faster (`emit/codegen.cpp`). The object is created
//!   and opened in memory. Every instruction has the script's line, so rbt can report an error of the verifier at that line.
//!   A last pass makes each back edge of a loop a jump, which kernels before 6.8 require (`emit/codegen.cpp`).
//! - Scalars are 64-bit registers, extended by the sign of their type; everything else is memory. A value over 32 bytes
//!   is in scratch memory: an array with four slots per CPU, which a program claims by an atomic exchange where it may
//!   first need one. A counter would suffice for a probe that interrupts another, but not for a task that is preempted
//!   in one.
//! - A record has an index and the values of an event; literals stay in the manifest. Long strings follow the fixed part without
//!   padding. Programs do not wake user space for each record: see `emit/ring.rs`. A separate thread moves records
//!   from the ring buffer to memory, in order (`runtime/collect.rs`), so that a slow one does not cause the loss of others.
//! - Counters for each probe and CPU show what was sent, lost, missed, refused and truncated (`emit/probe_counters.rs`); totals are their
//!   sums. Failures are counted by place, and only some of them use space in the ring buffer (`emit/problem.rs`).
//! - The end of a run waits until no program is running (`runtime/grace_period.rs`), so that counters, records and output agree.
//! - Two of rbt's own programs maintain a map of the followed processes (`emit/follow.rs`), in which the script's programs look up
//!   the current one.
//! - The walk along Python frames consists of global functions, which the verifier checks once (`emit/python/`). The
//!   layouts of the interpreter's structures are rows (`system/binary/python.rs`), a thread finds interpreters
//!   (`runtime/python/`), and names and line tables travel once, as records of their own.
//! - In user stacks, Python frames replace those of the interpreter's loop (`emit/unwind/python.rs`). The rules of the loop's rows are
//!   marked (`system/binary/interpreters.rs`), so that a stack without a marked frame costs a comparison per frame.
//! - A helper call whose result cannot change within a run happens once if its first use dominates the others.
//! - Long bodies are split into functions that the verifier checks separately (`codegen/chunk.rs`), so its time grows linearly with
//!   their length. Those of a program whose context they cannot take find its numbers in scratch memory. Statements of one shape
//!   (`codegen/alike.rs`) become functions, and those whose IR differs in numbers or short texts only become one (`emit/alike.cpp`):
//!   10,000 of them compile and load in a third of the time, and in a tenth of it in a tracepoint. A call takes some 5 ns in each run.
//!   So in programs that run often, statements with keys, records or stacks share functions (30 ns and more), those with elements
//!   without keys (8 ns) only in bodies of over a thousand lines, and conditions on numbers never: as functions, 6,000 of them would
//!   take 117 us instead of 4. If such a program is too complex nevertheless, they do. The shape is a guess. If too
//!   many functions of one remain, the script is compiled again with a stricter one.
//!   Pieces of a program that runs often get few of LLVM's passes, but the functions that they call get all.
//!   The verifier's limit of a million instructions holds for all functions of a program together. So in split programs, code that it
//!   would follow for long, such as the attempts to store a maximum, is in functions that it checks once (`Builder::on_memory_and_number`).
//!   Many loops share functions with their callbacks: `codegen/loop_variables.rs` gives them the same variables.
//!   A `while` is a callback of the kernel's loop helper, so the verifier need not prove that it ends.
//! - A map whose key is `tid` at every use has most of its elements in a table, at places that follow from the thread's ID
//!   (`emit/thread_table.rs`; which maps: `codegen/thread_maps.rs`). A pair of probes that measures the time between them
//!   adds 517 ns to a call instead of 880 with a hash map (Linux 6.18). Task storage would save less, and it has no elements of
//!   threads that have ended.
//! - An array in front of a per-CPU hash map, which collects what is added to the same key, is not built: it saves 9 to 20 % of such a
//!   program, and about 3 % of a traced call, because most of `@[comm] = count()` is the name.
//! - `print(@m); clear(@m);` acts on one moment of a map, which has two copies for this purpose (`codegen/double_buffer.rs`).
//! - Programs on user-space probes stay on their task's stack, and on kernels whose JIT has per-CPU stacks they do not sleep:
//!   see `Builder::avoid_private_stack`.
//! - The tracepoint of a system call uses the mechanism that costs the machine least (`probes/syscall.rs`): a trampoline on the
//!   call's own function, the perf event of the tracepoint, or the raw tracepoint that all calls share, whose program also runs
//!   for untraced calls. Sites with equal bodies share one program, which distinguishes them by number or by the link's cookie.
//! - Programs read what the kernel describes by loads from typed pointers, where a helper would take tens of nanoseconds: registers
//!   in the raw program of all system calls, and `comm` on kernels that zero the bytes after its end.
//! - Before compilation, a script is lowered (`codegen/lower.rs`): a kind may know a cheaper mechanism with the same meaning
//!   ([`probes::ProbeKind::lower`]), such as a trampoline for a kprobe. Lowered probes are attached before `begin` runs, without effect;
//!   if the kernel refuses, rbt compiles the script again without lowering.
//!   Functions that trampolines themselves call are excluded on all kernels: `system/kernel/trampolines.rs`.
//!   If the kernel does not prevent the program of a trampoline from recursing, the program does (`Builder::enter_alone`).
//! - Types come from four sources: the script's C part (`cdecl`, a `TargetInfo` in front of the others), the traced binary's
//!   debug information (`system/binary/dwarf`), the kernel's BTF, and that of its modules. The ID of a struct shows its source.
//!   Kernels before 6.16 do not map their BTF. It is then searched in pieces (`kernel_types/paged_file.rs`), because it would be
//!   most of the memory of a runner.
//! - The frames of a stack are numbers in a table that the stacks of a run share (`value/frames.rs`, `runtime/stack_frames.rs`). They
//!   are bytes, as long as few frames are known. A long map of stacks is sorted by numbers that contain the weight and the first frames
//!   that differ (`render/order.rs`), and the line of a frame is rendered once (`render/stack.rs`).
//! - User stacks are unwound in the kernel by call frame information (`emit/unwind`), which rbt compiles into rows that
//!   a program can search (`system/binary/unwind`), once for each build ID. Printed stacks and stacks in keys come from
//!   the same mechanism, because a stack that is unwound in user space cannot be a key. The program reads the kernel's
//!   tree of mappings itself, without its lock; `runtime/unwind` supplies the tables of the files that the program
//!   finds, and of those that processes map, before the program finds them. Code without information gets rows where its
//!   instructions set up frame pointers, and on x86-64 where the stack pointer is known on all paths from the starts of functions
//!   (`frames.rs` and `flow.rs` in `system/machine/arch/instructions`). Go's functions get rows from Go's own table on x86-64,
//!   which stripping does not remove (`system/binary/unwind/go.rs`).
//! - A probe whose maps, BPF stack or calls exceed a limit of the kernel is compiled without the frames of
//!   interpreters, then without tables ([`codegen::Unwinding`]), and rbt warns about it.
//! - Imported BPF objects are linked into that of the script where LLVM has emitted it (`emit/link.rs`), with libbpf's linker, so
//!   limits, the cache, bundles and the loader see one object. The script knows their functions from BTF
//!   (`system/bpf_object.rs`), which also describes the calls, because the linker compares both descriptions. libbpf trusts
//!   objects: relocations with offsets beyond their section would make the linker write anywhere. So everything that it relies
//!   on is checked first, and objects with programs, unknown sections or names of rbt's own are rejected.
//! - C sources are compiled by clang. rbt supplies libbpf's headers, which are those of the crate libbpf-sys, and `vmlinux.h`
//!   (`frontend/c_headers.rs`), which libbpf writes from the kernel's BTF, or from that of a snapshot (`emit/kernel_header.rs`).
//!   They follow the user's directories, the file's own and the machine's. Objects are kept with what they depend on
//!   (`frontend/c_objects.rs`): 0.3 s of the start of a script with `vmlinux.h` are clang's.
//! - Compiled scripts are kept between runs (`frontend/compiled.rs`). Code generation gets facts about the kernel from
//!   a `TargetInfo` only, so a recorder in front of it (`system/portability/questions.rs`) knows them all: a kept script is used if
//!   the same queries have the same answers. So is the code of rbt's own functions, such as the walk along a stack, for
//!   scripts that are new (`emit/known_code.rs`). They are most of the code of a script that takes user stacks.
//! - Features of the kernel are tested when code first depends on them (`Asked` of `emit/module.rs`), and kept until the next boot
//!   (`system/kernel/known_features.rs`). libbpf's own tests of features are among them: the linker passes them on to
//!   `runtime/libbpf_features.rs`, which knows most of them from what rbt has found. A first start has 22 calls of bpf(2), of 47
//!   before, and a later one 17.
//! - A bundle (`bundle.rs`) has the same recorder in front of checking and compiling, so it knows every fact on which
//!   its code depends; `rbt-run` (`runner.rs`) queries the facts again, by name, before it loads anything
//!   (`system/portability/requirements.rs`). What the kernel's types answer is kept (`system/portability/kept_answers.rs`), so that
//!   only the first start searches them. The effect of a fact on the code is found by compiling again with other answers
//!   (`driver/relocate.rs`, `system/portability/varied.rs`). A fact without effect is not required of other kernels. Offsets and
//!   sizes are varied at random, all together: where objects differ in offsets and immediates of instructions only,
//!   these are linear in the numbers, and become relocations (`system/portability/relocations.rs`), which one more compilation must
//!   confirm. Everything else must be unchanged. CO-RE relocations of `.BTF.ext` would cover members of kernel types
//!   alone, not the fields of tracepoints, and each place in code generation that uses an offset would have to emit
//!   one; here, code generation is unaware of relocations, and no place can be forgotten. Choices between mechanisms
//!   make variants: the same script for kernels with fewer features, and on larger machines. The PID namespace is no fact of the
//!   build: the loader writes it into constants (`emit/task.rs`). Sites are those of the machine that runs a bundle
//!   (`launch/resolve.rs`): the half of a kind that finds places (`probes/search.rs`) needs neither the checker nor code generation. Here, too, compiling decides whether the code depends
//!   on them: functions of binaries are moved, and patterns match more names, or half of them. For this purpose, programs read
//!   the names of their sites and the numbers of system calls from maps that the loader fills (`emit/sites.rs`). A program that knows
//!   its system calls by number cannot serve those of later kernels, whose numbers rbt does not know. For them, a bundle has a
//!   second program: it is compiled as if a kernel had one more call (`VariedTarget::with_later_calls`).
//!   A bundle for another architecture (`--for`) is compiled against snapshots of its kernels alone: whatever depends on the
//!   processor is a row of the target's architecture, so nothing else differs.
//!   What `rbt` and `rbt-run` share is `launch`, which starts at the artifact. Both are programs of this
//!   crate. Neither features nor separate crates divide them: rows have both halves in one place, and `rbt-run` looks
//!   up copies of their user-space halves (`builtins/user_side.rs`; `cli::flags` does the same), made at compile time.
//!   The linker leaves out what it does not refer to: LLVM, the checker and the parser. `tests/runner.rs` checks that
//!   the binary does not contain them. `rbt-run-small` is divided from `rbt-run` in the same way: it is for scripts that trace the
//!   kernel and print no symbols. What it lacks are parts (`part.rs`): symbols, unwinding, Python, binaries and their debug
//!   information, documents, metrics, OTLP and TLS. The rest of rbt reaches a part by a table of functions that a program provides
//!   at its start (`parts.rs`); a program that does not provide it does not refer to it. `rbt build --exe` takes the smallest runner
//!   with what the bundle needs, which follows from the manifest (`parts::needed_by`), and a runner refuses what it lacks. Expectations have a small parser of their own (`expect/parse.rs`), which both use.
//! - The limits of a run (`--max-overhead`, `--max-events`) are enforced by gates, which programs check first and user
//!   space adjusts (`emit/gate.rs`, `runtime/throttle.rs`). A run that passes a gate has a weight, which travels with the number of
//!   the site, and aggregations use it. Which probes may drop single runs is decided from the
//!   script (`codegen/gates.rs`). The return of a call finds the decision for its entry by the thread, the function and the stack
//!   pointer, so nested calls are told apart (`emit/call_marks.rs`). Returns without one pass until an entry is dropped for the first
//!   time. Entries at the prompt share maps, so they report how far these are estimates, and which ones belong to probes that were detached
//!   (`runtime/estimates.rs`).
//! - An idle run does not wake up. What no record tells, programs tell by a notice (`State::noticed`): the first run that a limit
//!   concerns after a time without runs, a table of stacks that fills up, and a lost record. The thread that empties the ring buffer
//!   passes it on (`runtime/collect.rs`).
//! - Measured on Linux 7.3 and not used: one program for the entry and the return of a function by a trampoline (`fsession`) costs
//!   what two cost (294 and 297 ns for empty ones). Its cookie, which could replace the map of a latency pair, saves 5 to 10 % of
//!   the task storage's cost. Links of trampolines on many functions (`tracing_multi`) would cost a traced call 135 ns instead of the
//!   315 ns of `kprobe.multi`, but all kernels that have them preempt programs, so they would skip runs.
//! - Detaching a perf-based probe takes the kernel tens of milliseconds. rbt prints the results first, and a forked
//!   sweeper holds the descriptors while the process ends (`runtime/background_detach.rs`).
//!
//! # The binary
//!
//! The binary, which contains LLVM, is linked statically, including the C library, so that one file runs on every Linux
//! (`build.rs`). `begin { exit() }`, the same code linked in different ways, medians of 150 alternating runs:
//!
//! | linked | size | processor time | peak memory |
//! |---|---|---|---|
//! | with the machine's glibc | 42.9 MB | 14.6 ms | 35.9 MiB |
//! | with a static glibc | 44.3 MB | 13.0 ms | 35.6 MiB |
//! | and identical functions merged | 41.4 MB | 12.9 ms | 33.6 MiB |
//! | and only the required passes of LLVM (`emit/passes.cpp`) | 38.4 MB | 12.6 ms | 30.7 MiB |
//! | and without passes that have no effect (`emit/idle_passes.cpp`) | 35.4 MB | 12.4 ms | 28.4 MiB |
//! | and position-independent, as released | 35.4 MB | 12.9 ms | 28.4 MiB |
//! | with pictures, timelines, OTLP and bundles | 37.7 MB | 12.8 ms | 28.6 MiB |
//! | the same, from the cache, without LLVM's constructors | 37.7 MB | 4.3 ms | 14.2 MiB |
//! | with `rbt serve DIR`, `rbt cost` and bundles for other kernels; clap and regex built for size | 38.0 MB | 15.8 ms | 29.4 MiB |
//! | the same, from the cache | 38.0 MB | 4.9 ms | 12.7 MiB |
//! | and with known features of the kernel | 37.7 MB | 3.0 ms | 15.2 MiB |
//! | and with the functions of a start next to each other (`startup/functions.txt`) | 37.7 MB | 2.8 ms | 10.5 MiB |
//! | `rbt-run` with a bundle of it | 11.9 MB | 3.0 ms | 7.9 MiB |
//! | the same, with the profile `runner` | 8.8 MB | 2.7 ms | 6.7 MiB |
//! | and with the functions of a start next to each other (`startup/runner_functions.txt`) | 8.8 MB | 2.1 ms | 6.1 MiB |
//!
//! The same for later versions, by other measurements (medians of 61 runs, and for `rbt` of 120 on a busy machine):
//!
//! | program | size | processor time | peak memory |
//! |---|---|---|---|
//! | `rbt`, without the cache | 38.8 MB | 9.7 ms | 28.5 MiB |
//! | and with the functions of a compilation next to each other (`startup/compile_functions.txt`), and without destructors (`startup/exit.rs`) | 39.0 MB | 8.5 ms | 20.4 MiB |
//! | `rbt-run` without unwinding | 7.1 MB | 2.0 ms | 6.5 MiB |
//! | and without regular expressions, as released | 6.4 MB | 1.7 ms | 6.1 MiB |
//! | `rbt-run-small`, as released | 3.6 MB | 1.6 ms | 4.0 MiB |
//! | the same, compressed, as `rbt build --exe` writes it (`exe`) | 1.7 MB | 6.4 ms (2.1 ms uncompressed) | 4.2 MiB |
//!
//! The tool `opensnoop` from a bundle: the processor time of `--dry-run` (Linux 6.18, medians of 25 runs), and the peak of the memory
//! while it traces, in the first run on a machine. Linux 6.12 does not map its types.
//!
//! | program | processor time | Linux 6.18 | Linux 6.12 |
//! |---|---|---|---|
//! | `rbt`, from the cache | 8.5 ms (30.9 ms without) | 13.4 MiB | |
//! | `rbt-run-small`, searching all types | 7.7 ms | 4.7 MiB | 9.0 MiB |
//! | the same, with kept answers, and types that are read in pieces | 5.7 ms | 4.1 MiB | 4.4 MiB |
//! | `rbt-run` | 6.0 ms | 5.5 MiB | 5.4 MiB |
//! | the program of `rbt build --exe` | 10.6 ms | 4.6 MiB | 5.0 MiB |
//!
//! The kernel's part of the 5.7 ms is 4.2 ms: the verifier and the compiler of its programs take 2.3 ms, and the memory of the ring
//! buffer 0.8 ms.
//!
//! A program of `rbt build --exe` begins with a stub (`exe/stub.c`), which unpacks the runner into memory and jumps to it, as the kernel
//! would. Unpacking takes 2.6 ms (zstd's level 12; with level 19, 3.7 ms for 0.14 MB less), and the memory of 900 pages 1.3 ms. The peak
//! of the memory hardly grows, because blocks are decompressed where they belong, and compressed pages are unmapped once they are read.
//! LZ4 would need 1.2 ms and 0.3 MB more. A memfd with execve(2) would need /proc, lose capabilities of the file, and show another
//! file in /proc/self/exe.
//!
//! The profile `runner` optimizes for size, with link-time optimization of all crates together. A record that `rbt-run` prints
//! then takes 0.28 µs of processor time in user space instead of 0.19 µs (medians of 7 runs with 300,000 records). A panic ends
//! the runner with the same report as that of rbt, so it has no tables for unwinding, and neither the library that reads them nor
//! the code of the standard library for backtraces (`startup/no_unwinding.rs`). Where a library may panic on damaged symbols, the
//! panic stops a thread that does nothing else (`runtime/catch_panic.rs`). Of `rbt-run-small`, 0.8 MB are the C library, 0.3 MB libbpf, libelf and zlib, 0.13 MB clap and
//! 0.12 MB serde_json.
//!
//! Position independence hides the addresses of a program that runs as root from an attacker. Its price is 0.5 ms per start, for
//! 200 pages with relocated addresses. musl was not an option:
//! distributions build LLVM and the library of C++ for glibc. A static glibc cannot load the shared libraries by which
//! it looks up users and hosts, so rbt does not use it for these: see `system/machine/users.rs`.
//!
//! # Layers and foreign libraries
//!
//! Basic modules (`diag` … `value`) import nothing from the layers below them in this file; tables use basic modules, `system` and
//! `emit`; stages use tables, and only the data of other stages; the surface uses everything. `tests/tidy.rs` has the list, and
//! allows each foreign library in one module: inkwell and llvm-sys in `emit`, pest in `syntax`, libbpf in `runtime` (its linker in
//! `emit/link.rs`, its writer of types in `emit/kernel_header.rs`), blazesym in `runtime/symbolize.rs`, object, gimli, iced-x86, the demanglers, xz2, zstd, flate2 and lz4_flex in `system` (flate2 in `otlp` and `bundle`, too; object and zstd in `exe`), fnv in `cdecl` and `render/stack_keys.rs`, clap in `cli`, httparse in `serve` and `http`, rustls in `tls`, sha2 in `driver`, `bundle` and `state`, postcard in
//! `frontend/compiled.rs`, `frontend/c_objects.rs`, `runtime/known_names.rs`, `system/portability/kept_answers.rs` and `system/kernel/known_features.rs`.
//!
//! LLVM's passes are chosen in C++ (`emit/*.cpp`), as its C interface has no way to name them without linking all of them.
//!
//! System calls go through rustix, whose functions are safe. libc makes those that rustix does not have (bpf(2),
//! perf_event_open(2), name_to_handle_at(2)), those in signal handlers and between fork(2) and execve(2), memory mappings,
//! signal handlers, and functions of the C library itself (strftime(3)).

// --- basic modules
pub mod decode;
pub mod diag;
pub mod failure;
pub mod host;
pub mod http;
pub mod input;
pub mod linked;
pub mod literal;
pub mod output;
pub mod part;
pub mod progress;
pub mod protobuf;
#[cfg(test)]
pub mod random;
pub mod settings;
pub mod state;
pub mod streams;
pub mod terminal;
pub mod timeline;
pub mod tls;
pub mod types;
pub mod units;
pub mod value;

// --- facts about kernels, C declarations, and the emission of BPF code
pub mod cdecl;
pub mod emit;
pub mod system;

// --- tables
pub mod builtins;
pub mod probes;
pub mod render;
pub mod verdict;

// --- stages
pub mod codegen;
pub mod expect;
pub mod fmt;
pub mod runtime;
pub mod sema;
pub mod syntax;

// --- surface
pub mod bundle;
pub mod cli;
pub mod compat;
pub mod driver;
pub mod exe;
pub mod frontend;
pub mod help;
pub mod info;
pub mod launch;
pub mod list;
pub mod merge;
pub mod metrics;
pub mod otlp;
pub mod output_files;
pub mod parts;
pub mod repl;
pub mod runner;
pub mod serve;
pub mod startup;
pub mod tools;
pub mod verbs;

/// The version, as `rbt --version` prints it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

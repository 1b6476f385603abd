//! rbt: a tracer for Linux. README.md says what it is; this note says how it is built.
//!
//! # Glossary
//!
//! | word | meaning |
//! |---|---|
//! | kind | a probe kind, such as `tracepoint`: a row of `probes::KINDS` |
//! | site | one place where a probe attaches; an attach point with a wildcard has many |
//! | mechanism | how a site is attached ([`probes::Attach`]): a perf event, a trampoline, a link for many functions |
//! | lowering | the choice of a cheaper mechanism that means the same |
//! | row | a member of a table, plain data plus functions |
//! | `CodegenCx`, `Builder` | the LLVM module under construction; the builder of one function of it |
//! | deferred value | a value that user space finishes when it is printed: a symbol, a stack, an address |
//! | scratch memory | per-CPU memory for what does not fit the 512 bytes of a BPF program's stack; a slot is one program's share |
//! | frame | the part of scratch memory that a call of a script's function gets |
//! | chunk | a function cut out of a long body, so that the verifier checks it by itself |
//! | double buffer | two copies of a map, so that `print(@m); clear(@m)` takes one moment of it |
//! | artifact, manifest | the BPF object with all that user space must know of it; that part alone |
//! | tally | per-CPU counters of a probe: records sent and lost, runs missed |
//! | problem | a helper call that can fail at run time, counted by its place in the script |
//! | tape | the kernel's records of which process mapped which file |
//! | entry | what is typed at the prompt, started and ended by itself |
//! | verb, tool | a word that writes a program (`rbt count`); a saved script (`rbt opensnoop`) |
//! | snapshot | a file with what a kernel offers, to check scripts elsewhere |
//! | finding, outcome, verdict | one message of `rbt check`; a script against a kernel; the sum of them, or of `--expect` |
//! | sema, compat | the semantic analysis of a script; the work of `rbt check` |
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
//! A stage is a function from one value to the next; [`driver`] calls them in order. `ast` and `hir` are different types:
//! in `hir` every expression has a type, every call its row, every probe concrete sites. Parse and check ask a
//! [`system::TargetInfo`] about the kernel and do no input or output themselves, so they need no root and no BPF.
//! An [`codegen::artifact::Artifact`] is all that another host needs to run the program.
//!
//! Three kinds of failure, three types: [`diag::Diagnostics`] (the script is wrong), `anyhow::Error` with context (the
//! machine will not), a panic through [`bug!`] (we are wrong).
//!
//! # The tables
//!
//! An open set is a table; a row is plain data plus functions; both ends of a row's life, the BPF side and the user side,
//! stand in one file, and nothing outside the table spells its name.
//!
//! | set | table | a row adds |
//! |---|---|---|
//! | builtins (variables, functions, aggregations) | `builtins::FAMILIES` | one row in a family's file |
//! | values decoded late (symbols, stacks, addresses) | `builtins::DECODERS` | one row beside the builtin that makes it |
//! | probe kinds | `probes::KINDS` | a file, and two lines in `probes/mod.rs` |
//! | output formats | `render::FORMATS` | a file, and two lines in `render/mod.rs` |
//! | forms of a verdict | `verdict::FORMATS` | a file, and two lines in `verdict/mod.rs` |
//! | functions of expectations (`--expect`) | `expect::FUNCTIONS` | one row |
//! | settings | `settings::SETTINGS` | one row; `with_flag` gives it a flag |
//! | flags of a run | `cli::flags` | one row |
//! | mechanisms that can be turned off | `settings::MECHANISMS` | one row |
//! | types of programs | `emit::ProgramType` | a variant and its row in `emit/program.rs` |
//! | what holds for a mechanism (filters, notes) | `probes::Attach::traits` | one row |
//! | diagnostic codes | `diag::codes` | one row |
//! | subcommands | `cli::subcommands::SUBCOMMANDS` | a file, a row, and its action in `driver` |
//!
//! Closed sets (operators, statements, the shapes of types and values, the mechanisms of attachment) are enums matched
//! without `_`, so that the compiler lists every place a new member touches. [`probes::Attach`] is closed because each
//! mechanism is code in the loader; kinds share mechanisms, so a new kind seldom needs a new one.
//!
//! # The BPF side
//!
//! - A script becomes one module (`emit::CodegenCx`). Each function has a builder of its own (`emit::Builder`), and what holds for
//!   its program, or for a part of it, is a value that ends with that (`emit::ProgramCx`, `emit::Scope`).
//! - LLVM runs `default<O2>` for BPF CPU v3 (v4 where the kernel takes it); the object is made and opened in
//!   memory. Every instruction carries the script's own line, so a verifier's refusal can be told in the user's terms.
//! - Scalars are 64-bit registers, extended by their type's sign; everything else is memory. A value over 32 bytes lives
//!   in a scratch arena: an array with four slots per CPU, claimed by an atomic exchange at the first place a program may
//!   need one. A counter would do for a probe inside a probe, but not for a task that is preempted inside one.
//! - Records have an index and the values that travel; literals stay in the manifest. Long strings are packed behind the
//!   fixed part, so a record is as long as what it says. Nobody is woken per record: see `emit/ring.rs`. A thread of its own takes them
//!   from the ring into memory, in order (`runtime/collect.rs`), so that a slow one has no others lost.
//! - What is sent, lost, missed, refused and cut is counted for each probe, on each CPU by itself (`emit/tally.rs`); totals
//!   are sums of that. Failures are counted by place (`emit/problem.rs`), and take no room in the ring.
//! - The end waits until no program is at work (`runtime/grace.rs`), so that what is counted, sent and printed agrees.
//! - Followed processes are in a map that two programs of our own keep (`emit/follow.rs`): the script's ask for the current one.
//! - Helper calls that cannot change within a run are made once where their first use comes before the others.
//! - Long bodies are cut into functions that the verifier looks at one by one (`codegen/chunk.rs`), so that time grows with
//!   their length. A `while` is a callback of the kernel's loop helper: the verifier need not prove its end.
//! - `print(@m); clear(@m);` takes one moment of a map, which is there twice for it (`codegen/double_buffer.rs`).
//! - Programs in user space keep to their task's stack, and on kernels whose JIT has a stack per CPU they do not sleep:
//!   see `Builder::keep_own_stack`.
//! - A system call's tracepoint is served by what costs the machine least (`probes/syscall.rs`): a trampoline of the call's
//!   own function, the perf event of the tracepoint, or the raw tracepoint that all calls share, whose program also runs
//!   for calls that nobody traces. Sites whose bodies came out equal share one program and tell themselves apart by
//!   number or by the link's cookie.
//! - Before it is compiled, a script is lowered (`codegen/lower.rs`): a kind knows a cheaper mechanism that means the same
//!   ([`probes::ProbeKind::lower`]), as a trampoline for a kprobe. What is lowered is attached before `begin` runs, idle;
//!   where the kernel will not have it the script is compiled once more without.
//!   Functions that a trampoline itself runs take none, on any kernel: `system/kernel/trampolines.rs`.
//!   Where the kernel does not keep a trampoline's program from calling itself, the program does (`Builder::enter_alone`).
//! - Types come from four places: the script's C part (`cdecl`, put before the others as a `TargetInfo` of its own), the traced
//!   binary's debug information (`system/binary/dwarf`), the kernel's and its modules' BTF. A struct's id tells whose it is.
//! - Detaching perf-based probes takes the kernel tens of milliseconds each; results are printed before, and a forked
//!   sweeper holds the descriptors while the process ends (`runtime/sweep.rs`).
//!
//! # Layers and foreign libraries
//!
//! Words (`diag` … `value`) import nothing from below; tables use words, `system` and `emit`; stages use tables, and of
//! another stage only its data; the surface uses all. `tests/tidy.rs` holds the list, and the one module in which each
//! foreign library may be used: inkwell and llvm-sys in `emit`, pest in `syntax`, libbpf in `runtime`, blazesym in
//! `runtime/symbolize.rs`, object, gimli, iced-x86, the demanglers, xz2, zstd, flate2 and lz4_flex in `system`, clap in `cli`.

// --- words
pub mod decode;
pub mod diag;
pub mod failure;
pub mod host;
pub mod input;
pub mod settings;
pub mod streams;
pub mod terminal;
pub mod types;
pub mod value;

// --- what a kernel offers, what C text declares, and BPF code in our words
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
pub mod cli;
pub mod compat;
pub mod driver;
pub mod frontend;
pub mod help;
pub mod info;
pub mod list;
pub mod repl;
pub mod scripts;
pub mod verbs;

/// The version, as `rbt --version` prints it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

//! Parses the verifier's log of a rejected program, and finds the place in the script.

use crate::value::Pos;

/// A program that the kernel's verifier rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifierError {
    /// The probe's name.
    pub program: String,
    /// The place in the script of the rejected instruction. Its column is 1, because the log has only lines. None if the log
    /// has no positions (kernels before 6.9) or is empty.
    pub pos: Option<Pos>,
    /// The verifier's own words.
    pub reason: String,
    /// A remedy in terms of the script, or what the verifier suggests (Linux 7.3 and later), in terms of BPF programs.
    pub suggestion: Option<String>,
    /// The full log.
    pub log: String,
}

impl VerifierError {
    /// The code of the diagnostic.
    pub fn code(&self) -> &'static str {
        if self.is_too_large() { "too-complex" } else { "verifier" }
    }

    /// Its message.
    pub fn message(&self) -> String {
        match self.is_too_large() {
            true => format!("{} is too complex for the kernel's verifier: {}", self.program, self.reason),
            false => format!("the kernel's verifier rejects {}: {}", self.program, self.reason),
        }
    }

    /// Did the verifier give up (`E2BIG` of `do_check` and `push_stack` in kernel/bpf/verifier.c)? A smaller program may pass.
    pub fn is_too_large(&self) -> bool {
        ["program is too large", "jumps is too complex"].iter().any(|text| self.reason.contains(text))
    }

    /// Does the verifier not know that a number is within its bounds? The words of `check_mem_region_access`,
    /// `check_stack_range_initialized`, `check_mem_size_reg` and `adjust_ptr_min_max_vals` in kernel/bpf/verifier.c, of all versions.
    pub fn misses_bound(&self) -> bool {
        let phrases = [
            "unbounded",
            "min value is",
            "max value is",
            "value is negative",
            "invalid access to",
            "invalid variable-offset",
            "invalid indirect",
            "invalid zero-sized read",
            "out of bounds",
            "out of range",
            "pointer be out of",
        ];
        phrases.iter().any(|text| self.reason.contains(text))
    }
}

impl std::fmt::Display for VerifierError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(pos) = &self.pos {
            write!(f, "{}:{}: ", pos.file, pos.line)?;
        }
        write!(f, "the kernel's verifier rejected {}: {}", self.program, self.reason)?;
        match &self.suggestion {
            Some(suggestion) => write!(f, "; {suggestion}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for VerifierError {}

/// Reads a log. Two forms are known. Up to Linux 7.2 the reason is the last line before the summary; line information
/// precedes its instructions:
///
/// ```text
/// ; @x = *(arg0 + 8); @ script.bt:3
/// 11: (79) r1 = *(u64 *)(r7 +16)        ; R1=scalar() R7=ctx()
/// R1 invalid mem access 'scalar'
/// processed 12 insns (limit 1000000) …
/// ```
///
/// From 7.3 on, a report follows: `Verification failed:` gives the class, and the indented lines under `Reason:`, `At:`
/// and `Suggestion:` the details.
///
/// `failure` is the error of the system call, in libbpf's words: `-E2BIG`.
pub fn read(program: &str, log: &str, failure: Option<&str>) -> VerifierError {
    let lines: Vec<&str> = log.lines().map(str::trim_end).collect();
    let report = lines.iter().position(|line| line.starts_with("Verification failed"));
    let trace = lines.get(..report.unwrap_or(lines.len())).unwrap_or(&[]);
    let at = |from: &[&str]| from.iter().rev().find_map(|line| position(line));

    let section = |name: &str| -> Option<String> {
        let start = report? + lines.get(report?..)?.iter().position(|line| line.trim() == name)? + 1;
        let words: Vec<&str> = lines.get(start..)?.iter().take_while(|l| l.starts_with([' ', '\t'])).map(|l| l.trim()).collect();
        (!words.is_empty()).then(|| words.join(" "))
    };
    let words = last_message(trace);
    let class = report.and_then(|i| lines.get(i)?.strip_prefix("Verification failed:")).map(str::trim);
    let reason = match (class, section("Reason:")) {
        (Some(class), Some(reason)) => format!("{class}: {reason}"),
        (Some(class), None) => class.to_owned(),
        (None, Some(reason)) => reason,
        (None, None) => words.clone().unwrap_or_else(|| by_failure(failure)),
    };
    VerifierError {
        program: program.into(),
        pos: at(trace).or_else(|| at(lines.get(report?..)?)),
        suggestion: remedy(&reason).or_else(|| remedy(&words?)).or_else(|| section("Suggestion:")),
        reason,
        log: log.into(),
    }
}

/// The reason if the log has none.
fn by_failure(failure: Option<&str>) -> String {
    let is = |words: [&str; 2]| failure.is_some_and(|failure| words.iter().any(|word| failure.contains(word)));
    if is(["E2BIG", "Argument list too long"]) {
        // `bpf_prog_load` of kernel/bpf/syscall.c compares the number of instructions before it runs the verifier
        "the program is too large: the kernel accepts 1000000 instructions".into()
    } else if is(["ENOMEM", "Cannot allocate memory"]) {
        "there is not enough memory".into()
    } else {
        failure.map_or_else(|| "it gave no reason".into(), |failure| format!("it gave no reason but the error {failure}"))
    }
}

/// Remedies by phrases of the reason.
const REMEDIES: [(&str, &str); 17] = [
    ("bpf_probe_write_user", "this kernel is locked down against writes by BPF programs (/sys/kernel/security/lockdown)"),
    ("number of maps per program", "use fewer maps in the probe, or one map with a key"),
    ("infinite loop", "the loop must have a constant bound, as in `for $i : 0..100 { … }`"),
    ("too complex", "split the probe, use fewer iterations, or nest fewer loops and conditions"),
    ("too large", "split the probe, use fewer iterations, or nest fewer loops and conditions"),
    ("too many", "use fewer iterations, or split the probe"),
    ("back-edge", "loops need Linux 5.3: use `unroll(n) { … }`"),
    // kernels before Linux 5.13 do not know callbacks
    ("number of funcs in func_info", "loops over a map, including len(), need Linux 5.13"),
    ("unknown#195", "reading an aggregation within the script needs Linux 5.19"),
    ("bpf_map_lookup_percpu_elem#", "reading an aggregation within the script needs Linux 5.19"),
    ("bpf_for_each_map_elem#", "loops over a map, including len(), need Linux 5.13"),
    ("bpf_override_return#", "`override` needs a kernel built with CONFIG_BPF_KPROBE_OVERRIDE"),
    ("program of this type cannot use helper bpf_override_return", "`override` needs a kernel built with CONFIG_BPF_KPROBE_OVERRIDE"),
    ("bpf_d_path#", "`path` works in some functions only, which the kernel's source lists (btf_allowlist_d_path)"),
    // the same, before Linux 6.2
    ("helper call is not allowed in probe", "`path` works in some functions only, which the kernel's source lists (btf_allowlist_d_path)"),
    ("unknown func bpf_", "this kernel does not support that in programs of this type; a newer one may"),
    ("combined stack size", "use fewer values at a time, or store them in maps"),
];

fn remedy(reason: &str) -> Option<String> {
    REMEDIES.iter().find(|(words, _)| reason.contains(words)).map(|(_, remedy)| (*remedy).to_string())
}

/// `; source text @ script.bt:3`
fn position(line: &str) -> Option<Pos> {
    let (_, place) = line.trim_start().strip_prefix(';')?.rsplit_once(" @ ")?;
    let (file, line) = place.rsplit_once(':')?;
    Some(Pos { file: file.into(), line: line.trim().parse().ok()?, col: 1, ..Pos::default() })
}

/// The verifier's messages when it gives up. They are on the line of the current instruction, after it.
const LIMIT_MESSAGES: [&str; 2] = ["BPF program is too large", "The sequence of "];
/// The message is within this many lines of the end; a register state and the summary may follow it.
const LAST_LINES: usize = 8;

/// The last line that is neither summary, instruction, register state nor source; or the text after an instruction.
fn last_message(trace: &[&str]) -> Option<String> {
    let gives_up = |line: &str| LIMIT_MESSAGES.iter().find_map(|words| Some(line.split_at(line.find(words)?).1.to_owned()));
    let message = || trace.iter().rev().map(|line| line.trim()).find(|line| is_message(line)).map(str::to_owned);
    trace.iter().rev().take(LAST_LINES).find_map(|line| gives_up(line)).or_else(message)
}

fn is_message(line: &str) -> bool {
    const NOISE: [&str; 15] = [
        // after "infinite loop detected"
        "cur state:",
        "old state:",
        "processed ",
        "verification time ",
        "stack depth ",
        "mark_precise",
        "parent ",
        "from ",
        "last_idx ",
        "regs=",
        "-- ",
        "arg#",
        "max_states",
        "func#",
        // a register state
        "frame",
    ];
    // about functions that it checks separately, before and after the one with the reason
    const ACCEPTS: [&str; 2] = ["is global and assumed valid", "is safe for any args"];
    let first = line.split([' ', ':']).next().unwrap_or("");
    let instruction = !first.is_empty() && first.bytes().all(|b| b.is_ascii_digit()) && line[first.len()..].starts_with(':');
    let accepts = line.starts_with("Func#") && ACCEPTS.iter().any(|words| line.contains(words));
    !line.is_empty() && !line.starts_with(';') && !instruction && !accepts && !NOISE.iter().any(|n| line.starts_with(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_form() {
        let log = "reg type unsupported for arg#0 function f\n0: R1=ctx() R10=fp0\n; tracepoint:a:b @ script.bt:1\n0: (bf) r6 = r1                       ; R1=ctx() R6_w=ctx()\n\
            ; @bad = *(arg0 + 8); @ script.bt:3\n11: (79) r1 = *(u64 *)(r7 +16)        ; R1=scalar() R7=ctx()\n12: (0f) r0 += r1\n\
            math between map_value pointer and register with unbounded min value is not allowed\nprocessed 12 insns (limit 1000000) max_states_per_insn 0\n";
        let refused = read("kprobe:x", log, None);
        assert_eq!(refused.pos, Some(Pos { file: "script.bt".into(), line: 3, col: 1, ..Pos::default() }));
        assert_eq!(refused.reason, "math between map_value pointer and register with unbounded min value is not allowed");
        assert_eq!(refused.suggestion, None);
    }

    #[test]
    fn report_form() {
        let log = "0: R1=ctx() R10=fp0\n; begin { @ = 1 } @ stdin:2\n0: (95) exit\nR0 !read_ok\n\nVerification failed: Register Type Safety: Unreadable register\n\n\
            Reason:\n  R0 has never been initialized on this path, so the verifier cannot use it as an input.\n\nAt:\n  insn 0\n        | ^-- error: R0 is not readable\n\n\
            Suggestion:\n  Initialize R0 on every path before this instruction.\n\nprocessed 1 insns (limit 1000000)\n";
        let refused = read("begin", log, None);
        assert_eq!(refused.pos, Some(Pos { file: "stdin".into(), line: 2, col: 1, ..Pos::default() }));
        assert!(refused.reason.starts_with("Register Type Safety: Unreadable register: R0 has never"), "{}", refused.reason);
        assert_eq!(refused.suggestion.as_deref(), Some("Initialize R0 on every path before this instruction."));
    }

    #[test]
    fn remedies_before_suggestions() {
        let log = "0: R1=ctx() R10=fp0\n; kprobe:__x64_sys_getppid { override(77); } @ stdin:1\n7: (85) call bpf_override_return#58\n\
            program of this type cannot use helper bpf_override_return#58\n\nVerification failed: Policy: Operation is not allowed\n\nReason:\n  \
            The helper bpf_override_return#58 is not allowed: this program type does not allow the helper.\n\nSuggestion:\n  \
            Use a helper allowed for this program type, or move the logic to a compatible program type.\n\nprocessed 8 insns (limit 1000000)\n";
        let refused = read("kprobe:__x64_sys_getppid", log, None);
        assert!(refused.reason.starts_with("Policy: Operation is not allowed: The helper"), "{}", refused.reason);
        assert_eq!(refused.suggestion.as_deref(), Some("`override` needs a kernel built with CONFIG_BPF_KPROBE_OVERRIDE"));
    }

    #[test]
    fn states_after_the_words() {
        let log = "; while (1) @ stdin:2\n4: (05) goto pc-1\ninfinite loop detected at insn 4\ncur state: R0=scalar() R10=fp0\n\
            old state: R0=scalar() R10=fp0\nprocessed 9 insns (limit 1000000)\n";
        assert_eq!(read("begin", log, None).reason, "infinite loop detected at insn 4");
    }

    #[test]
    fn functions_by_themselves() {
        let log = "BPF program is too large. Processed 1000001 insn\nFunc#1 ('wake_reader') is global and assumed valid.\n\
            frame5: R0=map_value_or_null(id=17602,map=stacks,ks=8) R10=fp0 cb\nprocessed 1000001 insns\n";
        let refused = read("begin", log, None);
        assert_eq!(refused.reason, "BPF program is too large. Processed 1000001 insn");
        assert!(refused.is_too_large());
    }

    #[test]
    fn words_after_an_instruction() {
        let log = "41824: (b7) r4 = 0                    ; frame2: R4=0 cb\n\
            41825: (1d) if r2 == r3 goto pc+5 BPF program is too large. Processed 1000001 insn\n\
            R0=scalar() R6=ctx() R10=fp0\nprocessed 1000001 insns (limit 1000000)\n";
        let refused = read("begin", log, None);
        assert_eq!(refused.reason, "BPF program is too large. Processed 1000001 insn");
        assert!(refused.is_too_large() && refused.suggestion.is_some());
    }

    #[test]
    fn no_positions_no_words() {
        let refused = read("begin", "; int x\n0: (95) exit\nR0 !read_ok\nprocessed 1 insns\n", None);
        assert!(!refused.misses_bound());
        assert_eq!((refused.pos, refused.reason.as_str()), (None, "R0 !read_ok"));
        let unbounded = read("begin", "9: (85) call 4\nR2 unbounded memory access, use 'var &= const' or 'if (var < const)'\n", None);
        assert!(unbounded.misses_bound());
        assert_eq!(read("begin", "", None).reason, "it gave no reason");
        assert_eq!(read("begin", "", Some("-EINVAL")).reason, "it gave no reason but the error -EINVAL");
        let large = read("begin", "func#0 @0\n", Some("-E2BIG"));
        assert_eq!(large.reason, "the program is too large: the kernel accepts 1000000 instructions");
        assert!(large.is_too_large() && large.suggestion.is_some());
    }
}

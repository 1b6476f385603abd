//! Writes the script of each verb.

use super::VerbArgs;
use super::composed::{ComposedScript, Part, Word};
use super::probe::{Probe, probes};
use crate::diag::plural;
use crate::failure::Failure;

/// A script under construction.
pub(super) struct Script(ComposedScript);

impl Script {
    pub(super) fn new(name: String, words: Vec<Word>) -> Self {
        Self(ComposedScript { name, words, ..ComposedScript::default() })
    }

    pub(super) fn finish(self) -> ComposedScript {
        self.0
    }

    fn push(&mut self, text: &str) {
        self.0.text.push_str(text);
    }

    /// A part of a word, unchanged.
    fn part(&mut self, word: usize, from: usize, to: usize, expression: bool) {
        let Some(text) = self.0.words.get(word).and_then(|w| w.text.get(from..to)) else { return };
        let at = self.0.text.len() as u32;
        self.0.parts.push(Part { at, len: text.len() as u32, word, from: from as u32, expression });
        self.0.text.push_str(text);
    }

    /// A whole word that is an expression. A comma at its end, which separates it from the next, is dropped.
    fn expression(&mut self, word: usize) {
        let Some(text) = self.0.words.get(word).map(|w| w.text.as_str()) else { return };
        let to = text.trim_end().trim_end_matches(',').len();
        self.part(word, 0, to, true);
    }

    /// The word of an option.
    fn option(&self, name: &str) -> Option<usize> {
        self.0.words.iter().position(|w| w.name.strip_prefix("--") == Some(name))
    }

    /// The head of a block: its attach points, and the condition of `--if`.
    fn head(&mut self, points: &[(usize, Probe)], filter: bool) {
        for (i, (word, probe)) in points.iter().enumerate() {
            if i > 0 {
                self.push(",\n");
            }
            self.push(&probe.prefix);
            self.part(*word, probe.from, probe.to, false);
        }
        if let Some(word) = self.option("if").filter(|_| filter) {
            self.push(" /");
            self.expression(word);
            self.push("/");
        }
        self.push(" {\n");
    }

    /// `[KEYS]` of the map, from the fixed keys and those of `--by`; nothing if there are none.
    fn keys(&mut self, default_keys: &[&str]) -> bool {
        let option = self.option("by");
        if default_keys.is_empty() && option.is_none() {
            return false;
        }
        self.push("[");
        self.push(&default_keys.join(", "));
        if let Some(word) = option {
            self.push(if default_keys.is_empty() { "" } else { ", " });
            self.expression(word);
        }
        self.push("]");
        true
    }

    /// Adds settings if the end does not simply print every map.
    fn own_end(&mut self, enabled: bool) {
        if enabled {
            self.push("config = {\n  print_maps_on_exit = false;\n}\n\n");
        }
    }

    /// Adds the periodic output and that at the end.
    fn ends(&mut self, args: &VerbArgs, map: &str, keyed: bool, own_end: bool) -> Result<(), Failure> {
        let top = args.number("top")?;
        if let (Some(n), false) = (top, keyed) {
            let failure = Failure::new(format!("--top {n} needs several values, but there is only one"));
            return Err(failure.help("--by EXPR groups the values, as in `--by comm`"));
        }
        let print = match top {
            Some(n) => format!("print({map}, {n});"),
            None => format!("print({map});"),
        };
        if let Some(every) = args.time("interval")? {
            self.push(&format!("\ninterval:{every} {{\n  time(\"%H:%M:%S\\n\");\n  {print}\n  clear({map});\n}}\n"));
        }
        self.stop(args)?;
        if own_end {
            self.push(&format!("\nend {{\n  {print}\n}}\n"));
        }
        Ok(())
    }

    fn stop(&mut self, args: &VerbArgs) -> Result<(), Failure> {
        if let Some(after) = args.time("duration")? {
            self.push(&format!("\ninterval:{after} {{\n  exit();\n}}\n"));
        }
        Ok(())
    }
}

/// The attach points of the first `words` words.
fn points(args: &VerbArgs, words: usize) -> Vec<(usize, Probe)> {
    let words = args.words.iter().enumerate().take(words);
    words.flat_map(|(i, word)| probes(word, args.category).into_iter().map(move |p| (i, p))).collect()
}

fn several(points: &[(usize, Probe)]) -> bool {
    points.len() > 1 || points.iter().any(|(_, p)| p.is_pattern())
}

pub(super) fn count(args: &VerbArgs, script: &mut Script) -> Result<(), Failure> {
    let points = points(args, usize::MAX);
    let own_end = args.has("top");
    script.own_end(own_end);
    script.head(&points, true);
    script.push("  ");
    // columns begin at seconds of UTC, from which International Atomic Time differs by whole seconds
    let (map, counted) = match args.has("subsecond") {
        true => ("@ms_of_second", "heatmap(nsecs(sw_tai) % 1s / 1ms, 1s, 60, 0, 1000, 20)"),
        false => ("@", "count()"),
    };
    script.push(map);
    let each = several(&points) && !args.has("by");
    let keyed = script.keys(if each { &["probe"] } else { &[] });
    script.push(&format!(" = {counted};\n}}\n"));
    script.ends(args, map, keyed, own_end)
}

pub(super) fn hist(args: &VerbArgs, script: &mut Script) -> Result<(), Failure> {
    let own_end = args.has("top");
    script.own_end(own_end);
    script.head(&points(args, 1), true);
    script.push("  @");
    let keyed = script.keys(&[]);
    script.push(&format!(" = {}(", distribution(args)));
    script.expression(1);
    script.push(");\n}\n");
    script.ends(args, "@", keyed, own_end)
}

fn distribution(args: &VerbArgs) -> &'static str {
    if args.has("percentiles") { "percentiles" } else { "hist" }
}

pub(super) fn stack(args: &VerbArgs, script: &mut Script) -> Result<(), Failure> {
    let points = points(args, 1);
    let (of_program, samples) = (points.iter().any(|(_, p)| p.runs_in_program()), points.iter().any(|(_, p)| p.samples()));
    let asks = args.has("kernel") || args.has("user");
    let kernel = if asks { args.has("kernel") } else { samples || !of_program };
    let user = if asks { args.has("user") } else { samples || of_program };
    let depth = args.number("depth")?.map(|n| format!("({n})")).unwrap_or_default();
    let own_end = args.has("top");
    script.own_end(own_end);
    script.head(&points, true);
    script.push("  @");
    let stacks = [(kernel, "kstack"), (user, "ustack")];
    let keys: Vec<String> = stacks.iter().filter(|(is, _)| *is).map(|(_, name)| format!("{name}{depth}")).collect();
    let keyed = script.keys(&keys.iter().map(String::as_str).collect::<Vec<_>>());
    script.push(" = count();\n}\n");
    script.ends(args, "@", keyed, own_end)
}

pub(super) fn trace(args: &VerbArgs, script: &mut Script) -> Result<(), Failure> {
    let points = points(args, 1);
    let format = args.words.get(1).filter(|w| w.trim_start().starts_with('"') || w.contains('%'));
    let each = several(&points) || args.words.len() == 1;
    let column = |is: bool, text: &'static str| if is { text } else { "" };
    if format.is_some() || args.words.len() == 1 {
        let (probe, message) = (column(each, "  PROBE"), column(format.is_some(), "  MESSAGE"));
        script
            .push(&format!("begin {{\n  printf(\"%-8s %7s %7s %-15s{probe}{message}\\n\", \"TIME\", \"PID\", \"TID\", \"COMM\");\n}}\n\n"));
    }
    script.head(&points, true);
    let Some(format) = format else {
        return values(args, each, script);
    };
    script.push(&format!("  printf(\"%s %7d %7d %-15s  {}", column(each, "%s  ")));
    let more = literal(format, args.words.len() > 2, script);
    if more.is_none() {
        agree(format, args.words.len().saturating_sub(2))?;
    }
    script.push(&format!("\\n\", strftime(\"%H:%M:%S\", nsecs), pid, tid, comm{}", column(each, ", probe")));
    if let Some((from, to)) = more {
        script.push(", ");
        script.part(1, from, to, true);
    }
    for word in 2..args.words.len() {
        script.push(", ");
        script.expression(word);
    }
    script.push(");\n}\n");
    script.stop(args)
}

/// Checks a format against its values here, because an error in the script would count the values that the script adds.
fn agree(format: &str, values: usize) -> Result<(), Failure> {
    let mut conversions = 0;
    let mut chars = format.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('%', Some('%')) => _ = chars.next(),
            // the width is in a value, or the checker determines the meaning
            ('%', Some('*') | None) => return Ok(()),
            ('%', Some(_)) => conversions += 1,
            _ => {}
        }
    }
    let (left, right) = (counted(conversions, "conversion"), counted(values, "EXPR"));
    if conversions == values {
        return Ok(());
    }
    Err(Failure::new(format!("rbt trace: FORMAT `{format}` has {left}, and {right} {} given", if values < 2 { "is" } else { "are" }))
        .help("each conversion such as %d, %s or %x takes one value, and `%s` prints any value"))
}

fn counted(n: usize, what: &str) -> String {
    match n {
        0 => format!("no {what}"),
        n => plural(n, what, &format!("{what}s")),
    }
}

/// Prints values unchanged in a line, or only the probe.
fn values(args: &VerbArgs, each: bool, script: &mut Script) -> Result<(), Failure> {
    if args.words.len() == 1 {
        script.push("  printf(\"%s %7d %7d %-15s  %s\\n\", strftime(\"%H:%M:%S\", nsecs), pid, tid, comm, probe);\n}\n");
        return script.stop(args);
    }
    script.push(&format!("  print((strftime(\"%H:%M:%S\", nsecs), pid, tid, comm{}", if each { ", probe" } else { "" }));
    for word in 1..args.words.len() {
        script.push(", ");
        script.expression(word);
    }
    script.push("));\n}\n");
    script.stop(args)
}

/// The contents of a format's literal, without a final newline, which the script adds. The result includes the rest of the
/// word after the literal, in bytes. A comma may separate it from the next words.
fn literal(word: &str, followed: bool, script: &mut Script) -> Option<(usize, usize)> {
    let bare = |text: &str| text.strip_suffix("\\n").unwrap_or(text).len();
    let quoted = word.trim_start();
    let Some(inner) = quoted.strip_prefix('"') else {
        let text = word.trim_end();
        let text = if followed { text.strip_suffix(',').unwrap_or(text) } else { text };
        let to = bare(text);
        if word.contains(['"', '\n']) {
            // the bytes differ from those of the word
            let text = word.get(..to).unwrap_or("").replace('"', "\\\"").replace('\n', "\\n");
            script.push(&text);
        } else {
            script.part(1, 0, to, false);
        }
        return None;
    };
    let from = word.len() - inner.len();
    let mut escaped = false;
    let close = inner.find(|c: char| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    let close = close.unwrap_or(inner.len());
    script.part(1, from, from + bare(inner.get(..close).unwrap_or("")), false);
    let after = inner.get(close + 1..).unwrap_or("");
    let rest = after.trim_start().trim_start_matches(',').trim_start();
    let (from, to) = (word.len() - rest.len(), word.len() - rest.len() + rest.trim_end().trim_end_matches(',').len());
    (from < to).then_some((from, to))
}

/// The divisor of the kernel's clock.
const UNITS: &[(&str, &str)] = &[("ns", ""), ("us", " / 1000"), ("ms", " / 1000000")];

pub(super) fn latency(args: &VerbArgs, script: &mut Script) -> Result<(), Failure> {
    let unit = args.options.get("unit").map_or("us", String::as_str);
    let Some((unit, divided)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(Failure::new(format!("--unit {unit}: there is no such unit")).help("one of ns, us, ms"));
    };
    let starts = points(args, 1);
    let mut ends = Vec::new();
    for (word, start) in &starts {
        ends.push((*word, start.end("latency")?));
    }
    script.own_end(true);
    script.head(&starts, false);
    // a nested call has its own slot
    script.push("  @depth[tid]++;\n");
    match script.option("if") {
        Some(word) => {
            script.push("  if (");
            script.expression(word);
            script.push(") {\n    @start[tid, @depth[tid]] = nsecs;\n  }\n}\n\n");
        }
        None => script.push("  @start[tid, @depth[tid]] = nsecs;\n}\n\n"),
    }
    script.head(&ends, false);
    let time = if divided.is_empty() { "$now - $start".into() } else { format!("($now - $start){divided}") };
    script.push("  $now = nsecs;\n  $depth = @depth[tid];\n  $start = @start[tid, $depth];\n");
    script.push(&format!("  if ($start != 0) {{\n    @{unit}"));
    let each = several(&starts) && !args.has("by");
    let keyed = script.keys(if each { &["probe"] } else { &[] });
    script.push(&format!(" = {}({time});\n    delete(@start, (tid, $depth));\n  }}\n", distribution(args)));
    script.push("  if ($depth > 1) {\n    @depth[tid] = $depth - 1;\n  } else {\n    _ = delete(@depth, tid);\n  }\n}\n");
    script.ends(args, &format!("@{unit}"), keyed, true)
}

const SCHEDULING: &str = "sched";

type WriteFn = fn(&mut Script);

/// The words of `rbt timeline` that are not probes, and their scripts.
const TIMELINES: &[(&str, WriteFn)] = &[("syscalls", system_calls), (SCHEDULING, scheduling)];

pub(super) fn timeline(args: &VerbArgs, script: &mut Script) -> Result<(), Failure> {
    let (mut calls, mut filtered) = (false, false);
    for (word, text) in args.words.iter().enumerate() {
        // the spans of a second probe would nest in those of the first
        if args.words.iter().take(word).any(|before| before == text) {
            continue;
        }
        calls |= text != SCHEDULING;
        if let Some((_, write)) = TIMELINES.iter().find(|(name, _)| name == text) {
            if args.has("if") && text == SCHEDULING {
                return Err(Failure::new("rbt timeline: --if does not apply to sched, which shows all threads")
                    .help("filter in the viewer, or leave sched out"));
            }
            write(script);
            continue;
        }
        for start in probes(text, args.category) {
            let end = start.end("timeline")?;
            // a system call is called like its tracepoint, and has no function
            let name = match start.rest.rsplit_once("sys_enter_") {
                Some((_, call)) if start.kind == "tracepoint" && start.is_pattern() => format!("({call:?}, args.__syscall_nr)"),
                Some((_, call)) if start.kind == "tracepoint" => format!("{call:?}"),
                _ => "func".into(),
            };
            script.head(&[(word, start)], true);
            // the end of a call that --if leaves out is not that of a span
            let (begins, ends) = match args.has("if") {
                true => ("  @inside[tid]++;\n", INSIDE),
                false => ("", ""),
            };
            script.push(&format!("{begins}  span({name});\n}}\n\n"));
            script.head(&[(word, end)], false);
            script.push(&format!("{ends}  span_end({name});\n}}\n\n"));
            filtered |= args.has("if");
        }
    }
    if calls {
        script.push(THREAD_END);
    }
    if filtered {
        script.push("tracepoint:sched:sched_process_exit {\n  _ = delete(@inside, tid);\n}\n\nend {\n  clear(@inside);\n}\n\n");
    }
    script.stop(args)
}

/// Leaves a call that the script did not begin to show.
const INSIDE: &str = "  if (@inside[tid] == 0) {
    return;
  }
  if (@inside[tid] > 1) {
    @inside[tid]--;
  } else {
    delete(@inside, tid);
  }
";

/// The calls in which a thread ends do not return: exit(2), and any call of a thread that is killed. A thread that calls execve(2)
/// gets the ID of the process's first thread.
const THREAD_END: &str = "\
tracepoint:sched:sched_process_exit {
  span_end();
}

tracepoint:sched:sched_process_exec /args.old_pid != args.pid/ {
  span_end_on(args.old_pid);
}

";

/// The script knows which threads are in a call that is shown. Other calls end, too: those that began before the run or that `--if`
/// leaves out, and the call of a parent, from which a new thread returns.
fn system_calls(script: &mut Script) {
    script.push("let @called = hash(65536);\n\ntracepoint:raw_syscalls:sys_enter");
    if let Some(word) = script.option("if") {
        script.push(" /");
        script.expression(word);
        script.push("/");
    }
    // when rt_sigreturn returns, the number of the call is lost
    script.push(
        " {
  @called[tid] = true;
  span(syscall_name(args.id));
}

tracepoint:raw_syscalls:sys_exit /has_key(@called, tid)/ {
  delete(@called, tid);
  if (args.id < 0) {
    span_end(\"rt_sigreturn\");
  } else {
    span_end(syscall_name(args.id), args.ret);
  }
}

tracepoint:sched:sched_process_exit {
  _ = delete(@called, tid);
}

end {
  clear(@called);
}

",
    );
}

/// Shows the states on tracks below those of the threads, because states do not begin and end within function calls. The script knows the state of each thread: a thread
/// may be woken before it sleeps, and the kernel runs no program at a switch within bpf(2) (`bpf_prog_active` of kernel/trace/bpf_trace.c).
fn scheduling(script: &mut Script) {
    script.0.all_threads = true;
    script.push(
        "// @state: of each thread, 1 running, 2 runnable, 3 sleeping; @on: the thread on each CPU, and its name
macro end_state($tid) {
  if (@state[$tid] == 1) {
    span_end_on(($tid, \"scheduling\"), \"running\");
  } else if (@state[$tid] == 2) {
    span_end_on(($tid, \"scheduling\"), \"runnable\");
  } else if (@state[$tid] == 3) {
    span_end_on(($tid, \"scheduling\"), \"sleeping\");
  }
}

tracepoint:sched:sched_switch {
  $prev = args.prev_pid;
  if (has_key(@on, cpu)) {
    $on = @on[cpu];
    if ($on.0 == $prev) {
      span_end_on((\"CPU\", cpu), $on.1);
    } else {
      // a switch was not seen
      span_end_on((\"CPU\", cpu));
    }
    delete(@on, cpu);
  }
  if ($prev != 0) {
    end_state($prev);
    // 16 and 32 are EXIT_DEAD and EXIT_ZOMBIE; 0 is TASK_RUNNING, and 256 marks a preempted task
    if ((args.prev_state & 48) != 0) {
      delete(@state, $prev);
    } else if ((args.prev_state & 255) == 0) {
      span_on(($prev, \"scheduling\"), \"runnable\", args.prev_comm);
      @state[$prev] = 2;
    } else {
      span_on(($prev, \"scheduling\"), \"sleeping\", args.prev_comm);
      @state[$prev] = 3;
    }
  }
  $next = args.next_pid;
  if ($next != 0) {
    end_state($next);
    span_on(($next, \"scheduling\"), \"running\", args.next_comm, cpu);
    @state[$next] = 1;
    $tid = $next;
    span_on((\"CPU\", cpu), args.next_comm, $tid);
    @on[cpu] = ($next, args.next_comm);
  }
}

tracepoint:sched:sched_waking {
  if (@state[args.pid] == 3) {
    $waker = comm;
    span_end_on((args.pid, \"scheduling\"), \"sleeping\", $waker, tid);
    span_on((args.pid, \"scheduling\"), \"runnable\", args.comm);
    @state[args.pid] = 2;
  }
}

end {
  clear(@state);
  clear(@on);
}

",
    );
}

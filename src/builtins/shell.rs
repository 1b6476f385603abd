//! Files and commands in user space.

use std::cell::Cell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::print::{FORMAT, formatter};
use super::{Accepts, Arg, Builtin, CallSite, Codegen, Event, Param, Returns};
use crate::diag::Diagnostic;
use crate::emit::{Builder, Cmp, Operand, Repr};
use crate::failure::reason;
use crate::host::{Host, Reader};
use crate::input::{self, PartialRead};
use crate::output::{Output, ProblemKind};
use crate::probes::ContextFeatures;
use crate::types::{Int, Type};
use crate::value::Value;

const U64: Int = Int { bytes: 8, signed: false };
/// Maximum number of strings in `join`, and maximum size of each in bytes (bpftrace's limits).
const JOINED: u64 = 16;
const JOINED_BYTES: u32 = 1024;
/// How long rbt waits for a file that has no data and no end, and for a command after the run has ended.
const TIMEOUT: Duration = Duration::from_secs(1);
/// How long rbt keeps starting pending commands after the run has ended.
const PENDING_COMMANDS_TIMEOUT: Duration = Duration::from_millis(100);

pub(super) const ROWS: &[Builtin] = &[
    Builtin {
        name: "cat",
        params: FORMAT,
        returns: Returns::Always(Type::Void),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Event(&Event {
            ends_probe: false,
            capture: None,
            prepare: |spec| {
                let mut path = formatter(spec, Reader::Program)?;
                let (pos, line) = (spec.pos.clone(), spec.line.clone());
                Ok(Box::new(move |args, host| {
                    let path = path(args, host);
                    let problem = |host: &mut dyn Host, why: &str| {
                        let msg = format!("cannot read {}: {why}", String::from_utf8_lossy(&path));
                        host.say(Output::problem(ProblemKind::Command, msg, &pos, &line));
                    };
                    match head(&path, host.settings().max_cat_bytes, &|| host.ending()) {
                        Ok(part) => {
                            host.say(Output::Text { kind: "cat", data: lines(&part.bytes, host), newline: false });
                            if part.stopped_early {
                                problem(host, &format!("it did not end within {} s; the rest is not read", TIMEOUT.as_secs()));
                            }
                        }
                        Err(e) => problem(host, &reason(&e)),
                    }
                    Ok(())
                }))
            },
        }),
        doc: "Prints the start of a file, at most max_cat_bytes bytes. The path is a printf() format with its arguments. rbt reads a file without an end, such as a FIFO, for one second.",
        example: "begin { cat(\"/proc/loadavg\"); }",
    },
    Builtin {
        name: "system",
        params: FORMAT,
        returns: Returns::Always(Type::Void),
        needs: ContextFeatures::NONE,
        risky: true,
        codegen: Codegen::Event(&Event {
            ends_probe: false,
            capture: None,
            prepare: |spec| {
                let mut command = formatter(spec, Reader::Program)?;
                let (pos, line) = (spec.pos.clone(), spec.line.clone());
                let (mut told_to_end, mut said) = (None::<Instant>, false);
                Ok(Box::new(move |args, host| {
                    let command = command(args, host);
                    let problem = |host: &mut dyn Host, what: &str, why: &str| {
                        let msg = format!("{what} {}: {why}", String::from_utf8_lossy(&command));
                        host.say(Output::problem(ProblemKind::Command, msg, &pos, &line));
                    };
                    // a probe may request far more commands than can run
                    if host.ending() > 0
                        && !host.in_end()
                        && told_to_end.get_or_insert_with(Instant::now).elapsed() > PENDING_COMMANDS_TIMEOUT
                    {
                        if !std::mem::replace(&mut said, true) {
                            problem(host, "did not run", "the run is ending, and no later command runs either");
                        }
                        return Ok(());
                    }
                    match run(&command, &|| host.ending()) {
                        Ok((part, failed)) => {
                            let whole = part.bytes.len() as u64;
                            if whole > 0 || failed.is_none() {
                                host.say(Output::Text { kind: "syscall", data: part.bytes, newline: true });
                            }
                            if whole == input::TEXT {
                                problem(host, "truncated the output of", "it has more than 16 megabytes");
                            }
                            if part.stopped_early {
                                problem(host, "no longer waiting for", "the run is ending");
                            }
                            if let Some(status) = failed.filter(|_| whole < input::TEXT) {
                                problem(host, "command failed:", &status.to_string());
                            }
                        }
                        Err(e) => problem(host, "cannot run", &reason(&e)),
                    }
                    Ok(())
                }))
            },
        }),
        doc: "Runs a shell command, waits for it, and prints its output. The command is a printf() format with its arguments. When the run ends, rbt starts pending commands for another 100 ms. Commands from `end` probes always run.",
        example: "begin { system(\"uname -r\"); }",
    },
    Builtin {
        name: "join",
        params: &[Param::new("strings", Accepts::Addr), Param::optional("separator", Accepts::LitStr)],
        returns: Returns::By(|f| match f.args.first().map(|a| &a.ty) {
            Some(Type::Ptr(..) | Type::Int(_)) => Ok(Type::Void),
            Some(ty) => {
                Err(Diagnostic::error("type-mismatch", f.span(0), format!("{} takes a pointer to pointers, but this is {ty}", f.name)))
            }
            None => Ok(Type::Void),
        }),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Event(&Event {
            ends_probe: false,
            capture: Some(capture_strings),
            prepare: |spec| {
                let separator = spec.text(1).unwrap_or(b" ").to_vec();
                Ok(Box::new(move |args, host| {
                    let data = match args.first() {
                        Some(Arg::Value(Value::Bytes(bytes))) => joined(bytes, &separator, &|text| escaped(text, host)),
                        _ => Vec::new(),
                    };
                    host.say(Output::Text { kind: "join", data, newline: true });
                    Ok(())
                }))
            },
        }),
        doc: "Prints a NULL-terminated array of strings, such as argv, with a separator between them (a space by default). It prints at most 16 strings of 1024 bytes.",
        example: "tracepoint:syscalls:sys_enter_execve { join(args.argv); }",
    },
];

/// The strings in order, each with its NUL, as one buffer.
fn capture_strings<'c>(e: &mut Builder<'_, 'c>, _: &CallSite, args: &[Operand<'c>]) -> Vec<Operand<'c>> {
    let Some(array) = args.first() else { return Vec::new() };
    let (addr, space) = e.address(array);
    let cap = JOINED as u32 * JOINED_BYTES;
    // one more than fits: to the verifier, each string may begin anywhere up to the end
    let to = e.alloc(4 + cap + JOINED_BYTES);
    let bytes = e.offset(to, 4);
    let used = e.scalar_slot();
    let zero = e.int(0);
    e.store(used, 0, 8, zero);
    e.count(JOINED, |e, i| {
        let at = e.add(addr, e.mul(i, e.int(8)));
        let text = e.read_int(space, at, U64);
        let end = e.cmp(Cmp::Eq, text, e.int(0));
        e.if_(end, |e| e.break_());
        let so_far = e.load(used, 0, U64);
        let so_far = e.opaque(so_far);
        let so_far = e.and(so_far, e.int(u64::from(cap) - 1));
        let place = e.offset_by(bytes, so_far);
        let n = e.read_str(space, place, JOINED_BYTES, text);
        let failed = e.cmp(Cmp::Sle, n, e.int(0));
        e.if_(failed, |e| e.break_());
        let next = e.add(so_far, n);
        e.store(used, 0, 8, next);
    });
    let length = e.load(used, 0, U64);
    let length = e.at_most(length, cap.into());
    e.store(to, 0, 4, length);
    let sent_size = e.add(length, e.int(4));
    vec![Operand { ty: Type::Buf(cap), repr: Repr::Mem(to, Some(sent_size)) }]
}

/// Joins strings that each end in NUL, with a separator between them, up to the first empty one.
fn joined(bytes: &[u8], separator: &[u8], decode: &dyn Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let parts = bytes.split(|b| *b == 0).take_while(|part| !part.is_empty());
    let parts: Vec<Vec<u8>> = parts.map(decode).collect();
    parts.join(separator)
}

/// Text from other programs, escaped for the reader of the output.
fn escaped(text: &[u8], host: &dyn Host) -> Vec<u8> {
    let mut to = Vec::with_capacity(text.len());
    host.text(&Value::Str { bytes: text.to_vec(), cut: false }, Reader::Output, &mut to);
    to
}

/// The same for a file: line breaks and tabs in it stay.
fn lines(text: &[u8], host: &dyn Host) -> Vec<u8> {
    let mut to = Vec::with_capacity(text.len());
    for part in text.split_inclusive(|b| matches!(b, b'\n' | b'\t')) {
        match part.split_last() {
            Some((end @ (b'\n' | b'\t'), before)) => {
                to.extend(escaped(before, host));
                to.push(*end);
            }
            _ => to.extend(escaped(part, host)),
        }
    }
    to
}

/// The start of a file, or the available part of one without an end.
fn head(path: &[u8], max_bytes: u64, ending: &dyn Fn() -> u32) -> std::io::Result<PartialRead> {
    let (since, before) = (Instant::now(), ending());
    let go_on = || since.elapsed() < TIMEOUT && ending() <= before;
    input::read_while(Path::new(OsStr::from_bytes(path)), max_bytes.min(input::LIST), &go_on)
}

/// Standard output and standard error of a shell command, in order, and its status if it failed. If the run ends while the
/// command runs, rbt stops waiting for it after a moment.
fn run(command: &[u8], ending: &dyn Fn() -> u32) -> std::io::Result<(PartialRead, Option<ExitStatus>)> {
    let before = ending();
    let interrupted_at: Cell<Option<Instant>> = Cell::new(None);
    let go_on = || {
        if interrupted_at.get().is_none() && ending() > before {
            interrupted_at.set(Some(Instant::now()));
        }
        interrupted_at.get().is_none_or(|since| since.elapsed() < TIMEOUT)
    };
    let (mut reader, writer) = std::io::pipe()?;
    let mut child = {
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(OsStr::from_bytes(command));
        shell.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        shell.spawn()?
        // this drops `shell` and closes its ends of the pipe, or reading would never end
    };
    let part = input::read_open_while(&mut reader, input::TEXT, true, &go_on)?;
    drop(reader);
    if part.stopped_early {
        return Ok((part, None));
    }
    // one that has closed its output may still run
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((part, Some(status).filter(|s| !s.success())));
        }
        if !go_on() {
            return Ok((PartialRead { stopped_early: true, ..part }, None));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_joined() {
        let decode = |text: &[u8]| text.to_vec();
        assert_eq!(joined(b"ls\0-l\0/tmp\0", b" ", &decode), b"ls -l /tmp");
        assert_eq!(joined(b"a\0b\0\0c\0", b", ", &decode), b"a, b");
        assert_eq!(joined(b"", b" ", &decode), b"");
    }

    #[test]
    fn captures_the_output_of_commands() {
        let never = || 0;
        assert_eq!(run(b"echo out; echo err >&2; printf '%s' $((1 + 1))", &never).unwrap().0.bytes, b"out\nerr\n2");
        let endless = run(b"yes", &never).unwrap().0;
        assert_eq!((endless.bytes.len() as u64, endless.stopped_early), (input::TEXT, false));
    }

    #[test]
    fn ending_runs_do_not_wait_for_commands() {
        let calls = Cell::new(0);
        // called before it starts, and then whenever nothing arrives
        let part = run(b"echo one; exec sleep 30", &|| u32::from(calls.replace(calls.get() + 1) > 3)).unwrap().0;
        assert_eq!(part, PartialRead { bytes: b"one\n".to_vec(), stopped_early: true });
        // in `end`, the end has been requested before
        assert!(!run(b"sleep 0.1", &|| 1).unwrap().0.stopped_early);
    }

    #[test]
    fn truncates_files() {
        let head = |path: &[u8], max| head(path, max, &|| 0);
        assert_eq!(head(b"/proc/self/comm", 3).unwrap().bytes.len(), 3);
        assert!(head(b"/nonexistent", 3).is_err());
        assert_eq!(head(b"/dev/zero", u64::MAX).unwrap().bytes.len() as u64, input::LIST);
    }
}

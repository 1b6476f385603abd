//! Output of a script.

use super::{Accepts, Arg, Builtin, CallInfo, CallSite, Codegen, Event, EventSpec, Handler, InKernel, MapAction, Param, Returns};
use crate::diag::Diagnostic;
use crate::emit::{BasicMetadataValue, Builder, Helper, IntValue, Operand};
use crate::host::{Host, Reader};
use crate::output::{Output, ProblemKind};
use crate::probes::ContextFeatures;
use crate::render::format::{self, Conversion, ConversionSpec, Piece};
use crate::types::{Int, Type};
use crate::value::{MapView, ShowOptions, Unit, Value};

/// A format and its arguments.
pub(super) const FORMAT: &[Param] = &[Param::new("format", Accepts::Format), Param::rest("arguments", Accepts::Printable)];

pub(super) const ROWS: &[Builtin] = &[
    Builtin {
        name: "printf",
        params: FORMAT,
        returns: Returns::Always(Type::Void),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Event(&Event {
            ends_probe: false,
            capture: None,
            prepare: |spec| {
                let mut text = formatter(spec, Reader::Output)?;
                Ok(Box::new(move |args, host| {
                    let data = text(args, host);
                    host.say(Output::Text { kind: "printf", data, newline: false });
                    Ok(())
                }))
            },
        }),
        doc: "Prints formatted values, as in C. %s prints any value as print() does.",
        example: "tracepoint:syscalls:sys_enter_openat { printf(\"%-16s %d %s\\n\", comm, pid, str(args.filename)); }",
    },
    Builtin {
        name: "errorf",
        params: FORMAT,
        returns: Returns::Always(Type::Void),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Event(&Event { ends_probe: false, capture: None, prepare: |spec| problem(spec, ProblemKind::Errorf) }),
        doc: "Prints an error message, with its location in the script, to standard error.",
        example: "begin { if (ncpus == 0) { errorf(\"%d processors\", ncpus); } }",
    },
    Builtin {
        name: "warnf",
        params: FORMAT,
        returns: Returns::Always(Type::Void),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Event(&Event { ends_probe: false, capture: None, prepare: |spec| problem(spec, ProblemKind::Warnf) }),
        doc: "Prints a warning, with its location in the script, to standard error. --no-warnings suppresses it.",
        example: "begin { if (ncpus > 512) { warnf(\"%d processors\", ncpus); } }",
    },
    Builtin {
        name: "debugf",
        params: FORMAT,
        returns: Returns::By(debug_format),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Effect(|e, u, args| {
            let mut format = percents_doubled(u.text(0).unwrap_or_default());
            format.push(0);
            let (text, size) = (e.text(&format), e.int(format.len() as u64));
            let mut given: Vec<BasicMetadataValue> = vec![text.into(), size.into()];
            for a in args.iter().skip(1) {
                let value = if a.ty.is_scalar() {
                    e.scalar(a)
                } else {
                    {
                        let at = e.in_memory(a);
                        e.addr(at)
                    }
                };
                given.push(value.into());
            }
            e.call(Helper::TracePrintk, &given);
            Operand::void()
        }),
        doc: "Writes a message to the kernel's trace buffer (trace_pipe in tracefs) immediately. It takes at most three values, in the formats %d, %u, %x, %p and %s.",
        example: "begin { debugf(\"in %s\", comm); }",
    },
    Builtin {
        name: "print",
        params: &[
            Param::new("value", Accepts::MapOrValue),
            Param::optional("top", Accepts::Literal),
            Param::optional("div", Accepts::Literal),
            Param::rest("layout", Accepts::LitStr),
        ],
        returns: Returns::By(|f| {
            let whole = f.args.first().is_some_and(|a| a.map.is_some());
            if f.args.len() > 1 && !whole {
                return Err(Diagnostic::error("arity", f.span(1), "`top`, `div` and a layout apply to whole maps only"));
            }
            if f.int(2).is_some_and(|div| div > 1) && f.args.first().is_some_and(|a| shows_stats(&a.ty)) {
                f.warn(Diagnostic::warning("ignored", f.span(2), "`div` is ignored for stats()"));
            }
            let mut words = false;
            for i in 1..f.args.len() {
                match (f.int(i), f.text(i)) {
                    (Some(_), _) if words => {
                        return Err(Diagnostic::error("type-mismatch", f.span(i), "`top` and `div` must precede the layout"));
                    }
                    (Some(n), _) if i == 1 && n < 0 => {
                        return Err(Diagnostic::error("out-of-range", f.span(1), "`top` cannot be negative"));
                    }
                    (Some(n), _) if i == 2 && n < 0 => {
                        return Err(Diagnostic::error("out-of-range", f.span(2), "`div` cannot be negative"));
                    }
                    (_, Some(word)) => {
                        words = true;
                        let word = String::from_utf8_lossy(word);
                        if !FIELDS.contains(&&*word) && layout(&word).is_none() {
                            let d = Diagnostic::error(
                                "invalid-keyword",
                                f.span(i),
                                format!("`{word}` is neither a layout nor a field to sort by"),
                            );
                            let known: Vec<_> = LAYOUTS.iter().map(|l| l.0).chain(FIELDS.iter().copied()).collect();
                            return Err(d.help(format!("it takes {}", known.join(", "))));
                        }
                    }
                    (_, _) => {}
                }
            }
            Ok(Type::Void)
        }),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Event(&Event { ends_probe: false, capture: None, prepare: print }),
        doc: "Prints a value or a map. `top` limits a map to its greatest entries, and `div` divides its integers (0 leaves them unchanged). Further arguments are strings that choose the layout: a field to sort by, \"duration\" or \"size\" for units, or \"table\".",
        example: "tracepoint:syscalls:sys_enter_openat { @[comm] = count(); } interval:s:1 { print(@, 10); clear(@); }",
    },
];

pub(super) const MAP_ACTIONS: &[(&str, MapAction)] = &[("print", MapAction::Shown)];

pub(super) const IN_KERNEL: &[(&str, InKernel)] = &[("printf", InKernel { check: sequence_format, emit: sequence_printf })];

/// `MAX_BPRINTF_VARARGS` of include/linux/bpf.h.
const MAX_IN_KERNEL: usize = 12;

/// Checks that `bpf_seq_printf` supports the format: numbers and strings.
fn sequence_format(f: &CallInfo) -> Result<(), Diagnostic> {
    let error = |i: usize, message: String| {
        Err(Diagnostic::error("format", f.span(i), message)
            .help("in a pinned iterator, the kernel formats the output: it supports %d, %u, %x, %X, %p and %s, with a width"))
    };
    if f.args.len() > MAX_IN_KERNEL + 1 {
        return error(MAX_IN_KERNEL + 1, format!("{} in a pinned iterator prints at most {MAX_IN_KERNEL} values", f.name));
    }
    let pieces = format::parse(f.text(0).unwrap_or_default()).map_err(|e| Diagnostic::error("format", f.span(0), e.message))?;
    for (i, spec) in format::specs(&pieces).enumerate() {
        let Some(arg) = f.args.get(i + 1) else { break };
        let number = sequence_number(spec).is_some() && arg.ty.is_scalar();
        let text = spec.conversion == Conversion::Text && matches!(arg.ty, Type::Str(_));
        if arg.ty != Type::Void && (!(number || text) || spec.alt || spec.precision.is_some()) {
            return error(i + 1, format!("`{}` in a pinned iterator does not print {}", spec.source, arg.ty));
        }
    }
    Ok(())
}

/// A number's conversion in the kernel's syntax, for all 64 bits, because numbers are extended to 64 bits.
fn sequence_number(spec: &ConversionSpec) -> Option<&'static str> {
    Some(match spec.conversion {
        Conversion::Signed => "lld",
        Conversion::Unsigned => "llu",
        Conversion::Hex => "llx",
        Conversion::UpperHex => "llX",
        Conversion::Pointer => "llx",
        Conversion::Octal
        | Conversion::Char
        | Conversion::Text
        | Conversion::Escaped
        | Conversion::EscapedAll
        | Conversion::HexBytes
        | Conversion::Gfp
        | Conversion::Fixed
        | Conversion::Duration
        | Conversion::Size => return None,
    })
}

/// printf by the kernel (kernel/bpf/helpers.c, `bpf_bprintf_prepare`): each value is a word, and that of a string is
/// its address.
fn sequence_printf<'c>(e: &mut Builder<'_, 'c>, sequence: IntValue<'c>, u: &CallSite, args: &[Operand<'c>]) {
    let pieces = format::parse(u.text(0).unwrap_or_default()).unwrap_or_default();
    let mut text = Vec::new();
    let words = e.alloc(8 * args.len() as u32);
    let mut values = args.iter().skip(1);
    let mut given = 0u32;
    for piece in &pieces {
        let spec = match piece {
            Piece::Text(bytes) => {
                double(bytes, &mut text);
                continue;
            }
            Piece::ConversionSpec(spec) => spec,
        };
        let Some(value) = values.next() else { break };
        if spec.conversion == Conversion::Pointer {
            text.extend_from_slice(b"0x");
        }
        text.push(b'%');
        for (set, flag) in [(spec.left_aligned, b'-'), (spec.plus, b'+'), (spec.space, b' '), (spec.zero, b'0')] {
            text.extend(set.then_some(flag));
        }
        if spec.width > 0 {
            text.extend_from_slice(spec.width.to_string().as_bytes());
        }
        text.extend_from_slice(sequence_number(spec).unwrap_or("s").as_bytes());
        let word = if matches!(value.ty, Type::Str(_)) {
            let ptr = e.in_memory(value);
            e.addr(ptr)
        } else {
            let v = e.scalar(value);
            e.fit(v, Int { bytes: (spec.bits / 8) as u8, signed: spec.conversion == Conversion::Signed })
        };
        let words = e.rematerialize(words);
        e.store(words, given * 8, 8, word);
        given += 1;
    }
    text.push(0);
    let (format, size) = (e.text(&text), e.int(text.len() as u64));
    let (words, bytes) = (e.rematerialize(words), e.int(u64::from(given) * 8));
    e.call(Helper::SeqPrintf, &[sequence.into(), format.into(), size.into(), words.into(), bytes.into()]);
}

/// A format for the kernel, which rejects a percent sign that starts no conversion.
fn percents_doubled(format: &[u8]) -> Vec<u8> {
    let pieces = format::parse(format).unwrap_or_default();
    let mut to = Vec::new();
    for piece in &pieces {
        match piece {
            Piece::Text(bytes) => double(bytes, &mut to),
            Piece::ConversionSpec(spec) => to.extend_from_slice(spec.source.as_bytes()),
        }
    }
    to
}

fn double(text: &[u8], to: &mut Vec<u8>) {
    text.iter().for_each(|b| to.extend_from_slice(if *b == b'%' { b"%%" } else { std::slice::from_ref(b) }));
}

/// Checks the format of `bpf_trace_printk`, which supports less than others.
fn debug_format(f: &CallInfo) -> Result<Type, Diagnostic> {
    if f.args.len() > 4 {
        return Err(Diagnostic::error("arity", f.span(4), format!("{} prints at most 3 values", f.name)));
    }
    let pieces = format::parse(f.text(0).unwrap_or_default()).map_err(|e| Diagnostic::error("format", f.span(0), e.message))?;
    for (spec, arg) in format::specs(&pieces).zip(f.args.iter().skip(1)) {
        let plain = spec.source.trim_start_matches(|c: char| c.is_ascii_digit() || "%-+ #.l".contains(c));
        if !["d", "u", "x", "p", "s"].contains(&plain) {
            let message = format!("{} supports %d, %u, %x, %p and %s, but not `{}`", f.name, spec.source);
            return Err(Diagnostic::error("format", f.span(0), message));
        }
        let fits = if plain == "s" { matches!(arg.ty, Type::Str(_)) } else { arg.ty.is_scalar() };
        if !fits && arg.ty != Type::Void {
            return Err(Diagnostic::error("format", arg.span, format!("`{}` in {} does not print {}", spec.source, f.name, arg.ty)));
        }
    }
    let message = format!("{} is a debugging aid: it writes to the kernel's trace buffer, which all programs share", f.name);
    f.warn(Diagnostic::warning("debug-output", f.span, message).help("read the output from trace_pipe in tracefs, or use printf"));
    Ok(Type::Void)
}

/// Formats a record's arguments by the format that is argument 0.
///
/// The script's own literals and times stay as written.
pub(super) fn formatter(spec: &EventSpec, reader: Reader) -> anyhow::Result<impl FnMut(&[Arg], &mut dyn Host) -> Vec<u8> + use<>> {
    let pieces = format::parse(spec.text(0).unwrap_or_default()).map_err(|e| anyhow::anyhow!("{}", e.message))?;
    let traced = |i: usize| spec.literals.get(i).is_none_or(Option::is_none) && !spec.types.get(i).is_some_and(super::time::is_timestamp);
    let readers: Vec<Reader> = (1..spec.types.len()).map(|i| if traced(i) { reader } else { Reader::Program }).collect();
    Ok(move |args: &[Arg], host: &mut dyn Host| {
        let values: Vec<Value> = args
            .iter()
            .skip(1)
            .map(|a| match a {
                Arg::Value(v) => v.clone(),
                Arg::Map(_) | Arg::TakenMap { .. } | Arg::Element(..) => Value::None,
            })
            .collect();
        format::format(&pieces, &values, &|i, v, to| host.text(v, readers.get(i).copied().unwrap_or(reader), to))
    })
}

fn problem(spec: &EventSpec, kind: ProblemKind) -> anyhow::Result<Handler> {
    let mut text = formatter(spec, Reader::Messages)?;
    let (pos, line) = (spec.pos.clone(), spec.line.clone());
    Ok(Box::new(move |args, host| {
        let msg = String::from_utf8_lossy(&text(args, host)).into_owned();
        host.say(Output::problem(kind, msg, &pos, &line));
        Ok(())
    }))
}

type Layout = fn(&mut ShowOptions);

/// Words for the layout of a map.
const LAYOUTS: &[(&str, Layout)] =
    &[("duration", |s| s.unit = Some(Unit::Duration)), ("size", |s| s.unit = Some(Unit::Size)), ("table", |s| s.table = true)];

/// The sort keys: the fields of [`Value::fields`].
const FIELDS: &[&str] = &["count", "average", "total", "min", "p50", "p90", "p99", "p99.9", "max"];

/// Does a map of this type show statistics, which are not divided?
fn shows_stats(ty: &Type) -> bool {
    let Some(agg) = ty.aggregation() else { return false };
    super::aggregate(&agg.function).is_some_and(|(_, row)| matches!((row.merge)(agg, &[]), Value::Stats(_)))
}

fn layout(word: &str) -> Option<fn(&mut ShowOptions)> {
    LAYOUTS.iter().find(|l| l.0 == word).map(|l| l.1)
}

fn print(spec: &EventSpec) -> anyhow::Result<Handler> {
    let whole = |n: Option<i64>| n.and_then(|n| u64::try_from(n).ok());
    let mut show = ShowOptions { top: whole(spec.int(1)), div: whole(spec.int(2)), ..ShowOptions::default() };
    for word in (1..spec.literals.len()).filter_map(|i| spec.text(i)) {
        let word = String::from_utf8_lossy(word).into_owned();
        match layout(&word) {
            Some(set) => set(&mut show),
            None => show.by = Some(word),
        }
    }
    // A literal is the script's own text, and stays as written.
    let is_script_text = spec.text(0).is_some();
    Ok(Box::new(move |args, host| {
        let output = match args.first() {
            Some(Arg::Map(map)) if host.repeats_print(*map, &show) => return Ok(()),
            Some(Arg::Map(map)) => Output::Map(MapView { show: show.clone(), ..host.map(*map)? }),
            Some(Arg::TakenMap { map, keys }) => Output::Map(MapView { show: show.clone(), ..host.take_map(*map, *keys)? }),
            Some(Arg::Element(map, key)) => Output::Value(host.map_element(*map, key)?),
            Some(Arg::Value(Value::Str { bytes, cut: false })) if is_script_text => {
                Output::Text { kind: "value", data: bytes.clone(), newline: true }
            }
            Some(Arg::Value(v)) => Output::Value(v.clone()),
            None => Output::Value(Value::None),
        };
        host.say(output);
        Ok(())
    }))
}

//! What a script says.

use super::{Accepts, Arg, Builtin, Event, EventSpec, Handler, Lower, Param, Returns};
use crate::diag::Diagnostic;
use crate::host::Host;
use crate::probes::Caps;
use crate::render::format;
use crate::types::Type;
use crate::value::{Output, Value};

/// A format and its arguments.
pub(super) const FORMAT: &[Param] = &[Param::new("format", Accepts::Format), Param::rest("arguments", Accepts::Printable)];

pub(super) const ROWS: &[Builtin] = &[
    Builtin {
        name: "printf",
        params: FORMAT,
        returns: Returns::Always(Type::Void),
        needs: Caps::NONE,
        risky: false,
        lower: Lower::Event(&Event {
            stops: false,
            capture: None,
            prepare: |spec| {
                let mut text = formatter(spec)?;
                Ok(Box::new(move |args, host| {
                    let data = text(args, host);
                    host.say(Output::Text { kind: "printf", data, newline: false });
                    Ok(())
                }))
            },
        }),
        doc: "Prints values by a format like C's, in which %s shows anything as print would.",
        example: "tracepoint:syscalls:sys_enter_openat { printf(\"%-16s %d %s\\n\", comm, pid, str(args.filename)); }",
    },
    Builtin {
        name: "errorf",
        params: FORMAT,
        returns: Returns::Always(Type::Void),
        needs: Caps::NONE,
        risky: false,
        lower: Lower::Event(&Event { stops: false, capture: None, prepare: |spec| problem(spec, "errorf") }),
        doc: "Prints an error message with its place in the script to standard error.",
        example: "begin { if (ncpus == 0) { errorf(\"%d processors\", ncpus); } }",
    },
    Builtin {
        name: "warnf",
        params: FORMAT,
        returns: Returns::Always(Type::Void),
        needs: Caps::NONE,
        risky: false,
        lower: Lower::Event(&Event { stops: false, capture: None, prepare: |spec| problem(spec, "warnf") }),
        doc: "Prints a warning with its place in the script to standard error; --no-warnings drops it.",
        example: "begin { if (ncpus > 512) { warnf(\"%d processors\", ncpus); } }",
    },
    Builtin {
        name: "print",
        params: &[
            Param::new("value", Accepts::MapOrValue),
            Param::optional("top", Accepts::LitInt),
            Param::optional("div", Accepts::LitInt),
        ],
        returns: Returns::By(|f| {
            let whole = f.args.first().is_some_and(|a| a.map.is_some());
            if f.args.len() > 1 && !whole {
                return Err(Diagnostic::error("arity", f.span(1), "`top` and `div` are for whole maps"));
            }
            match (f.int(1), f.int(2)) {
                (Some(n), _) if n < 0 => Err(Diagnostic::error("out-of-range", f.span(1), "`top` cannot be negative")),
                (_, Some(n)) if n < 1 => Err(Diagnostic::error("out-of-range", f.span(2), "`div` must be at least 1")),
                _ => Ok(Type::Void),
            }
        }),
        needs: Caps::NONE,
        risky: false,
        lower: Lower::Event(&Event { stops: false, capture: None, prepare: print }),
        doc: "Prints a value, or a whole map: the last `top` entries of its order, integers divided by `div`.",
        example: "tracepoint:syscalls:sys_enter_openat { @[comm] = count(); } interval:s:1 { print(@, 10); clear(@); }",
    },
];

/// Makes text of a record's arguments, by the format that is argument 0.
pub(super) fn formatter(spec: &EventSpec) -> anyhow::Result<impl FnMut(&[Arg], &mut dyn Host) -> Vec<u8> + use<>> {
    let mut pieces = format::parse(spec.text(0).unwrap_or_default()).map_err(|e| anyhow::anyhow!("{}", e.message))?;
    format::bind(&mut pieces, spec.types.get(1..).unwrap_or_default());
    Ok(move |args: &[Arg], host: &mut dyn Host| {
        let values: Vec<Value> = args
            .iter()
            .skip(1)
            .map(|a| match a {
                Arg::Value(v) => v.clone(),
                Arg::Map(_) | Arg::Element(..) => Value::None,
            })
            .collect();
        format::format(&pieces, &values, &|v| host.text(v))
    })
}

fn problem(spec: &EventSpec, kind: &'static str) -> anyhow::Result<Handler> {
    let mut text = formatter(spec)?;
    let (pos, line) = (spec.pos.clone(), spec.line.clone());
    Ok(Box::new(move |args, host| {
        let msg = String::from_utf8_lossy(&text(args, host)).into_owned();
        host.say(Output::Problem { kind, msg, helper: None, pos: pos.clone(), line: line.clone() });
        Ok(())
    }))
}

fn print(spec: &EventSpec) -> anyhow::Result<Handler> {
    let whole = |n: Option<i64>| n.and_then(|n| u64::try_from(n).ok());
    let (top, div) = (whole(spec.int(1)), whole(spec.int(2)));
    Ok(Box::new(move |args, host| {
        let output = match args.first() {
            Some(Arg::Map(map)) => {
                let mut view = host.map(*map)?;
                (view.top, view.div) = (top, div);
                Output::Map(view)
            }
            Some(Arg::Element(map, key)) => Output::Value(host.map_element(*map, key)?),
            Some(Arg::Value(v)) => Output::Value(v.clone()),
            None => Output::Value(Value::None),
        };
        host.say(output);
        Ok(())
    }))
}

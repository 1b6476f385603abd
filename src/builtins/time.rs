//! Clocks, and formatting of times.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{Accepts, Arg, Builtin, Codegen, Decoder, Event, Param, Returns};
use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};

use crate::diag::Diagnostic;
use crate::emit::shared::LoadConstants;
use crate::emit::{Helper, Operand};
use crate::output::Output;
use crate::probes::ContextFeatures;
use crate::render::time::strftime;
use crate::types::{Deferred, Type};
use crate::value::Value;

const NSECS: &str = "nsecs";
const MONOTONIC: &str = "monotonic";
const TIMESTAMP: &str = "timestamp";
/// An uptime in nanoseconds that no machine reaches (31 years): above it, a time counts from 1970.
const MAX_UPTIME_NS: u64 = 1_000_000_000_000_000_000;

/// Is it a timestamp of `strftime`, whose format is the script's own text?
pub(super) fn is_timestamp(ty: &Type) -> bool {
    matches!(ty, Type::Deferred(tagged) if tagged.tag == TIMESTAMP)
}

pub(super) const ROWS: &[Builtin] = &[
    Builtin {
        name: NSECS,
        params: &[Param::optional("clock", Accepts::Word(&["boot", MONOTONIC, "tai", "sw_tai"]))],
        returns: Returns::Always(Type::U64),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, u, _| {
            let helper = match u.word(0) {
                Some(MONOTONIC) => Helper::KtimeGetNs,
                Some("sw_tai") => {
                    let now = e.call(Helper::KtimeGetNs, &[]);
                    let ahead = e.start(std::mem::offset_of!(LoadConstants, tai_offset));
                    return Operand::u64(e.add(now, ahead));
                }
                Some("tai") => Helper::KtimeGetTaiNs,
                _ => Helper::KtimeGetBootNs,
            };
            Operand::u64(e.call(helper, &[]))
        }),
        doc: "Current time in nanoseconds. `boot` (the default) counts from boot and includes time spent in suspend. `monotonic` excludes it. `tai` is International Atomic Time (Linux 6.1 or newer). `sw_tai` computes it from the offset measured at the start of the run.",
        example: "tracepoint:syscalls:sys_enter_read { @start[tid] = nsecs; }",
    },
    Builtin {
        name: "elapsed",
        params: &[],
        returns: Returns::Always(Type::U64),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, _, _| {
            let now = e.call(Helper::KtimeGetBootNs, &[]);
            let start = e.start(std::mem::offset_of!(LoadConstants, boot_ns));
            Operand::u64(e.sub(now, start))
        }),
        doc: "Nanoseconds since the start of the run.",
        example: "interval:s:1 { printf(\"%d s\\n\", elapsed / 1000000000); }",
    },
    Builtin {
        name: "jiffies",
        params: &[],
        returns: Returns::Always(Type::U64),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, _, _| Operand::u64(e.call(Helper::Jiffies64, &[]))),
        doc: "The kernel's 64-bit tick counter.",
        example: "begin { printf(\"%lu\\n\", jiffies); }",
    },
    Builtin {
        name: "time",
        params: &[Param::optional("format", Accepts::LitStr)],
        returns: Returns::Always(Type::Void),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Event(&Event {
            ends_probe: false,
            capture: None,
            prepare: |spec| {
                let format = String::from_utf8_lossy(spec.text(0).unwrap_or(b"%H:%M:%S\n")).into_owned();
                Ok(Box::new(move |_: &[Arg], host| {
                    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as i128);
                    let data = strftime(&format, now).unwrap_or_default().into_bytes();
                    host.say(Output::Text { kind: "time", data, newline: false });
                    Ok(())
                }))
            },
        }),
        doc: "Prints the local time at which rbt handles the event, in a format of strftime(3). The default format is `%H:%M:%S` and a newline.",
        example: "interval:s:1 { time(\"%H:%M:%S  \"); print(@); clear(@); } tracepoint:syscalls:sys_enter_openat { @ = count(); }",
    },
    Builtin {
        name: "strftime",
        params: &[Param::new("format", Accepts::LitStr), Param::new("nanoseconds", Accepts::Int)],
        returns: Returns::By(|f| {
            if f.int(1).is_some_and(|n| n < 0) {
                return Err(Diagnostic::error("out-of-range", f.span(1), "a time cannot be negative"));
            }
            let clock = f.args.get(1).and_then(|a| a.origin.as_ref()).filter(|(name, _)| *name == NSECS);
            if clock.is_some_and(|(_, clock)| clock.as_deref() == Some(MONOTONIC)) {
                let d = Diagnostic::error(
                    "type-mismatch",
                    f.span(1),
                    "this clock stops while the machine is suspended, so it has no time of day",
                );
                return Err(d.help("use `nsecs` or `nsecs(tai)`"));
            }
            let format = f.text(0).unwrap_or_default();
            let format = std::str::from_utf8(format).map_err(|_| Diagnostic::error("bad-format", f.span(0), "the format is not UTF-8"))?;
            Ok(Deferred::with(TIMESTAMP, 8, [0, 0], format))
        }),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, u, args| {
            let at = e.alloc(8);
            let ns = args.get(1).map_or(e.int(0), |a| e.scalar(a));
            e.store(at, 0, 8, ns);
            Operand::mem(u.ty.clone(), at)
        }),
        doc: "Formats a time from nsecs as local time, in a format of strftime(3). From 10^18 upward, the number is a TAI time since 1970, as from nsecs(tai). %f stands for microseconds, %l for milliseconds and %k for nanoseconds. rbt formats the time when it prints it.",
        example: "tracepoint:syscalls:sys_enter_execve { printf(\"%s %s\\n\", strftime(\"%H:%M:%S.%f\", nsecs), comm); }",
    },
];

pub(super) const DECODERS: &[Decoder] = &[Decoder {
    name: TIMESTAMP,
    size: 8,
    from_int: false,
    decode: |tag, bytes, host| {
        let ns = super::word(bytes, 0);
        let unix = match ns {
            n if n < MAX_UPTIME_NS => i128::from(n) + i128::from(host.boot_to_unix_ns()),
            n => i128::from(n) - tai_offset_ns(),
        };
        Value::Text(strftime(&tag.text, unix).unwrap_or_else(|| "(?)".into()))
    },
}];

/// The offset of International Atomic Time from the wall clock, in whole seconds as nanoseconds; 0 if the kernel does not
/// know it.
fn tai_offset_ns() -> i128 {
    let nanoseconds = |t: Timespec| i128::from(t.tv_sec) * 1_000_000_000 + i128::from(t.tv_nsec);
    let Ok(atomic) = clock_gettime_dynamic(DynamicClockId::Tai) else { return 0 };
    let difference = nanoseconds(atomic) - nanoseconds(clock_gettime(ClockId::Realtime));
    (difference + 500_000_000).div_euclid(1_000_000_000) * 1_000_000_000
}

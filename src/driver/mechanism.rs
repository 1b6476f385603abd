//! For `-v`: what serves each probe.

use std::fmt::Write;

use crate::codegen::artifact::Manifest;
use crate::probes::{Attach, ProgramType};

/// Sites of one program that are named; the others are counted.
const SHOWN: usize = 8;

/// A line for each probe: its name, and what it is attached by.
pub(super) fn describe(manifest: &Manifest) -> String {
    let mut text = String::new();
    for program in &manifest.programs {
        for site in program.sites.iter().take(SHOWN) {
            let _ = writeln!(text, "{}: {}", site.name, mechanism(&site.attach, program.ty));
        }
        let more = program.sites.len().saturating_sub(SHOWN);
        if more > 0 {
            let _ = writeln!(text, "… and {more} more served by the same program");
        }
    }
    text
}

fn mechanism(attach: &Attach, program: ProgramType) -> String {
    match attach {
        Attach::Begin => "run once at the start".into(),
        Attach::End => "run once at the end".into(),
        Attach::Tracepoint { category, event } => format!("perf event of tracepoint {category}:{event}"),
        Attach::RawTracepoint { name } => format!("raw tracepoint {name}"),
        Attach::Syscall { enter, number } => {
            format!("raw tracepoint {}, call number {number}", if *enter { "sys_enter" } else { "sys_exit" })
        }
        Attach::Uprobe { path, offset, ret, .. } => {
            let link = match program {
                ProgramType::UprobeMulti => "uprobe.multi link",
                ProgramType::RawTracepoint | ProgramType::Tracepoint | ProgramType::Uprobe | ProgramType::PerfEvent => "perf uprobe",
            };
            format!("{link} at {}+0x{offset:x}{}", path.display(), if *ret { ", on return" } else { "" })
        }
        Attach::Timer { period_ns, frequency, all_cpus } => {
            let rate = if *frequency > 0 { format!("{frequency} Hz") } else { format!("every {} µs", period_ns / 1000) };
            format!("CPU clock, {rate}, {}", if *all_cpus { "every CPU" } else { "one CPU" })
        }
    }
}

//! Flags for types and symbols, for debugging, and hidden flags.

use clap::ValueHint;

use super::{FLAG, Flag, FlagGroup, FlagValue, Repeat, Verbs, what};
use crate::cli::STAGES;
use crate::cli::values::{self, one_of};
use crate::failure::Failure;
use crate::settings::MECHANISMS;

pub(super) const TYPES: FlagGroup = FlagGroup {
    heading: "Types and symbols",
    flags: &[
        Flag {
            name: "I",
            help: "Add a directory for #include (may be repeated)",
            hint: ValueHint::DirPath,
            value: FlagValue::Path("DIR", |d, path| {
                d.run.settings.include_dirs.push(path);
                Ok(())
            }),
            repeat: Repeat::AllCount,
            ..FLAG
        },
        Flag {
            name: "include",
            help: "#include this file before the script (may be repeated)",
            hint: ValueHint::FilePath,
            value: FlagValue::Text("FILE", |d, text| {
                d.run.settings.includes.push(text.into());
                Ok(())
            }),
            repeat: Repeat::AllCount,
            ..FLAG
        },
        Flag {
            name: "debuginfo",
            help: "Search these colon-separated directories for debug files (may be repeated). A relative path starts at the directory of the binary. A leading + requires a matching checksum",
            value: FlagValue::Text("DIRS", |d, text| {
                d.run.settings.debug_dirs.extend(text.split(':').filter(|d| !d.is_empty()).map(String::from));
                Ok(())
            }),
            repeat: Repeat::AllCount,
            at_run: true,
            ..FLAG
        },
    ],
};

fn stages() -> Vec<&'static str> {
    STAGES.iter().map(|s| s.name).chain(["all"]).collect()
}

fn mechanisms() -> Vec<&'static str> {
    MECHANISMS.iter().map(|(name, _)| *name).collect()
}

pub(super) const INSPECT: FlagGroup = FlagGroup {
    heading: "Debugging",
    flags: &[
        Flag {
            name: "dry-run",
            help: "Exit when all probes are attached",
            value: FlagValue::Nothing(|d| d.run.dry_run = true),
            at_run: true,
            refused_by: &["cost"],
            ..FLAG
        },
        Flag {
            name: "debug",
            letter: Some('d'),
            help: "Dump comma-separated stages",
            value: FlagValue::Word("STAGES", stages, |d, word| {
                d.run.dumps.extend(values::stages(word)?);
                Ok(())
            }),
            repeat: Repeat::List,
            at_run: true,
            refused_by: &["cost"],
            ..FLAG
        },
        Flag {
            name: "emit-elf",
            help: "Write the BPF object to FILE and exit",
            hint: ValueHint::FilePath,
            value: FlagValue::Path("FILE", |d, path| {
                d.run.emit_elf = Some(path);
                Ok(())
            }),
            refused_by: &["build", "cost"],
            ..FLAG
        },
        Flag {
            name: "emit-llvm",
            help: "Write the LLVM IR to BASE.original.ll and BASE.optimized.ll",
            value: FlagValue::Text("BASE", |d, text| {
                d.run.emit_llvm = Some(text.into());
                Ok(())
            }),
            refused_by: &["build", "cost"],
            ..FLAG
        },
        Flag { name: "verify-llvm-ir", help: "Let LLVM verify the IR", value: FlagValue::Nothing(|d| d.run.verify_ir = true), ..FLAG },
        Flag {
            name: "no-feature",
            help: "Disable these comma-separated mechanisms (-v shows the mechanism of each probe)",
            value: FlagValue::Word("LIST", mechanisms, |d, word| {
                let known = one_of(word, &mechanisms(), "feature")?;
                d.run.settings.no_features.extend(MECHANISMS.iter().filter(|(name, _)| *name == known).map(|(_, m)| *m));
                Ok(())
            }),
            repeat: Repeat::List,
            ..FLAG
        },
        what::MODE,
    ],
};

/// Flags that rbt accepts but does not show: aliases, and flags of bpftrace that rbt does not need.
pub(super) const HIDDEN: FlagGroup = FlagGroup {
    heading: "",
    flags: &[
        Flag {
            name: "completions",
            help: "The same as `rbt completions`",
            value: FlagValue::Path("SHELL", |d, name| {
                d.completions = Some(name.into());
                Ok(())
            }),
            verbs: Verbs::Refuse,
            ..FLAG
        },
        Flag {
            name: "aot",
            hint: ValueHint::FilePath,
            value: FlagValue::Path("FILE", |_, _| Err(Failure::new("--aot is not supported yet"))),
            verbs: Verbs::Refuse,
            ..FLAG
        },
        Flag {
            name: "dwarf-pid",
            help: "No effect. rbt unwinds the user stacks of all processes by call frame information",
            value: FlagValue::Text("PID", |_, text| values::pid("--dwarf-pid", text).map(drop)),
            repeat: Repeat::AllCount,
            verbs: Verbs::Refuse,
            ..FLAG
        },
        Flag {
            name: "usdt-file-activation",
            help: "No effect. The kernel maintains the semaphores of USDT probes",
            verbs: Verbs::Refuse,
            ..FLAG
        },
        Flag { name: "btf", letter: Some('b'), help: "No effect. rbt always uses BTF", verbs: Verbs::Refuse, ..FLAG },
    ],
};

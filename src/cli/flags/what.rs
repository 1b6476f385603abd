//! Flags that choose what to run.

use clap::ValueHint;

use super::{FLAG, Flag, FlagGroup, FlagValue, Verbs};
use crate::cli::MODES;
use crate::failure::Failure;
use crate::settings::Mode;

pub(super) const RUN: FlagGroup = FlagGroup {
    heading: "What to run",
    flags: &[
        Flag {
            name: "e",
            help: "Run this program. If you repeat the option, the last one applies",
            value: FlagValue::Text("PROGRAM", |d, text| {
                d.program = Some(text.into());
                Ok(())
            }),
            verbs: Verbs::Refuse,
            ..FLAG
        },
        Flag {
            name: "list",
            letter: Some('l'),
            help: "List probes that match a pattern (`*` matches any text), or the probes of a script. -v shows their arguments",
            value: FlagValue::Nothing(|d| d.list = true),
            verbs: Verbs::Refuse,
            ..FLAG
        },
        Flag {
            name: "against",
            help: "With -l, list the probes of the kernel in this snapshot. See `rbt snapshot --help`",
            hint: ValueHint::FilePath,
            value: FlagValue::Path("SNAPSHOT", |d, path| {
                d.run.against = Some(path);
                Ok(())
            }),
            verbs: Verbs::Refuse,
            ..FLAG
        },
        Flag {
            name: "fmt",
            help: "Print the script in canonical form and exit. See `rbt fmt --help`",
            value: FlagValue::Nothing(|d| d.fmt = true),
            conflicts_with: &["mode"],
            verbs: Verbs::Refuse,
            ..FLAG
        },
        Flag {
            name: "test",
            help: "Run only the script's tests (test:NAME). The status is 1 if one fails",
            value: FlagValue::Nothing(|d| d.run.settings.mode = Mode::Test),
            conflicts_with: &["mode", "bench"],
            verbs: Verbs::Refuse,
            refused_by: &["build", "cost"],
            ..FLAG
        },
        Flag {
            name: "bench",
            help: "Run only the script's benchmarks (bench:NAME)",
            value: FlagValue::Nothing(|d| d.run.settings.mode = Mode::Bench),
            conflicts_with: &["mode"],
            verbs: Verbs::Refuse,
            refused_by: &["build", "cost"],
            ..FLAG
        },
        Flag {
            name: "info",
            help: "Show what this machine and this build of rbt support",
            value: FlagValue::Nothing(|d| d.info = true),
            verbs: Verbs::Refuse,
            ..FLAG
        },
    ],
};

/// `--mode`: a common flag for modes, some of which have flags of their own.
pub(super) const MODE: Flag = Flag {
    name: "mode",
    help: "Run in this mode: `codegen` compiles the script and exits, and `format`, `test` and `bench` are --fmt, --test and --bench",
    value: FlagValue::Word(
        "MODE",
        || MODES.to_vec(),
        |d, word| {
            match word {
                "codegen" => d.run.compile_only = true,
                "format" => d.fmt = true,
                "test" => d.run.settings.mode = Mode::Test,
                "bench" => d.run.settings.mode = Mode::Bench,
                "compiler-bench" => return Err(Failure::new("--mode compiler-bench is not supported yet")),
                _ => return Err(Failure::new(format!("there is no mode `{word}`")).suggest(word, MODES)),
            }
            Ok(())
        },
    ),
    verbs: Verbs::Refuse,
    refused_by: &["build", "cost"],
    ..FLAG
};

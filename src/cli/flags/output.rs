//! Flags for expectations and output.

use std::path::PathBuf;

use clap::ValueHint;

use super::{FLAG, Flag, FlagGroup, FlagValue, Repeat, Verbs};
use crate::cli::values::{self, COLORS, one_of};
use crate::failure::Failure;
use crate::render::{self, format_of_file};
use crate::runtime::Buffering;
use crate::verdict;

pub(super) const BUDGETS: FlagGroup = FlagGroup {
    heading: "Budgets",
    flags: &[
        Flag {
            name: "expect",
            help: "Require that this expression about the script's maps is true at the end, such as `count(@calls) <= 200` (may be repeated)",
            long_help: "Exit status: 0 if all are true, 1 if one is false, 2 if the script, an expectation or an option is wrong, 3 if the script could \
                   not run or lost events leave an expectation undecided",
            hyphens: true,
            value: FlagValue::Text("EXPRESSION", |d, text| {
                d.run.invocation.counts_unread = true;
                d.run.expected.texts.push(text.into());
                Ok(())
            }),
            repeat: Repeat::AllCount,
            verbs: Verbs::Show,
            at_run: true,
            refused_by: &["build"],
            ..FLAG
        },
        Flag {
            name: "expect-file",
            help: "Read expectations from a file, one per line (may be repeated). A # starts a comment",
            hint: ValueHint::FilePath,
            value: FlagValue::Path("FILE", |d, path| {
                d.run.invocation.counts_unread = true;
                d.run.expected.files.push(path);
                Ok(())
            }),
            repeat: Repeat::AllCount,
            at_run: true,
            refused_by: &["build", "cost"],
            ..FLAG
        },
        Flag {
            name: "report",
            help: "Write the verdict as text, json, junit, sarif or github to FILE or to standard output (may be repeated). Without this option, rbt writes it as text to standard error",
            value: FlagValue::Text("FORMAT[=FILE]", |d, text| {
                d.run.expected.reports.push(report(text)?);
                Ok(())
            }),
            repeat: Repeat::AllCount,
            verbs: Verbs::Show,
            at_run: true,
            ..FLAG
        },
    ],
};

/// A format of verdicts, and the file of the report.
fn report(text: &str) -> Result<(String, Option<PathBuf>), Failure> {
    let (name, file) = text.split_once('=').map_or((text, None), |(name, file)| (name, Some(file)));
    let Some(format) = verdict::find(name) else {
        let names: Vec<_> = verdict::FORMATS.iter().map(|f| f.name).collect();
        return Err(Failure::new(format!("--report: there is no format `{name}`")).suggest(name, &names));
    };
    if file == Some("") {
        return Err(
            Failure::new(format!("--report {text}: the file has no name")).help(format!("--report {name} alone writes to standard output"))
        );
    }
    Ok((format.name.to_string(), file.filter(|f| *f != "-").map(PathBuf::from)))
}

/// An option that only other programs have.
fn lacking(option: String) -> Failure {
    crate::parts::lacking(&option)
}

fn formats() -> Vec<&'static str> {
    render::formats().iter().map(|f| f.name).collect()
}

const BUFFERING: &[&str] = &["line", "full", "none"];

pub(super) const OUTPUT: FlagGroup = FlagGroup {
    heading: "Output",
    flags: &[
        Flag {
            name: "output",
            letter: Some('o'),
            help: "Write the script's output to FILE (may be repeated). The extension can select a format",
            long_help: "If the extension of FILE selects a format, such as .html or .svg, rbt writes the file in addition to the output. Messages still go to \
                   standard error. `-` stands for standard output",
            hint: ValueHint::FilePath,
            value: FlagValue::Path("FILE", |d, path| {
                if let Some(format) = render::lacking_format_of_file(&path) {
                    return Err(lacking(format!("the format {format} of -o {}", path.display())));
                }
                d.run.invocation.stamps |= format_of_file(&path).is_some_and(|format| format.timed);
                d.run.outputs.push(path);
                Ok(())
            }),
            repeat: Repeat::AllCount,
            verbs: Verbs::Show,
            tools: true,
            at_run: true,
            refused_by: &["cost"],
            ..FLAG
        },
        Flag {
            name: "format",
            letter: Some('f'),
            help: "Write the output in this format, whatever the extension of the file",
            value: FlagValue::Word("FORMAT", formats, |d, word| {
                if render::is_lacking(word) {
                    return Err(lacking(format!("-f {word}")));
                }
                let name = one_of(word, &formats(), "format")?;
                d.run.invocation.stamps |= render::formats().iter().any(|format| format.timed && format.name == name);
                d.run.format = Some(name);
                Ok(())
            }),
            verbs: Verbs::Show,
            tools: true,
            at_run: true,
            ..FLAG
        },
        Flag {
            name: "diff",
            help: "Compare the flame graphs with the state in the file BASE (see -f state), or with the map @BASE",
            long_help: "Widths are those of this run. Functions that are wider than in BASE are red, and narrower ones are blue",
            hint: ValueHint::FilePath,
            value: FlagValue::Text("BASE", |d, text| {
                d.run.diff = Some(text.into());
                Ok(())
            }),
            verbs: Verbs::Show,
            tools: true,
            refused_by: &["build", "cost"],
            ..FLAG
        },
        Flag {
            name: "watch",
            help: "On a terminal, show the maps while the script runs, and redraw them every SECS seconds (default: 1)",
            long_help: "A tseries appears as a sparkline of its latest intervals, with the newest at the right, and with their minimum and maximum. A number that does not fit into its line appears as `>`. q and Ctrl-C end the run. The option has no effect with formats other than text, or if the output goes to a file or a pipe",
            value: FlagValue::Number("SECS", "1", |d, text| {
                d.run.watch = Some(values::seconds("--watch", text)?);
                Ok(())
            }),
            verbs: Verbs::Show,
            tools: true,
            at_run: true,
            refused_by: &["cost"],
            ..FLAG
        },
        Flag {
            name: "B",
            help: "Buffer the output by line, fully (full) or not at all (none)",
            value: FlagValue::Word(
                "MODE",
                || BUFFERING.to_vec(),
                |d, word| {
                    d.run.buffering = match one_of(word, BUFFERING, "buffering mode")?.as_str() {
                        "full" => Buffering::Full,
                        "none" => Buffering::None,
                        _ => Buffering::Line,
                    };
                    Ok(())
                },
            ),
            at_run: true,
            ..FLAG
        },
        Flag {
            name: "serve",
            help: "Serve the maps as metrics for Prometheus, at /metrics. ADDR defaults to 127.0.0.1",
            value: FlagValue::Text("[ADDR:]PORT", |d, text| {
                d.run.serve = Some(crate::serve::address(text).map_err(|e| Failure::new(format!("--serve: {e}")))?);
                Ok(())
            }),
            verbs: Verbs::Show,
            tools: true,
            at_run: true,
            exports: true,
            refused_by: &["build", "cost"],
            repeat: Repeat::Refused,
            ..FLAG
        },
        Flag {
            name: "otlp",
            help: "Export the maps as metrics, the output as logs, and the spans as traces to an OpenTelemetry collector at URL (OTLP over HTTP). `env` stands for the address in OTEL_EXPORTER_OTLP_ENDPOINT",
            hint: ValueHint::Url,
            value: FlagValue::Text("URL", |d, text| {
                let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
                d.run.otlp = Some(crate::otlp::Config::new(text, &var)?);
                d.run.invocation.sends_origin = true;
                Ok(())
            }),
            verbs: Verbs::Show,
            tools: true,
            at_run: true,
            exports: true,
            refused_by: &["build", "cost"],
            repeat: Repeat::Refused,
            ..FLAG
        },
        Flag {
            name: "serve-token",
            help: "Require the token in FILE as a bearer token from the clients of --serve",
            hint: ValueHint::FilePath,
            value: FlagValue::Path("FILE", |d, path| {
                d.run.serve_token = Some(path);
                Ok(())
            }),
            needs: (&["serve"], "--serve"),
            tools: true,
            at_run: true,
            exports: true,
            repeat: Repeat::Refused,
            ..FLAG
        },
        Flag {
            name: "serve-tls-cert",
            help: "Serve over HTTPS with the certificate in FILE and those that signed it, in PEM format. FILE may contain the key as well",
            hint: ValueHint::FilePath,
            value: FlagValue::Path("FILE", |d, path| {
                d.run.serve_identity.get_or_insert_default().certificate = path;
                Ok(())
            }),
            needs: (&["serve"], "--serve"),
            tools: true,
            at_run: true,
            exports: true,
            repeat: Repeat::Refused,
            ..FLAG
        },
        Flag {
            name: "serve-tls-key",
            help: "The file of the private key of --serve-tls-cert, in PEM format",
            hint: ValueHint::FilePath,
            value: FlagValue::Path("FILE", |d, path| {
                d.run.serve_identity.get_or_insert_default().key = Some(path);
                Ok(())
            }),
            needs: (&["serve-tls-cert"], "--serve-tls-cert"),
            tools: true,
            at_run: true,
            exports: true,
            repeat: Repeat::Refused,
            ..FLAG
        },
        Flag {
            name: "quiet",
            letter: Some('q'),
            help: "Do not print the number of attached probes",
            value: FlagValue::Nothing(|d| d.run.quiet = true),
            verbs: Verbs::Show,
            tools: true,
            at_run: true,
            ..FLAG
        },
        Flag {
            name: "verbose",
            letter: Some('v'),
            help: "Show the time of each stage and the mechanism of each probe",
            value: FlagValue::Nothing(|d| (d.run.verbose, d.run.settings.verbose) = (true, true)),
            verbs: Verbs::Show,
            at_run: true,
            ..FLAG
        },
        Flag {
            name: "warnings",
            letter: Some('k'),
            help: "Also report failed reads of memory and maps",
            value: FlagValue::Count(|d, times| {
                if times > 1 {
                    return Err(Failure::new("-k can appear only once"));
                }
                d.run.settings.warning_level = 2;
                Ok(())
            }),
            conflicts_with: &["no-warnings"],
            ..FLAG
        },
        Flag {
            name: "no-warnings",
            help: "Suppress all warnings",
            value: FlagValue::Nothing(|d| {
                d.run.warnings = false;
                d.run.settings.warning_level = 0;
            }),
            at_run: true,
            ..FLAG
        },
        Flag {
            name: "strict",
            help: "Exit with status 1 if anything was lost: events, probe runs, map updates, or parts of strings",
            value: FlagValue::Nothing(|d| d.run.strict = true),
            at_run: true,
            ..FLAG
        },
        Flag {
            name: "color",
            help: "Color messages and output: auto, always or never",
            value: FlagValue::Word(
                "WHEN",
                || COLORS.to_vec(),
                |d, word| {
                    d.color = Some(values::color(Some(word))?);
                    d.color_output = Some(values::output_color(Some(word))?);
                    Ok(())
                },
            ),
            at_run: true,
            ..FLAG
        },
    ],
};

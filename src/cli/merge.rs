//! The options of `rbt merge`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgAction, value_parser};

use super::{Command, Run, flags};
use crate::failure::Failure;

/// A request to merge states.
#[derive(Clone, Debug)]
pub struct Merge {
    /// Options shared with a run: format, output, expectations.
    pub run: Box<Run>,
    /// Files; `-` is standard input.
    pub files: Vec<PathBuf>,
    /// `--by host`
    pub by_host: bool,
    /// `--top`
    pub top: Option<u64>,
    /// `--hosts`
    pub hosts: Vec<String>,
}

/// Flags of a run that `rbt merge` accepts too.
const RUN_FLAGS: &[&str] = &["output", "format", "diff", "expect", "expect-file", "report", "strict", "no-warnings", "color"];

const ABOUT: &str = "Add up the counts of runs of one script on several machines

`rbt -f state` writes the state of a run, which is everything that its maps have counted, as one line of JSON. rbt merge adds up \
such states exactly: counts, sums, buckets of histograms, extremes, percentiles. It prints what a single run prints at its end, \
in any output format. `print(@m, N)` and --top select entries of the sum.";

const EXAMPLES: &str =
    "Other text may precede a state on its line, such as the name of a host. rbt reports and omits lines without a state, and \
     states that are damaged or truncated. It refuses to add states of different scripts and maps of different types.

Examples:
  clush -w a,b,c rbt -q -f state x.bt | rbt merge --hosts a,b,c -
                                              run on three machines, and report missing states
  rbt merge --by host *.json                  make the host the first part of each key
  rbt merge new.json --diff old.json -o diff.svg
                                              compare the stacks of two runs
  rbt merge *.json --expect 'p99(@ns) < 1ms'  check the sum

Exit status:
  0    success
  1    something is missing: a host, a damaged or unreadable state, a map without a sum
  1-3  with --expect: the same statuses as for a run";

/// The command, for completions and the manual.
pub(super) fn command() -> clap::Command {
    clap::Command::new("rbt merge")
        .bin_name("rbt merge")
        .override_usage("rbt merge [OPTIONS] FILES")
        .about(ABOUT.lines().next().unwrap_or_default())
        .long_about(ABOUT)
        .after_help(EXAMPLES)
        .disable_version_flag(true)
        .args_override_self(true)
        .arg(
            Arg::new("files")
                .value_name("FILES")
                .num_args(0..)
                .value_hint(clap::ValueHint::FilePath)
                .value_parser(value_parser!(PathBuf))
                .help("Files with states. The default is `-`, standard input."),
        )
        .arg(
            Arg::new("by")
                .long("by")
                .value_name("host")
                .value_parser(["host"])
                .help("Keep the hosts apart, with the name of the host as the first part of each key"),
        )
        .arg(
            Arg::new("top")
                .long("top")
                .value_name("N")
                .value_parser(value_parser!(u64).range(1..))
                .help("Print the N greatest entries of each map"),
        )
        .arg(
            Arg::new("hosts")
                .long("hosts")
                .value_name("NAMES")
                .action(ArgAction::Append)
                .value_delimiter(',')
                .help("Report each of these hosts that sent no state, and exit with status 1"),
        )
        .args(flags::subcommand_flags(RUN_FLAGS))
}

/// Parses the arguments after `rbt merge`.
pub(super) fn parse(args: &[OsString]) -> Result<Command, Failure> {
    let found = match super::usage::matches("merge", command(), args)? {
        Ok(found) => found,
        Err(help) => return Ok(Command::Say(help)),
    };
    let draft = flags::read(&found)?;
    super::require_run(&draft)?;
    let hosts = found.get_many::<String>("hosts").unwrap_or_default().map(|host| host.trim().to_string()).filter(|host| !host.is_empty());
    Ok(Command::Subcommand(Box::new(Merge {
        run: Box::new(draft.run),
        files: found.get_many::<PathBuf>("files").unwrap_or_default().cloned().collect(),
        by_host: found.contains_id("by"),
        top: found.get_one("top").copied(),
        hosts: hosts.collect(),
    })))
}

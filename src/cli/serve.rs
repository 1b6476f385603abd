//! The options of `rbt serve`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Arg, value_parser};

use super::{Command, Run, flags};
use crate::failure::Failure;
use crate::render::{self, RunLabel};
use crate::tls::Identity;

/// A request to serve the scripts of a directory.
#[derive(Clone, Debug)]
pub struct Serve {
    /// Options for each of the runs.
    pub run: Box<Run>,
    /// The directory of the scripts.
    pub folder: PathBuf,
    /// The address to listen on.
    pub address: SocketAddr,
    /// `--token`
    pub token: Option<PathBuf>,
    /// `--tls-cert` and `--tls-key`
    pub identity: Option<Identity>,
}

/// Flags of a run that `rbt serve` also accepts.
const RUN_FLAGS: &[&str] = &["format", "otlp", "max-overhead", "max-events", "quiet", "verbose", "no-warnings", "color"];

/// A port that Prometheus's list of exporters does not use.
const ADDRESS: &str = "127.0.0.1:9435";

const ABOUT: &str = "Run the scripts of a directory, and serve their maps as metrics for Prometheus

rbt serve runs each file DIR/*.bt as `rbt FILE` does, but all in one process, until it receives SIGINT or SIGTERM. It serves their \
maps at /metrics, with the name of the file in the label `script`.

SIGHUP starts new, changed and failed scripts, and ends those whose files are gone. The other scripts are not interrupted. The new version \
of a script replaces the old one when all its probes are attached. If it cannot run, the old one continues. Counters and histograms \
continue from the values of the old version, except those of maps whose types have changed.";

const EXAMPLES: &str = "Paths:
  /metrics     the metrics of all scripts, and the state of each script (rbt_script_up,
               rbt_script_current and rbt_script_failure_info)
  /-/healthy   the state of each script, with status 200 while rbt runs
  /-/ready     the same, with status 503 if the current version of any file does not run

Examples:
  rbt serve /etc/rbt                          serve at http://127.0.0.1:9435/metrics
  rbt serve --token /etc/rbt.token --tls-cert /etc/rbt.pem /etc/rbt 0.0.0.0:9435
                                              serve other machines that send the token
  kill -HUP $(pidof rbt)                      reload the scripts, the token and the certificate

Exit status:
  0    SIGINT or SIGTERM ended the run
  1    wrong usage, no script, an address that cannot be used, a missing permission";

/// The command, for completions and the manual.
pub(super) fn command() -> clap::Command {
    clap::Command::new("rbt serve")
        .bin_name("rbt serve")
        .override_usage("rbt serve [OPTIONS] DIR [[ADDR:]PORT]")
        .about(ABOUT.lines().next().unwrap_or_default())
        .long_about(ABOUT)
        .after_help(EXAMPLES)
        .disable_version_flag(true)
        .args_override_self(true)
        .arg(
            Arg::new("folder")
                .value_name("DIR")
                .required(true)
                .value_hint(clap::ValueHint::DirPath)
                .value_parser(value_parser!(PathBuf))
                .help("The directory of the scripts. rbt runs the files whose names end in .bt, but not those in subdirectories."),
        )
        .arg(
            Arg::new("address")
                .value_name("[ADDR:]PORT")
                .default_value(ADDRESS)
                .help("Where to listen. ADDR defaults to 127.0.0.1, and port 0 stands for any free port."),
        )
        .arg(file("token", "Require the token in FILE as a bearer token from clients"))
        .arg(file(
            "tls-cert",
            "Serve over HTTPS with the certificate in FILE and those that signed it, in PEM format. FILE may contain the key as well.",
        ))
        .arg(file("tls-key", "The file of the private key of --tls-cert, in PEM format").requires("tls-cert"))
        .args(flags::subcommand_flags(RUN_FLAGS))
}

/// An option whose value is a file.
fn file(name: &'static str, help: &'static str) -> Arg {
    let option = Arg::new(name).long(name).value_name("FILE").value_hint(clap::ValueHint::FilePath);
    option.value_parser(value_parser!(PathBuf)).help(help)
}

/// Parses the arguments after `rbt serve`.
pub(super) fn parse(args: &[OsString]) -> Result<Command, Failure> {
    let found = match super::usage::matches("serve", command(), args)? {
        Ok(found) => found,
        Err(help) => return Ok(Command::Say(help)),
    };
    let run = flags::read(&found)?.run;
    if let Some(format) = run.format.as_deref().and_then(render::find).filter(|format| format.shared == RunLabel::No) {
        let message = format!("rbt serve writes no output in the format {}, which cannot tell scripts apart", format.name);
        return Err(Failure::new(message).help("`-f json` writes one line for each output, with the name of the script"));
    }
    let address = found.get_one::<String>("address").map_or(ADDRESS, String::as_str);
    let path = |name| found.get_one::<PathBuf>(name).cloned();
    Ok(Command::Subcommand(Box::new(Serve {
        run: Box::new(run),
        folder: path("folder").unwrap_or_default(),
        address: crate::serve::address(address).map_err(|e| Failure::new(format!("rbt serve: {e}")))?,
        token: path("token"),
        identity: path("tls-cert").map(|certificate| Identity { certificate, key: path("tls-key") }),
    })))
}

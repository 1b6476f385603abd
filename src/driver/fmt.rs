//! `rbt fmt`: reads scripts, formats them, and writes, prints or compares the result.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use crate::cli::fmt::{Fmt, FmtDestination};
use crate::cli::{Action, Program};
use crate::diag::{self, Source};
use crate::failure::Failure;
use crate::frontend::read::read;
use crate::streams::{AtomicFile, not_written, report, to_stderr, to_stdout};
use crate::{fmt, syntax};

impl Action for Fmt {
    fn color(&self) -> bool {
        self.color
    }

    fn run(&self) -> Result<u8, Failure> {
        rewrite(self)
    }
}

/// Formats all arguments of `rbt fmt`. An error in one does not affect the others. The result is the exit status.
fn rewrite(args: &Fmt) -> Result<u8, Failure> {
    let mut status = 0;
    for input in &args.inputs {
        match one(args, input) {
            Ok(changes) if changes && args.destination == FmtDestination::Check => status = status.max(1),
            Ok(_) => {}
            Err(failure) => {
                report(&failure, args.color);
                status = args.wrong;
            }
        }
    }
    Ok(status)
}

/// Returns true if the canonical text differs from the script's.
fn one(args: &Fmt, input: &Program) -> Result<bool, Failure> {
    let source = read(input)?;
    let text = canonical(&source, args.color)?;
    let changes = text != source.text;
    if args.diff && changes {
        let diff = similar::TextDiff::from_lines(source.text.as_str(), text.as_str());
        let name = diag::plain(&source.name);
        let diff = diff.unified_diff().header(&name, &format!("{name} (formatted)")).to_string();
        let shown = if io::stdout().is_terminal() { diag::plain_lines(&diff) } else { diff };
        to_stdout(|out| out.write_all(shown.as_bytes()))?;
    }
    match (&args.destination, input) {
        (FmtDestination::Stdout, _) => {
            to_stdout(|out| out.write_all(text.as_bytes()))?;
        }
        (FmtDestination::File(path), _) => write_atomically(path, text.as_bytes())?,
        (FmtDestination::InPlace, Program::File(path)) if changes => write_atomically(path, text.as_bytes())?,
        (FmtDestination::Check, _) if changes => to_stderr(&format!("{} is not in canonical form\n", diag::plain(&source.name))),
        (FmtDestination::InPlace | FmtDestination::Check | FmtDestination::Nowhere, _) => {}
    }
    Ok(changes)
}

/// The canonical text, after checks that it has the same words and is itself canonical.
fn canonical(source: &Source, color: bool) -> Result<String, Failure> {
    let (text, again) = {
        let text = formatted(source, color)?;
        let result = Source { name: source.name.clone(), text };
        let again = formatted(&result, color)?;
        (result.text, again)
    };
    require_same_meaning(source, &text, &again)?;
    Ok(text)
}

/// A formatted text has the words of the source, and is unchanged when it is formatted again.
fn require_same_meaning(source: &Source, text: &str, again: &str) -> Result<(), Failure> {
    if again == text && fmt::same_words(&source.text, text) {
        return Ok(());
    }
    Err(Failure::new(format!("{}: formatting would have changed the meaning; nothing was written", source.name))
        .code("not-formatted")
        .help("this is a bug in rbt: please report it with the script"))
}

fn formatted(source: &Source, color: bool) -> Result<String, Failure> {
    let (_, shape) = syntax::parse_with_shape(source).map_err(|wrong| {
        to_stderr(&diag::render(&wrong, std::slice::from_ref(source), color));
        Failure::reported(1)
    })?;
    Ok(shape.map_or_else(String::new, |shape| fmt::format(&source.text, &shape)))
}

/// Writes a file atomically.
pub(super) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let written = AtomicFile::create(path).and_then(|mut file| {
        file.write_all(bytes)?;
        file.commit()
    });
    written.map_err(|e| not_written(&path.display().to_string(), &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_meaning_is_not_written() {
        let source = Source { name: "a.bt".into(), text: "begin { @a=1; }".into() };
        let judged = |text: &str, again: &str| require_same_meaning(&source, text, again).map_err(|failure| failure.code);
        assert_eq!(judged("begin {\n  @a = 1;\n}\n", "begin {\n  @a = 1;\n}\n"), Ok(()));
        assert_eq!(judged("begin {\n  @a = 2;\n}\n", "begin {\n  @a = 2;\n}\n"), Err("not-formatted"));
        assert_eq!(judged("begin {\n  @a = 1;\n}\n", "begin { @a = 1; }\n"), Err("not-formatted"));
    }
}

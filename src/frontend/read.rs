//! Reads the text of a script.

use std::io;
use std::path::Path;
use std::sync::OnceLock;

use crate::cli::Program;
use crate::cli::subcommands::SUBCOMMANDS;
use crate::diag::{self, PROGRAM_NAME, Source};
use crate::failure::{Failure, reason};
use crate::input;
use crate::tools;
use crate::verbs;
pub(crate) fn read(program: &Program) -> Result<Source, Failure> {
    let (name, bytes) = match program {
        Program::Text(text) => return Ok(Source { name: PROGRAM_NAME.into(), text: text.clone() }),
        Program::Tool(script) => return Ok(Source { name: script.name.into(), text: script.text.into() }),
        Program::Composed(made) => return Ok(Source { name: made.name.clone(), text: made.text.clone() }),
        Program::Stdin => (PROGRAM_NAME.to_string(), standard_input()?),
        Program::File(path) => (path.display().to_string(), read_file(path)?),
    };
    // a file of zero bytes, such as one that was not written to the disk, is valid UTF-8
    if let Some(zero) = bytes.iter().position(|byte| *byte == 0) {
        return Err(not_text(&name, &bytes, zero));
    }
    String::from_utf8(bytes)
        .map(|text| Source { name: name.clone(), text })
        .map_err(|e| not_text(&name, e.as_bytes(), e.utf8_error().valid_up_to()))
}

fn not_text(name: &str, bytes: &[u8], at: usize) -> Failure {
    let line = bytes.iter().take(at).filter(|b| **b == b'\n').count() + 1;
    let byte = bytes.get(at).copied().unwrap_or(0);
    Failure::new(format!("{name}, line {line}: the script is not UTF-8 text (byte 0x{byte:02x})"))
        .code("not-text")
        .help(format!("in a string, write such a byte as \\x{byte:02x}"))
}

/// Standard input can be read only once, but may be needed for each kernel.
fn standard_input() -> Result<Vec<u8>, Failure> {
    static CAME: OnceLock<Vec<u8>> = OnceLock::new();
    if let Some(known) = CAME.get() {
        return Ok(known.clone());
    }
    let read = input::read_from(io::stdin().lock(), input::TEXT);
    let cannot = |e| Failure::new(format!("cannot read the script from standard input: {}", reason(&e))).code("not-readable");
    read.map_err(cannot).map(|bytes| CAME.get_or_init(|| bytes).clone())
}

/// The failure of a script that cannot be read, for this reason.
pub(crate) fn unreadable(path: &Path, why: &str) -> Failure {
    Failure::new(format!("cannot read the script {}: {why}", path.display())).code("not-readable")
}

fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    let cannot = |why: &str| unreadable(path, why);
    if path.is_dir() {
        return Err(cannot("it is a directory"));
    }
    input::read(path, input::TEXT).map_err(|e| {
        if e.kind() != io::ErrorKind::NotFound {
            return cannot(&reason(&e));
        }
        let missing = cannot("there is no such file");
        // A program without -e looks like the name of a missing file.
        let word = path.to_string_lossy();
        if word.contains('{') {
            return missing.help("to run a program on the command line, use -e: rbt -e 'PROGRAM'");
        }
        if word.contains(['/', '.']) {
            return missing.help("check the path; `rbt one-liners` lists the built-in tools");
        }
        let missing = Failure::new(format!("there is no file `{word}`, and no tool with that name")).code("not-readable");
        let verbs = verbs::VERBS.iter().map(|v| v.name);
        let known = SUBCOMMANDS.iter().map(|s| s.name).chain(verbs).chain(tools::TOOLS.iter().map(|s| s.name));
        if let Some(here) = tools::elsewhere(&word) {
            return missing.help(format!("rbt's counterpart is `{here}`"));
        }
        match diag::nearest(&word, known) {
            Some(near) => missing.help(format!("did you mean `rbt {near}`?")),
            None => missing.help("`rbt one-liners` lists tools; `rbt -l PATTERN` lists probes"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_files_that_are_not_scripts() {
        let read = |p: &str| read(&Program::File(p.into())).map(|s| s.text).unwrap_err();
        assert!(read("/").message.contains("directory"));
        assert!(read("/nonexistent/x.bt").message.contains("no such file"));
        assert!(read("begin { }").help.unwrap().contains("-e"));
        let path = std::env::temp_dir().join(format!("rbt-driver-{}", std::process::id()));
        std::fs::write(&path, b"begin {\n\xff }").unwrap();
        let failure = read(path.to_str().unwrap());
        std::fs::remove_file(&path).unwrap();
        assert!(failure.message.contains("line 2") && failure.message.contains("0xff"), "{failure:?}");
    }
}

//! `rbt build`: compiles a script to a bundle.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;

use super::{compile, start};
use crate::bundle::{About, Bundle};
use crate::cli::build::Build;
use crate::diag;
use crate::failure::{Failure, reason};
use crate::frontend::args::{check_script_args, help_of_script};
use crate::frontend::explain::{REFUSED, explain, unserved};
use crate::frontend::require::require_privileges;
use crate::frontend::{Checked, Frontend};
use crate::input;
use crate::metrics::Names;
use crate::runtime::{self, Options};
use crate::sema;
use crate::streams::{WholeFile, not_written, to_stderr, to_stdout};
use crate::syntax::ast;
use crate::system::machine::live::Live;
use crate::system::questions::Recorder;
use crate::tools::Header;

/// Compiles a script and writes its bundle.
pub(super) fn build(asked: &Build) -> Result<u8, Failure> {
    let run = &*asked.run;
    let mut front = Frontend::new(run);
    front.read(&run.program)?;
    let tree = front.parse()?;
    check_script_args(run, &front, &tree)?;
    if let Some(text) = help_of_script(&front, &tree) {
        return to_stdout(|out| out.write_all(diag::plain_lines(&text).as_bytes()));
    }
    // features of the kernel are found by trying
    require_privileges()?;
    let sys = Live::with_functions(run.traceable_functions.clone()).with_debug_dirs(&run.settings.debug_dirs);
    let mut without = Vec::new();
    let bundle = loop {
        let recorder = Recorder::new(&sys);
        let mut checked = front.check(&tree, &recorder)?;
        checked.settings.no_features.extend(&without);
        let compiled = compile(&checked, &recorder, &mut front, false)?;
        // What this kernel refuses, another one with the same answers refuses as well.
        let tried = runtime::load(&compiled.artifact, &checked.settings, &sys, Options::default()).map(drop);
        if let Err(e) = tried {
            let mechanisms = unserved(&e, &compiled, &checked, &sys);
            if mechanisms.is_empty() {
                return Err(explain(&e, REFUSED, &compiled, &checked.script, &front));
            }
            without.extend(mechanisms);
            continue;
        }
        let asked = recorder.portable().map_err(|what| {
            Failure::new(format!("the script needs {what}, which holds for this machine only, so it cannot be built")).code("bundle")
        })?;
        let mut script = start::described(run, &checked, &front, None);
        script.text.clear();
        script.metrics = Names::of(front.sources.iter().map(|source| source.text.as_str()));
        let about = About { kernel: kernel(), risky: checked.settings.allow_unsafe, help: help(&front, &tree, &checked) };
        break Bundle::new(compiled.artifact, &checked.settings, script, asked, &sys, about);
    };
    let mut bytes = bundle.to_bytes()?;
    if asked.exe {
        bytes = Bundle::attached(&runner()?, &bytes);
    }
    let place = asked.to.display().to_string();
    let mut file = WholeFile::create(&asked.to).map_err(|e| not_written(&place, &e))?;
    file.write_all(&bytes).and_then(|()| file.commit()).map_err(|e| not_written(&place, &e))?;
    if asked.exe {
        fs::set_permissions(&asked.to, Permissions::from_mode(0o755)).map_err(|e| not_written(&place, &e))?;
    }
    if !run.quiet {
        to_stderr(&format!("Wrote {place}: {} KiB\n", bytes.len().div_ceil(1024)));
    }
    Ok(0)
}

/// The program that runs bundles, of the same version: it is beside rbt.
fn runner() -> Result<Vec<u8>, Failure> {
    const HELP: &str = "install rbt-run in the directory of rbt";
    let own = std::env::current_exe().map_err(|e| Failure::new(format!("--exe: rbt does not find its own file: {}", reason(&e))))?;
    let path = own.with_file_name("rbt-run");
    let cannot =
        |e: io::Error| Failure::new(format!("--exe: cannot read {}: {}", path.display(), reason(&e))).code("not-readable").help(HELP);
    let bytes = input::read(&path, input::LIST).map_err(cannot)?;
    match Bundle::of_program(&mut io::Cursor::new(&bytes)) {
        Ok(None) => Ok(bytes),
        Ok(Some(_)) | Err(_) => Err(Failure::new(format!("--exe: {} has a bundle in it already", path.display())).help(HELP)),
    }
}

fn kernel() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// What the bundle is, for its user.
fn help(front: &Frontend, tree: &ast::Script, checked: &Checked) -> String {
    let text = front.sources.first().map_or("", |source| source.text.as_str());
    let header = Header::of(text);
    let mut lines: Vec<String> = [header.purpose].into_iter().chain(header.more.iter().copied()).map(String::from).collect();
    if header.purpose.is_empty() {
        lines = vec![format!("A compiled script: {}", front.sources.first().map_or("", |source| source.name.as_str()))];
    }
    let options = sema::options(tree);
    let given = &checked.settings.invocation;
    let given: Vec<String> = (given.options.iter())
        .map(|(name, value)| value.as_ref().map_or_else(|| format!("--{name}"), |value| format!("--{name}={value}")))
        .chain(given.params.iter().cloned())
        .collect();
    if !given.is_empty() {
        lines.push(String::new());
        lines.push(format!("Built with {}", given.join(" ")));
    } else if !options.is_empty() {
        lines.push(String::new());
        lines.push("Built with the defaults of its options".into());
    }
    lines.join("\n")
}

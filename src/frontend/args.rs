//! The arguments of a script: misplaced options among them, and `--help`.

use super::Frontend;
use crate::cli::{self, Program, Run};
use crate::diag;
use crate::failure::Failure;
use crate::sema;
use crate::syntax::ast;
use crate::tools;
/// Reports arguments of a script that uses none: those that look like options are likely mistakes, and for a tool, all
/// are.
pub(crate) fn check_script_args(run: &Run, front: &Frontend, tree: &ast::Script) -> Result<(), Failure> {
    if front.sources.iter().any(|s| tools::takes_arguments(&s.text)) {
        return Ok(());
    }
    let options = sema::options(tree);
    let (params, given) = cli::script_args(&run.words, &cli::valued(&options));
    // the word after an unknown option may be its value
    if given.iter().any(|(name, _)| !options.iter().any(|o| o.name == *name)) {
        return Ok(());
    }
    if let (Program::Tool(script), Some(word)) = (&run.program, params.first()) {
        let name = script.name;
        let failure = Failure::new(format!("{name} takes options only, and `{word}` is not one"));
        if let Some(own) = cli::own_letter(word) {
            return Err(failure.help(format!("put rbt's own {own} before `--`; `rbt {name} --help` lists the options of the script")));
        }
        let near = diag::nearest(word.trim_start_matches('-'), options.iter().map(|o| o.name.as_str()));
        return Err(match near {
            Some(near) => failure.help(format!("did you mean `--{near}`? `rbt {name} --help` lists the options")),
            None => failure.help(format!("put a command after -c: rbt {name} -c 'COMMAND'; `rbt {name} --help` lists the options")),
        });
    }
    let misspelt = params.iter().find(|p| p.len() == 2 && p.starts_with('-') && !p.ends_with(|c: char| c.is_ascii_digit()));
    if let Some(misspelt) = misspelt {
        front.warn(&format!("the script takes no arguments, and rbt has no option `{misspelt}`"));
    }
    Ok(())
}

/// `-- --help`: the script's own options, unless it has one of this name.
pub(crate) fn help_of_script(front: &Frontend, tree: &ast::Script) -> Option<String> {
    let run = front.run;
    run.invocation.options.iter().find(|(name, _)| name == "help")?;
    let options = sema::options(tree);
    let name = match &run.program {
        Program::File(path) => path.display().to_string(),
        Program::Tool(script) => script.name.into(),
        Program::Composed(made) => made.name.clone(),
        Program::Text(_) | Program::Stdin => "-e PROGRAM".into(),
    };
    let text = front.sources.first().map_or("", |s| s.text.as_str());
    (!options.iter().any(|o| o.name == "help")).then(|| tools::help(&name, text, &options))
}

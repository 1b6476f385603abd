//! Shell completions, generated from the definitions of the options.

use clap::{Arg, ArgAction, Command};
use clap_complete::Shell;

use super::flags;
use crate::builtins::options::Default;
use crate::diag::Source;
use crate::tools::{Header, TOOLS, Tool};
use crate::verbs::{self, VERBS};
use crate::{sema, syntax};

/// A shell's completions, with those of these subcommands.
pub(super) fn completions(shell: Shell, subcommands: impl Iterator<Item = Command>) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut definition(subcommands), "rbt", &mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    match shell {
        Shell::Zsh => with_scripts(&text),
        // Offer scripts where no subcommand was typed yet, and do not stop if an option lacks its value.
        Shell::Fish => {
            let text = text.replacen("2>/dev/null\n    or return\n", "2>/dev/null\n    or return 0\n", 1);
            format!("{text}complete -c rbt -n \"__fish_rbt_needs_command\" -F\n")
        }
        Shell::Bash | Shell::Elvish | Shell::PowerShell | _ => text,
    }
}

/// For zsh: a word that is not a subcommand is a script, and the following words are its arguments.
fn with_scripts(text: &str) -> String {
    const COMMANDS: &str = "_describe -t commands 'rbt commands' commands \"$@\"";
    let text = text.replace(COMMANDS, &format!("{COMMANDS}\n    _files"));
    // the end of the choice by subcommand
    match text.rfind("\n        esac\n") {
        Some(end) => format!("{}\n(*)\n_files\n;;{}", &text[..end], &text[end..]),
        None => text,
    }
}

/// The parser's definition, adapted for shells: without hidden options, with the words that options accept, and with
/// subcommands, which the parser treats as words in place of a script.
fn definition(subcommands: impl Iterator<Item = Command>) -> Command {
    let common: Vec<Arg> = flags::tool_flags().collect();
    let tools = TOOLS.iter().map(|s| tool(s, &common).args(common.clone()));
    let all = Command::new("rbt").version(crate::VERSION).args(flags::offered());
    // if a word is both, the verb runs
    let tools = tools.filter(|s| verbs::find(s.get_name()).is_none());
    let verbs = VERBS.iter().map(|v| super::verbs::command(v).about(v.doc));
    let all = all.subcommands(subcommands);
    let all = all.subcommands(verbs).subcommands(tools);
    all.disable_help_subcommand(true)
}

/// A tool as a subcommand with its own options.
fn tool(tool: &Tool, common: &[Arg]) -> Command {
    let command = Command::new(tool.name).about(Header::of(tool.text).line());
    let source = Source { name: tool.name.into(), text: tool.text.into() };
    let declared = syntax::parse(&source).map(|tree| sema::options(&tree)).unwrap_or_default();
    // the tool's own option of such a name follows `--`
    let ours = |name: &str| name == "help" || common.iter().any(|a| a.get_long() == Some(name));
    command.args(declared.into_iter().filter(|o| !ours(&o.name)).map(|o| {
        let takes = if matches!(o.default, Default::Bool(_)) { ArgAction::SetTrue } else { ArgAction::Set };
        // a leak, but the process ends after printing the completions
        let name: &'static str = o.name.leak();
        let arg = Arg::new(name).long(name).action(takes);
        arg.help(o.description.unwrap_or_default())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_are_written() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = completions(shell, crate::cli::subcommands::definitions());
            for word in ["notify-fd", "in-place", "kprobe_multi", "completions", "one-liners", "opensnoop", "latency", "print-script"] {
                assert!(text.contains(word), "{shell}: {word}");
            }
            assert!(!text.contains("dwarf-pid"), "{shell}");
            // the generated script
            if shell == Shell::Fish {
                assert!(text.contains("or return 0\n"), "{text}");
            }
            if shell == Shell::Zsh {
                assert!(text.contains("\n    _files") && text.contains("\n(*)\n_files\n;;"), "{text}");
            }
        }
    }
}

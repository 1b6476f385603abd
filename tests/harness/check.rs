//! Checks a script that lists its expected diagnostics in comments: `// error[code] LINE:COL` or `// warning[code] …`, in any
//! order. rbt must report these and no others. Text after `// help: ` must be part of a remedy.

use super::{Verdict, need};
use regex::Regex;
use std::path::Path;
use std::process::Command;

/// Runs one file of `cases/check/*.bt`.
pub fn check(file: &Path) -> Verdict {
    if let Some(what) = need::missing(&["root".into()]) {
        return Verdict::Skip(what);
    }
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut want = found(&text, r"(?m)//\s*(error|warning)\[([a-z0-9-]+)\] (\d+:\d+)");
    match diagnose(file, &text) {
        Err(e) => Verdict::Fail(e),
        Ok((mut got, said)) => {
            want.sort();
            got.sort();
            let helps = text.lines().filter_map(|l| l.split_once("// help: ")).map(|(_, h)| h.trim());
            let silent = helps.filter(|h| !said.lines().any(|l| l.starts_with("help: ") && l.contains(h)));
            let silent: String = silent.map(|h| format!("no remedy contains: {h}\n")).collect();
            if want == got && silent.is_empty() {
                return Verdict::Pass;
            }
            let only = |a: &[String], b: &[String]| a.iter().filter(|x| !b.contains(x)).map(|x| format!("  {x}\n")).collect::<String>();
            Verdict::Fail(format!(
                "{}\n{silent}missing:\n{}not expected:\n{}---\n{said}",
                file.display(),
                only(&want, &got),
                only(&got, &want)
            ))
        }
    }
}

/// Returns the diagnostics as `error[code] 1:2`, and the full text.
fn diagnose(file: &Path, _text: &str) -> Result<(Vec<String>, String), String> {
    let out = Command::new(need::rbt()).arg("--dry-run").arg(file).output().map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    Ok((found(&said, r"(?m)^(error|warning)\[([a-z0-9-]+)\] (?:\S+:)?(\d+:\d+): "), said))
}

fn found(text: &str, re: &str) -> Vec<String> {
    let Ok(re) = Regex::new(re) else { return Vec::new() };
    re.captures_iter(text).map(|c| format!("{}[{}] {}", &c[1], &c[2], &c[3])).collect()
}

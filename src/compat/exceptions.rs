//! Exceptions: `// check:` comments, which mean the same as tables of `rbt-check.toml`.

use crate::diag::{Source, Span, codes, nearest};
use crate::probes;
use crate::system::matches;
use crate::verdict::RULES;

/// Exceptions of one script.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exceptions {
    /// Conditions that a kernel must all meet, each with its text.
    kernels: Vec<(VersionReq, String)>,
    /// Patterns of attach points that may be missing.
    optional: Vec<String>,
    /// Allowed rules, with the reasons.
    allowed: Vec<(String, String)>,
}

/// A condition on releases. A shorter number includes all releases that begin with it: 6.6.30 is 6.6.
#[derive(Clone, Debug, PartialEq, Eq)]
enum VersionReq {
    AtLeast(Vec<u32>),
    Above(Vec<u32>),
    AtMost(Vec<u32>),
    Below(Vec<u32>),
    Not(Vec<u32>),
    Only(Vec<u32>),
    Between(Vec<u32>, Vec<u32>),
}

impl VersionReq {
    fn holds(&self, release: &[u32]) -> bool {
        let cut = |to: &Vec<u32>| -> Vec<u32> { (0..to.len()).map(|i| release.get(i).copied().unwrap_or(0)).collect() };
        match self {
            VersionReq::AtLeast(v) => cut(v) >= *v,
            VersionReq::Above(v) => cut(v) > *v,
            VersionReq::AtMost(v) => cut(v) <= *v,
            VersionReq::Below(v) => cut(v) < *v,
            VersionReq::Not(v) => cut(v) != *v,
            VersionReq::Only(v) => cut(v) == *v,
            VersionReq::Between(from, to) => cut(from) >= *from && cut(to) <= *to,
        }
    }
}

/// The error in an exception, and the remedy.
pub type ExceptionError = (String, String);

const FORMS: &str = "write `kernels >= 5.15`, `optional probe kprobe:foo*` or `allow RULE why`";

impl Exceptions {
    /// Adds the exceptions of another after these.
    pub fn add(&mut self, more: Exceptions) {
        self.kernels.extend(more.kernels);
        self.optional.extend(more.optional);
        self.allowed.extend(more.allowed);
    }

    /// Parses the comments of a script, each on a separate line. The second result has malformed ones with their places.
    pub fn parse_comments(source: &Source) -> (Self, Vec<(Span, ExceptionError)>) {
        let (mut all, mut wrong, mut at) = (Self::default(), Vec::new(), 0usize);
        for line in source.text.split_inclusive('\n') {
            let start = at;
            at += line.len();
            let Some(text) = line.trim_start().strip_prefix("//").and_then(|t| t.trim_start().strip_prefix("check:")) else { continue };
            let text = text.trim();
            if let Err(why) = all.read(text) {
                let from = start + line.len() - line.trim_start().len();
                let span = Span { source: 0, start: from as u32, end: (start + line.trim_end().len()) as u32, ..Span::default() };
                wrong.push((span, why));
            }
        }
        (all, wrong)
    }

    /// `kernels …`, `optional probe …`, `allow …`
    fn read(&mut self, text: &str) -> Result<(), ExceptionError> {
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim();
        match word {
            "kernels" => self.add_kernels(rest),
            "optional" => {
                let pattern = rest.strip_prefix("probe").filter(|r| r.starts_with(char::is_whitespace)).unwrap_or(rest);
                self.add_optional(pattern.trim())
            }
            "allow" => {
                let (rule, why) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
                self.add_allowed(rule, why.trim())
            }
            "" => Err(("nothing follows `check:`".into(), FORMS.into())),
            _ => {
                let help = nearest(word, ["kernels", "optional", "allow"]).map_or(FORMS.into(), |near| format!("did you mean `{near}`?"));
                Err((format!("`check:` does not know `{word}`"), help))
            }
        }
    }

    /// Conditions, separated by commas.
    pub fn add_kernels(&mut self, text: &str) -> Result<(), ExceptionError> {
        if text.trim().is_empty() {
            return Err(("`kernels` has no condition".into(), "write, for example, `kernels >= 5.15`".into()));
        }
        for one in text.split(',') {
            let one = one.trim();
            let Some(required) = version_req(one) else {
                let help = "write, for example, `>= 5.15`, `< 6.6`, `!= 6.1` or `5.10..6.1`; separate conditions by commas";
                return Err((format!("`{one}` is not a condition on kernels"), help.into()));
            };
            if let VersionReq::Between(from, to) = &required
                && from > to
            {
                let help = "write the older one first: `5.10..6.1`";
                return Err((format!("`{one}` contains no kernels"), help.into()));
            }
            self.kernels.push((required, one.to_string()));
        }
        Ok(())
    }

    /// A pattern of attach points.
    pub fn add_optional(&mut self, pattern: &str) -> Result<(), ExceptionError> {
        let kind = pattern.split(':').next().unwrap_or("");
        if probes::find(kind).is_none() || !pattern.contains(':') {
            let known = probes::KINDS.iter().map(|k| k.name());
            let help = nearest(kind, known).filter(|near| *near != kind).map(|near| format!("did you mean `{near}`?"));
            return Err((
                format!("`{pattern}` is not a probe"),
                help.unwrap_or_else(|| "write it as in the script, such as kprobe:foo*".into()),
            ));
        }
        self.optional.push(pattern.to_string());
        Ok(())
    }

    /// A rule, with the reason.
    pub fn add_allowed(&mut self, rule: &str, why: &str) -> Result<(), ExceptionError> {
        let is_word = !rule.is_empty() && rule.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        let near = nearest(rule, RULES.iter().map(|r| r.name)).filter(|near| *near != rule);
        match near {
            None if is_word && codes::find(rule).is_none() => {
                Err((format!("there is no rule `{rule}`"), "write the word in brackets of a finding: `allow sign-changed`".into()))
            }
            Some(near) => Err((format!("there is no rule `{rule}`"), format!("did you mean `{near}`?"))),
            None if !is_word => {
                let message = if rule.is_empty() { "`allow` names no rule".into() } else { format!("`{rule}` is not a rule") };
                Err((message, "write the word in brackets of a finding: `allow sign-changed`".into()))
            }
            None => {
                self.allowed.push((rule.to_string(), why.to_string()));
                Ok(())
            }
        }
    }

    /// Why a kernel of this release is skipped.
    pub fn skips(&self, release: &str) -> Option<String> {
        let numbers = numbers(release.split(|c: char| !c.is_ascii_digit() && c != '.').next()?)?;
        let (_, text) = self.kernels.iter().find(|(required, _)| !required.holds(&numbers))?;
        Some(format!("the script is for kernels {text}, but this is {release}"))
    }

    /// May this attach point be missing?
    pub fn may_lack(&self, point: &str) -> bool {
        let parts = |text: &str| text.split_once(':').map(|(kind, rest)| (kind.to_string(), rest.to_string()));
        let Some((kind, rest)) = parts(point) else { return false };
        self.optional.iter().any(|pattern| {
            parts(pattern).is_some_and(|(k, r)| {
                let same = |a: &str, b: &str| matches!((probes::find(a), probes::find(b)), (Some(a), Some(b)) if a.name() == b.name());
                same(&k, &kind) && matches(&r, &rest)
            })
        })
    }

    /// The reason for allowing findings of this rule; empty if no reason was given.
    pub fn allows(&self, rule: &str) -> Option<&str> {
        self.allowed.iter().find(|(r, _)| r == rule).map(|(_, why)| why.as_str())
    }
}

fn version_req(text: &str) -> Option<VersionReq> {
    if let Some((from, to)) = text.split_once("..") {
        return Some(VersionReq::Between(numbers(from.trim())?, numbers(to.trim())?));
    }
    let digits = text.find(|c: char| c.is_ascii_digit())?;
    let (sign, number) = text.split_at_checked(digits)?;
    let number = numbers(number.trim())?;
    Some(match sign.trim() {
        ">=" => VersionReq::AtLeast(number),
        ">" => VersionReq::Above(number),
        "<=" => VersionReq::AtMost(number),
        "<" => VersionReq::Below(number),
        "!=" => VersionReq::Not(number),
        "" | "=" | "==" => VersionReq::Only(number),
        _ => return None,
    })
}

/// A release such as `6.1`.
fn numbers(text: &str) -> Option<Vec<u32>> {
    let all: Option<Vec<u32>> = text.trim_end_matches('.').split('.').map(|n| n.parse().ok()).collect();
    all.filter(|n| n.len() <= 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> (Exceptions, Vec<(String, String)>) {
        let source = Source { name: "a.bt".into(), text: text.into() };
        let (all, wrong) = Exceptions::parse_comments(&source);
        let placed = wrong.into_iter().map(|(s, why)| (text[s.start as usize..s.end as usize].to_string(), why.0 + "; " + &why.1));
        (all, placed.collect())
    }

    #[test]
    fn kernels() {
        for (text, release, skipped) in [
            (">= 5.15", "5.15.0-101-generic", false),
            (">= 5.15", "5.4.0", true),
            ("< 6", "6.0.1", true),
            ("<6", "5.19.2", false),
            ("<= 6.6", "6.6.30", false),
            ("> 6.6", "6.6.30", true),
            ("> 6.6", "6.7.0-rc1", false),
            ("!= 6.6", "6.6.1", true),
            ("5.10..6.1", "6.1.99", false),
            ("5.10..6.1", "6.2", true),
            (">= 5.15, != 6.6", "6.6.1", true),
            ("6.1", "6.1.0-48-cloud-amd64", false),
            (">= 5", "", false),
        ] {
            let (all, wrong) = of(&format!("// check: kernels {text}\nbegin {{ }}\n"));
            assert!(wrong.is_empty(), "{wrong:?}");
            assert_eq!(all.skips(release).is_some(), skipped, "{text} {release}");
        }
    }

    #[test]
    fn probes_and_rules() {
        let (all, wrong) =
            of("  // check: optional probe k:foo*\n//check:optional kretprobe:bar\n// check: allow sign-changed only printed\n");
        assert!(wrong.is_empty(), "{wrong:?}");
        assert!(all.may_lack("kprobe:foo_bar") && all.may_lack("kr:bar") && !all.may_lack("kprobe:bar") && !all.may_lack("kretprobe:foo"));
        assert_eq!((all.allows("sign-changed"), all.allows("type-changed")), (Some("only printed"), None));
    }

    #[test]
    fn reports_invalid_exceptions() {
        let text = "// check: kernel >= 5\n// check: kernels new\n// check:\n// check: optional probe kprob:x\n// check: allow sgin-changed\n\
                    // check: allow 7\n// check: allow anything\nbegin { printf(\"// check: nonsense\"); } // check: fine\n";
        let (_, wrong) = of(text);
        let messages: Vec<&str> = wrong.iter().map(|(_, why)| why.as_str()).collect();
        assert_eq!(messages.len(), 7, "{messages:?}");
        assert!(
            messages[0].ends_with("did you mean `kernels`?") && messages[1].starts_with("`new` is not a condition on kernels"),
            "{messages:?}"
        );
        assert!(messages[3].ends_with("did you mean `kprobe`?") && messages[4].ends_with("did you mean `sign-changed`?"), "{messages:?}");
        assert_eq!(wrong[0].0, "// check: kernel >= 5");
    }
}

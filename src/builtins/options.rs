//! Options of a script: named options after `--`, and the settings of the run.

use std::sync::Arc;

use super::{Accepts, ArgInfo, Builtin, CallInfo, Codegen, Lit, Param, Returns};
use crate::diag::{Diagnostic, Span};
use crate::probes::ContextFeatures;
use crate::settings::{Invocation, SETTINGS, SWITCH, Settings, TEXT, UNDECIDED, parse_bool, parse_int};
use crate::types::{Field, Record, Type};

const GETOPT: &str = "getopt";

pub(super) const ROWS: &[Builtin] = &[
    Builtin {
        name: GETOPT,
        params: &[
            Param::new("name", Accepts::LitStr),
            Param::optional("default", Accepts::Any),
            Param::optional("description", Accepts::LitStr),
        ],
        returns: Returns::By(|f| check_option(f).map(|(ty, _)| ty)),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Fold(|f| check_option(f).map(|(_, value)| value)),
        doc: "Returns the value of a named option, which users give after -- as --name=value or --name value. The default value determines the type. Without one, the option is a switch. In attach points, $name stands for the value: commas yield several attach points, and an empty value or 0 yields none. -- --help lists the options of a script.",
        example: "begin { printf(\"%d\\n\", getopt(\"depth\", 3, \"how deep to look\")); }",
    },
    Builtin {
        name: "config",
        params: &[],
        returns: Returns::By(|f| Ok(settings(f.settings).0)),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Fold(|f| Ok(Lit::Str(settings(f.settings).1))),
        doc: "A record of the settings of the run, as numbers, booleans and strings. rbt evaluates it when it checks the script.",
        example: "begin { if comptime (config.max_strlen < 64) { printf(\"short strings\\n\"); } }",
    },
];

/// A named option, as declared at one place in a script.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptOption {
    /// The name without dashes.
    pub name: String,
    /// The default value, which determines the type.
    pub default: Default,
    /// For the script's help.
    pub description: Option<String>,
    /// The call.
    pub span: Span,
}

impl ScriptOption {
    /// Does it take a value, unlike a switch?
    pub fn takes_value(&self) -> bool {
        !matches!(self.default, Default::Bool(_))
    }

    /// Its substitution in an attach point: the last given value, or else the default; nothing for a switch.
    pub fn written(&self, invocation: &Invocation) -> Option<String> {
        let given = invocation.options.iter().rev().find(|(name, _)| *name == self.name).and_then(|(_, value)| value.clone());
        match &self.default {
            Default::Bool(_) => None,
            Default::Int(n) => given.or_else(|| Some(n.to_string())),
            Default::Str(text) => given.or_else(|| Some(text.clone())),
        }
    }
}

/// The default value of an option, or a switch.
#[derive(Clone, Debug, PartialEq)]
pub enum Default {
    /// A switch.
    Bool(bool),
    /// If negative, `int64`, otherwise `uint64`.
    Int(i64),
    /// Text.
    Str(String),
}

/// The option that a call of `row` with these literals declares, as far as they are known. The help of a script needs it even
/// on machines that cannot run the script.
pub fn declared(row: &str, args: &[ArgInfo], span: Span) -> Option<ScriptOption> {
    if row != GETOPT {
        return None;
    }
    let text = |i: usize| match args.get(i)?.lit.as_ref()? {
        Lit::Str(s) => Some(String::from_utf8_lossy(s).into_owned()),
        Lit::Int(_) | Lit::Word(_) => None,
    };
    let default = match args.get(1) {
        None => Default::Bool(false),
        Some(fact) => match (fact.lit.as_ref()?, &fact.ty) {
            (Lit::Int(n), Type::Bool) => Default::Bool(*n != 0),
            (Lit::Int(n), _) => Default::Int(*n),
            (Lit::Str(_) | Lit::Word(_), _) => Default::Str(text(1)?),
        },
    };
    Some(ScriptOption { name: text(0)?, default, description: text(2), span })
}

fn check_option(f: &CallInfo) -> Result<(Type, Lit), Diagnostic> {
    let Some(option) = declared(f.name, f.args, f.span) else {
        let d = Diagnostic::error("not-constant", f.span(1), "an option's default must be a literal: true, false, a number or a string");
        return Err(d.help("the default determines the type of the option"));
    };
    f.notes.borrow_mut().options.push(option.clone());
    let name = &option.name;
    let bad = |value: &str, wants: &str| Diagnostic::error("bad-option", f.span, format!("--{name}={value}: the option takes {wants}"));
    // The last given value counts.
    let value = f.invocation.options.iter().rev().find(|(n, _)| n == name).map(|(_, v)| v.as_deref());
    match (&option.default, value) {
        (Default::Bool(_), Some(None)) => Ok((Type::Bool, Lit::Int(1))),
        (Default::Int(_) | Default::Str(_), Some(None)) => {
            let d = Diagnostic::error("bad-option", f.span, format!("--{name} needs a value"));
            Err(d.help(format!("--{name}=VALUE")))
        }
        (Default::Bool(default), None) => Ok((Type::Bool, Lit::Int((*default).into()))),
        (Default::Bool(_), Some(Some(text))) => match parse_bool(text) {
            Ok(b) => Ok((Type::Bool, Lit::Int(b.into()))),
            Err(_) => Err(bad(text, "true or false")),
        },
        (Default::Int(n), None) => Ok((number(*n), Lit::Int(*n))),
        (Default::Int(n), Some(Some(text))) => match (number(*n), signed(text)) {
            (ty, Some(value)) if ty == Type::I64 => Ok((ty, Lit::Int(value))),
            (_, Some(value)) if value < 0 => Err(bad(text, "a number that is not negative")),
            (ty, _) => match parse_int(text) {
                Ok(n) if ty == Type::U64 => Ok((ty, Lit::Int(n as i64))),
                Ok(_) | Err(_) => Err(bad(text, "a number")),
            },
        },
        (Default::Str(text), None) => Ok((Type::Str(0), string(text, f)?)),
        (Default::Str(_), Some(Some(text))) => Ok((Type::Str(0), string(text, f)?)),
    }
}

/// All settings as a record, and its bytes.
fn settings(s: &Settings) -> (Type, Vec<u8>) {
    // Whose symbols are cached is decided when the run starts.
    let chosen = SETTINGS.iter().filter(|row| (row.get)(s) != UNDECIDED);
    let values: Vec<(&str, Type, Vec<u8>)> = chosen
        .map(|row| {
            let text = (row.get)(s);
            match (parse_bool(&text), text.parse::<u64>()) {
                (Ok(b), _) if row.values == SWITCH => (row.name, Type::Bool, vec![b.into()]),
                (_, Ok(n)) if row.values != TEXT => (row.name, Type::U64, n.to_le_bytes().to_vec()),
                _ => (row.name, Type::Str(text.len() as u32 + 1), text.into_bytes()),
            }
        })
        .collect();
    let types: Vec<Type> = values.iter().map(|(_, ty, _)| ty.clone()).collect();
    let size = Type::Tuple(types.clone()).size();
    let (mut fields, mut bytes) = (Vec::new(), vec![0; size as usize]);
    for ((name, ty, value), offset) in values.into_iter().zip(Type::tuple_offsets(&types)) {
        bytes.iter_mut().skip(offset as usize).zip(&value).for_each(|(to, from)| *to = *from);
        fields.push(Field { name: name.into(), offset, bits: None, ty });
    }
    (Type::Record(Arc::new(Record { name: String::new(), size, fields })), bytes)
}

fn number(default: i64) -> Type {
    if default < 0 { Type::I64 } else { Type::U64 }
}

fn signed(text: &str) -> Option<i64> {
    match text.strip_prefix('-') {
        Some(digits) => 0i64.checked_sub_unsigned(parse_int(digits).ok()?),
        None => i64::try_from(parse_int(text).ok()?).ok(),
    }
}

fn string(text: &str, f: &CallInfo) -> Result<Lit, Diagnostic> {
    let max = f.settings.max_strlen;
    if text.len() as u64 >= max {
        let message = format!("the option's text has {} bytes; the limit is {}", text.len(), max.saturating_sub(1));
        return Err(Diagnostic::error("too-long", f.span, message).help("raise it with the setting max_strlen"));
    }
    Ok(Lit::Str(text.as_bytes().to_vec()))
}

/// The lines of a script's help about these options.
pub fn list(options: &[ScriptOption]) -> Vec<String> {
    let left = |o: &ScriptOption| match &o.default {
        Default::Bool(_) => format!("  --{}", o.name),
        Default::Int(_) => format!("  --{}=NUMBER", o.name),
        Default::Str(_) => format!("  --{}=TEXT", o.name),
    };
    let width = options.iter().map(|o| left(o).chars().count()).max().unwrap_or(0).max("  --help".len());
    let line = |o: &ScriptOption| {
        let default = match &o.default {
            Default::Bool(false) => String::new(),
            Default::Str(s) if s.is_empty() => String::new(),
            Default::Bool(true) => "default true".into(),
            Default::Int(n) => format!("default {n}"),
            Default::Str(s) if s.is_empty() => String::new(),
            Default::Str(s) => format!("default \"{s}\""),
        };
        let description = o.description.clone().unwrap_or_default();
        let right = match (description.is_empty(), default.is_empty()) {
            (_, true) => description,
            (true, false) => default,
            (false, false) => format!("{description} ({default})"),
        };
        format!("{:width$}  {right}", left(o)).trim_end().to_string()
    };
    options.iter().map(line).chain([format!("{:width$}  show this list", "  --help")]).collect()
}

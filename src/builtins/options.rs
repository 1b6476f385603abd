//! Options of a script: named options after `--`, and the settings of the run.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Accepts, ArgInfo, Builtin, CallInfo, Codegen, Lit, Param, Returns};
use crate::diag::{Diagnostic, Span, nearest};
use crate::emit::Operand;
use crate::probes::ContextFeatures;
use crate::settings::{
    Argument, Invocation, LateBound, MAX_ARGUMENT_TEXT, SETTINGS, SWITCH, Settings, TEXT, UNDECIDED, parse_bool, parse_int,
};
use crate::types::{Field, Int, Record, Type};

const GETOPT: &str = "getopt";
/// A number in the memory of arguments.
const WORD: Int = Int { bytes: 8, signed: false };

pub(super) const ROWS: &[Builtin] = &[
    Builtin {
        name: GETOPT,
        params: &[
            Param::new("name", Accepts::LitStr),
            Param::optional("default", Accepts::Any),
            Param::optional("description", Accepts::LitStr),
        ],
        returns: Returns::By(|f| {
            let (ty, _) = check_option(f)?;
            let name = f.text(0).map(String::from_utf8_lossy).unwrap_or_default();
            let late_bound = &f.invocation.late_bound;
            let Some(place) = late_bound.use_place(&Argument::Option(name.into_owned())) else { return Ok(ty) };
            f.bind_consts(&[place.into(), late_bound.size().into()]);
            Ok(if matches!(ty, Type::Str(_)) { Type::Str(MAX_ARGUMENT_TEXT) } else { ty })
        }),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Known(
            |f| {
                let name = f.text(0).map(String::from_utf8_lossy).unwrap_or_default().into_owned();
                let is_known = !f.invocation.late_bound.contains(&Argument::Option(name));
                is_known.then(|| check_option(f)).and_then(|checked| checked.ok()).map(|(_, value)| value)
            },
            |e, u, _| {
                let at = e.argument(u.const_at(0) as u32, u.const_at(1) as u32);
                if matches!(u.ty, Type::Str(_)) {
                    return Operand::mem(u.ty.clone(), at);
                }
                Operand::reg(u.ty.clone(), e.load(at, 0, WORD))
            },
        ),
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScriptOption {
    /// The name without dashes.
    pub name: String,
    /// The default value, which determines the type.
    pub default: Default,
    /// For the script's help.
    pub description: Option<String>,
    /// The call.
    #[serde(skip)]
    pub span: Span,
}

impl ScriptOption {
    /// Does it take a value, unlike a switch?
    pub fn takes_value(&self) -> bool {
        !matches!(self.default, Default::Bool(_))
    }

    /// Is its value text?
    pub fn is_text(&self) -> bool {
        matches!(self.default, Default::Str(_))
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

impl ScriptOption {
    /// Its value: the default, or what is given for it, which may be nothing.
    ///
    /// # Errors
    /// What is wrong, and a remedy.
    pub fn value(&self, given: Option<Option<&str>>) -> Result<Lit, (String, Option<String>)> {
        let name = &self.name;
        let bad = |value: &str, wants: &str| Err((format!("--{name}={value}: the option takes {wants}"), None));
        let text = match (&self.default, given) {
            (Default::Bool(default), None) => return Ok(Lit::Int((*default).into())),
            (Default::Bool(_), Some(None)) => return Ok(Lit::Int(1)),
            (Default::Int(n), None) => return Ok(Lit::Int(*n)),
            (Default::Str(text), None) => return Ok(Lit::Str(text.as_bytes().to_vec())),
            (Default::Int(_) | Default::Str(_), Some(None)) => {
                return Err((format!("--{name} needs a value"), Some(format!("--{name}=VALUE"))));
            }
            (_, Some(Some(text))) => text,
        };
        match &self.default {
            Default::Bool(_) => match parse_bool(text) {
                Ok(b) => Ok(Lit::Int(b.into())),
                Err(_) => bad(text, "true or false"),
            },
            Default::Int(n) => match (number(*n), signed(text)) {
                (ty, Some(value)) if ty == Type::I64 => Ok(Lit::Int(value)),
                (_, Some(value)) if value < 0 => bad(text, "a number that is not negative"),
                (ty, _) => match parse_int(text) {
                    Ok(n) if ty == Type::U64 => Ok(Lit::Int(n as i64)),
                    Ok(_) | Err(_) => bad(text, "a number"),
                },
            },
            Default::Str(_) => Ok(Lit::Str(text.as_bytes().to_vec())),
        }
    }
}

/// The row whose calls read arguments of the run.
pub fn argument_row() -> &'static Builtin {
    match super::find(GETOPT) {
        Some(row) => row,
        None => crate::bug!("there is no {GETOPT}"),
    }
}

pub(super) fn is_argument(row: &Builtin, invocation: &Invocation) -> bool {
    row.name == GETOPT && invocation.late_bound.size() > 0
}

/// The argument that a call reads when the program runs.
pub fn argument<'a>(row: &Builtin, consts: &[i64], invocation: &'a Invocation) -> Option<&'a Argument> {
    let place = consts.first().filter(|_| row.name == GETOPT)?;
    invocation.late_bound.argument_at(u32::try_from(*place).ok()?)
}

/// The default value of an option, or a switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    // The last given value counts.
    let value = f.invocation.options.iter().rev().find(|(n, _)| *n == option.name).map(|(_, v)| v.as_deref());
    let lit = option.value(value).map_err(|(message, help)| {
        let d = Diagnostic::error("bad-option", f.span, message);
        if let Some(help) = help { d.help(help) } else { d }
    })?;
    match (&option.default, lit) {
        (Default::Bool(_), lit) => Ok((Type::Bool, lit)),
        (Default::Int(n), lit) => Ok((number(*n), lit)),
        (Default::Str(_), Lit::Str(text)) => Ok((Type::Str(0), string(text, f)?)),
        (Default::Str(_), Lit::Int(_) | Lit::Word(_)) => crate::bug!("the option --{} is text", option.name),
    }
}

/// The arguments that a compiled script takes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RunArguments {
    /// The named options.
    options: Vec<ScriptOption>,
    /// The names of options that were fixed when it was compiled.
    fixed: Vec<String>,
    /// Offsets of the arguments in memory.
    places: Vec<(Argument, u32)>,
    /// Bytes of that memory.
    size: u32,
}

/// The values of the arguments of a compiled script.
#[derive(Clone, Debug, Default)]
pub struct ArgumentValues {
    /// As the code reads them.
    pub memory: Vec<u8>,
    values: BTreeMap<Argument, Lit>,
}

/// Why arguments do not fit a compiled script: a message, and a remedy.
pub type WrongArgument = (String, Option<String>);

impl RunArguments {
    /// Those of a script with these options.
    pub fn new(options: &[ScriptOption], late_bound: &LateBound) -> Self {
        let is_late_bound = |o: &&ScriptOption| late_bound.contains(&Argument::Option(o.name.clone()));
        let (free, fixed): (Vec<&ScriptOption>, Vec<&ScriptOption>) = options.iter().partition(is_late_bound);
        Self {
            options: free.into_iter().cloned().collect(),
            fixed: fixed.into_iter().map(|o| o.name.clone()).collect(),
            places: late_bound.used(),
            size: late_bound.size(),
        }
    }

    /// Can it have been written by rbt?
    pub fn is_valid(&self) -> bool {
        self.size <= MAX_ARGUMENTS && self.places.iter().all(|(_, place)| *place < self.size)
    }

    /// The options whose value may be the next argument.
    pub fn valued(&self) -> Vec<&str> {
        self.options.iter().filter(|o| o.takes_value()).map(|o| o.name.as_str()).collect()
    }

    /// The values of these arguments.
    ///
    /// # Errors
    /// They do not fit the script.
    pub fn values(&self, params: &[String], given: &[(String, Option<String>)]) -> Result<ArgumentValues, WrongArgument> {
        if let Some((name, _)) = given.iter().find(|(name, _)| !self.options.iter().any(|o| o.name == *name)) {
            return Err(self.unknown(name));
        }
        let takes_params = self.places.iter().any(|(argument, _)| !matches!(argument, Argument::Option(_)));
        if let Some(word) = params.first().filter(|_| !takes_params) {
            return Err((format!("the script takes no positional parameters, and `{word}` is one"), None));
        }
        let mut values = BTreeMap::new();
        for option in &self.options {
            let value = given.iter().rev().find(|(name, _)| *name == option.name).map(|(_, value)| value.as_deref());
            values.insert(Argument::Option(option.name.clone()), option.value(value)?);
        }
        let param = |n: u32| (n as usize).checked_sub(1).and_then(|i| params.get(i)).map_or("", String::as_str);
        for (argument, _) in &self.places {
            let value =
                match argument {
                    Argument::Option(_) => continue,
                    Argument::Text(n) => Lit::Str(param(*n).as_bytes().to_vec()),
                    Argument::Count => Lit::Int(params.len() as i64),
                    Argument::Number(n) => match param(*n) {
                        "" => Lit::Int(0),
                        text => Lit::Int(signed(text).ok_or_else(|| {
                            (format!("the parameter ${n} is a number from -2^63 to 2^63 - 1, and `{text}` is none"), None)
                        })?),
                    },
                };
            values.insert(argument.clone(), value);
        }
        let mut memory = vec![0; self.size as usize];
        for (argument, place) in &self.places {
            let bytes = match values.get(argument) {
                Some(Lit::Int(n)) => n.to_ne_bytes().to_vec(),
                Some(Lit::Str(text)) if text.len() < MAX_ARGUMENT_TEXT as usize => text.clone(),
                Some(Lit::Str(text)) => {
                    let limit = MAX_ARGUMENT_TEXT - 1;
                    return Err((format!("the argument `{}` is longer than {limit} bytes", String::from_utf8_lossy(text)), None));
                }
                Some(Lit::Word(_)) | None => continue,
            };
            memory.iter_mut().skip(*place as usize).zip(bytes).for_each(|(to, from)| *to = from);
        }
        Ok(ArgumentValues { memory, values })
    }

    fn unknown(&self, name: &str) -> WrongArgument {
        if self.fixed.iter().any(|fixed| fixed == name) {
            return (format!("the option --{name} was fixed when the bundle was built"), Some(format!("build it with --{name}")));
        }
        let names: Vec<String> = self.options.iter().map(|o| format!("--{}", o.name)).collect();
        let all = if names.is_empty() { "it has none".to_string() } else { format!("it has {}", names.join(", ")) };
        let near = nearest(name, self.options.iter().map(|o| o.name.as_str()));
        let help = near.map_or(all.clone(), |near| format!("did you mean `--{near}`? ({all})"));
        (format!("the script has no option `--{name}`"), Some(help))
    }

    /// The lines about them in the script's help.
    pub fn help(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.options.is_empty() {
            lines.push("Options of the script:".to_string());
            let all = list(&self.options);
            lines.extend(all.into_iter().take(self.options.len()));
        }
        if !self.fixed.is_empty() {
            let names: Vec<String> = self.fixed.iter().map(|name| format!("--{name}")).collect();
            lines.push(format!("Fixed when the script was compiled: {}", names.join(", ")));
        }
        lines
    }
}

impl ArgumentValues {
    /// The value of an argument.
    pub fn value(&self, argument: &Argument) -> Option<&Lit> {
        self.values.get(argument)
    }

    /// Its text.
    pub fn text(&self, argument: &Argument) -> Option<String> {
        match self.values.get(argument)? {
            Lit::Int(n) => Some(n.to_string()),
            Lit::Str(text) => Some(String::from_utf8_lossy(text).into_owned()),
            Lit::Word(word) => Some(word.clone()),
        }
    }
}

/// The maximum size of the arguments in memory, in bytes.
const MAX_ARGUMENTS: u32 = 1 << 20;

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
    (Type::Record(Arc::new(Record { name: String::new(), size, fields, variants: None })), bytes)
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

fn string(text: Vec<u8>, f: &CallInfo) -> Result<Lit, Diagnostic> {
    let max = f.settings.max_strlen;
    if text.len() as u64 >= max {
        let message = format!("the option's text has {} bytes; the limit is {}", text.len(), max.saturating_sub(1));
        return Err(Diagnostic::error("too-long", f.span, message).help("raise it with the setting max_strlen"));
    }
    Ok(Lit::Str(text))
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

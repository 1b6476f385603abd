//! Builtins that the checker evaluates: types, constants, and features of the kernel. They produce no code.

use super::print::FORMAT;
use super::{Accepts, Builtin, CallInfo, Codegen, Lit, Param, Returns};
use crate::diag::Diagnostic;
use crate::emit::Operand;
use crate::probes::{self, ContextFeatures};
use crate::render::format;
use crate::types::Type;
use crate::value::Value;

const ANY: &[Param] = &[Param::new("expression", Accepts::Any)];
const FUNCTION: &[Param] = &[Param::new("function", Accepts::LitStr)];

/// A query about an expression's type.
macro_rules! asks {
    ($name:literal, $answer:expr, $doc:literal, $example:literal) => {
        Builtin {
            name: $name,
            params: ANY,
            returns: Returns::Always(Type::Bool),
            needs: ContextFeatures::NONE,
            risky: false,
            codegen: Codegen::Fold(|f| {
                let answer: fn(&super::ArgInfo) -> bool = $answer;
                Ok(Lit::Int(f.args.first().is_some_and(answer).into()))
            }),
            doc: $doc,
            example: $example,
        }
    };
}

pub(super) const ROWS: &[Builtin] = &[
    asks!(
        "is_str",
        |a| matches!(a.ty, Type::Str(_)),
        "Returns true if the expression is a string. rbt evaluates it when it checks the script.",
        "begin { if comptime is_str(comm) { printf(\"a string\\n\"); } }"
    ),
    asks!(
        "is_ptr",
        |a| matches!(a.ty, Type::Ptr(..)),
        "Returns true if the expression is a pointer. rbt evaluates it when it checks the script.",
        "begin { if comptime is_ptr(curtask) { printf(\"a pointer\\n\"); } }"
    ),
    asks!(
        "is_array",
        |a| matches!(a.ty, Type::Array(..)),
        "Returns true if the expression is an array. rbt evaluates it when it checks the script.",
        "begin { if comptime is_array((uint8[4])1) { printf(\"an array\\n\"); } }"
    ),
    asks!(
        "is_integer",
        |a| matches!(a.ty, Type::Int(_) | Type::Enum(_)),
        "Returns true if the expression is an integer. rbt evaluates it when it checks the script.",
        "begin { if comptime is_integer(pid) { printf(\"an integer\\n\"); } }"
    ),
    asks!(
        "is_unsigned_integer",
        |a| matches!(a.ty, Type::Int(_) | Type::Enum(_)) && a.ty.as_int().is_some_and(|i| !i.signed),
        "Returns true if the expression is an unsigned integer. rbt evaluates it when it checks the script.",
        "begin { if comptime is_unsigned_integer(pid) { printf(\"unsigned\\n\"); } }"
    ),
    asks!(
        "is_literal",
        |a| a.lit.is_some(),
        "Returns true if the expression is a literal or a constant made of literals. rbt evaluates it when it checks the script.",
        "begin { if comptime is_literal(5) { printf(\"a literal\\n\"); } }"
    ),
    Builtin {
        name: "is_scalar",
        params: &[Param::new("map", Accepts::Map)],
        returns: Returns::Always(Type::Bool),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Fold(|f| Ok(Lit::Int(f.args.first().and_then(|a| a.map.as_ref()).is_some_and(|m| m.key.is_none()).into()))),
        doc: "Returns true if the map has no keys. rbt evaluates it when it checks the script.",
        example: "begin { @total = 1; if comptime is_scalar(@total) { print(@total); } }",
    },
    Builtin {
        name: "check_key",
        params: &[Param::new("map", Accepts::KeyedMap), Param::new("key", Accepts::Key)],
        returns: Returns::Always(Type::Void),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|_, _, _| Operand::void()),
        doc: "Rejects the script if the value cannot be a key of the map.",
        example: "begin { @names[1] = \"one\"; check_key(@names, 2); }",
    },
    Builtin {
        name: "assert",
        params: &[Param::new("condition", Accepts::Any), Param::new("message", Accepts::Str)],
        returns: Returns::Always(Type::Void),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Source("macro assert(cond, msg) { if (!cond) { errorf(\"assert failed: %s\", msg); exit(1); } }"),
        doc: "Ends the run with an error message and status 1 if the condition is false.",
        example: "begin { assert(ncpus > 0, \"no processor\"); }",
    },
    Builtin {
        name: "assert_str",
        params: ANY,
        returns: Returns::By(|f| match f.args.first() {
            Some(a) if !matches!(a.ty, Type::Str(_)) => {
                Err(Diagnostic::error("assertion", a.span, format!("this must be a string, but it is {}", a.ty)))
            }
            _ => Ok(Type::Void),
        }),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Effect(|_, _, _| Operand::void()),
        doc: "Rejects the script if the expression is not a string.",
        example: "begin { assert_str(comm); }",
    },
    Builtin {
        name: "assert_userspace_probe",
        params: &[],
        returns: Returns::Always(Type::Void),
        needs: ContextFeatures::BINARY,
        risky: false,
        codegen: Codegen::Code(|_, _, _| Operand::void()),
        doc: "Rejects the script if the probe is not on a user-space binary.",
        example: "uprobe:libc:malloc { assert_userspace_probe(); }",
    },
    Builtin {
        name: "static_assert",
        params: &[Param::new("condition", Accepts::LitInt), Param::new("message", Accepts::LitStr)],
        returns: Returns::By(|f| match f.int(0) {
            Some(0) => Err(Diagnostic::error("assertion", f.span, String::from_utf8_lossy(f.text(1).unwrap_or_default()).into_owned())),
            _ => Ok(Type::Void),
        }),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Effect(|_, _, _| Operand::void()),
        doc: "Rejects the script with this message if the condition is false. The condition must be constant.",
        example: "begin { static_assert(sizeof(uint64) == 8, \"a word of eight bytes\"); }",
    },
    Builtin {
        name: "fail",
        params: FORMAT,
        returns: Returns::By(|f| Err(Diagnostic::error("assertion", f.span, failure(f)?))),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Effect(|_, _, _| Operand::void()),
        doc: "Rejects the script with this message, unless an `if comptime` excludes it.",
        example: "begin { if comptime sizeof(uint64) != 8 { fail(\"a word has %d bytes\", sizeof(uint64)); } }",
    },
    Builtin {
        name: "kfunc_exist",
        params: FUNCTION,
        returns: Returns::Always(Type::Bool),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Fold(|f| Ok(Lit::Int(f.sys.describes_function(&name(f)).into()))),
        doc: "Returns true if the kernel's BTF has a function with this name. rbt evaluates it when it checks the script.",
        example: "begin { if comptime kfunc_exist(\"bpf_task_from_pid\") { printf(\"yes\\n\"); } }",
    },
    Builtin {
        name: "kfunc_allowed",
        params: FUNCTION,
        returns: Returns::Always(Type::Bool),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Fold(|f| Ok(Lit::Int(probes::may_call(f.site, &name(f), &f.env()).into()))),
        doc: "Returns true if a program of this probe may call this kernel function. rbt evaluates it when it checks the script.",
        example: "begin { if comptime kfunc_allowed(\"bpf_task_from_pid\") { printf(\"yes\\n\"); } }",
    },
    Builtin {
        name: "default_str_length",
        params: &[],
        returns: Returns::Always(Type::U64),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Fold(|f| Ok(Lit::Int(f.settings.max_strlen as i64))),
        doc: "Maximum length in bytes of the strings that str() reads: the setting max_strlen.",
        example: "begin { printf(\"%d\\n\", default_str_length); }",
    },
];

fn name(f: &CallInfo) -> String {
    String::from_utf8_lossy(f.text(0).unwrap_or_default()).into_owned()
}

/// The message of `fail`, whose arguments must all be constant.
fn failure(f: &CallInfo) -> Result<String, Diagnostic> {
    let mut values = Vec::new();
    for a in f.args.iter().skip(1) {
        values.push(match &a.lit {
            Some(Lit::Int(n)) if a.ty == Type::Bool => Value::Bool(*n != 0),
            Some(Lit::Int(n)) => Value::Int(*n),
            Some(Lit::Str(s)) => Value::Str { bytes: s.clone(), cut: false },
            Some(Lit::Word(_)) | None => {
                return Err(Diagnostic::error("not-constant", a.span, format!("{} takes a constant expression", f.name)));
            }
        });
    }
    let pieces = format::parse(f.text(0).unwrap_or_default()).map_err(|e| Diagnostic::error("format", f.span(0), e.message))?;
    let text = |_: usize, v: &Value, to: &mut Vec<u8>| {
        if let Value::Str { bytes, .. } = v {
            return to.extend_from_slice(bytes);
        }
        let number = v.number().unwrap_or_default();
        let text = if matches!(v, Value::Bool(_)) { (number != 0).to_string() } else { number.to_string() };
        to.extend_from_slice(text.as_bytes());
    };
    Ok(String::from_utf8_lossy(&format::format(&pieces, &values, &text)).into_owned())
}

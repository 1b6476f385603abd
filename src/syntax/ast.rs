//! The syntax tree: shapes and spans, without resolved names.

use std::sync::Arc;

use crate::diag::Span;
use crate::linked;

/// Maximum height of an expression's tree: a sum of this many terms reaches it. It limits the stack of recursive
/// functions over the tree.
pub const MAX_HEIGHT: usize = 500;

/// A name with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Ident {
    /// The name without the sigil (`$`, `@`) of variables and maps.
    pub name: String,
    /// The place, including the sigil.
    pub span: Span,
}

/// A whole script.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    /// The C part, verbatim: `#include`, `#define`, struct/union/enum definitions, in order.
    pub c_part: Vec<CItem>,
    /// `config = { … }`.
    pub config: Vec<ConfigItem>,
    /// `import "…";`
    pub imports: Vec<(String, Span)>,
    /// The BPF objects that it imports, and the places of the imports.
    pub objects: Vec<(Arc<linked::Object>, Span)>,
    /// Probes, macros, functions and map declarations in order.
    pub items: Vec<Item>,
    /// Macros of builtins that the script may use; their places are in [`LIBRARY`].
    pub library: Vec<Macro>,
}

/// The source of builtins' macros, which users do not see.
pub const LIBRARY: u16 = u16::MAX;

/// A piece of the C part.
#[derive(Clone, Debug, PartialEq)]
pub struct CItem {
    /// As written: a `#` line, or a whole definition.
    pub text: String,
    /// Its place.
    pub span: Span,
    /// A `#define` of an expression of the language: its body is only that expression.
    pub define: Option<Macro>,
}

/// `name = value;` within `config`.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigItem {
    /// The name as written.
    pub name: Ident,
    /// A string's contents, an integer's or bool's text, or a bare word.
    pub value: String,
    /// The place of the value.
    pub value_span: Span,
}

/// An item of the body.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// Attach points, predicate, body.
    Probe(Probe),
    /// `macro name(args) { … }`.
    Macro(Macro),
    /// `fn name($a : T) : R { … }`.
    Function(Function),
    /// `let @m = hash(100);`
    MapDecl(MapDecl),
}

/// A probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// At least one.
    pub points: Vec<AttachPoint>,
    /// `/ … /`.
    pub predicate: Option<Expr>,
    /// Its statements.
    pub body: Block,
    /// The whole probe.
    pub span: Span,
}

/// `[name=]provider:part:part…`
#[derive(Clone, Debug, PartialEq)]
pub struct AttachPoint {
    /// `x` of `x=begin`.
    pub name: Option<Ident>,
    /// Parts between colons, the provider first; positional parameters not yet expanded.
    pub segments: Vec<Segment>,
    /// The whole attach point.
    pub span: Span,
}

/// A part of an attach point.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// The text without quotes, with escapes resolved.
    pub text: String,
    /// It was (partly) quoted, so it contains no wildcard and no positional parameter.
    pub quoted: bool,
    /// Its place.
    pub span: Span,
}

/// A macro's definition.
#[derive(Clone, Debug, PartialEq)]
pub struct Macro {
    /// Its name.
    pub name: Ident,
    /// The kind of each argument.
    pub params: Vec<MacroParam>,
    /// An expression-valued block.
    pub body: Block,
    /// The whole definition.
    pub span: Span,
}

/// A macro's parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum MacroParam {
    /// `$v`: a scratch variable by reference.
    Var(Ident),
    /// `@m`: a map by reference.
    Map(Ident),
    /// `x`: an expression, substituted.
    Expr(Ident),
}

/// A user function.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Its name.
    pub name: Ident,
    /// Names and types.
    pub params: Vec<(Ident, TypeExpr)>,
    /// The result type.
    pub returns: TypeExpr,
    /// Its body.
    pub body: Block,
    /// The whole definition.
    pub span: Span,
}

/// A map's declaration.
#[derive(Clone, Debug, PartialEq)]
pub struct MapDecl {
    /// The map.
    pub map: Ident,
    /// `hash`, `lruhash`, `percpuhash`, `percpulruhash`.
    pub kind: Ident,
    /// The number of entries.
    pub entries: Expr,
    /// The whole declaration.
    pub span: Span,
}

/// `{ stmt; stmt; expr }`
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// The statements, in order.
    pub stmts: Vec<Stmt>,
    /// The block's value: a last expression without `;`. In a probe's body or a loop it is only evaluated.
    pub value: Option<Box<Expr>>,
    /// The place, including the braces.
    pub span: Span,
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Stmt {
    /// Its kind.
    pub kind: StmtKind,
    /// The whole statement.
    pub span: Span,
}

/// The kinds of statement.
#[derive(Clone, Debug, PartialEq)]
pub enum StmtKind {
    /// An expression for its effect.
    Expr(Expr),
    /// `_ = e;`
    Discard(Expr),
    /// `target = e`, `target += e` …
    Assign {
        /// A variable, a map, or a map's element.
        target: Expr,
        /// None for plain `=`.
        op: Option<BinOp>,
        /// Right side.
        value: Expr,
    },
    /// `let $x`, `let $x: T = e`.
    Let {
        /// The variable.
        var: Ident,
        /// Its type.
        ty: Option<TypeExpr>,
        /// Its initial value.
        value: Option<Expr>,
    },
    /// `while c { … }`
    While {
        /// Condition.
        cond: Expr,
        /// Body.
        body: Block,
    },
    /// `for $v : a..b { … }`
    ForRange {
        /// The variable.
        var: Ident,
        /// First.
        from: Expr,
        /// One past the last.
        to: Expr,
        /// Body.
        body: Block,
    },
    /// `for $kv : @m { … }`
    ForMap {
        /// The variable.
        var: Ident,
        /// The map.
        map: Expr,
        /// Body.
        body: Block,
    },
    /// `unroll(n) { … }`
    Unroll {
        /// The number of repetitions.
        times: Expr,
        /// Body.
        body: Block,
    },
    /// `break`
    Break,
    /// `continue`
    Continue,
    /// `return [e]`
    Return(Option<Expr>),
    /// `import "…";` within a block.
    Import(String),
}

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// Its kind.
    pub kind: ExprKind,
    /// The whole expression.
    pub span: Span,
}

/// The kinds of expression.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// Decimal, octal, hexadecimal or with an exponent; C and duration suffixes are already applied (durations are
    /// nanoseconds).
    Int(u64),
    /// A string with escapes resolved, which may contain any bytes.
    Str(Vec<u8>),
    /// `true`, `false`.
    Bool(bool),
    /// `$1`; `$#` is [`ExprKind::ParamCount`].
    Param(u32),
    /// `$#`
    ParamCount,
    /// `pid`, `args`, an enum's variant, a macro.
    Ident(String),
    /// `$x`
    Var(String),
    /// `@m` or `@m[k, …]`; `@` has the empty name.
    Map {
        /// The name without `@`.
        name: String,
        /// None without brackets; several expressions form a tuple key.
        key: Option<Vec<Expr>>,
    },
    /// `f(a, b)`; an argument may be a type if the function expects one.
    Call {
        /// The function, with its place.
        name: Ident,
        /// The arguments, in order.
        args: Vec<Arg>,
    },
    /// `base.name`, `base->name`
    Field {
        /// The expression before the dot or arrow.
        base: Box<Expr>,
        /// The member.
        name: Ident,
    },
    /// `base.0`
    TupleIndex {
        /// The expression before the dot.
        base: Box<Expr>,
        /// The index, from 0.
        index: u32,
    },
    /// `base[i]` on anything but a map.
    Index {
        /// The expression before the brackets.
        base: Box<Expr>,
        /// The expression within the brackets.
        index: Box<Expr>,
    },
    /// `!x`, `-x`, `~x`, `*x`, `&x`
    Unary(UnOp, Box<Expr>),
    /// `x++`, `--x` …
    Step {
        /// Variable, map or map's element.
        target: Box<Expr>,
        /// `++` if true, otherwise `--`.
        increment: bool,
        /// Is the value that before the step?
        post: bool,
    },
    /// `a + b` …
    Binary(BinOp, Box<Expr>, Box<Expr>),
    /// `c ? a : b`; `c ?: b` has no `then`.
    Ternary {
        /// Condition.
        cond: Box<Expr>,
        /// None: the value of the condition.
        then: Option<Box<Expr>>,
        /// The value if the condition is false.
        otherwise: Box<Expr>,
    },
    /// `if c { … } else { … }`: a statement if its value is not used.
    If {
        /// Condition.
        cond: Box<Expr>,
        /// Then.
        then: Block,
        /// `else`; `else if` is a block whose value is another `If`.
        otherwise: Option<Block>,
    },
    /// `{ …; e }`
    Block(Block),
    /// `(T)e`
    Cast(TypeExpr, Box<Expr>),
    /// `(a, b)`, `()`
    Tuple(Vec<Expr>),
    /// `(x = 1, y = 2)`
    Record(Vec<(Ident, Expr)>),
    /// `sizeof(T)` or `sizeof(e)`
    Sizeof(Box<Arg>),
    /// `offsetof(T, a.b)`
    Offsetof(Box<Arg>, Vec<Ident>),
    /// `typeof(e)` used as a value (an argument of a macro)
    Typeof(Box<Arg>),
    /// `typeinfo(e)`
    Typeinfo(Box<Arg>),
    /// `comptime e`
    Comptime(Box<Expr>),
}

/// An argument: an expression, or a type if it can only be a type (`struct x`, `uint8 *`).
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// An expression; a bare word is an `Ident` expression, which may be the name of a type.
    Expr(Expr),
    /// Certainly a type.
    Type(TypeExpr),
}

/// A type as written.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeExpr {
    /// The type before the suffixes.
    pub base: TypeBase,
    /// `*` and `[n]`, read left to right.
    pub suffixes: Vec<TypeSuffix>,
    /// The whole type.
    pub span: Span,
}

/// The base of a type.
#[derive(Clone, Debug, PartialEq)]
pub enum TypeBase {
    /// `uint8`, `string`, a typedef.
    Name(String),
    /// `struct x`
    Struct(String),
    /// `union x`
    Union(String),
    /// `enum x`
    Enum(String),
    /// `typeof(e)`
    Typeof(Box<Arg>),
    /// `(T, U)`
    Tuple(Vec<TypeExpr>),
}

/// A suffix of a type.
#[derive(Clone, Debug, PartialEq)]
pub enum TypeSuffix {
    /// `*`
    Pointer,
    /// `[n]`, `[]`
    Array(Option<Box<Expr>>),
}

/// `! ~ - * &`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnOp {
    /// `!`
    Not,
    /// `~`
    BitNot,
    /// `-`
    Neg,
    /// `*`
    Deref,
    /// `&`
    AddrOf,
}

/// Binary operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // each is named by its symbol
pub enum BinOp {
    Mul,
    Div,
    Mod,
    Add,
    Sub,
    Shl,
    Shr,
    Lt,
    Gt,
    Le,
    Ge,
    Eq,
    Ne,
    BitAnd,
    BitXor,
    BitOr,
    And,
    Or,
}

impl BinOp {
    /// All of them.
    pub const ALL: [BinOp; 18] = [
        BinOp::Mul,
        BinOp::Div,
        BinOp::Mod,
        BinOp::Add,
        BinOp::Sub,
        BinOp::Shl,
        BinOp::Shr,
        BinOp::Lt,
        BinOp::Gt,
        BinOp::Le,
        BinOp::Ge,
        BinOp::Eq,
        BinOp::Ne,
        BinOp::BitAnd,
        BinOp::BitXor,
        BinOp::BitOr,
        BinOp::And,
        BinOp::Or,
    ];

    /// The operator with this symbol.
    pub fn of(symbol: &str) -> Option<BinOp> {
        BinOp::ALL.into_iter().find(|op| op.symbol() == symbol)
    }

    /// The precedence: operators with a higher level bind tighter.
    pub fn level(self) -> u8 {
        match self {
            BinOp::Mul | BinOp::Div | BinOp::Mod => 10,
            BinOp::Add | BinOp::Sub => 9,
            BinOp::Shl | BinOp::Shr => 8,
            BinOp::Lt | BinOp::Gt | BinOp::Le | BinOp::Ge => 7,
            BinOp::Eq | BinOp::Ne => 6,
            BinOp::BitAnd => 5,
            BinOp::BitXor => 4,
            BinOp::BitOr => 3,
            BinOp::And => 2,
            BinOp::Or => 1,
        }
    }

    /// The symbol.
    pub fn symbol(self) -> &'static str {
        match self {
            BinOp::Mul => "*",
            BinOp::Div => "/",
            BinOp::Mod => "%",
            BinOp::Add => "+",
            BinOp::Sub => "-",
            BinOp::Shl => "<<",
            BinOp::Shr => ">>",
            BinOp::Lt => "<",
            BinOp::Gt => ">",
            BinOp::Le => "<=",
            BinOp::Ge => ">=",
            BinOp::Eq => "==",
            BinOp::Ne => "!=",
            BinOp::BitAnd => "&",
            BinOp::BitXor => "^",
            BinOp::BitOr => "|",
            BinOp::And => "&&",
            BinOp::Or => "||",
        }
    }
}

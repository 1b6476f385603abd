//! The syntax tree: shapes and spans, without resolved names.

use crate::diag::Span;

/// A name with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Ident {
    /// Without sigil (`$`, `@`) for variables and maps.
    pub name: String,
    /// Sigil included.
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
    /// Where.
    pub span: Span,
    /// A `#define` of an expression of the language: its body is that expression alone.
    pub define: Option<Macro>,
}

/// `name = value;` within `config`.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigItem {
    /// As written.
    pub name: Ident,
    /// A string's contents, an integer's or bool's text, or a bare word.
    pub value: String,
    /// Of the value.
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
    /// What it does.
    pub body: Block,
    /// All of it.
    pub span: Span,
}

/// `[name=]provider:part:part…`
#[derive(Clone, Debug, PartialEq)]
pub struct AttachPoint {
    /// `x` of `x=begin`.
    pub name: Option<Ident>,
    /// Parts between colons, the provider first; positional parameters not yet expanded.
    pub segments: Vec<Segment>,
    /// All of it.
    pub span: Span,
}

/// A part of an attach point.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Quotes removed, escapes resolved.
    pub text: String,
    /// Was (partly) quoted: no wildcard, no positional parameter in it.
    pub quoted: bool,
    /// Where.
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
    /// All of it.
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
    /// What it returns.
    pub returns: TypeExpr,
    /// Its body.
    pub body: Block,
    /// All of it.
    pub span: Span,
}

/// A map's declaration.
#[derive(Clone, Debug, PartialEq)]
pub struct MapDecl {
    /// The map.
    pub map: Ident,
    /// `hash`, `lruhash`, `percpuhash`, `percpulruhash`.
    pub kind: Ident,
    /// Its argument.
    pub entries: Expr,
    /// All of it.
    pub span: Span,
}

/// `{ stmt; stmt; expr }`
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// In order.
    pub stmts: Vec<Stmt>,
    /// The block's value: a last expression without `;`. In a probe's body or a loop it is just evaluated.
    pub value: Option<Box<Expr>>,
    /// Braces included.
    pub span: Span,
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Stmt {
    /// Which.
    pub kind: StmtKind,
    /// All of it.
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
        /// Its first value.
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
        /// How often.
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
    /// Which.
    pub kind: ExprKind,
    /// All of it.
    pub span: Span,
}

/// The kinds of expression.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// Decimal, octal, hex, exponent, with C or duration suffix already applied (durations are nanoseconds).
    Int(u64),
    /// Escapes resolved; may hold any bytes but is kept as bytes.
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
        /// Without `@`.
        name: String,
        /// None without brackets; several expressions are one tuple key.
        key: Option<Vec<Expr>>,
    },
    /// `f(a, b)`; an argument may be a type if the function expects one.
    Call {
        /// The function, with its place.
        name: Ident,
        /// In order.
        args: Vec<Arg>,
    },
    /// `base.name`, `base->name`
    Field {
        /// Left of it.
        base: Box<Expr>,
        /// The member.
        name: Ident,
    },
    /// `base.0`
    TupleIndex {
        /// Left of it.
        base: Box<Expr>,
        /// From 0.
        index: u32,
    },
    /// `base[i]` on anything but a map.
    Index {
        /// Left of it.
        base: Box<Expr>,
        /// Within the brackets.
        index: Box<Expr>,
    },
    /// `!x`, `-x`, `~x`, `*x`, `&x`
    Unary(UnOp, Box<Expr>),
    /// `x++`, `--x` …
    Step {
        /// Variable, map or map's element.
        target: Box<Expr>,
        /// `++` if true, otherwise `--`.
        up: bool,
        /// The value is the one before the step.
        post: bool,
    },
    /// `a + b` …
    Binary(BinOp, Box<Expr>, Box<Expr>),
    /// `c ? a : b`; `c ?: b` has no `then`.
    Ternary {
        /// Condition.
        cond: Box<Expr>,
        /// None: the condition's own value.
        then: Option<Box<Expr>>,
        /// Otherwise.
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

/// An argument: an expression, or a type where only a type can have been meant (`struct x`, `uint8 *`).
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// An expression; a bare word is an `Ident` expression, which may turn out to name a type.
    Expr(Expr),
    /// Certainly a type.
    Type(TypeExpr),
}

/// A type as written.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeExpr {
    /// Before the suffixes.
    pub base: TypeBase,
    /// `*` and `[n]`, read left to right.
    pub suffixes: Vec<TypeSuffix>,
    /// All of it.
    pub span: Span,
}

/// What a type starts with.
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

/// What follows a type's base.
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

    /// The one that is so written.
    pub fn of(symbol: &str) -> Option<BinOp> {
        BinOp::ALL.into_iter().find(|op| op.symbol() == symbol)
    }

    /// The higher, the tighter it binds.
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

    /// As written.
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

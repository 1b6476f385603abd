//! A second generator, which was written independently of the first. The kernel must accept every script that sema accepts.
//!
//! Each script uses a random subset of features ("swarm testing"), such as statements, depth, length and settings. An error of
//! sema is counted, but is not a failure.

mod exprs;
mod names;
mod stmts;
pub mod world;

use super::rng::Rng;
use std::fmt::Write as _;
use world::{T, World};

/// A map of the script.
#[derive(Clone)]
struct Map {
    name: String,
    key: Option<T>,
    value: Value,
}

/// The type of a map's values.
#[derive(Clone, PartialEq)]
enum Value {
    Of(T),
    /// An aggregation: the function, and whether its result can be read as a number.
    Aggregation(&'static str, bool),
}

/// A function or a macro: its name, parameters and result.
#[derive(Clone)]
struct Callee {
    name: String,
    params: Vec<T>,
    gives: T,
}

/// A script under construction.
pub struct Gen<'w> {
    rng: Rng,
    world: &'w World<'w>,
    /// The attach point of the probe under construction, or `None` in a function.
    point: Option<usize>,
    fields: Vec<(&'static str, T)>,
    in_loops: Vec<(&'static str, T)>,
    /// The script contains the C declarations.
    has_c: bool,
    /// The maximum number of bytes of a literal.
    longest: usize,
    scopes: Vec<Vec<(String, T)>>,
    maps: Vec<Map>,
    functions: Vec<Callee>,
    /// The macros that return numbers, each with its number of parameters.
    macros: Vec<(String, usize)>,
    names: u32,
    /// The kinds of statements that this script uses.
    kinds: Vec<stmts::Kind>,
    /// The maximum depth of expressions.
    deep: u32,
    /// The maximum depth of blocks.
    nest: u32,
    /// The number of statements that can still be generated.
    left: u32,
    loops: u32,
    /// The number of enclosing map keys.
    in_keys: u32,
    /// The number of times that the enclosing `unroll`s repeat this place.
    copies: u32,
    /// The type of the result that `return` returns.
    gives: Option<T>,
}

/// Generates the script of a seed.
pub fn script(world: &World, seed: u64) -> String {
    let mut rng = Rng::new(seed ^ 0x5eed_0002);
    let size = match rng.below(10) {
        0..=5 => rng.between(2, 9),
        6..=8 => rng.between(8, 26),
        _ => rng.between(20, 70),
    };
    let mut kinds: Vec<stmts::Kind> = stmts::KINDS.iter().filter(|_| rng.once_in(2)).copied().collect();
    kinds.extend([stmts::Kind::Assign, stmts::Kind::Show, stmts::Kind::MapSet]);
    let deep = rng.between(1, 4) as u32;
    let nest = rng.between(1, 5) as u32;
    let mut gen_ = Gen {
        rng,
        world,
        point: None,
        fields: Vec::new(),
        in_loops: Vec::new(),
        has_c: false,
        longest: 1023,
        scopes: vec![Vec::new()],
        maps: Vec::new(),
        functions: Vec::new(),
        macros: Vec::new(),
        names: 0,
        kinds,
        deep,
        nest,
        left: size as u32,
        loops: 0,
        in_keys: 0,
        copies: 1,
        gives: None,
    };
    gen_.whole(size as u32)
}

/// The C declarations that expressions use.
const HEAD: &str = "#define STEP 3\n\
enum level { LOW, MID = 2, HIGH = 4 };\n\
struct inner { short x; unsigned char deep[4]; };\n\
struct pair { int a; unsigned b : 3, c : 7; char name[12]; struct pair *next; struct inner in; struct inner many[3]; const char *text; unsigned long all; };\n";

impl Gen<'_> {
    fn whole(&mut self, size: u32) -> String {
        let mut out = String::new();
        self.has_c = !self.rng.once_in(3);
        if self.has_c {
            out.push_str(HEAD);
        }
        self.settings(&mut out);
        let maps = match self.rng.below(12) {
            0 if self.rng.once_in(4) => 20 + self.rng.below(50),
            0..=5 => self.rng.below(4),
            _ => 2 + self.rng.below(8),
        };
        let mut declared = String::new();
        for i in 0..maps {
            self.new_map(i, &mut declared);
        }
        out.push_str(&declared);
        for _ in 0..self.rng.below(3) {
            self.new_macro(&mut out);
        }
        if self.rng.once_in(3) {
            for _ in 0..=self.rng.below(2) {
                self.new_function(&mut out);
            }
        }
        let probes = 1 + self.rng.below(if size > 25 { 4 } else { 3 });
        let points = self.world.points().len();
        self.left = size.max(probes as u32 * 2);
        let each = self.left / probes as u32;
        // The first probe assigns all maps, which determines their types.
        for i in 0..probes {
            self.left = each.max(1);
            let at = self.rng.below(points);
            self.point = Some(at);
            let point = &self.world.points()[at];
            (self.fields, self.in_loops) = (point.fields.clone(), point.in_loops.clone());
            let mut head = point.text.clone();
            if self.rng.once_in(8) {
                // With several attach points, only the fields that all of them have can be used.
                let other = self.rng.below(points);
                let other = &self.world.points()[other];
                if other.text.split(':').next() == point.text.split(':').next() && other.text.contains(':') && other.text != point.text {
                    head = format!("{head}, {}", other.text);
                    self.fields.clear();
                    self.in_loops.clear();
                }
            }
            self.scopes = vec![Vec::new()];
            let predicate = if self.rng.once_in(4) && head != "begin" && head != "end" {
                format!(" /{}/", self.bool(self.deep.min(2)))
            } else {
                String::new()
            };
            let _ = writeln!(out, "{head}{predicate} {{");
            if i == 0 {
                self.touch_maps(&mut out);
            }
            let body = self.block(1);
            out.push_str(&body);
            out.push_str("}\n");
        }
        out
    }

    fn settings(&mut self, out: &mut String) {
        let mut lines = Vec::new();
        if self.world.short_keys {
            // A key may contain several strings.
            let most = *self.rng.pick(&[16, 64, 65, 100]);
            self.longest = most - 1;
            lines.push(format!("max_strlen = {most};"));
        } else if self.rng.once_in(3) {
            let most = *self.rng.pick(&[1, 8, 15, 16, 64, 65, 200, 256, 512, 1000, 1024, 2048, 4096]);
            self.longest = most - 1;
            lines.push(format!("max_strlen = {most};"));
        }
        if self.rng.once_in(10) {
            lines.push(format!("on_stack_limit = {};", self.rng.pick(&[0, 8, 16, 32, 64, 128])));
        }
        if self.rng.once_in(12) {
            lines.push(format!("stack_mode = {};", self.rng.pick(&["perf", "raw", "bpftrace"])));
        }
        if self.rng.once_in(12) {
            lines.push(format!("max_map_keys = {};", self.rng.pick(&[1, 16, 1000, 100_000])));
        }
        lines.push("unstable_tseries = enable; missing_probes = warn;".into());
        let _ = writeln!(out, "config = {{ {} }}", lines.join(" "));
    }

    fn new_map(&mut self, i: usize, declared: &mut String) {
        let name = format!("@m{i}");
        let key = match self.rng.below(6) {
            0 | 1 => None,
            2 => Some(self.int_type()),
            3 => Some(T::Str(16)),
            4 => Some(self.type_(2)),
            _ => Some(T::Tup((0..2 + self.rng.below(3)).map(|_| self.type_(1)).collect())),
        };
        let functions = [
            ("count()", true),
            ("sum({})", true),
            ("avg({})", true),
            ("min({})", true),
            ("max({})", true),
            ("stats({})", false),
            ("hist({})", false),
            ("hist({}, 3)", false),
            ("lhist({}, 0, 100, 10)", false),
            ("lhist({}, 50, 1000, 7)", false),
            ("percentiles({})", false),
            ("tseries({}, 10ms, 5)", false),
            ("tseries({}, 1s, 20, \"avg\")", false),
        ];
        let value = match self.rng.below(3) {
            0 => {
                let (f, readable) = *self.rng.pick(&functions);
                Value::Aggregation(f, readable)
            }
            _ => Value::Of(self.type_(2)),
        };
        if key.is_some() && self.rng.once_in(8) {
            let kind = *self.rng.pick(&["hash", "lruhash"]);
            let _ = writeln!(declared, "let {name} = {kind}({});", self.rng.pick(&[1, 2, 100, 5000]));
        }
        self.maps.push(Map { name, key, value });
    }

    /// Assigns each map once, which determines its type.
    fn touch_maps(&mut self, out: &mut String) {
        let all = std::mem::take(&mut self.maps);
        for map in all {
            let set = self.set_map(&map, 0);
            let _ = writeln!(out, "  {set}");
            self.maps.push(map);
        }
    }

    fn new_macro(&mut self, out: &mut String) {
        let name = format!("mac{}", self.macros.len());
        let n = self.rng.below(3);
        let params: Vec<String> = (0..n).map(|i| format!("p{i}")).collect();
        let scopes = std::mem::replace(&mut self.scopes, vec![Vec::new()]);
        self.scopes[0] = params.iter().map(|p| (p.clone(), T::Int(0, true))).collect();
        let (maps, macros) = (std::mem::take(&mut self.maps), std::mem::take(&mut self.macros));
        let body = self.int(2).0;
        (self.maps, self.macros, self.scopes) = (maps, macros, scopes);
        let local =
            if self.rng.once_in(3) { format!("let $in_{name} = {}; $in_{name} + ", self.rng.between(0, 99)) } else { String::new() };
        let _ = writeln!(out, "macro {name}({}) {{ {local}{body} }}", params.join(", "));
        self.macros.push((name, n));
    }

    fn new_function(&mut self, out: &mut String) {
        let name = format!("fun{}", self.functions.len());
        let params: Vec<(String, T)> = (0..self.rng.below(4)).map(|i| (format!("$p{i}"), self.int_type())).collect();
        let gives = T::Int(8, true);
        self.scopes = vec![params.clone()];
        self.gives = Some(gives.clone());
        self.left = 1 + self.rng.below(5) as u32;
        let kinds = self.kinds.clone();
        let body = self.block(1);
        self.kinds = kinds;
        let result = self.expr(&gives, 1);
        self.gives = None;
        let shown: Vec<String> = params
            .iter()
            .map(|(n, t)| if let T::Int(b, s) = t { format!("{n} : {}", exprs::int_name(*b, *s)) } else { format!("{n} : int64") })
            .collect();
        let _ = writeln!(out, "fn {name}({}) : int64 {{\n{body}  return {result};\n}}", shown.join(", "));
        self.functions.push(Callee { name, params: params.into_iter().map(|p| p.1).collect(), gives });
    }

    /// A type for a variable, a key or a map value.
    fn type_(&mut self, deep: u32) -> T {
        match self.rng.below(if deep == 0 { 7 } else { 11 }) {
            0..=2 => self.int_type(),
            3 | 4 => T::Str(0),
            5 => T::Bool,
            6 => T::Late(self.late_text()),
            7 | 8 => T::Tup((0..2 + self.rng.below(3)).map(|_| self.type_(deep - 1)).collect()),
            9 => T::Rec((0..1 + self.rng.below(3)).map(|i| (format!("f{i}"), self.type_(deep - 1))).collect()),
            _ => {
                let one = self.rng.below(if self.has_c { 3 } else { 2 });
                [T::Task, T::Int(8, false), T::Pair][one].clone()
            }
        }
    }

    fn int_type(&mut self) -> T {
        let bytes = *self.rng.pick(&[1, 2, 4, 8, 8, 8]);
        T::Int(bytes, self.rng.once_in(2))
    }

    /// An expression that is available in any probe.
    fn late_text(&mut self) -> &'static str {
        const ANYWHERE: &[&str] = &[
            "kstack",
            "ustack",
            "kstack(3)",
            "ksym(kaddr(\"vfs_read\"))",
            "username",
            "ntop(0x0100007f)",
            "usym(1)",
            "cgroup_path(cgroup)",
            "buf(\"abc\", 3)",
            "pton(\"1.2.3.4\")",
            "strftime(\"%S\", nsecs)",
        ];
        self.rng.pick::<&str>(ANYWHERE)
    }
}

//! Rust functions, whose calling convention is unspecified.
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::PathBuf;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Get,
    Put(u32),
    Named { id: u64, flag: bool },
}

struct Server {
    name: String,
    hits: BTreeMap<u16, u64>,
    port: u16,
}

#[derive(Clone, Copy)]
struct Point {
    x: i32,
    y: i32,
}

struct Large([u64; 9]);

trait Handler {
    fn handle(&mut self, code: u32, path: &str) -> u64;
}

impl Server {
    #[inline(never)]
    fn new(name: &str, port: u16) -> Server {
        Server { name: black_box(name).to_string(), hits: BTreeMap::new(), port }
    }
    #[inline(never)]
    fn reply(&mut self, code: u16, length: u64, body: &[u8]) -> u64 {
        *self.hits.entry(code).or_default() += length;
        black_box(body.len() as u64 + u64::from(self.port))
    }
    #[inline(never)]
    fn named(self, suffix: String, times: usize) -> String {
        black_box(format!("{}{}", self.name, suffix.repeat(times)))
    }
}

impl Handler for Server {
    #[inline(never)]
    fn handle(&mut self, code: u32, path: &str) -> u64 {
        black_box(u64::from(code) + path.len() as u64 + u64::from(self.port))
    }
}

#[inline(never)]
fn dynamic(h: &mut dyn Handler, code: u32) -> u64 {
    black_box(h.handle(code, "/dynamic"))
}
#[inline(never)]
fn scalars(a: u8, b: i16, c: u32, d: i64, e: bool, f: char, g: usize, h: u16) -> u64 {
    black_box(u64::from(a) + b as u64 + u64::from(c) + d as u64 + u64::from(e) + f as u64 + g as u64 + u64::from(h))
}
#[inline(never)]
fn text(s: &str, owned: String, cow: Cow<str>, n: u32) -> usize {
    black_box(s.len() + owned.len() + cow.len() + n as usize)
}
#[inline(never)]
fn options(a: Option<u32>, b: Option<&u64>, c: Result<u8, u8>, d: Option<Point>) -> u64 {
    black_box(u64::from(a.unwrap_or(1)) + b.copied().unwrap_or(2) + u64::from(c.unwrap_or(3)) + d.map_or(4, |p| p.x as u64 + p.y as u64))
}
#[inline(never)]
fn kinds(kind: Kind, other: Kind, point: Point, n: u64) -> u64 {
    let one = |k| match k {
        Kind::Get => 1,
        Kind::Put(n) => u64::from(n),
        Kind::Named { id, flag } => id + u64::from(flag),
    };
    black_box(one(kind) + one(other) + point.x as u64 + point.y as u64 + n)
}
#[inline(never)]
fn large(l: Large, path: PathBuf, n: u64) -> u64 {
    black_box(l.0[8] + path.as_os_str().len() as u64 + n)
}
#[inline(never)]
fn unused(_a: u64, b: u64, _c: &str, d: u64) -> u64 {
    black_box(b + d)
}
#[inline(never)]
fn wide(w: u128, n: u32) -> u128 {
    black_box(w + u128::from(n))
}
#[inline(never)]
fn generic<T: Into<u64>>(t: T, n: u64) -> u64 {
    black_box(t.into() + n)
}
#[inline(never)]
fn tuple(t: (u32, u64), s: &[u16], a: [u8; 4]) -> u64 {
    black_box(u64::from(t.0) + t.1 + s.len() as u64 + u64::from(a[3]))
}
#[inline(never)]
fn changed(mut n: u64, mut m: u64) -> u64 {
    n += 3;
    std::mem::swap(&mut n, &mut m);
    black_box(n * 2 + m)
}

struct Wrap<T> {
    of: T,
    n: u16,
}

impl<T: Copy + Into<u64>> Wrap<T> {
    #[inline(never)]
    fn with(&mut self, of: T, by: u16) -> u64 {
        self.of = of;
        self.n += by;
        black_box(self.of.into() + u64::from(self.n))
    }
    #[inline(never)]
    fn folded<U: AsRef<str>>(&self, texts: &[U], step: impl Fn(u64, &str) -> u64, from: u32) -> u64 {
        black_box(texts.iter().fold(u64::from(from) + self.of.into(), |n, t| step(n, t.as_ref())))
    }
}

impl<T: Copy + Into<u64>> Handler for Wrap<T> {
    #[inline(never)]
    fn handle(&mut self, code: u32, path: &str) -> u64 {
        black_box(u64::from(code) + path.len() as u64 + self.of.into())
    }
}

#[inline(never)]
fn array<T: Copy + Into<u64>, const N: usize>(a: [T; N], n: u8) -> u64 {
    black_box(a.iter().map(|t| (*t).into()).sum::<u64>() + u64::from(n))
}

fn main() {
    let mut sum = 0;
    for i in 1..4u64 {
        let mut server = Server::new("server", 8080 + i as u16);
        sum += server.reply(200 + i as u16, i * 1000, b"body") + dynamic(&mut server, 300 + i as u32);
        sum += scalars(i as u8, -3, 70_000, -5_000_000_000, i & 1 == 1, 'é', 12, 13);
        sum += text("slice", "owned".repeat(i as usize), Cow::Borrowed("cow"), i as u32) as u64;
        sum += options(Some(i as u32), Some(&i), Ok(9), Some(Point { x: 1, y: 2 })) + options(None, None, Err(1), None);
        sum += kinds(Kind::Put(i as u32), Kind::Named { id: i, flag: true }, Point { x: -1, y: i as i32 }, i) + kinds(Kind::Get, Kind::Get, Point { x: 3, y: 4 }, 5);
        sum += large(Large([i; 9]), PathBuf::from("/tmp"), i) + unused(i, i + 1, "unused", i + 2);
        sum += wide(1 << 70 | u128::from(i), i as u32) as u64 + generic(i as u32, i) + generic(i as u8, i + 1);
        sum += tuple((i as u32, i), &[1, 2, 3], [1, 2, 3, i as u8]) + changed(i, i + 7);
        let (mut small, mut big) = (Wrap { of: i as u8, n: 1 }, Wrap { of: i, n: 2 });
        sum += small.with(i as u8 + 9, 3) + big.with(i + 10, 4) + dynamic(&mut small, i as u32) + dynamic(&mut big, 7);
        sum += small.folded(&["a", "bc"], |n, t| n + t.len() as u64, 5) + big.folded(&["d".to_string()], |n, t| n * i + t.len() as u64, 6);
        sum += array([i as u8; 3], 1) + array([i, 2], 2);
        sum += server.named("!".to_string(), i as usize).len() as u64;
    }
    println!("{sum}");
}

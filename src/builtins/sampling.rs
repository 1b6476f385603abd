//! Predicates that sample events or limit their rate.

use super::count::{MAX_RETRIES, literal};
use super::{Accepts, Builtin, CallInfo, CallSite, Codegen, Param, Returns};
use crate::diag::Diagnostic;
use crate::emit::{Builder, Cmp, Helper, IntValue, MapDef, MapKind, Operand, PointerValue};
use crate::probes::ContextFeatures;
use crate::types::{Int, Type};

const U64: Int = Int { bytes: 8, signed: false };
/// A state of `ratelimit` is one word, so that one instruction replaces it: these bits count the passed events, and the
/// bits above them hold the start of the interval, in ticks.
const COUNT_BITS: u64 = 32;
const COUNT: u64 = (1 << COUNT_BITS) - 1;
/// The size of what a function gets: N and the length of a tick.
const GIVEN: u32 = 16;
/// Ticks in an interval.
const TICKS: u64 = 1024;
/// The prefix of the names of maps for limits that have keys.
pub const KEYED_LIMIT: &str = "ratelimit_";
/// The shortest interval in nanoseconds. Who writes a smaller number, such as 1, means another unit.
const MIN_INTERVAL: i64 = 100_000;
/// The largest N: with a larger one, the count could overflow into the start of the interval.
const MAX_PERIOD: i64 = i32::MAX as i64;

pub(super) fn limits_rate(row: &Builtin) -> bool {
    row.name == RATE_LIMIT
}

pub(super) fn remembers_calls(row: &Builtin) -> bool {
    ROWS.iter().any(|own| own.name == row.name)
}

const RATE_LIMIT: &str = "ratelimit";

pub(super) const ROWS: &[Builtin] = &[
    Builtin {
        name: "sample",
        params: &[Param::new("n", Accepts::LitInt)],
        returns: Returns::By(|f| literal(f, 0, "n", 1..=MAX_PERIOD).map(|_| Type::Bool)),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(sample),
        doc: "True for one in n events, chosen at random, so that a regular pattern of events does not bias the sample. Multiply counts and sums by n to estimate all events.",
        example: "tracepoint:syscalls:sys_enter_read /sample(100)/ { @[comm] = count(); }",
    },
    Builtin {
        name: RATE_LIMIT,
        params: &[Param::new("n", Accepts::LitInt), Param::new("interval", Accepts::LitInt), Param::optional("key", Accepts::Printable)],
        returns: Returns::By(limit_type),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Effect(limit),
        doc: "True for the first n events in each interval (1s; at least 100us), which begins with an event, on all CPUs together, or for the first n of each key. Each place in the script and use of a macro has its own limit. It forgets keys beyond the max_map_keys most recent ones. Before Linux 5.12, simultaneous events can exceed it.",
        example: "tracepoint:syscalls:sys_enter_openat /ratelimit(10, 1s, comm)/ { printf(\"%s %s\\n\", comm, str(args.filename)); }",
    },
];

/// The product of a random number below 2^32 and n is below 2^32 for one in n numbers.
fn sample<'c>(e: &mut Builder<'_, 'c>, u: &CallSite, _: &[Operand<'c>]) -> Operand<'c> {
    let random = e.call(Helper::GetPrandomU32, &[]);
    let random = e.and(random, e.int(u32::MAX.into()));
    let product = e.mul(random, e.int(u.int(0).unwrap_or(1) as u64));
    Operand::reg(u.ty.clone(), e.cmp(Cmp::Ult, product, e.int(1 << 32)))
}

fn limit_type(f: &CallInfo) -> Result<Type, Diagnostic> {
    let n = literal(f, 0, "n", 1..=MAX_PERIOD)?;
    let interval = literal(f, 1, "interval", 1..=i64::MAX)?;
    if interval < MIN_INTERVAL {
        let message = format!("ratelimit takes an interval of 100us or more, not {interval} ns");
        let help = "write the unit: 1s, 100ms; a number without one is in nanoseconds";
        return Err(Diagnostic::error("out-of-range", f.span(1), message).help(help));
    }
    if let Some(Type::Agg(_) | Type::Void) = f.args.get(2).map(|key| &key.ty) {
        return Err(Diagnostic::error("misplaced-aggregation", f.span(2), "an aggregation cannot be a key").help("cast it: (int64)@m"));
    }
    f.bind_consts(&[n, interval, f.settings.max_map_keys as i64]);
    Ok(Type::Bool)
}

fn limit<'c>(e: &mut Builder<'_, 'c>, u: &CallSite, args: &[Operand<'c>]) -> Operand<'c> {
    // uses of a macro are different expansions of one place
    let name = format!("{KEYED_LIMIT}{}_{}_{}", u.span.source, u.span.start, u.span.expansion);
    let state = match args.get(2) {
        None => e.limit_state(&name),
        Some(key) => {
            let max_period = u32::try_from(u.const_at(2)).unwrap_or(u32::MAX);
            let def = MapDef { kind: MapKind::LruHash, key_size: key.ty.size(), value_size: 8, max_entries: max_period, flags: 0 };
            let map = e.declare_map(&name, def);
            let key = e.key(Some(key), Some(&key.ty));
            e.element_of(map, key, 8)
        }
    };
    let passes = e.alloc(8);
    let no = e.int(0);
    e.store(passes, 0, 8, no);
    let found = e.cmp(Cmp::Ne, e.addr(state), e.int(0));
    let numbers = [u.const_at(0) as u64, (u.const_at(1) as u64).div_ceil(TICKS)].map(|number| e.int(number));
    e.if_(found, |e| {
        let passed = if e.shares_code() {
            // the verifier follows the attempts, so it checks them once
            let given = e.alloc(GIVEN);
            for (at, number) in (0..).step_by(8).zip(numbers) {
                e.store(given, at, 8, number);
            }
            e.call_on_memory("take_token", [(state, 8), (given, GIVEN)], |e, state, given| {
                let numbers = [e.load(given, 0, U64), e.load(given, 8, U64)];
                take_token(e, state, numbers)
            })
        } else {
            take_token(e, state, numbers)
        };
        e.store(passes, 0, 8, passed);
    });
    let passes = e.load(passes, 0, U64);
    Operand::reg(u.ty.clone(), passes)
}

/// Takes one of the `n` events of this interval, if any is left. The result is whether it did. `tick`: the length of one.
fn take_token<'c>(e: &mut Builder<'_, 'c>, state: PointerValue<'c>, [n, tick]: [IntValue<'c>; 2]) -> IntValue<'c> {
    let passes = e.scalar_slot();
    let no = e.int(0);
    e.store(passes, 0, 8, no);
    let now = e.call(Helper::KtimeGetNs, &[]);
    let now = e.div(now, tick, false, false);
    // a full interval needs no attempt, which would write to the state
    let (_, first) = one_more(e, state, now, n);
    e.if_(first, |e| {
        if !e.target.atomic_fetch.holds() {
            let (more, _) = one_more(e, state, now, n);
            let yes = e.int(1);
            e.store(state, 0, 8, more);
            return e.store(passes, 0, 8, yes);
        }
        e.count(MAX_RETRIES, |e, _| {
            let passed = e.load(passes, 0, U64);
            let before = e.cmp(Cmp::Eq, passed, e.int(0));
            e.if_(before, |e| {
                let word = e.load_volatile(state, U64);
                let (more, has_room) = after(e, word, now, n);
                e.if_(has_room, |e| {
                    let old = e.compare_exchange(state, word, more);
                    let done = e.cmp(Cmp::Eq, old, word);
                    e.store(passes, 0, 8, done);
                });
            });
        });
    });
    e.load(passes, 0, U64)
}

fn one_more<'c>(e: &mut Builder<'_, 'c>, state: PointerValue<'c>, now: IntValue<'c>, n: IntValue<'c>) -> (IntValue<'c>, IntValue<'c>) {
    let word = e.load_volatile(state, U64);
    after(e, word, now, n)
}

/// The state after one more event, and whether the limit allows it. The time of an event on another CPU may be a little later than
/// that of this one.
fn after<'c>(e: &mut Builder<'_, 'c>, word: IntValue<'c>, now: IntValue<'c>, n: IntValue<'c>) -> (IntValue<'c>, IntValue<'c>) {
    let start = e.shr(word, e.int(COUNT_BITS), false);
    let elapsed = e.and(e.add(e.sub(now, start), e.int(TICKS)), e.int(COUNT));
    let count = e.and(word, e.int(COUNT));
    let is_over = e.cmp(Cmp::Ugt, elapsed, e.int(2 * TICKS));
    let is_first = e.cmp(Cmp::Eq, count, e.int(0));
    let start = e.select(e.or(is_over, is_first), now, start);
    let count = e.select(is_over, e.int(0), count);
    let has_room = e.cmp(Cmp::Ult, count, n);
    (e.or(e.shl(start, e.int(COUNT_BITS)), e.add(count, e.int(1))), has_room)
}

//! Records of asynchronous builtins: literals stay in the manifest, and only values are sent.

use super::artifact::{Event, EventArg};
use super::{Gen, place_with_uses};
use crate::builtins;
use crate::emit::{Operand, RecordField};
use crate::sema::hir::{self, CallArg, Expr, ExprKind};
use crate::types::Type;

/// Strings up to this capacity are sent whole; longer ones only up to their end.
const MAX_WHOLE_STRING: u32 = 64;
/// With more arguments than this, numbers are kept in memory until the others are computed: registers are few, and the
/// stack is small.
const MAX_NUMBERS_IN_REGISTERS: usize = 8;
/// With more strings than this, their lengths are kept there, too.
const MAX_LENGTHS_IN_REGISTERS: usize = 2;

impl<'a, 'c> Gen<'a, 'c> {
    pub(super) fn event(&mut self, call: &hir::Call, event: &builtins::Event) {
        if let Some(how) = builtins::in_kernel(call.row).filter(|_| self.site.attach.pinned()) {
            let args = self.args(call);
            if let Some(sequence) = crate::probes::iter::sequence(&mut self.e, self.cx.env.sys) {
                (how.emit)(&mut self.e, sequence, &call.call_site(None), &args);
            }
            return;
        }
        let mut layout = Layout { size: self.e.head_size(), args: Vec::new(), fields: Vec::new() };
        let mut site = call.call_site(None);
        match event.capture {
            Some(capture) => {
                let ops = self.args(call);
                for (literal, arg) in site.literals.iter_mut().zip(&call.args) {
                    literal.take_if(|_| matches!(arg, CallArg::Value(Expr { kind: ExprKind::Int(n), ty, .. }) if !is_signed_word(*n, ty)));
                }
                for op in capture(&mut self.e, &site, &ops) {
                    layout.send(op.ty.clone(), op);
                }
            }
            None => {
                let strings = |a: &&CallArg| matches!(a, CallArg::Value(e) if travels_in_part(&e.ty));
                let several = call.args.iter().filter(strings).count() > MAX_LENGTHS_IN_REGISTERS;
                for a in &call.args {
                    match a {
                        CallArg::Value(Expr { kind: ExprKind::Int(n), ty, .. }) if is_signed_word(*n, ty) => {
                            layout.args.push(EventArg::Int(*n as i64));
                        }
                        CallArg::Value(Expr { kind: ExprKind::Str(s), .. }) => layout.args.push(EventArg::Text(s.to_vec())),
                        CallArg::Value(e) => {
                            let op = self.traveling(e);
                            let op = if call.args.len() > MAX_NUMBERS_IN_REGISTERS { self.e.spill(op) } else { op };
                            let length = if several { self.e.spill_length(&op) } else { None };
                            layout.send(e.ty.clone(), op);
                            if let Some(field) = layout.fields.last_mut() {
                                field.length = length;
                            }
                        }
                        CallArg::Word(w) => layout.args.push(EventArg::Word(w.clone())),
                        CallArg::Map(m) => layout.args.push(match self.print_and_empty {
                            Some(t) if t.map == *m => EventArg::TakenMap { map: *m, keys: t.keeps_keys },
                            _ => EventArg::Map(*m),
                        }),
                        CallArg::Element(m, key) => {
                            let ty = self.cx.script.maps[*m].key.clone().unwrap_or(Type::Void);
                            let op = self.expr(key);
                            let offset = layout.allocate(&ty);
                            layout.fields.push(RecordField { offset, value: op, ty, var: false, length: None });
                            layout.args.push(EventArg::Element { map: *m, offset });
                        }
                        CallArg::Type(_) => layout.args.push(EventArg::Int(0)),
                    }
                }
            }
        }
        let index = self.e.new_event();
        let (size, fields) = (layout.size, &layout.fields);
        // the end of a span whose beginning was dropped has no effect
        let ends_span = builtins::begins_span(call.row) == Some(false);
        if !event.ends_probe && !ends_span && !builtins::changes_map(call.row) && self.limits_records() {
            self.e.if_event_passes(|e| e.record(index, size, fields));
        } else {
            self.e.record(index, size, fields);
        }
        if event.ends_probe {
            // the first argument of a builtin that ends the run is its status
            let status = match (layout.args.first(), layout.fields.first()) {
                (Some(EventArg::Int(n)), _) => self.e.int(*n as u64),
                (Some(EventArg::Field { .. }), Some(f)) => self.e.scalar(&f.value),
                _ => self.e.int(0),
            };
            self.e.end_run(status);
        }
        let (pos, line) = place_with_uses(self.cx.sources, &self.cx.lines, self.cx.script, call.span);
        let literals = site.literals;
        let builtin = call.row.name.into();
        let labels = if event.capture.is_some() { self.labels(call) } else { Vec::new() };
        let sites = if self.e.options.origins { self.e.site_names().to_vec() } else { Vec::new() };
        let argument = |(i, arg): (usize, &CallArg)| {
            let CallArg::Value(Expr { kind: ExprKind::Call(call), .. }) = arg else { return None };
            let argument = builtins::options::argument(call.row, &call.consts, self.cx.env.invocation)?;
            Some((i, argument.clone()))
        };
        let arguments = call.args.iter().enumerate().filter_map(argument).collect();
        self.events.push((index, Event { builtin, pos, line, literals, labels, args: layout.args, sites, arguments }));
        if event.ends_probe {
            self.stop();
        }
    }

    /// The names of the arguments: the last member, or else the expression as written.
    fn labels(&self, call: &hir::Call) -> Vec<String> {
        let label = |arg: &CallArg| match arg {
            CallArg::Value(e) | CallArg::Element(_, e) => {
                let source = self.cx.sources.get(usize::from(e.span.source));
                label(source.and_then(|s| s.text.get(e.span.start as usize..e.span.end as usize)).unwrap_or_default())
            }
            CallArg::Map(_) | CallArg::Word(_) | CallArg::Type(_) => String::new(),
        };
        call.args.iter().map(label).collect()
    }

    /// Only the bytes before the NUL of a string matter, so those after it need not be zero.
    fn traveling(&mut self, e: &Expr) -> Operand<'c> {
        let direct = matches!(&e.kind, ExprKind::Call(_)) && travels_in_part(&e.ty);
        self.scoped(|s| s.pads_strings = !direct, |g| g.expr(e))
    }
}

/// `str(args.filename)` is `filename`, and `$n` is `n`; other expressions stay as written.
fn label(written: &str) -> String {
    let called = |text: &str| -> Option<String> {
        let (function, inner) = text.strip_suffix(')')?.split_once('(')?;
        (!function.is_empty() && !inner.contains(['(', ','])).then(|| inner.trim().to_string())
    };
    let written = written.trim();
    let inner = called(written).unwrap_or_else(|| written.to_string());
    let last = inner.rsplit(['.', '>']).next().unwrap_or_default().trim_start_matches(['$', '@']);
    let is_path = inner.chars().all(|c| c.is_alphanumeric() || "_.->$@".contains(c));
    if is_path && !last.is_empty() { last.to_string() } else { written.split_whitespace().collect::<Vec<_>>().join(" ") }
}

/// A number that is not is sent like any value, so that its type determines what it is.
fn is_signed_word(n: u64, ty: &Type) -> bool {
    matches!(ty, Type::Int(int) if int.signed || n as i64 >= 0)
}

fn travels_in_part(ty: &Type) -> bool {
    matches!(ty, Type::Str(cap) | Type::Buf(cap) if *cap > MAX_WHOLE_STRING)
}

/// A record's layout under construction.
struct Layout<'c> {
    size: u32,
    args: Vec<EventArg>,
    fields: Vec<RecordField<'c>>,
}

impl<'c> Layout<'c> {
    fn allocate(&mut self, ty: &Type) -> u32 {
        let offset = self.size.next_multiple_of(ty.align().max(1));
        self.size = offset + ty.size();
        offset
    }

    fn send(&mut self, ty: Type, value: Operand<'c>) {
        if travels_in_part(&ty) {
            let offset = self.size.next_multiple_of(4);
            self.size = offset + 8;
            self.args.push(EventArg::Var { ty: ty.clone(), offset });
            self.fields.push(RecordField { offset, value, ty, var: true, length: None });
        } else {
            let offset = self.allocate(&ty);
            self.args.push(EventArg::Field { ty: ty.clone(), offset });
            self.fields.push(RecordField { offset, value, ty, var: false, length: None });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::label;

    #[test]
    fn arguments_are_called_by_their_last_word() {
        let labels = [
            ("args.fd", "fd"),
            ("str(args.filename)", "filename"),
            ("str(args.buf, 10)", "str(args.buf, 10)"),
            ("$n", "n"),
            ("@bytes", "bytes"),
            ("$p->d_name.len", "len"),
            ("retval", "retval"),
            ("nsecs - @since[tid]", "nsecs - @since[tid]"),
            ("a  +\n b", "a + b"),
            ("", ""),
        ];
        for (written, expected) in labels {
            assert_eq!(label(written), expected);
        }
    }
}

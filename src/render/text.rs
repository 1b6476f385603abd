//! `-f text`: the output for people.

use crate::diag::{plain, uncommanded_line};
use crate::host::Reader;
use crate::output::{Limited, Output, Step};
use crate::value::{Counts, MapView, Pos, Value};

use super::integers::decimal;
use super::order::{divide, sort_entries, with_unit};
use super::style::Style;
use super::value_text::{Keys, value};
use super::{PART, RenderOptions, Rendered, Renderer, WritePart, heatmap, hist, is_nothing, span, table};

/// Creates the renderer.
pub fn make(options: &RenderOptions) -> Box<dyn Renderer> {
    Box::new(TextRenderer { options: options.clone() })
}

struct TextRenderer {
    options: RenderOptions,
}

impl Renderer for TextRenderer {
    fn render_in_parts(&mut self, output: &Output, to: &mut Rendered, write: &mut WritePart<'_>) {
        if let Output::Map(view) = output {
            map_in_parts(view, &self.options, &mut to.out, write);
        } else {
            self.render(output, to);
        }
    }

    fn render(&mut self, output: &Output, to: &mut Rendered) {
        let style = style(&self.options);
        let err_len = to.err.len();
        match output {
            Output::Text { kind: _, data, newline } => {
                to.out.extend_from_slice(data);
                if *newline {
                    to.out.push(b'\n');
                }
            }
            Output::Value(Value::HeatMap(h)) => {
                heatmap::text(h, self.options.canvas, &mut to.out);
                to.out.push(b'\n');
            }
            Output::Value(v) => {
                value(v, style, &mut to.out);
                to.out.push(b'\n');
            }
            Output::Map(view) => map(view, &self.options, &mut to.out),
            Output::Problem { kind, msg, helper, pos, line, counts: _ } => {
                if self.options.warnings || !kind.is_warning() {
                    let severity = if kind.is_warning() { "WARNING" } else { "ERROR" };
                    let msg = msg.strip_suffix('\n').unwrap_or(msg);
                    // The script's own message may have several lines; its values are formatted already.
                    let msg = match kind.is_script() {
                        true if self.options.commands => msg.split('\n').map(uncommanded_line).collect::<Vec<_>>().join("\n"),
                        true => msg.to_string(),
                        false => plain(msg),
                    };
                    // and it says itself what it is about
                    let line = if kind.is_script() { "" } else { line };
                    problem(severity, &msg, helper.as_ref(), pos, line, &mut to.err);
                    for used in &pos.expanded_from {
                        problem(severity, "expanded from", None, &used.pos, &used.line, &mut to.err);
                    }
                }
            }
            Output::Attached { probes } => {
                to.err.extend_from_slice(b"Attached ");
                decimal(&mut to.err, *probes);
                to.err.extend_from_slice(if *probes == 1 { b" probe\n" } else { b" probes\n" });
            }
            Output::Lost { events } => {
                to.err.extend_from_slice(b"Lost ");
                decimal(&mut to.err, *events);
                to.err.extend_from_slice(b" events\n");
            }
            Output::Limited(limited) => self::limited(limited, &mut to.err),
            Output::Counts(counts) if self.options.warnings => incomplete(counts, &mut to.err),
            Output::Counts(_) => {}
            Output::State(_) => {}
            Output::End => to.out.extend_from_slice(b"\n\n"),
            Output::Span(of) => span::text(of, style, &mut to.out),
            Output::Test(event) => super::test::text(event, &mut to.out),
        }
        if self.options.maps_only {
            to.err.truncate(err_len);
        }
    }

    fn text(&self, v: &Value, reader: Reader, to: &mut Vec<u8>) {
        let trailer = self.options.trunc_trailer.as_bytes();
        value(v, Style { trailer, compact: false, visible: self.options.at_terminal(reader) }, to);
    }
}

fn style(options: &RenderOptions) -> Style<'_> {
    Style { trailer: options.trunc_trailer.as_bytes(), compact: false, visible: options.escape_output }
}

/// A line per entry; the rows of a histogram or a series follow its line, and a blank line follows them.
pub(super) fn map(view: &MapView, options: &RenderOptions, to: &mut Vec<u8>) {
    map_in_parts(view, options, to, &mut |_| true);
}

/// The same, with [`Renderer::render_in_parts`].
fn map_in_parts(view: &MapView, options: &RenderOptions, to: &mut Vec<u8>, write: &mut WritePart<'_>) {
    if is_nothing(view) {
        return;
    }
    let (style, table, canvas) = (style(options), options.tables, options.canvas);
    // of values that are estimates
    let (mark, factor) = view.weights.map_or(("", String::new()), |weights| (weights.mark(), format!(" ({weights})")));
    let wide = view.keyed && matches!(view.entries.first(), Some((_, Value::Percentiles(_))));
    if (wide || table || view.show.table) && view.keyed && !view.entries.is_empty() && table::table(view, style, to) {
        return;
    }
    let mut keys = Keys::of(view, style);
    for (k, v) in sort_entries(view) {
        to.extend_from_slice(view.name.as_bytes());
        if view.keyed {
            to.push(b'[');
            keys.key(k, to);
            to.push(b']');
        }
        let is_picture = matches!(v, Value::Hist(_) | Value::HeatMap(_) | Value::Series(_));
        to.extend_from_slice(if is_picture && mark.is_empty() { b":" } else { b": " });
        to.extend_from_slice(mark.as_bytes());
        if is_picture {
            to.extend_from_slice(factor.as_bytes());
            to.push(b'\n');
        }
        if let Value::Hist(h) = v {
            hist::text(h, view.show.div.unwrap_or(1), to);
        } else if let Value::HeatMap(_) = v {
            if let Value::HeatMap(h) = &*divide(v, view.show.div) {
                heatmap::text(h, canvas, to);
            }
        } else {
            value(&with_unit(&divide(v, view.show.div), view.show.unit), style, to);
        }
        if !is_picture {
            to.extend_from_slice(factor.as_bytes());
        }
        // as in bpftrace
        if !matches!(v, Value::Series(s) if s.buckets.is_empty()) {
            to.push(b'\n');
        }
        if to.len() >= PART && !write(to) {
            return;
        }
    }
}

/// A step to enforce the limit of the overhead or of the events.
fn limited(limited: &Limited, to: &mut Vec<u8>) {
    let probe = plain(&limited.probe);
    let digits = if limited.limit < 0.01 { 4 } else { 2 };
    let message = format!("{probe} took {:.digits$}% of a CPU (limit {:.digits$}%)", limited.share, limited.limit);
    let text = match limited.step {
        Step::Sample { one_in: 1 } => format!("every run of {probe} counts again"),
        Step::Sample { one_in } if limited.share <= limited.limit => {
            format!("{message}: more of its runs are sampled again, one in {one_in}")
        }
        Step::Sample { one_in } => format!("{message}: from now on, one in {one_in} of its runs is sampled"),
        Step::Detach { permanent: false } => format!("{message}: it is detached for some time"),
        Step::Detach { permanent: true } => format!("{message}: it is detached for the rest of the run"),
        Step::DetachToo => format!("{probe} is detached, too, for the rest of the run: others that use the same maps are"),
        Step::Attach => format!("{probe} is attached again"),
        Step::StayDetached { changed: true } => {
            format!("{probe} stays detached for the rest of the run: its file has changed, and the probe would be at a wrong place")
        }
        Step::StayDetached { changed: false } => format!("{probe} stays detached for the rest of the run: it cannot be attached again"),
        Step::Drop { max_events } => {
            format!("{probe}: more events than {max_events} a second in total: from now on, those beyond the limit are dropped")
        }
        Step::Pass { .. } => format!("{probe}: no event has been dropped for 10 seconds"),
    };
    to.extend_from_slice(format!("LIMIT: {text}\n").as_bytes());
}

/// A line for each probe with losses, then the total number of lost events.
fn incomplete(counts: &[Counts], to: &mut Vec<u8>) {
    for count in counts.iter().filter(|count| !count.complete()) {
        let lost = format!("events found no space in the ring buffer (raise perf_rb_pages), of {}", count.sent);
        let parts = [
            (count.dropped, lost.as_str()),
            (count.missed, "runs skipped, because a probe was running on that CPU"),
            (count.refused, "map updates failed because maps were full (raise max_map_keys)"),
            (count.unstored, "map updates failed for lack of kernel memory"),
            (count.cut, "strings truncated (raise max_strlen)"),
            (count.thinned, "runs dropped to keep a limit"),
            (count.sampled_out, "runs left out to keep a limit, for which others counted"),
            (count.detached, "times detached to keep a limit"),
            (count.unkept, "stacks found no space in the stack table (raise max_stacks)"),
        ];
        let parts: Vec<String> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{what}: {n}")).collect();
        to.extend_from_slice(format!("WARNING: {}: {}\n", plain(&count.probe), parts.join("; ")).as_bytes());
    }
    let lost = counts.iter().fold(0u64, |lost, count| lost.saturating_add(count.dropped));
    if lost > 0 {
        to.extend_from_slice(format!("WARNING: Total lost event count: {lost}\n").as_bytes());
    }
}

/// Place and message; the helper, if one failed; the script's line with a mark under the place.
fn problem(severity: &str, msg: &str, helper: Option<&(String, i64)>, pos: &Pos, line: &str, to: &mut Vec<u8>) {
    let mut text = String::new();
    if pos.line > 0 {
        text += &format!("{}:{}: ", plain(&pos.file), line_and_columns(pos));
    }
    text += &format!("{severity}: {}\n", msg);
    if let Some((name, code)) = helper {
        text += &format!("Additional Info - helper: {name}, retcode: {code}\n");
    }
    if !line.is_empty() {
        // A tab is printed as four columns, so the mark under it must count it as four too.
        let width = |from: u32, to: u32| -> usize {
            let part = line.chars().skip(from.saturating_sub(1) as usize).take(to.saturating_sub(from) as usize);
            part.map(|c| if c == '\t' { 4 } else { 1 }).sum()
        };
        let end = match pos.end.0 {
            0 => pos.col + 1,
            last if last == pos.line => pos.end.1,
            _ => u32::MAX,
        };
        let (before, under) = (width(1, pos.col), width(pos.col, end).max(1));
        text += &format!("{}\n{}{}\n", uncommanded_line(&plain(&line.replace('\t', "    "))), " ".repeat(before), "~".repeat(under));
    }
    to.extend_from_slice(text.as_bytes());
}

/// Line and columns, of which the second is exclusive; or the lines, if there are several.
fn line_and_columns(pos: &Pos) -> String {
    match pos.end {
        (line, _) if line > pos.line => format!("{}-{line}", pos.line),
        (line, col) if line == pos.line && col > pos.col => format!("{line}:{}-{col}", pos.col),
        _ => format!("{}:{}", pos.line, pos.col),
    }
}

//! `--watch`: shows the maps on the terminal's alternate screen during the run, and the last printed lines below them.
//!
//! After the screen closes, the normal screen shows the lines that were printed meanwhile, and the maps as at the end of any
//! run.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use crate::codegen::artifact::Manifest;
use crate::diag::{plain, plural};
use crate::render::{self, RenderOptions, Rendered};
use crate::terminal::screen::{Screen, key, shares};
use crate::terminal::{self, Canvas};
use crate::value::{MapView, ShowOptions, Value};

/// Maximum number of lines that are kept until the end; earlier ones are dropped.
const MAX_LINES: usize = 10_000;

/// What is shown, and how.
pub struct WatchView {
    /// The interval between two reads of the maps.
    pub interval: Duration,
    /// The title of the screen.
    pub title: String,
    /// How maps are rendered, except for the size of the screen.
    pub options: RenderOptions,
    /// Names of maps that are left out.
    pub hidden: Vec<String>,
}

/// The screen.
pub(super) struct Watch {
    view: WatchView,
    /// Indices of the maps, in order of name.
    maps: Vec<usize>,
    screen: Screen,
    keys: bool,
    since: Instant,
    next_redraw: Instant,
    size: (usize, usize),
    /// Output and messages: complete lines, except for the last.
    lines: VecDeque<(Stream, String)>,
    dropped: u64,
}

/// Where a line of output goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Messages,
}

impl Watch {
    /// None if standard output is not a suitable terminal.
    pub fn begin(wanted: WatchView, manifest: &Manifest) -> Option<Self> {
        let hidden: BTreeSet<&str> = wanted.hidden.iter().map(String::as_str).collect();
        let mut maps: Vec<usize> = (0..manifest.maps.len()).collect();
        let name = |map: &usize| manifest.maps.get(*map).map_or("", |map| map.name.as_str());
        maps.retain(|map| !hidden.contains(name(map)));
        maps.sort_by_key(name);
        let screen = Screen::take(true).ok()?;
        let (keys, now) = (screen.has_keys(), Instant::now());
        Some(Self { view: wanted, maps, screen, keys, since: now, next_redraw: now, size: (0, 0), lines: VecDeque::new(), dropped: 0 })
    }

    /// Readable when there is a key.
    pub fn keys(&self) -> RawFd {
        if self.keys { io::stdin().as_raw_fd() } else { -1 }
    }

    /// Takes the rendered text.
    pub fn set_text(&mut self, rendered: &mut Rendered) {
        for (stream, bytes) in [(Stream::Output, &mut rendered.out), (Stream::Messages, &mut rendered.err)] {
            for line in String::from_utf8_lossy(bytes).split_inclusive('\n') {
                match self.lines.back_mut() {
                    Some((of, last)) if *of == stream && !last.ends_with('\n') => last.push_str(line),
                    _ => self.lines.push_back((stream, line.to_string())),
                }
            }
            bytes.clear();
        }
        while self.lines.len() > MAX_LINES {
            self.lines.pop_front();
            self.dropped += 1;
        }
    }

    /// Has `q` been pressed, or has standard input ended in the meantime?
    pub fn quit(&mut self) -> bool {
        while self.keys {
            match key(Duration::ZERO) {
                Some(b'q' | b'Q') => return true,
                // there will be no more keys, but this is not Ctrl-C
                Some(0) => self.keys = false,
                Some(_) => {}
                None => break,
            }
        }
        false
    }

    /// The maps to draw, if it is time to, or if the size of the terminal has changed.
    pub fn due(&mut self) -> Option<Vec<usize>> {
        let (size, now) = (terminal::size(io::stdout()), Instant::now());
        if size == self.size && now < self.next_redraw {
            return None;
        }
        (self.size, self.next_redraw) = (size, now + self.view.interval);
        Some(self.maps.clone())
    }

    /// Restores the terminal. Returns the lines that were printed meanwhile, and the number of those that were dropped.
    pub fn end(self) -> (VecDeque<(Stream, String)>, u64) {
        (self.lines, self.dropped)
    }

    /// Draws the screen.
    pub fn draw(&self, views: Vec<MapView>) -> io::Result<()> {
        let (rows, columns) = self.size;
        let colors = self.view.options.canvas.colors;
        let options = RenderOptions { canvas: Canvas { colors, ..Canvas::of(io::stdout(), colors) }, ..self.view.options.clone() };
        // the title, what is left out, and the line of the cursor
        let max_lines = rows.saturating_sub(3);
        let mut blocks: Vec<Block> = views.into_iter().filter_map(|view| Block::from_map(view, max_lines, &options)).collect();
        blocks
            .push(Block::from_output(self.lines.iter().rev().take(max_lines).map(|(_, line)| line.trim_end().to_string()).rev().collect()));

        let given = fitting(&blocks, max_lines);
        let (mut shown, mut left_out) = (Vec::new(), Vec::new());
        for (block, given) in blocks.into_iter().zip(given) {
            block.show(given, &options, &mut shown, &mut left_out);
        }
        let how = if self.keys { "press q to end" } else { "press Ctrl-C to end" };
        let title = format!("{}   {} s   {how}", plain(&self.view.title), self.since.elapsed().as_secs());
        let left_out = if left_out.is_empty() { String::new() } else { format!("not shown: {}", left_out.join(", ")) };
        let lines = [title.as_str(), left_out.as_str()].into_iter().chain(shown.iter().map(String::as_str)).take(rows.saturating_sub(1));
        self.screen.show(lines, columns)
    }
}

/// Divides the room among blocks. One that would get less than its least part gets nothing; those that need most go first.
fn fitting(blocks: &[Block], max_lines: usize) -> Vec<usize> {
    let mut needs: Vec<usize> = blocks.iter().map(|block| block.lines.len()).collect();
    loop {
        let given = shares(&needs, max_lines);
        let lacks =
            |at: &usize| needs.get(*at).is_some_and(|need| *need > 0) && given.get(*at) < blocks.get(*at).map(|block| &block.min_lines);
        let widest = (0..blocks.len()).filter(lacks).max_by_key(|at| blocks.get(*at).map(|block| block.min_lines));
        match widest.and_then(|at| needs.get_mut(at)) {
            Some(need) => *need = 0,
            None => return given,
        }
    }
}

/// What is shown of a map, or of the output.
struct Block {
    /// None for the output.
    view: Option<MapView>,
    /// All lines; those of a map end with an empty one.
    lines: Vec<String>,
    /// The number of entries in them.
    entries: usize,
    /// The number of lines that name what follows.
    heading_lines: usize,
    /// The least number of lines that show something.
    min_lines: usize,
}

impl Block {
    fn from_output(lines: Vec<String>) -> Self {
        Self { view: None, lines, entries: 0, heading_lines: 0, min_lines: 1 }
    }

    /// None if there is nothing to show.
    fn from_map(mut view: MapView, max_lines: usize, options: &RenderOptions) -> Option<Self> {
        if !view.set || !view.is_result() {
            return None;
        }
        let is_picture = has_several_lines(&view);
        if !is_picture {
            view.show.top = Some(max_lines.max(1) as u64);
        }
        let lines = rendered(&view, options);
        // series ignore `top`
        let all = is_picture || is_series(&view);
        let entries = if all { view.entries.len() } else { view.entries.len().min(max_lines.max(1)) };
        let named = lines.first().is_some_and(|line| line.ends_with(':'));
        // the names of columns
        let columns = named && !is_picture && lines.get(1).is_some_and(|line| line.starts_with(' '));
        let head = usize::from(named) + usize::from(columns);
        let min_lines = if is_heat(&view) { render::HEAT_MAP_LINES } else { head + 1 };
        Some(Self { view: Some(view), lines, entries, heading_lines: head, min_lines })
    }

    /// Appends what fits into this many lines, and notes what is left out.
    fn show(self, given: usize, options: &RenderOptions, shown: &mut Vec<String>, left_out: &mut Vec<String>) {
        let Some(view) = &self.view else {
            // the latest lines
            shown.extend(self.lines.into_iter().rev().take(given).rev());
            return;
        };
        let name = plain(&view.name);
        if given == 0 {
            left_out.push(name);
        } else if self.lines.len() <= given + 1 {
            if self.entries < view.entries.len() {
                left_out.push(format!("{} of {name}", plural(view.entries.len() - self.entries, "key", "keys")));
            }
            // the empty line may be missing
            shown.extend(self.lines.into_iter().take(given));
        } else if is_heat(view) {
            let entries = view.entries.len();
            // a picture of two rows shows more than nothing
            let max_entries = (given / (render::HEAT_MAP_LINES + 1)).clamp(1, entries.max(1));
            let canvas = Canvas { rows: (given / max_entries).saturating_sub(render::HEAT_MAP_LINES - 1).max(1), ..options.canvas };
            let show = ShowOptions { top: Some(max_entries as u64), ..view.show.clone() };
            let fewer = MapView { show, ..view.clone() };
            shown.extend(rendered(&fewer, &RenderOptions { canvas, ..options.clone() }).into_iter().take(given));
            if max_entries < entries {
                left_out.push(format!("{} of {name}", plural(entries - max_entries, "key", "keys")));
            }
        } else if has_several_lines(view) {
            self.show_pictures(given, &name, shown, left_out);
        } else {
            // the greatest values are at the end
            let rows = given.saturating_sub(self.heading_lines).max(1);
            let lines = self.lines.len().saturating_sub(1 + self.heading_lines);
            let cut = lines.saturating_sub(rows);
            // the lines of a stack belong to one key
            left_out.push(match lines == self.entries {
                true => format!("{} of {name}", plural(view.entries.len().saturating_sub(rows), "key", "keys")),
                false => format!("{} of {name}", plural(cut, "line", "lines")),
            });
            let values = self.lines.iter().skip(self.heading_lines + cut).take(rows);
            shown.extend(self.lines.iter().take(self.heading_lines).chain(values).cloned());
        }
    }

    /// Histograms: the last entries that fit, or the last rows of the last one.
    fn show_pictures(&self, given: usize, name: &str, shown: &mut Vec<String>, left_out: &mut Vec<String>) {
        let entries: Vec<&[String]> = self.lines.split(String::is_empty).filter(|lines| !lines.is_empty()).collect();
        let (mut first, mut max_lines) = (entries.len(), given + 1);
        while let Some(entry) = first.checked_sub(1).and_then(|at| entries.get(at)).filter(|entry| entry.len() < max_lines) {
            (first, max_lines) = (first - 1, max_lines - entry.len() - 1);
        }
        let visible = entries.get(first..).unwrap_or_default();
        if let (true, Some([head, rows @ ..])) = (visible.is_empty(), entries.last()) {
            let cut = rows.len().saturating_sub(given.saturating_sub(1));
            shown.extend([head].into_iter().chain(rows.iter().skip(cut)).cloned());
            left_out.push(format!("{} of {name}", plural(cut, "row", "rows")));
            first = first.saturating_sub(1);
        }
        let lines = visible.iter().flat_map(|entry| entry.iter().cloned().chain([String::new()]));
        shown.extend(lines.take(given));
        if first > 0 {
            left_out.push(format!("{} of {name}", plural(first, "key", "keys")));
        }
    }
}

fn is_heat(view: &MapView) -> bool {
    view.entries.iter().any(|(_, value)| matches!(value, Value::HeatMap(_)))
}

/// A series is a sparkline here.
fn is_series(view: &MapView) -> bool {
    view.entries.iter().any(|(_, value)| matches!(value, Value::Series(_)))
}

/// Do the values take several lines each?
fn has_several_lines(view: &MapView) -> bool {
    view.kind.is_picture() && !is_series(view)
}

/// The lines of a map, followed by an empty line.
fn rendered(view: &MapView, options: &RenderOptions) -> Vec<String> {
    let mut lines: Vec<String> = String::from_utf8_lossy(&render::on_screen(view, options)).lines().map(String::from).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines.push(String::new());
    lines
}

//! `--watch`: shows the maps on the terminal's alternate screen during the run, and the last printed lines below them.
//!
//! After the screen closes, the normal screen shows the lines that were printed meanwhile, and the maps as at the end of any
//! run.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use crate::codegen::artifact::Manifest;
use crate::diag::plain;
use crate::output::Output;
use crate::render::{self, RenderOptions, Rendered, Renderer};
use crate::terminal::screen::{Screen, key, shares};
use crate::terminal::{self, Canvas};
use crate::value::{MapView, PICTURES};

/// Maximum number of lines that are kept until the end; earlier ones are dropped.
const MOST_LINES: usize = 10_000;

/// What is shown, and how.
pub struct WatchView {
    /// The interval between two reads of the maps.
    pub every: Duration,
    /// The title of the screen.
    pub title: String,
    /// How maps are rendered, except for the size of the screen.
    pub options: RenderOptions,
    /// Names of maps that are left out.
    pub hidden: Vec<String>,
}

/// The screen.
pub(super) struct Watch {
    wanted: WatchView,
    /// Indices of the maps, in order of name.
    maps: Vec<usize>,
    screen: Screen,
    keys: bool,
    since: Instant,
    due: Instant,
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
        Some(Self { wanted, maps, screen, keys, since: now, due: now, size: (0, 0), lines: VecDeque::new(), dropped: 0 })
    }

    /// Readable when there is a key.
    pub fn keys(&self) -> RawFd {
        if self.keys { io::stdin().as_raw_fd() } else { -1 }
    }

    /// Takes the rendered text.
    pub fn keep(&mut self, rendered: &mut Rendered) {
        for (stream, bytes) in [(Stream::Output, &mut rendered.out), (Stream::Messages, &mut rendered.err)] {
            for line in String::from_utf8_lossy(bytes).split_inclusive('\n') {
                match self.lines.back_mut() {
                    Some((of, last)) if *of == stream && !last.ends_with('\n') => last.push_str(line),
                    _ => self.lines.push_back((stream, line.to_string())),
                }
            }
            bytes.clear();
        }
        while self.lines.len() > MOST_LINES {
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
        if size == self.size && now < self.due {
            return None;
        }
        (self.size, self.due) = (size, now + self.wanted.every);
        Some(self.maps.clone())
    }

    /// Restores the terminal. Returns the lines that were printed meanwhile, and the number of those that were dropped.
    pub fn end(self) -> (VecDeque<(Stream, String)>, u64) {
        (self.lines, self.dropped)
    }

    /// Draws the screen.
    pub fn draw(&self, views: Vec<MapView>) -> io::Result<()> {
        let (rows, columns) = self.size;
        let colors = self.wanted.options.canvas.colors;
        let options = RenderOptions { canvas: Canvas { colors, ..Canvas::of(io::stdout(), colors) }, ..self.wanted.options.clone() };
        let Some(mut text) = render::FORMATS.first().map(|text| (text.make)(&options)) else { return Ok(()) };
        let room = rows.saturating_sub(2);
        let mut blocks: Vec<Vec<String>> = views.into_iter().filter_map(|view| block(view, room, &mut *text)).collect();
        let below: Vec<String> = self.lines.iter().rev().take(room).map(|(_, line)| line.trim_end().to_string()).rev().collect();
        blocks.push(below);

        let needs: Vec<usize> = blocks.iter().map(Vec::len).collect();
        let given = shares(&needs, room);
        let cut = blocks.iter().zip(given).flat_map(|(lines, given)| {
            // the greatest values are at the end, under the name if it is on a separate line
            let named = lines.first().is_some_and(|line| line.ends_with(':'));
            let head = usize::from(named && lines.len() > given && given > 1);
            let tail = lines.len().saturating_sub(given.saturating_sub(head));
            lines.iter().take(head).chain(lines.iter().skip(tail))
        });
        let how = if self.keys { "press q to end" } else { "press Ctrl-C to end" };
        let title = format!("{}   {} s   {how}", plain(&self.wanted.title), self.since.elapsed().as_secs());
        let lines = [title.as_str(), ""].into_iter().chain(cut.map(String::as_str)).take(rows.saturating_sub(1));
        self.screen.show(lines, columns)
    }
}

/// The lines of a map, followed by an empty line. None if there is nothing to show.
fn block(mut view: MapView, room: usize, text: &mut dyn Renderer) -> Option<Vec<String>> {
    if !view.set || !view.is_result() {
        return None;
    }
    if !PICTURES.contains(&view.kind) {
        view.show.top = Some(room.max(1) as u64);
    }
    let mut rendered = Rendered::default();
    text.render(&Output::Map(view), &mut rendered);
    let mut lines: Vec<String> = String::from_utf8_lossy(&rendered.out).lines().map(String::from).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines.push(String::new());
    Some(lines)
}

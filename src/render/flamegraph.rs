//! `-f flamegraph` and `-f icicle`: a picture of each map with stacks in its keys, which zooms and searches.
//!
//! Each map has a document of its own, as widths of different maps cannot be compared.

use std::collections::BTreeMap;
use std::io::{self, Write};

use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
use inferno::flamegraph::{Direction, Options, from_lines};

use super::stack_keys::{Kind, Name, is_stacked, names, visible, weight};
use super::{NO_STACKS, Omitted, RenderOptions, Rendered, Renderer};
use crate::output::Output;
use crate::value::{MapView, Unit};

/// Makes the renderer whose stacks grow upward.
pub fn flamegraph(options: &RenderOptions) -> Box<dyn Renderer> {
    Box::new(FlameGraph::new(options, Direction::Straight))
}

/// Makes the renderer whose stacks grow downward.
pub fn icicle(options: &RenderOptions) -> Box<dyn Renderer> {
    Box::new(FlameGraph::new(options, Direction::Inverted))
}

struct FlameGraph {
    direction: Direction,
    /// The script and the host.
    of: String,
    /// Those that are not written yet, by name: the last that was printed of each.
    maps: BTreeMap<String, Map>,
    omitted: Omitted,
}

struct Map {
    lines: BTreeMap<String, u64>,
    kinds: BTreeMap<String, Kind>,
    unit: Option<Unit>,
}

impl FlameGraph {
    fn new(options: &RenderOptions, direction: Direction) -> Self {
        let about = &options.about;
        Self { direction, of: visible(&format!("{} on {}", about.name, about.host)), maps: BTreeMap::new(), omitted: Omitted::default() }
    }
}

impl Renderer for FlameGraph {
    fn render(&mut self, output: &Output, _: &mut Rendered) {
        let Output::Map(view) = output else { return };
        if is_stacked(view) {
            self.maps.insert(view.name.clone(), Map::of(view));
        } else {
            self.omitted.add(view);
        }
    }

    fn omitted(&self) -> Option<String> {
        self.omitted.told(NO_STACKS)
    }

    fn finish(&mut self, to: &mut dyn Write) -> io::Result<()> {
        let (name, map) = self.maps.pop_first().unwrap_or_else(|| ("maps".into(), Map::none()));
        let mut palette = PaletteMap::default();
        palette.insert("all", color(&Kind::Label));
        for (name, kind) in &map.kinds {
            palette.insert(name, color(kind));
        }
        let mut options = Options::default();
        options.direction = self.direction;
        options.title = visible(&name);
        options.subtitle = Some(self.of.clone());
        options.count_name = match map.unit {
            Some(Unit::Duration) => "ns",
            Some(Unit::Size) => "bytes",
            None => "samples",
        }
        .into();
        if map.unit == Some(Unit::Duration) {
            options.bgcolors = Some(BackgroundColor::Blue);
        }
        options.palette_map = Some(&mut palette);
        options.notes = format!("rbt {}", crate::VERSION);
        let lines: Vec<String> = map.lines.into_iter().map(|(line, n)| format!("{line} {n}")).collect();
        from_lines(&mut options, lines.iter().map(String::as_str), to)
    }

    fn another(&mut self) -> Option<String> {
        self.maps.keys().next().cloned()
    }
}

impl Map {
    /// A box that says that there are none.
    fn none() -> Self {
        Self { lines: [("[no stacks]".into(), 1)].into(), kinds: BTreeMap::new(), unit: None }
    }

    fn of(view: &MapView) -> Self {
        let (mut lines, mut kinds) = (BTreeMap::<String, u64>::new(), BTreeMap::new());
        for (key, value) in &view.entries {
            let Some(n) = weight(value).filter(|n| *n > 0) else { continue };
            let mut line = String::new();
            for Name { text, kind } in names(key) {
                let text = text.replace(';', ":");
                if !line.is_empty() {
                    line.push(';');
                }
                line.push_str(&text);
                kinds.entry(text).or_insert(kind);
            }
            let sum = lines.entry(plain(line)).or_default();
            *sum = sum.saturating_add(n);
        }
        if lines.is_empty() {
            return Self::none();
        }
        Self { lines, kinds, unit: view.show.unit }
    }
}

/// A line in which the library finds no comment, and no number but the one that follows.
fn plain(line: String) -> String {
    let line = line.strip_prefix("# ").map(|rest| format!("#\u{a0}{rest}")).unwrap_or(line);
    match line.rsplit_once(' ') {
        Some((before, last)) if last.parse::<f64>().is_ok() => format!("{before}\u{a0}{last}"),
        _ => line,
    }
}

/// Orange for the kernel, green for interpreted functions, gray for labels, and a shade from red to yellow for each library.
fn color(kind: &Kind) -> Color {
    match kind {
        Kind::Label => Color { r: 200, g: 200, b: 208 },
        Kind::Kernel => Color { r: 240, g: 140, b: 50 },
        Kind::Interpreted => Color { r: 110, g: 200, b: 110 },
        Kind::User(module) => {
            let name = module.as_deref().unwrap_or_default();
            let hash = name.bytes().fold(0u32, |hash, b| hash.wrapping_mul(31).wrapping_add(b.into()));
            let shade = (hash % 120) as u8;
            Color { r: 235, g: 85 + shade, b: 70 + shade / 3 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_in_one_number() {
        assert_eq!(plain("a;b 7".into()), "a;b\u{a0}7");
        assert_eq!(plain("# a;b".into()), "#\u{a0}a;b");
        assert_eq!(plain("a b;c d".into()), "a b;c d");
    }
}

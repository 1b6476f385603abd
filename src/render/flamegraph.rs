//! `-f flamegraph` and `-f icicle`: a picture of each map with stacks in its keys, which zooms and searches, and of each heat map.
//!
//! Each map has its own document, because widths of different maps cannot be compared.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
use inferno::flamegraph::{Direction, Options, TextTruncateDirection, from_lines};

use super::heatmap_svg::{self, Panel};
use super::stack_keys::{Kind, Name, Width, box_width, is_stacked, names, visible};
use super::{Base, Omitted, RenderOptions, Rendered, Renderer};
use crate::output::Output;
use crate::value::{MapView, Value};

/// The title of a picture without a map.
const NO_STACKS: &str = "[no stacks]";

/// Creates the renderer whose stacks grow upward.
pub fn flamegraph(options: &RenderOptions) -> Box<dyn Renderer> {
    Box::new(Pictures::new(options, Direction::Straight))
}

/// Creates the renderer whose stacks grow downward.
pub fn icicle(options: &RenderOptions) -> Box<dyn Renderer> {
    Box::new(Pictures::new(options, Direction::Inverted))
}

/// The stacks of maps as lines for the library, by the name of the map.
pub type Folded = BTreeMap<String, BTreeMap<String, u64>>;

/// The stacks of these maps.
pub fn folded(views: &[MapView]) -> Folded {
    views.iter().filter(|view| is_stacked(view)).map(|view| (view.name.clone(), Stacks::of(view).lines)).collect()
}

struct Pictures {
    direction: Direction,
    /// The script and the host.
    subtitle: String,
    base: Option<Arc<Base>>,
    /// Titles and pictures that are not written yet, by name: the last printed one of each map.
    maps: BTreeMap<String, (String, Picture)>,
    /// Maps that could not be compared.
    without_base: Vec<String>,
    omitted: Omitted,
}

enum Picture {
    Stacks(Stacks),
    Heat(Vec<Panel>),
}

impl Picture {
    fn of(view: &MapView) -> Option<Self> {
        if is_stacked(view) {
            return Some(Picture::Stacks(Stacks::of(view)));
        }
        let heat = view.entries.iter().any(|(_, value)| matches!(value, Value::HeatMap(_)));
        heat.then(|| Picture::Heat(heatmap_svg::panels(view)))
    }
}

struct Stacks {
    lines: BTreeMap<String, u64>,
    kinds: BTreeMap<String, Kind>,
    width: Width,
}

impl Pictures {
    fn new(options: &RenderOptions, direction: Direction) -> Self {
        let about = &options.about;
        Self {
            direction,
            subtitle: visible(&format!("{} on {}", about.name, about.host)),
            base: options.base.clone(),
            maps: BTreeMap::new(),
            without_base: Vec::new(),
            omitted: Omitted::default(),
        }
    }

    /// The stacks with which a map is compared, and their name.
    fn base(&mut self, name: &str) -> Option<(BTreeMap<String, u64>, String)> {
        let base = self.base.clone()?;
        let found = match &*base {
            Base::Map(other) => match self.maps.get(other) {
                Some((_, Picture::Stacks(stacks))) if other != name => Some((stacks.lines.clone(), other.clone())),
                Some(_) | None => None,
            },
            Base::Run { maps, label: place } => maps.get(name).map(|lines| (lines.clone(), place.clone())),
        };
        if found.is_none() && base.map() != Some(name) {
            self.without_base.push(name.into());
        }
        found
    }
}

impl Renderer for Pictures {
    fn render(&mut self, output: &Output, _: &mut Rendered) {
        let picture = if let Output::Map(view) = output { Picture::of(view) } else { None };
        if let (Some(picture), Output::Map(view)) = (picture, output) {
            self.omitted.shows(view);
            self.maps.insert(view.name.clone(), (view.title(), picture));
        } else {
            self.omitted.add(output);
        }
    }

    fn omitted_maps(&self) -> usize {
        self.omitted.maps().count()
    }

    fn omitted(&self) -> Option<String> {
        self.omitted.message(", and no heat map")
    }

    fn uncompared(&self) -> Option<String> {
        uncompared(self.base.as_ref()?, &self.without_base)
    }

    fn finish(&mut self, to: &mut dyn Write) -> io::Result<()> {
        // a map with which others are compared comes last, because it must exist until then
        let compared = self.base.as_ref().and_then(|base| base.map()).map(String::from);
        let next = self.maps.keys().find(|name| compared.as_ref() != Some(name)).or(self.maps.keys().next()).cloned();
        let Some((name, (title, picture))) = next.and_then(|name| self.maps.remove_entry(&name)) else {
            return heatmap_svg::draw(NO_STACKS, &self.subtitle, &[], to);
        };
        match picture {
            Picture::Stacks(stacks) => self.stacks([&name, &title], stacks, to),
            Picture::Heat(panels) => heatmap_svg::draw(&visible(&title), &self.subtitle, &panels, to),
        }
    }

    fn another(&mut self) -> Option<String> {
        let compared = self.base.as_ref().and_then(|base| base.map());
        self.maps.keys().find(|name| compared != Some(name)).or(self.maps.keys().next()).cloned()
    }
}

impl Pictures {
    fn stacks(&mut self, [name, title]: [&str; 2], stacks: Stacks, to: &mut dyn Write) -> io::Result<()> {
        let mut palette = PaletteMap::default();
        let color = |kind: &Kind| {
            let [r, g, b] = kind.color(stacks.width);
            Color { r, g, b }
        };
        // the box below all others
        palette.insert("", color(&Kind::Label));
        for (name, kind) in &stacks.kinds {
            palette.insert(name, color(kind));
        }
        let mut options = Options::default();
        options.direction = self.direction;
        options.title = visible(title);
        options.subtitle = Some(self.subtitle.clone());
        options.count_name = stacks.width.unit().into();
        options.text_truncate_direction = TextTruncateDirection::Right;
        options.bgcolors = Some(if stacks.width.is_time() { BackgroundColor::Blue } else { BackgroundColor::Grey });
        options.palette_map = Some(&mut palette);
        options.notes = format!("rbt {}", crate::VERSION);
        let lines: Vec<String> = match self.base(name) {
            Some((before, place)) => {
                options.subtitle = Some(visible(&format!("{}, compared with {place}: red is more, blue is less", self.subtitle)));
                // the library draws the current stacks: those that are gone have no width
                let one = |line: &String| format!("{line} {} {}", before.get(line).unwrap_or(&0), stacks.lines.get(line).unwrap_or(&0));
                before.keys().chain(stacks.lines.keys().filter(|line| !before.contains_key(*line))).map(one).collect()
            }
            None => stacks.lines.iter().map(|(line, n)| format!("{line} {n}")).collect(),
        };
        from_lines(&mut options, lines.iter().map(String::as_str), to)
    }
}

impl Stacks {
    fn of(view: &MapView) -> Self {
        let (mut lines, mut kinds) = (BTreeMap::<String, u64>::new(), BTreeMap::new());
        for (key, value) in &view.entries {
            let Some(n) = box_width(value) else { continue };
            let names = names(key);
            let line = folded_line(names.iter().map(|name| name.text.as_str()));
            for Name { text, kind } in names {
                kinds.entry(text.replace(';', ":")).or_insert(kind);
            }
            let sum = lines.entry(line).or_default();
            *sum = sum.saturating_add(n);
        }
        Self { lines, kinds, width: Width::of(view) }
    }
}

/// The message about maps that could not be compared.
pub fn uncompared(base: &Base, alone: &[String]) -> Option<String> {
    let place = base.label();
    (!alone.is_empty()).then(|| format!("does not compare {}: there is no such map with stacks in {place}", alone.join(", ")))
}

/// The names of a stack in one line, as in [`Folded`].
pub fn folded_line<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut line = String::new();
    for (i, name) in names.enumerate() {
        if i > 0 {
            line.push(';');
        }
        line.extend(name.chars().map(|c| if c == ';' { ':' } else { c }));
    }
    plain(line)
}

/// A line in which the library finds no comment, and no numbers except the following ones.
fn plain(line: String) -> String {
    let line = line.strip_prefix("# ").map(|rest| format!("#\u{a0}{rest}")).unwrap_or(line);
    match line.rsplit_once(' ') {
        Some((before, last)) if last.parse::<f64>().is_ok() => format!("{before}\u{a0}{last}"),
        _ => line,
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

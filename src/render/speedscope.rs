//! `-f speedscope`: each map with stacks in its keys is a profile of speedscope's file format.

use std::collections::HashMap;
use std::io::{self, Write};

use serde::Serialize;

use super::stack_keys::{Kind, Name, Width, box_width, is_stacked, names, visible};
use super::{Omitted, RenderOptions, Rendered, Renderer};
use crate::output::Output;
use crate::value::{MapView, Value};

/// Creates the renderer.
pub fn make(options: &RenderOptions) -> Box<dyn Renderer> {
    Box::new(Speedscope { name: options.about.name.clone(), ..Speedscope::default() })
}

#[derive(Default)]
struct Speedscope {
    name: String,
    frames: Vec<Frame>,
    /// Indices of frames.
    known: HashMap<Frame, u32>,
    profiles: Vec<Profile>,
    omitted: Omitted,
}

#[derive(Clone, PartialEq, Eq, Hash, Serialize)]
struct Frame {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    #[serde(skip)]
    map: String,
    r#type: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    samples: Vec<Vec<u32>>,
    weights: Vec<u64>,
}

#[derive(Serialize)]
struct Shared<'a> {
    frames: &'a [Frame],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: String,
    name: &'a str,
    shared: Shared<'a>,
    profiles: &'a [Profile],
}

impl Renderer for Speedscope {
    fn render(&mut self, output: &Output, _: &mut Rendered) {
        if let Output::Map(view) = output
            && is_stacked(view)
        {
            self.omitted.shows(view);
            self.map(view);
        } else {
            self.omitted.add(output);
        }
    }

    fn omitted_maps(&self) -> usize {
        self.omitted.maps().count()
    }

    fn omitted(&self) -> Option<String> {
        self.omitted.message("")
    }

    fn finish(&mut self, to: &mut dyn Write) -> io::Result<()> {
        let file = File {
            schema: "https://www.speedscope.app/file-format-schema.json",
            exporter: format!("rbt@{}", crate::VERSION),
            name: &self.name,
            shared: Shared { frames: &self.frames },
            profiles: &self.profiles,
        };
        serde_json::to_writer(&mut *to, &file)?;
        to.write_all(b"\n")
    }
}

impl Speedscope {
    fn map(&mut self, view: &MapView) {
        let (mut samples, mut weights) = (Vec::new(), Vec::new());
        for (key, value) in &view.entries {
            let Some(n) = box_width(value) else { continue };
            samples.push(self.sample(key));
            weights.push(n);
        }
        let width = Width::of(view);
        let unit = if matches!(width, Width::Samples | Width::Values) { "none" } else { width.unit() };
        let end_value = weights.iter().fold(0u64, |sum, n| sum.saturating_add(*n));
        // the last printed state of each map counts
        self.profiles.retain(|profile| profile.map != view.name);
        let (map, name) = (view.name.clone(), visible(&view.title()));
        self.profiles.push(Profile { map, r#type: "sampled", name, unit, start_value: 0, end_value, samples, weights });
    }

    /// Indices of frames, outermost first.
    fn sample(&mut self, key: &Value) -> Vec<u32> {
        let file = |kind| if let Kind::User(module) = kind { module } else { None };
        names(key).into_iter().map(|Name { text, kind }| self.index(Frame { name: text, file: file(kind) })).collect()
    }

    fn index(&mut self, named: Frame) -> u32 {
        if let Some(index) = self.known.get(&named) {
            return *index;
        }
        let index = u32::try_from(self.frames.len()).unwrap_or(u32::MAX);
        self.frames.push(named.clone());
        self.known.insert(named, index);
        index
    }
}

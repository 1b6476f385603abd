//! Names of code, kept between runs: see `system/cache.rs`.
//!
//! The names of a few addresses take as long as those of all: debug information is compressed, and symbols are sorted before
//! the first lookup. Most runs look up the same few addresses, such as those between a program's start and its main loop.

use std::collections::BTreeMap;
use std::fs::metadata;
use std::path::Path;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::system::binary::debug_files::DebugInformation;
use crate::system::cache::{CacheFile, Kind, digest, rbt_itself, unchanged};
use crate::value::Frame;

const KIND: Kind = Kind { form: "rbt-names-1", prefix: "names-", max_bytes: 8 << 20, max_files: 1024, max_total: 128 << 20 };
/// Maximum number of addresses of one file.
const MAX_ADDRESSES: usize = 1 << 14;

/// What [`Frame`] has of an address in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Name {
    symbol: Option<String>,
    offset: u64,
    source: Option<(String, u32)>,
    inlined: bool,
}

/// A place in the code of a file: its offset, and whether it is a return address.
pub(super) type Place = (u64, bool);

/// The names in one file.
#[derive(Debug)]
pub(super) struct KnownNames {
    file: CacheFile,
    known: BTreeMap<Place, Vec<Name>>,
    /// The file has debug information, so that it may have source lines for each address.
    has_lines: bool,
    changed: bool,
}

impl KnownNames {
    /// The names in a file that can be read at this path. `options` has the options of the lookup. None if nothing is kept of it.
    pub fn of(at: &Path, debug: &DebugInformation, options: &str) -> Option<Self> {
        let now = SystemTime::now();
        let identity = |path: &Path| unchanged(&metadata(path).ok()?, now);
        let separate = match debug {
            DebugInformation::Separate(path) => identity(path)?,
            DebugInformation::Within | DebugInformation::Missing => String::new(),
        };
        let all = format!("{} {options} {separate}", rbt_itself()?);
        let file = CacheFile::new(KIND, format!("{}-{:016x}", identity(at)?, digest(all.as_bytes())))?;
        Some(Self::from(file, *debug != DebugInformation::Missing))
    }

    fn from(file: CacheFile, has_lines: bool) -> Self {
        let known = file.load().and_then(|(bytes, start)| postcard::from_bytes(bytes.get(start..)?).ok()).unwrap_or_default();
        Self { file, known, has_lines, changed: false }
    }

    /// The frames at a place, if they are known.
    pub fn frames(&self, place: Place) -> Option<Vec<Frame>> {
        let frame = |name: &Name| Frame {
            symbol: name.symbol.clone(),
            offset: name.offset,
            source: name.source.clone(),
            inlined: name.inlined,
            ..Frame::default()
        };
        Some(self.known.get(&place)?.iter().map(frame).collect())
    }

    /// Adds the frames at a place, which have no address yet.
    pub fn add(&mut self, place: Place, frames: &[Frame]) {
        // lines may be in a file that was missing this time (`.dwo`)
        let complete = !self.has_lines || frames.last().is_some_and(|frame| frame.source.is_some());
        if !complete || self.known.len() >= MAX_ADDRESSES {
            return;
        }
        let name = |frame: &Frame| Name {
            symbol: frame.symbol.clone(),
            offset: frame.offset,
            source: frame.source.clone(),
            inlined: frame.inlined,
        };
        self.known.insert(place, frames.iter().map(name).collect());
        self.changed = true;
    }
}

impl Drop for KnownNames {
    fn drop(&mut self) {
        if let Some(bytes) = self.changed.then(|| postcard::to_allocvec(&self.known).ok()).flatten() {
            self.file.save(&bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_frames() {
        let folder = std::env::temp_dir().join(format!("rbt-known-names-{}", std::process::id()));
        let open = |has_lines| KnownNames::from(CacheFile::at(KIND, &folder, "1-2"), has_lines);
        let named = Frame { symbol: Some("main".into()), offset: 3, source: Some(("a.c".into(), 7)), ..Frame::default() };
        let inlined = Frame { symbol: Some("work".into()), inlined: true, ..Frame::default() };
        let mut names = open(true);
        names.add((16, true), &[inlined.clone(), named.clone()]);
        names.add((32, false), std::slice::from_ref(&inlined));
        names.add((48, false), &[]);
        drop(names);
        let names = open(true);
        assert_eq!(names.frames((16, true)), Some(vec![inlined.clone(), named]));
        // without a line, although there may be one
        assert_eq!((names.frames((16, false)), names.frames((32, false)), names.frames((48, false))), (None, None, None));
        let mut names = open(false);
        names.add((32, false), std::slice::from_ref(&inlined));
        names.add((48, false), &[]);
        drop(names);
        let names = open(false);
        assert_eq!((names.frames((32, false)), names.frames((48, false))), (Some(vec![inlined]), Some(Vec::new())));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

//! Files that a program mapped while it ran, kept for its next run: their tables are compiled before the program maps
//! them again.

use std::path::{Path, PathBuf};

use crate::input;
use crate::system::cache::{CacheFile, Kind, digest};

const KIND: Kind = Kind { form: "rbt-mapped-1", prefix: "mapped-", max_bytes: 1 << 20, max_files: 1024, max_total: 16 << 20 };
/// Maximum number of files of one program.
const MAX_FILES: usize = 512;

/// The files of a program.
#[derive(Debug)]
pub(super) struct MappedFilesCache {
    file: CacheFile,
    /// Those of the last run, in the order in which they were first mapped.
    pub files: Vec<PathBuf>,
    /// Those of this run. They replace the others: many programs, such as a shell, run quite different ones each time.
    current: Vec<PathBuf>,
}

impl MappedFilesCache {
    /// The known files of a program; none if nothing is kept between runs.
    pub fn of(program: &Path) -> Option<Self> {
        let path = program.canonicalize().ok()?;
        let file = CacheFile::new(KIND, format!("{:016x}", digest(path.as_os_str().as_encoded_bytes())))?;
        let text = file.load().and_then(|(bytes, start)| String::from_utf8(bytes.get(start..)?.to_vec()).ok()).unwrap_or_default();
        let files = text.lines().take(MAX_FILES).map(PathBuf::from).collect();
        Some(Self { file, files, current: Vec::new() })
    }

    /// Adds a file that the program, or one that it started, has mapped.
    pub fn add(&mut self, path: &Path) {
        if self.current.len() < MAX_FILES && path.is_absolute() && !self.current.iter().any(|known| known == path) {
            self.current.push(path.to_owned());
        }
    }

    /// Saves the files that still exist, if they are not those of the last run.
    pub fn save(&mut self) {
        let now = std::mem::take(&mut self.current);
        if !now.is_empty() && now != self.files {
            let there = now.iter().filter(|path| input::open_regular(path).is_ok());
            let lines: Vec<&str> = there.filter_map(|path| path.to_str()).filter(|path| !path.contains('\n')).collect();
            self.file.save(lines.join("\n").as_bytes());
        }
    }
}

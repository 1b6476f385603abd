//! Where the output of a run goes: the output itself, and further files in their own formats.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, OsString};
use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::cli::Run;
use crate::diag;
use crate::failure::Failure;
use crate::host::Reader;
use crate::output::Output;
use crate::progress::Progress;
use crate::render::{self, Content, Format, RenderOptions, Rendered, Renderer, RunInfo, WritePart};
use crate::streams::{AtomicFile, CLOSED_PIPE, RecordFile, not_written, to_stderr};
use crate::system::machine::host_name;
use crate::terminal::Canvas;
use crate::value::Value;

/// Maximum age of a stream beside the output.
const MAX_BUFFER_AGE: Duration = Duration::from_secs(1);

/// The destination of each format.
pub struct Destinations {
    /// The format of the output itself.
    pub format: &'static Format,
    /// The file of the output itself; none: standard output.
    pub file: Option<PathBuf>,
    /// A document goes to standard output, and the output itself to standard error.
    pub document: Option<&'static Format>,
    /// Files beside the output, each in its format.
    pub beside: Vec<(PathBuf, &'static Format)>,
    /// What to tell about the names of the files.
    notes: Vec<String>,
    /// Use colors if supported.
    color: bool,
}

impl Destinations {
    /// From `-o` and `-f`. A name by `-f` applies to all files; otherwise each file's ending decides. A file is beside
    /// the output if it is a document, or if its ending selects another format than text. `-` is standard output.
    ///
    /// # Errors
    /// There is no such format, or a file appears twice.
    pub fn of(run: &Run) -> Result<Self, Failure> {
        let named = run.format.as_deref().map(find).transpose()?;
        let text = find(render::TEXT)?;
        let mut to = Self {
            format: named.filter(|f| !f.document).unwrap_or(text),
            file: None,
            document: None,
            beside: Vec::new(),
            notes: Vec::new(),
            color: run.color_output,
        };
        let is_stdout = |path: &PathBuf| path.as_os_str() == "-";
        let to_stdout = run.outputs.iter().any(is_stdout);
        for (at, path) in run.outputs.iter().enumerate() {
            if let Some(other) = run.outputs.iter().take(at).find(|other| same_file(other, path)) {
                let (path, other) = (path.display(), other.display());
                let twice = path.to_string() == other.to_string();
                let what = if twice { "appears twice".into() } else { format!("is the same file as -o {other}") };
                return Err(Failure::new(format!("-o {path} {what}")).help("use a different name for each output"));
            }
            let format = named.or_else(|| render::format_of_file(path)).unwrap_or(text);
            if is_stdout(path) {
                continue;
            }
            to.notes.extend(only_text(path).filter(|_| named.is_none()));
            if std::ptr::eq(format, to.format) && to.file.is_none() && !to_stdout {
                to.file = Some(path.clone());
            } else {
                to.beside.push((path.clone(), format));
            }
        }
        to.document = named.filter(|format| format.document && (run.outputs.is_empty() || to_stdout));
        Ok(to)
    }

    /// Every format.
    pub fn formats(&self) -> impl Iterator<Item = &'static Format> {
        [self.format].into_iter().chain(self.document).chain(self.beside.iter().map(|(_, format)| *format))
    }

    /// Opens the files.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn open(self, options: &RenderOptions) -> Result<Outputs, Failure> {
        self.notes.iter().filter(|_| options.warnings).for_each(|note| to_stderr(note));
        let mut whole = None;
        let file = match &self.file {
            Some(path) if self.format.appears_at_end() => {
                AtomicFile::create(path).and_then(|file| whole.insert(file).contents()).map_err(|e| not_written(&display_name(path), &e))?
            }
            Some(path) => File::create(path).map_err(|e| not_written(&display_name(path), &e))?,
            None => {
                let copy = if self.document.is_some() {
                    io::stderr().as_fd().try_clone_to_owned()
                } else {
                    io::stdout().as_fd().try_clone_to_owned()
                };
                copy.map(File::from).map_err(|e| not_written(STDOUT, &e))?
            }
        };
        let escape_messages = io::stderr().is_terminal() || is_log_of_github();
        let terminal = file.is_terminal();
        let escape_output = terminal || self.file.is_none() && is_log_of_github();
        let canvas = Canvas::of(&file, self.color && (self.file.is_none() || terminal));
        let options = RenderOptions { escape_output, escape_messages, canvas, ..options.clone() };
        let aside = RenderOptions { escape_output: false, canvas: Canvas::default(), escape_messages, maps_only: true, ..options.clone() };
        let mut beside = Vec::new();
        if let Some(format) = self.document {
            beside.push(OutputFile::to_stdout(format, &aside)?);
        }
        for (path, format) in &self.beside {
            beside.push(OutputFile::to_file(path, format, &aside)?);
        }
        let file = RecordFile::new(file, self.file.is_some(), self.format.lines);
        let main = (self.format.make)(&options);
        Ok(Outputs {
            main,
            format: self.format,
            file: Some(file),
            at_end: whole,
            path: self.file,
            document: self.document.is_some(),
            contents: BTreeSet::new(),
            beside,
            options,
            ended: false,
        })
    }
}

fn find(name: &str) -> Result<&'static Format, Failure> {
    render::find(name).ok_or_else(|| Failure::new(format!("there is no format `{name}`")))
}

/// Information about a run that begins now.
pub fn about(name: String, script: String) -> RunInfo {
    let system = rustix::system::uname();
    let text = |part: &CStr| part.to_string_lossy().into_owned();
    let quoted = |word: OsString| {
        let word = word.to_string_lossy();
        shlex::try_quote(&word).map_or_else(|_| word.clone().into_owned(), Cow::into_owned)
    };
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    RunInfo {
        command: std::env::args_os().map(quoted).collect::<Vec<_>>().join(" "),
        name,
        script,
        host: host_name(),
        kernel: format!("{} {}", text(system.release()), text(system.machine())),
        start_ns: u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX),
    }
}

/// The destination of the output itself, for messages.
pub fn place_of(run: &Run) -> String {
    let file = Destinations::of(run).ok().and_then(|to| to.file);
    file.map_or_else(|| STDOUT.into(), |path| display_name(&path))
}

const STDOUT: &str = "standard output";

fn display_name(path: &Path) -> String {
    format!("-o {}", path.display())
}

/// The note about a file whose extension stands for another format than the text that rbt writes to it.
fn only_text(path: &Path) -> Option<String> {
    let nearest = render::nearest(path)?;
    let file = diag::plain(&path.to_string_lossy());
    Some(format!("note: rbt writes text to {file}, because it has no format with that extension; the most similar one is {nearest}\n"))
}

/// Do two names lead to the same file, which may not exist yet?
fn same_file(one: &Path, other: &Path) -> bool {
    let resolved = |path: &Path| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let named = || Some(fs::canonicalize(folder).ok()?.join(path.file_name()?));
        fs::canonicalize(path).ok().or_else(named).unwrap_or_else(|| path.to_path_buf())
    };
    resolved(one) == resolved(other)
}

/// `run.bytes.svg` for `run.svg` and `@bytes`, or with a number if another output has that name.
fn sibling_path(path: &Path, name: &str, taken: &[PathBuf]) -> PathBuf {
    let name = match name.trim_start_matches('@') {
        "" => "map",
        name => name,
    };
    let numbered = |n: u64| if n == 1 { with_word(path, name) } else { with_word(path, &format!("{name}.{n}")) };
    let is_free = |path: &PathBuf| !taken.iter().any(|other| same_file(path, other));
    (1..).map(numbered).find(is_free).unwrap_or_else(|| path.to_path_buf())
}

/// `run.word.svg` for `run.svg`.
fn with_word(path: &Path, word: &str) -> PathBuf {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let ending = render::format_of_file(path)
        .and_then(|f| f.endings.iter().filter(|e| file.to_ascii_lowercase().ends_with(**e)).map(|e| e.len()).max());
    let (stem, ending) = file.split_at_checked(file.len() - ending.unwrap_or(0)).unwrap_or((&file, ""));
    path.with_file_name(format!("{stem}.{word}{ending}"))
}

/// The renderer of a run, which writes the files beside the output itself.
pub struct Outputs {
    main: Box<dyn Renderer>,
    format: &'static Format,
    file: Option<RecordFile>,
    /// The same file, if it appears when it is complete.
    at_end: Option<AtomicFile>,
    /// The name of that file; none: standard output.
    path: Option<PathBuf>,
    /// A document has standard output, and the output itself is on standard error.
    document: bool,
    /// What the script has reported.
    contents: BTreeSet<Content>,
    beside: Vec<OutputFile>,
    options: RenderOptions,
    ended: bool,
}

struct OutputFile {
    renderer: Box<dyn Renderer>,
    destination: Destination,
    format: &'static Format,
    warnings: bool,
    path: Option<PathBuf>,
    /// Its name in messages.
    display_name: String,
    written: Instant,
    broken: Option<io::Error>,
}

/// A file beside the output.
enum Destination {
    /// See [`Format::appears_at_end`].
    Whole(BufWriter<AtomicFile>),
    /// A stream, or standard output.
    Direct(BufWriter<RecordFile>),
}

impl Destination {
    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Destination::Whole(file) => file,
            Destination::Direct(file) => file,
        }
    }
}

impl OutputFile {
    fn to_stdout(format: &'static Format, options: &RenderOptions) -> Result<Self, Failure> {
        let out = io::stdout().as_fd().try_clone_to_owned().map_err(|e| not_written(STDOUT, &e))?;
        let out = RecordFile::new(File::from(out), false, format.lines);
        Ok(Self::new(format, options, Destination::Direct(BufWriter::new(out)), None))
    }

    fn to_file(path: &Path, format: &'static Format, options: &RenderOptions) -> Result<Self, Failure> {
        if format.appears_at_end() {
            return Self::replacing(path, display_name(path), format, options);
        }
        let file = File::create(path).map_err(|e| not_written(&display_name(path), &e))?;
        let to = Destination::Direct(BufWriter::new(RecordFile::new(file, true, format.lines)));
        Ok(Self::new(format, options, to, Some(path)))
    }

    /// A file that appears when it is whole; `place` is its name in messages.
    fn replacing(path: &Path, place: String, format: &'static Format, options: &RenderOptions) -> Result<Self, Failure> {
        let file = AtomicFile::create(path).map_err(|e| not_written(&place, &e))?;
        let to = Destination::Whole(BufWriter::new(file));
        Ok(Self { display_name: place, ..Self::new(format, options, to, Some(path)) })
    }

    fn new(format: &'static Format, options: &RenderOptions, to: Destination, path: Option<&Path>) -> Self {
        let place = path.map_or_else(|| STDOUT.into(), display_name);
        Self {
            renderer: (format.make)(options),
            format,
            warnings: options.warnings,
            destination: to,
            path: path.map(Path::to_path_buf),
            display_name: place,
            written: Instant::now(),
            broken: None,
        }
    }

    fn render(&mut self, output: &Output, err: &mut Vec<u8>) {
        if self.broken.is_some() {
            return;
        }
        let mut rendered = Rendered::default();
        self.renderer.render(output, &mut rendered);
        err.append(&mut rendered.err);
        if rendered.out.is_empty() {
            return;
        }
        let writer = self.destination.writer();
        let mut written = writer.write_all(&rendered.out);
        if self.written.elapsed() >= MAX_BUFFER_AGE {
            self.written = Instant::now();
            written = written.and_then(|()| writer.flush());
        }
        self.broken = written.err();
    }

    /// The message about maps that the format cannot show.
    fn omitted(&self) -> Option<String> {
        self.renderer.omitted().map(|omitted| format!("{} {}", self.format.name, diag::plain(&omitted)))
    }

    /// `taken`: the names of all outputs.
    fn finish(mut self, taken: &mut Vec<PathBuf>) -> io::Result<()> {
        if let Some(why) = self.broken {
            return Err(why);
        }
        self.renderer.finish(self.destination.writer())?;
        let omitted = self.omitted();
        match self.destination {
            Destination::Direct(mut file) => file.flush()?,
            Destination::Whole(file) => file.into_inner().map_err(io::IntoInnerError::into_error)?.commit()?,
        }
        if let Some(omitted) = omitted.filter(|_| self.warnings) {
            to_stderr(&format!("note: {omitted}\n"));
        }
        let mut others = Vec::new();
        while let Some(name) = self.renderer.another() {
            let Some(path) = &self.path else {
                if self.warnings {
                    to_stderr(&format!("note: {} shows one map on standard output; -o FILE shows the others, too\n", self.format.name));
                }
                break;
            };
            let path = sibling_path(path, &name, taken);
            let mut file = BufWriter::new(AtomicFile::create(&path)?);
            self.renderer.finish(&mut file)?;
            file.into_inner().map_err(io::IntoInnerError::into_error)?.commit()?;
            others.push(format!("{} in {}", diag::plain(&name), diag::plain(&path.to_string_lossy())));
            taken.push(path);
        }
        if !others.is_empty() && self.warnings {
            to_stderr(&format!("note: {} shows {}\n", self.format.name, others.join(", ")));
        }
        if let Some(uncompared) = self.renderer.uncompared().filter(|_| self.warnings) {
            to_stderr(&format!("note: {} {}\n", self.format.name, diag::plain(&uncompared)));
        }
        Ok(())
    }
}

impl Outputs {
    /// A single file in the format of its ending, which appears when it is whole.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn only(path: &Path, options: &RenderOptions) -> Result<Self, Failure> {
        let text = find(render::TEXT)?;
        let format = render::format_of_file(path).unwrap_or(text);
        if let Some(note) = only_text(path) {
            to_stderr(&note);
        }
        let options = RenderOptions { maps_only: true, ..options.clone() };
        let beside = vec![OutputFile::replacing(path, path.display().to_string(), format, &options)?];
        Ok(Self {
            main: Box::new(NullRenderer),
            format: text,
            file: None,
            at_end: None,
            path: None,
            document: false,
            contents: BTreeSet::new(),
            beside,
            options,
            ended: false,
        })
    }

    /// The number of maps that a file's format could not show, and the message about them.
    pub fn omitted(&self) -> (usize, Option<String>) {
        let number = self.beside.iter().map(|file| file.renderer.omitted_maps()).max().unwrap_or(0);
        (number, self.beside.iter().find_map(OutputFile::omitted))
    }

    /// The file of the output itself. It is not buffered, because the session buffers as `-B` requires.
    ///
    /// # Errors
    /// It was already taken.
    pub fn take_file(&mut self) -> Result<RecordFile, Failure> {
        self.file.take().ok_or_else(|| Failure::new("the output is in use"))
    }

    /// The options for rendering the output itself.
    pub fn options(&self) -> &RenderOptions {
        &self.options
    }

    /// Did the run reach its end, so that the output is complete?
    pub fn is_complete(&self) -> bool {
        self.ended
    }

    /// Finishes the files beside the output when the run is over. Returns the exit status.
    ///
    /// # Errors
    /// A file could not be written.
    pub fn finish(self) -> Result<u8, Failure> {
        let progress = Progress::on_stderr();
        let (mut status, mut failed) = (0, None);
        if let (Some(whole), Some(path)) = (self.at_end, &self.path) {
            failed = whole.commit().err().map(|why| not_written(&display_name(path), &why));
        }
        let mut taken: Vec<PathBuf> = self.path.into_iter().chain(self.beside.iter().filter_map(|file| file.path.clone())).collect();
        if let Some(omitted) = self.main.omitted().filter(|_| self.options.warnings) {
            to_stderr(&format!("note: {} {}\n", self.format.name, diag::plain(&omitted)));
        }
        if self.options.warnings {
            let formats: BTreeMap<_, _> = self.beside.iter().map(|file| (file.format.name, file.format.shows)).collect();
            for (format, shows) in formats {
                let contents: Vec<_> = self.contents.iter().filter(|content| !shows.contains(content)).collect();
                if contents.is_empty() {
                    continue;
                }
                // what a stream does not show goes to standard error, too
                let aside = self.document || contents.iter().any(|content| !self.format.shows.contains(content));
                let place = if aside { "on standard error" } else { "in the output" };
                let names = contents.iter().map(|content| content.name()).collect::<Vec<_>>().join(" and ");
                to_stderr(&format!("note: {format} does not show {names}: they are {place}\n"));
            }
        }
        for file in self.beside {
            progress.at(&format!("writing {}", file.display_name));
            let place = file.display_name.clone();
            match file.finish(&mut taken) {
                Ok(()) => {}
                Err(why) if why.kind() == io::ErrorKind::BrokenPipe => status = CLOSED_PIPE,
                Err(why) => failed = failed.or_else(|| Some(not_written(&place, &why))),
            }
        }
        failed.map_or(Ok(status), Err)
    }
}

/// Renders nothing.
struct NullRenderer;

impl Renderer for NullRenderer {
    fn render(&mut self, _: &Output, _: &mut Rendered) {}
}

impl Renderer for Outputs {
    fn render(&mut self, output: &Output, to: &mut Rendered) {
        self.ended |= matches!(output, Output::End);
        self.main.render(output, to);
        self.contents.extend(Content::of(output));
        self.beside.iter_mut().for_each(|file| file.render(output, &mut to.err));
    }

    fn render_in_parts(&mut self, output: &Output, to: &mut Rendered, write: &mut WritePart<'_>) {
        self.ended |= matches!(output, Output::End);
        self.main.render_in_parts(output, to, write);
        self.contents.extend(Content::of(output));
        self.beside.iter_mut().for_each(|file| file.render(output, &mut to.err));
    }

    fn at(&mut self, unix_ns: i128) {
        self.main.at(unix_ns);
        self.beside.iter_mut().for_each(|file| file.renderer.at(unix_ns));
    }

    fn text(&self, value: &Value, reader: Reader, to: &mut Vec<u8>) {
        self.main.text(value, reader, to);
    }
}

/// Is the output the log of a step in GitHub Actions? The runner obeys workflow commands in it
/// (<https://docs.github.com/actions/reference/workflows-and-actions/variables>).
fn is_log_of_github() -> bool {
    std::env::var_os("GITHUB_ACTIONS").is_some_and(|value| value == "true")
}

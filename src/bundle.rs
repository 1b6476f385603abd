//! Bundles: compiled scripts in files, which `rbt build` writes and `rbt-run` runs on machines without a compiler.
//!
//! A bundle has a header (magic, version of the format, size and SHA-256 of the rest), a description in JSON, and BPF
//! objects, compressed. An object is a variant of the script: it has relocations for numbers that depend on the kernel, and
//! requirements: the queries that were made about the kernel, with digests of the answers. A runner repeats these
//! queries, and takes the first variant whose requirements are met: compiling there would give the same code, apart
//! from the choice of the variant.
//!
//! The description is JSON because the JSON reader limits the nesting of its input, and a bundle is untrusted. The
//! digest detects damage; it does not prove origin.

use std::collections::BTreeSet;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::builtins;
use crate::builtins::options::RunArguments;
use crate::codegen::artifact::{Artifact, Manifest, Program};
use crate::expect::ScriptMap;
use crate::failure::{Failure, reason};
use crate::input;
use crate::launch::Described;
use crate::parts;
use crate::probes::Env;
use crate::settings::Built;
use crate::system::TargetInfo;
use crate::system::bpf_object;
use crate::system::portability::kept_answers::KeptAnswers;
use crate::system::portability::relocations::{self, Relocation, Unrelocatable};
use crate::system::portability::requirements::{Difference, Requirements};

/// The first bytes of a bundle.
const MAGIC: &[u8; 8] = b"\x7frbtBPF\n";
/// The version of the format, including that of the description.
const FORMAT: u32 = 9;
/// Size of the trailer after a bundle in a program.
const TRAILER: u64 = 8 + MAGIC.len() as u64;
/// Maximum size of a bundle, and of an object in it.
const MAX_BUNDLE_SIZE: u64 = 256 << 20;

/// A compiled script with everything that running it needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bundle {
    /// The version of rbt that wrote it. Another version may use other queries about kernels.
    pub rbt: String,
    /// The processor architecture.
    pub arch: String,
    /// The kernel that it was compiled for.
    pub kernel: String,
    /// It contains functions that change the system or the traced process.
    pub risky: bool,
    /// It was compiled to run with a command (`-c`).
    pub command: bool,
    /// A run chooses the traced processes: `-p`, `-c`, `--follow`, `--cgroup` and `--container`.
    pub target: bool,
    /// The arguments of the script that a run gives.
    pub arguments: RunArguments,
    /// The settings with which it was compiled.
    pub settings: Built,
    /// The script, without its text.
    pub script: Described,
    /// The text of its `--help`.
    pub help: String,
    /// The best one first.
    pub variants: Vec<Variant>,
    /// The kernels against which it was checked.
    pub kernels: Vec<CheckedKernel>,
    /// The digest of its file; zero if it was not read.
    #[serde(skip)]
    digest: [u8; 32],
}

/// A kernel against which a bundle was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedKernel {
    /// The name of its snapshot.
    pub name: String,
    /// `uname -r`
    pub release: String,
    /// Why the bundle does not run on it.
    pub why_not: Option<String>,
    /// What its description does not settle.
    pub unknown: Vec<String>,
}

/// A script, compiled for kernels of one kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Variant {
    /// A description of these kernels.
    pub made_for: String,
    /// The required answers.
    pub requirements: Requirements,
    /// The relocations for their numbers.
    pub relocations: Vec<Relocation>,
    manifest: Manifest,
    /// The attach points that the code lacks, because these kernels do not have them.
    absent: Vec<AbsentPoint>,
    /// Size of the object in bytes.
    size: u64,
    /// Size of the compressed object.
    packed_size: u64,
    /// The compressed object, which follows the description. On kernels whose objects contain the memory of each processor, most
    /// of it is zero.
    #[serde(skip)]
    packed: Vec<u8>,
}

/// The warning of an attach point that is ignored because it does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbsentPoint {
    /// What is missing, and the place in the script.
    pub message: String,
    /// What happens instead.
    pub help: Option<String>,
}

impl AbsentPoint {
    /// In the form of the warnings about sites that a run does not find.
    pub fn to_failure(&self) -> Failure {
        Failure { help: self.help.clone(), ..Failure::new(self.message.clone()) }
    }
}

impl Variant {
    /// Does it consist of the same types of programs?
    pub fn has_programs_of(&self, artifact: &Artifact) -> bool {
        let types = |manifest: &Manifest| manifest.programs.iter().map(|program| program.ty).collect::<Vec<_>>();
        types(&self.manifest) == types(&artifact.manifest)
    }

    /// From a compiled script with relocations.
    pub fn new(mut artifact: Artifact, relocations: Vec<Relocation>, requirements: Requirements) -> Self {
        artifact.manifest.forget_target();
        let Artifact { elf, manifest } = artifact;
        let packed = pack(&elf);
        let (size, packed_size) = (elf.len() as u64, packed.len() as u64);
        Self { made_for: String::new(), requirements, relocations, manifest, absent: Vec::new(), size, packed_size, packed }
    }

    /// Sets the description of the kernels.
    pub fn with_target(self, made_for: String) -> Self {
        Self { made_for, ..self }
    }

    /// Sets the attach points that it lacks.
    pub fn with_absent(self, absent: Vec<AbsentPoint>) -> Self {
        Self { absent, ..self }
    }

    /// The attach points that it lacks.
    pub fn absent(&self) -> &[AbsentPoint] {
        &self.absent
    }

    /// Would every kernel on which this variant runs get the same code from the other one?
    pub fn is_same(&self, other: &Self) -> bool {
        let text = |of: &Self| format!("{:?}", of.manifest);
        self.packed == other.packed
            && self.relocations == other.relocations
            && self.requirements == other.requirements
            && self.absent == other.absent
            && text(self) == text(other)
    }

    /// The program for a kernel.
    ///
    /// # Errors
    /// Its answers or its numbers do not fit.
    pub fn artifact(&self, sys: &dyn TargetInfo) -> Result<Artifact, Incompatibility> {
        self.artifact_with(self.requirements.of(sys))
    }

    /// The same, for a kernel with these numbers.
    fn artifact_with(&self, numbers: Result<Vec<u32>, Vec<Difference>>) -> Result<Artifact, Incompatibility> {
        let numbers = numbers.map_err(Incompatibility::Differs)?;
        let mut elf = unpack(&self.packed, self.size).filter(|elf| bpf_object::has_text_names(elf)).ok_or(Incompatibility::Damaged)?;
        relocations::apply(&mut elf, &self.relocations, &numbers).map_err(|why| match why {
            Unrelocatable::TooLarge(number) => Incompatibility::TooLarge(self.requirements.number_name(number)),
            Unrelocatable::Damaged | Unrelocatable::Shape | Unrelocatable::Unexplained => Incompatibility::Damaged,
        })?;
        Ok(Artifact { elf, manifest: self.manifest.clone() })
    }
}

/// Why a variant does not fit a kernel.
#[derive(Clone, Debug)]
pub enum Incompatibility {
    /// The differences.
    Differs(Vec<Difference>),
    /// This number does not fit into an instruction.
    TooLarge(String),
    /// rbt did not write this bundle.
    Damaged,
}

impl Incompatibility {
    /// The distance from a fitting kernel.
    fn distance(&self) -> usize {
        match self {
            Incompatibility::Differs(all) => all.len(),
            Incompatibility::TooLarge(_) => 1,
            Incompatibility::Damaged => usize::MAX,
        }
    }
}

/// The text as part of a sentence.
impl std::fmt::Display for Incompatibility {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = match self {
            Incompatibility::Differs(all) => all,
            Incompatibility::TooLarge(number) => return write!(f, "{number} is too large for an instruction"),
            Incompatibility::Damaged => return f.write_str("the code is damaged"),
        };
        let mut names: Vec<String> = Vec::new();
        for Difference(question) in all {
            let name = question.to_string();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if names.len() > MAX_SHOWN {
            names.truncate(MAX_SHOWN);
            names.push("…".into());
        }
        write!(f, "this machine differs in {}", names.join(", "))
    }
}

/// The parts of a bundle that are not its code.
pub struct BundleInfo {
    /// See [`Bundle::kernel`].
    pub kernel: String,
    /// See [`Bundle::risky`].
    pub risky: bool,
    /// See [`Bundle::help`].
    pub help: String,
    /// See [`Bundle::arguments`].
    pub arguments: RunArguments,
    /// See [`Bundle::kernels`].
    pub kernels: Vec<CheckedKernel>,
}

impl Bundle {
    /// A bundle of a compiled script.
    pub fn new(variants: Vec<Variant>, env: &Env, script: Described, about: BundleInfo) -> Self {
        Self {
            rbt: crate::VERSION.into(),
            arch: env.sys.arch().name.into(),
            kernel: about.kernel,
            risky: about.risky,
            command: env.invocation.has_child,
            target: env.invocation.late_bound.target,
            arguments: about.arguments,
            settings: Built::of(env.settings, env.invocation),
            script,
            help: about.help,
            variants,
            kernels: about.kernels,
            digest: [0; 32],
        }
    }

    /// The bytes of its file.
    ///
    /// # Errors
    /// A path in it is not UTF-8.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Failure> {
        let text = serde_json::to_vec(self).map_err(|e| Failure::new(format!("the script does not fit into a bundle: {e}")))?;
        let mut body = (text.len() as u64).to_le_bytes().to_vec();
        body.extend(text);
        self.variants.iter().for_each(|variant| body.extend(&variant.packed));
        let mut bytes = MAGIC.to_vec();
        bytes.extend(FORMAT.to_le_bytes());
        bytes.extend((body.len() as u64).to_le_bytes());
        bytes.extend(Sha256::digest(&body));
        bytes.extend(body);
        Ok(bytes)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, is not a bundle, or is damaged.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let bytes = input::read(path, MAX_BUNDLE_SIZE)
            .map_err(|e| Failure::new(format!("cannot read the bundle {name}: {}", reason(&e))).code("not-readable"))?;
        Self::from_bytes(&bytes).map_err(|damage| damage.of(&name))
    }

    /// A program that contains a bundle: the runner's bytes, the bundle's, the bundle's size, and the magic again.
    pub fn attached(runner: &[u8], bundle: &[u8]) -> Vec<u8> {
        [runner, bundle, &(bundle.len() as u64).to_le_bytes(), MAGIC].concat()
    }

    /// The bytes of the bundle at the end of a program; none if it has none.
    ///
    /// # Errors
    /// The program cannot be read.
    pub fn embedded_in(program: &mut (impl Read + Seek)) -> io::Result<Option<Vec<u8>>> {
        let mut end = [0; TRAILER as usize];
        let size = program.seek(SeekFrom::End(0))?;
        let Some(before) = size.checked_sub(TRAILER) else { return Ok(None) };
        program.seek(SeekFrom::Start(before))?;
        program.read_exact(&mut end)?;
        let Some((length, _)) = end.split_first_chunk::<8>().filter(|(_, magic)| magic == MAGIC) else { return Ok(None) };
        let length = u64::from_le_bytes(*length);
        let Some(start) = before.checked_sub(length).filter(|_| length <= MAX_BUNDLE_SIZE) else {
            return Err(io::Error::other("it is truncated"));
        };
        program.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        program.take(length).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Parses the bytes of a bundle's file.
    ///
    /// # Errors
    /// They are not a bundle, or are damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BundleError> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(BundleError::Other)?;
        let (format, rest) = rest.split_first_chunk().ok_or(BundleError::Cut)?;
        let format = u32::from_le_bytes(*format);
        if format != FORMAT {
            return Err(BundleError::Format(format));
        }
        let (size, rest) = rest.split_first_chunk().ok_or(BundleError::Cut)?;
        let (digest, body) = rest.split_first_chunk::<32>().ok_or(BundleError::Cut)?;
        let size = u64::from_le_bytes(*size);
        if (body.len() as u64) < size {
            return Err(BundleError::Cut);
        }
        if body.len() as u64 > size || Sha256::digest(body).as_slice() != digest {
            return Err(BundleError::Changed);
        }
        let (length, body) = body.split_first_chunk().ok_or(BundleError::Changed)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok().filter(|n| *n <= body.len()).ok_or(BundleError::Changed)?;
        let (text, mut objects) = body.split_at(length);
        let mut bundle: Self = serde_json::from_slice(text).map_err(|e| BundleError::Unreadable(e.to_string()))?;
        if !bundle.arguments.is_valid() {
            return Err(BundleError::Unreadable("its arguments are not valid".into()));
        }
        for variant in &mut bundle.variants {
            let size = usize::try_from(variant.packed_size).ok();
            variant.manifest.check().map_err(|what| BundleError::Unreadable(format!("{what} is not valid")))?;
            let (packed, rest) = size.and_then(|size| objects.split_at_checked(size)).ok_or(BundleError::Changed)?;
            variant.packed = packed.to_vec();
            objects = rest;
        }
        bundle.digest = *digest;
        if objects.is_empty() { Ok(bundle) } else { Err(BundleError::Changed) }
    }

    /// Does it need `--unsafe`? A bundle may claim less than it does, so its calls are checked as well.
    pub fn is_risky(&self) -> bool {
        let mut events = self.variants.iter().flat_map(|variant| &variant.manifest.events);
        self.risky || events.any(|event| builtins::user_side(&event.builtin).is_some_and(|row| row.risky))
    }

    /// The maps of the script, for expectations.
    pub fn maps(&self) -> Vec<ScriptMap> {
        let maps = self.variants.first().map_or(&[][..], |variant| &variant.manifest.maps);
        maps.iter().map(|map| ScriptMap { name: map.name.clone(), key: map.key.clone(), value: map.value.clone() }).collect()
    }

    /// Why a run needs the parts that `rbt-run-small` lacks.
    pub fn needed_parts(&self) -> Option<String> {
        self.variants.iter().find_map(|variant| parts::needed_by(&variant.manifest))
    }

    /// The files that must be the same on a machine that runs the first variant, each with a program whose code depends on its
    /// contents.
    pub fn fixed_files(&self) -> Vec<(String, &Path)> {
        let Some(variant) = self.variants.first() else { return Vec::new() };
        let files: BTreeSet<&Path> = variant.requirements.fixed_files().collect();
        let mut found = Vec::new();
        for file in files {
            let at = |program: &&Program| program.sites.iter().any(|site| site.attach.binary() == Some(file));
            let programs: Vec<String> = variant.manifest.programs.iter().filter(at).map(Program::name).collect();
            // the script names a file whose functions it does not trace
            let programs = if programs.is_empty() { vec![self.script.name.clone()] } else { programs };
            found.extend(programs.into_iter().map(|program| (program, file)));
        }
        found
    }

    /// What must be the same on a machine that runs the first variant besides files, because the code depends on it: sites that the
    /// runner does not search for.
    pub fn fixed(&self) -> Vec<String> {
        let Some(variant) = self.variants.first() else { return Vec::new() };
        let mut all: Vec<String> = variant.requirements.fixed_places().collect();
        if all.is_empty() && variant.requirements.fixed_files().next().is_none() {
            let fixed = variant.manifest.programs.iter().filter(|program| program.is_fixed());
            all.extend(fixed.map(|program| format!("the sites of {}", program.name())));
        }
        let mut seen = BTreeSet::new();
        all.retain(|what| seen.insert(what.clone()));
        if all.len() > MAX_SHOWN {
            all.truncate(MAX_SHOWN);
            all.push("others".into());
        }
        all
    }

    /// The message for a kernel on which the bundle does not run according to the check at the build.
    pub fn known_reason(&self, release: &str) -> Option<String> {
        let here = || self.kernels.iter().filter(|kernel| kernel.release == release);
        if self.kernel == release || here().any(|kernel| kernel.why_not.is_none()) {
            return None;
        }
        let why = here().find_map(|kernel| kernel.why_not.as_ref())?;
        Some(format!("according to the check at the build, the bundle does not run on this kernel, Linux {release}: {why}"))
    }

    /// The same, or the message for a kernel against which the bundle was not checked, although it was checked against others.
    pub fn doubt(&self, release: &str) -> Option<String> {
        if let Some(reason) = self.known_reason(release) {
            return Some(reason);
        }
        if self.kernels.is_empty() || self.kernel == release || self.kernels.iter().any(|kernel| kernel.release == release) {
            return None;
        }
        let fits = |kernel: &&CheckedKernel| kernel.why_not.is_none();
        let mut names: Vec<&str> = self.kernels.iter().filter(fits).map(|kernel| kernel.release.as_str()).collect();
        let more = names.len() > MAX_SHOWN;
        names.truncate(MAX_SHOWN);
        names.extend(more.then_some("…"));
        let others = if names.is_empty() { String::new() } else { format!(", but against {}", names.join(", ")) };
        Some(format!("the bundle was not checked against this kernel, Linux {release}{others}"))
    }

    /// The answers about types that earlier runs have kept.
    pub fn kept_answers(&self, sys: &dyn TargetInfo) -> KeptAnswers {
        KeptAnswers::of(&self.digest, sys)
    }

    /// The program for this machine, and the number of its variant. If the kernel refused a variant, `first` is the next one.
    ///
    /// # Errors
    /// Another version, another processor, or a kernel for which no variant fits.
    pub fn artifact(&self, sys: &dyn TargetInfo, first: usize, kept: &mut KeptAnswers) -> Result<(Artifact, usize), Failure> {
        if self.rbt != crate::VERSION {
            let message = format!("the bundle was built by rbt {}, and this is rbt-run {}", self.rbt, crate::VERSION);
            return Err(Failure::new(message).code("bundle").help("build it again, or run it with the same version"));
        }
        let here = sys.arch().name;
        if self.arch != here {
            let message = format!("the bundle is for {}, and this machine is {here}", self.arch);
            return Err(Failure::new(message)
                .code("bundle")
                .help(format!("build it with --for {here}, or on a machine of this architecture")));
        }
        let mut nearest: Option<(&Variant, Incompatibility)> = None;
        for (number, variant) in self.variants.iter().enumerate().skip(first) {
            match variant.artifact_with(kept.numbers(number, &variant.requirements, sys)) {
                Ok(artifact) => return Ok((artifact, number)),
                Err(unfit) => {
                    if nearest.as_ref().is_none_or(|(_, known)| unfit.distance() < known.distance()) {
                        nearest = Some((variant, unfit));
                    }
                }
            }
        }
        let Some((variant, unfit)) = nearest else { return Err(Failure::new("the bundle contains no program").code("bundle")) };
        if let Incompatibility::Differs(all) = &unfit
            && all.iter().all(Difference::is_of_file)
        {
            let message = format!("the bundle does not run with the files of this machine: {unfit}");
            return Err(Failure::new(message).code("bundle").help("build it on a machine with the same files"));
        }
        if let Incompatibility::Differs(all) = &unfit {
            let types = || all.iter().any(Difference::is_of_types).then(|| sys.types_missing()).flatten();
            let missing = all.iter().find_map(|difference| difference.unanswered(sys)).or_else(types);
            if let Some(missing) = missing {
                let failure = Failure::new(missing.what).code("bundle");
                return Err(missing.help.into_iter().fold(failure, Failure::help));
            }
            if all.iter().all(Difference::is_of_machine) {
                let message = format!("the bundle does not run on this machine: {unfit}");
                return Err(Failure::new(message).code("bundle").help("build it on this machine, or run the script with rbt"));
            }
        }
        let message = format!("the bundle does not run on this kernel: of what was compiled for {}, {unfit}", variant.made_for);
        Err(Failure::new(message).code("bundle").help(
            "build it on a machine with this kernel, or for it: `rbt build --against FILE`, with a FILE by `rbt snapshot -o FILE` from here",
        ))
    }
}

/// Compresses an object.
fn pack(elf: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    let packed = encoder.write_all(elf).and_then(|()| encoder.finish());
    packed.unwrap_or_else(|e| crate::bug!("memory cannot be compressed: {e}"))
}

/// The object of this size; none if it has another one, or is damaged.
fn unpack(packed: &[u8], size: u64) -> Option<Vec<u8>> {
    let mut elf = Vec::new();
    let read = ZlibDecoder::new(packed).take(size.min(MAX_BUNDLE_SIZE) + 1).read_to_end(&mut elf);
    (read.is_ok() && elf.len() as u64 == size).then_some(elf)
}

/// The number of differences that a message lists.
const MAX_SHOWN: usize = 4;

/// Why bytes are not a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BundleError {
    /// They are something else.
    Other,
    /// The end is missing.
    Cut,
    /// The digest does not match.
    Changed,
    /// Another version of the format.
    Format(u32),
    /// The digest matches, but the contents are invalid.
    Unreadable(String),
}

impl BundleError {
    /// The failure for a file with this name.
    pub fn of(self, name: &str) -> Failure {
        let again = "copy it again, or build it again";
        let (message, help) = match self {
            BundleError::Other => (format!("{name} is not a bundle"), "`rbt build SCRIPT -o FILE` writes one"),
            BundleError::Cut => (format!("the bundle {name} is truncated"), again),
            BundleError::Changed => (format!("the bundle {name} is damaged: its digest does not match"), again),
            BundleError::Format(found) if found > FORMAT => {
                (format!("the bundle {name} has format {found}, and this rbt-run reads format {FORMAT}"), "use a newer rbt-run")
            }
            BundleError::Format(found) => {
                (format!("the bundle {name} has format {found}, and this rbt-run reads format {FORMAT}"), "build it again")
            }
            BundleError::Unreadable(why) => {
                (format!("the bundle {name} has contents that this rbt-run cannot read: {why}"), "build it again")
            }
        };
        Failure::new(message).code("bundle").help(help)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use crate::system::fake::Fake;
    use crate::system::portability::questions::{Question, Recorder};
    use crate::system::portability::requirements::RecordedAnswer;
    use crate::system::{Feature, TargetInfo};

    fn test_bundle(sys: &dyn TargetInfo) -> Bundle {
        let recorder = Recorder::new(sys);
        recorder.has(Feature::Loop);
        recorder.type_named(crate::system::TypeName::Struct, "task_struct");
        recorder.syscall_number("openat");
        let about = BundleInfo {
            kernel: "6.1.0".into(),
            risky: false,
            help: "help".into(),
            arguments: RunArguments::default(),
            kernels: Vec::new(),
        };
        let manifest = Manifest { stacks: vec![127], ..Manifest::default() };
        let answers: Vec<RecordedAnswer> =
            recorder.portable().unwrap().into_questions().map(|question| RecordedAnswer::new(question, sys)).collect();
        let requirements = Requirements::new(&answers, &BTreeSet::new(), &[]);
        // an object without sections
        let mut elf = vec![0; 64];
        elf[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\0");
        elf[16..24].copy_from_slice(&[1, 0, 247, 0, 1, 0, 0, 0]);
        elf[52] = 64;
        let artifact = Artifact { elf, manifest };
        let variants = vec![Variant::new(artifact, Vec::new(), requirements)];
        Bundle::new(variants, &Env::new(sys, &Settings::default()), Described::default(), about)
    }

    /// The bytes of a bundle with another description, and the digest of these.
    fn forged(text: &str) -> Vec<u8> {
        let mut body = (text.len() as u64).to_le_bytes().to_vec();
        body.extend(text.as_bytes());
        let mut bytes = [&MAGIC[..], &FORMAT.to_le_bytes(), &(body.len() as u64).to_le_bytes(), &Sha256::digest(&body)].concat();
        bytes.extend(body);
        bytes
    }

    #[test]
    fn bundles_round_trip() {
        let fake = Fake::new("").unwrap();
        let bundle = test_bundle(&fake);
        let read = Bundle::from_bytes(&bundle.to_bytes().unwrap()).unwrap();
        let bundle = Bundle { digest: read.digest, ..bundle };
        assert_eq!(format!("{read:?}"), format!("{bundle:?}"));
        assert_eq!(read.artifact(&fake, 0, &mut KeptAnswers::default()).unwrap().0.elf.len(), 64);
        assert!(read.artifact(&fake, 1, &mut KeptAnswers::default()).is_err());
    }

    #[test]
    fn objects_are_compressed() {
        let zeros = vec![0; 1 << 20];
        let packed = pack(&zeros);
        assert!(packed.len() < 10_000);
        assert_eq!(unpack(&packed, 1 << 20), Some(zeros));
        // a description that says another size, and damage
        assert_eq!((unpack(&packed, 100), unpack(&packed, 2 << 20), unpack(&packed, u64::MAX - 1)), (None, None, None));
        assert_eq!((unpack(&packed[..packed.len() / 2], 1 << 20), unpack(b"contents", 8)), (None, None));
    }

    #[test]
    fn reports_how_a_machine_differs() {
        let bundle = test_bundle(&Fake::new("feature Loop").unwrap());
        let other = Fake::new("").unwrap();
        let failure = bundle.artifact(&other, 0, &mut KeptAnswers::default()).unwrap_err();
        assert!(failure.message.contains("bpf_loop"), "{failure:?}");
        // what the runner may not read is no difference of the kernel
        let sys = Fake::new("tracepoint a:one { int n; }").unwrap();
        let question = Question::Tracepoint("a".into(), "one".into());
        let requirements = Requirements::new(&[RecordedAnswer::new(question, &sys)], &BTreeSet::new(), &[]);
        let variants = bundle.variants.iter().map(|variant| Variant { requirements: requirements.clone(), ..variant.clone() }).collect();
        let of_event = Bundle { variants, ..bundle.clone() };
        let why = |there: &str| of_event.artifact(&Fake::new(there).unwrap(), 0, &mut KeptAnswers::default()).unwrap_err().message;
        assert_eq!(why("no tracefs"), Fake::new("no tracefs").unwrap().tracepoints().unwrap_err().what);
        assert!(why("tracepoint a:one { long n; }").contains("does not run on this kernel"));
        let newer = Bundle { rbt: "99.0.0".into(), ..bundle.clone() };
        assert!(newer.artifact(&other, 0, &mut KeptAnswers::default()).unwrap_err().message.contains("99.0.0"));
        let foreign = Bundle { arch: "vax".into(), ..bundle };
        assert!(foreign.artifact(&other, 0, &mut KeptAnswers::default()).unwrap_err().message.contains("for vax"));
    }

    #[test]
    fn reports_kernels_in_doubt() {
        let of = |release: &str| CheckedKernel { name: "prod".into(), release: release.into(), why_not: None, unknown: Vec::new() };
        let mut bundle = test_bundle(&Fake::new("").unwrap());
        assert_eq!(bundle.doubt("5.15.0"), None);
        bundle.kernels = vec![of("5.10.0"), CheckedKernel { why_not: Some("no such function: f".into()), ..of("6.6.0") }];
        assert_eq!((bundle.doubt("5.10.0"), bundle.doubt("6.1.0")), (None, None));
        assert!(bundle.doubt("5.15.0").unwrap().ends_with("not checked against this kernel, Linux 5.15.0, but against 5.10.0"));
        assert!(bundle.doubt("6.6.0").unwrap().ends_with("does not run on this kernel, Linux 6.6.0: no such function: f"));
        assert_eq!((bundle.known_reason("6.6.0"), bundle.known_reason("5.15.0")), (bundle.doubt("6.6.0"), None));
        // another snapshot of the same release
        bundle.kernels.push(of("6.6.0"));
        assert_eq!(bundle.doubt("6.6.0"), None);
    }

    #[test]
    fn detects_damage_at_every_byte() {
        let bytes = test_bundle(&Fake::new("").unwrap()).to_bytes().unwrap();
        for end in 0..bytes.len() {
            let damage = Bundle::from_bytes(&bytes[..end]).unwrap_err();
            assert_eq!(damage, if end < MAGIC.len() { BundleError::Other } else { BundleError::Cut }, "cut at {end}");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(Bundle::from_bytes(&changed).is_err(), "changed at {at}");
        }
        let longer = [bytes, vec![0]].concat();
        assert_eq!(Bundle::from_bytes(&longer).unwrap_err(), BundleError::Changed);
    }

    #[test]
    fn finds_bundles_at_the_end_of_programs() {
        let bundle = b"contents".to_vec();
        let of = |bytes: Vec<u8>| Bundle::embedded_in(&mut io::Cursor::new(bytes));
        let program = Bundle::attached(b"ELF", &bundle);
        assert_eq!(of(program.clone()).unwrap(), Some(bundle));
        assert_eq!(of(b"ELF".to_vec()).unwrap(), None);
        assert_eq!(of(program[..program.len() - 1].to_vec()).unwrap(), None);
        assert!(of(program[5..].to_vec()).is_err());
    }

    #[test]
    fn rejects_forged_descriptions() {
        let deep = format!("{{\"rbt\":{}", "[".repeat(1 << 20));
        for text in ["", "{}", "[]", "null", deep.as_str()] {
            assert!(matches!(Bundle::from_bytes(&forged(text)), Err(BundleError::Unreadable(_))), "{}", text.get(..9).unwrap_or(text));
        }
        assert_eq!(Bundle::from_bytes(&[&MAGIC[..], &99u32.to_le_bytes()].concat()).unwrap_err(), BundleError::Format(99));
        assert!(BundleError::Format(99).of("x").help.unwrap().contains("newer"));
    }
}

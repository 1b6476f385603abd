//! Reads bundles whose descriptions are damaged or forged but whose digests are correct. Each must yield a program or a message.

use crate::change;
use rbt::bundle::{Bundle, BundleInfo, Variant};
use rbt::codegen;
use rbt::frontend::check_text;
use rbt::launch::Described;
use rbt::launch::resolve::resolve;
use rbt::probes::Env;
use rbt::settings::{Invocation, LateBound, Settings};
use rbt::system::fake::Fake;
use rbt::system::portability::kept_answers::KeptAnswers;
use rbt::system::portability::questions::Recorder;
use rbt::system::portability::requirements::{RecordedAnswer, Requirements};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The size of the header, which precedes the data that the digest covers. It contains the magic number, the format, the size and
/// the digest. `LENGTH` is the size of the field that contains the length of the description.
const HEAD: usize = 8 + 4 + 8 + 32;
const LENGTH: usize = 8;

const SCRIPT: &str = r#"begin { @a[1, "x"] = count(); @h[2] = hist(3); @s = stats(4); printf("%d %s\n", 5, "y"); print(@h); exit(); }
    tracepoint:a:* { @p[probe] = count(); } uprobe:/bin/demo:h*, uprobe:/bin/demo:main { @f[probe] = count(); }"#;
/// The machine.
const MACHINE: &str = "binary /bin/demo { main 0x1000 32; help_a 0x1040 16; help_b 0x1080 16; }
    tracepoint a:one { int n; } tracepoint a:two { int n; } feature PerfCookie; feature UprobeMulti;";

/// Reads `count` changed bundles, and extracts the program from the readable ones.
pub fn run(seed: u64, count: u64) -> Result<(), String> {
    let fake = Fake::new(MACHINE).map_err(|e| e.to_string())?;
    let whole = whole(&fake)?;
    let split = HEAD + LENGTH + length(&whole).ok_or("the bundle has no description")?;
    let (description, objects) = (String::from_utf8_lossy(&whole[HEAD + LENGTH..split]).into_owned(), &whole[split..]);
    let same = forged(&whole, &description, objects);
    if same != whole || Bundle::from_bytes(&same).is_err_and(|_| true) {
        return Err("a written bundle differs when it is read".into());
    }
    let settings = Settings::default();
    let texts = [description];
    let mut taken = 0;
    for number in 0..count {
        let changed = change::text(&texts, seed, number);
        let bytes = forged(&whole, &changed, objects);
        let program = || {
            let artifact = Bundle::from_bytes(&bytes).ok().and_then(|bundle| bundle.artifact(&fake, 0, &mut KeptAnswers::default()).ok());
            artifact.is_some_and(|(mut artifact, _)| resolve(&mut artifact.manifest, &Env::new(&fake, &settings)).is_ok())
        };
        match catch_unwind(AssertUnwindSafe(program)) {
            Ok(is_taken) => taken += u64::from(is_taken),
            Err(_) => return Err(format!("bundle {number} of seed {seed} panics\n{changed}")),
        }
    }
    // Changed bundles that still contain a program must be tested, too.
    if taken * 50 > count { Ok(()) } else { Err(format!("only {taken} of {count} yielded a program")) }
}

fn length(bundle: &[u8]) -> Option<usize> {
    let bytes = bundle.get(HEAD..HEAD + LENGTH)?.try_into().ok()?;
    usize::try_from(u64::from_le_bytes(bytes)).ok()
}

/// Returns the bundle with another description and the matching digest.
fn forged(whole: &[u8], description: &str, objects: &[u8]) -> Vec<u8> {
    let body = [&(description.len() as u64).to_le_bytes()[..], description.as_bytes(), objects].concat();
    [&whole[..12], &(body.len() as u64).to_le_bytes(), &Sha256::digest(&body), &body].concat()
}

fn whole(fake: &Fake) -> Result<Vec<u8>, String> {
    let recorder = Recorder::new(fake);
    let settings = Settings::default();
    let invocation = Invocation { late_bound: LateBound::new(true, []), ..Invocation::default() };
    let env = Env { sys: &recorder, settings: &settings, invocation: &invocation };
    let checked = check_text("s.bt", SCRIPT, &env).map_err(|e| format!("{e:?}"))?;
    let mut compiled = codegen::compile(&checked.script, &env, &[], Default::default()).map_err(|e| format!("{e:?}"))?;
    compiled.artifact.manifest.programs.iter_mut().flat_map(|program| &mut program.expansions).for_each(|e| e.varies = true);
    let asked: Vec<RecordedAnswer> = recorder.portable()?.into_questions().map(|question| RecordedAnswer::new(question, fake)).collect();
    let variant = Variant::new(compiled.artifact, Vec::new(), Requirements::new(&asked, &BTreeSet::new(), &[]));
    let about =
        BundleInfo { kernel: "6.1.0".into(), risky: false, help: String::new(), arguments: Default::default(), kernels: Vec::new() };
    Bundle::new(vec![variant], &Env::new(fake, &settings), Described::default(), about).to_bytes().map_err(|e| e.message)
}

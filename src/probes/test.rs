//! `test` and `bench`: a script's tests and benchmarks, which only `--test` and `--bench` run.

use super::{ArgRef, Attach, Context, ContextFeatures, Env, Info, ProbeKind, ProbeSite, ProgramType, parts};
use crate::diag::Diagnostic;
use crate::emit::{Builder, Operand};
use crate::settings::Mode;
use crate::syntax::ast::AttachPoint;
use crate::system::{Feature, Missing};
use crate::types::Type;

/// The kind `test`, or `bench`.
#[derive(Debug)]
pub struct TestProbe {
    info: Info,
    bench: bool,
}

/// A test, which passes or fails.
pub static TEST: TestProbe = TestProbe {
    info: Info {
        names: &["test"],
        usage: "test:NAME",
        doc: "A test of the script. --test runs all tests and nothing else. A test passes if it returns 0, does not call exit() with another status, and reports no error. rbt shows the output of failed tests.",
        example: "test:sums { $a = 2; assert($a + $a == 4, \"numbers are wrong\"); }",
    },
    bench: false,
};

/// A benchmark.
pub static BENCH: TestProbe = TestProbe {
    info: Info {
        names: &["bench"],
        usage: "bench:NAME",
        doc: "A benchmark of the script. --bench runs all benchmarks and nothing else, each repeatedly for at least a millisecond, and prints the average time in nanoseconds, which includes about 5 ns of overhead for the call. Its output is discarded. A benchmark that returns anything but 0 is skipped.",
        example: "bench:count { @[cpu] = count(); }",
    },
    bench: true,
};

impl ProbeKind for TestProbe {
    fn info(&self) -> &Info {
        &self.info
    }

    fn mode(&self) -> Mode {
        if self.bench { Mode::Bench } else { Mode::Test }
    }

    fn expand(&self, point: &AttachPoint, env: &Env) -> Result<Vec<ProbeSite>, Diagnostic> {
        let [name] = parts::<1>(&self.info, point)?;
        if name.is_empty() {
            return Err(Diagnostic::error("bad-probe", point.span, "a name is empty").help(format!("write {}", self.usage())));
        }
        if self.bench && env.settings.mode == Mode::Bench && !env.sys.has(Feature::Loop) {
            let d = Diagnostic::error("no-helper", point.span, "this kernel cannot run a program repeatedly");
            return Err(d.help("Linux 5.17 has the helper `bpf_loop`"));
        }
        let attach = Attach::Test { bench: self.bench };
        Ok(vec![ProbeSite { kind: super::row(self.name()), name: format!("{}:{name}", self.name()), attach, span: point.span }])
    }

    fn by_name_only(&self) -> bool {
        true
    }

    fn offers(&self) -> ContextFeatures {
        ContextFeatures::STACK
    }

    fn context(&self, _site: &ProbeSite, _env: &Env) -> Result<Context, Diagnostic> {
        Ok(Context { features: self.offers(), ..Context::default() })
    }

    fn program(&self, _site: &ProbeSite, _env: &Env) -> ProgramType {
        ProgramType::RawTracepoint
    }

    fn load<'c>(&self, _e: &mut Builder<'_, 'c>, _site: &ProbeSite, _env: &Env, which: &ArgRef, _ty: &Type) -> Operand<'c> {
        crate::bug!("{} offers no {which:?}", self.name())
    }

    fn list(&self, _pattern: &[String], _env: &Env, _each: &mut dyn FnMut(&str)) -> Result<(), Missing> {
        Ok(())
    }
}

//! A [`Live`] that answers queries about the kernel alone, for programs without the code that reads binaries and debug information.

use std::path::Path;
use std::sync::Arc;

use super::live::Live;
use super::programs::ProgramFunction;
use crate::system::kernel::functions::{Functions, Symbols};
use crate::system::kernel_types::{KernelTypes, Prototype};
use crate::system::portability::forward::forward;
use crate::system::{Binary, BinaryFile, Feature, FunctionLocation, Missing, TargetInfo, Tracepoint, TypeName};
use crate::types::{Enum, Field, Record, Struct, Type};

/// See the module. It is created without reading anything.
#[derive(Default)]
pub struct KernelOnly(Live);

fn no_binaries(name: &str) -> Missing {
    Missing { what: format!("this program does not read binaries such as {name}"), help: Some("run the bundle with rbt-run".into()) }
}

impl TargetInfo for KernelOnly {
    fn for_messages(&self) -> &dyn TargetInfo {
        self
    }

    fn has(&self, feature: Feature) -> bool {
        self.0.has_in(self, feature)
    }

    fn member(&self, structure: &Struct, name: &str) -> Option<Field> {
        self.0.types().ok()?.member(structure, name)
    }

    fn expand(&self, structure: &Struct) -> Option<Record> {
        self.0.types().ok()?.expand(structure)
    }

    fn resolve_binary(&self, name: &str, _pid: Option<u32>) -> Result<Vec<BinaryFile>, Missing> {
        Err(no_binaries(name))
    }

    fn binary(&self, path: &Path) -> Result<Arc<Binary>, Missing> {
        Err(no_binaries(&path.display().to_string()))
    }

    forward! { 0, |_| ();
        type_named(kind: TypeName, name: &str) -> Option<Type>;
        pid_namespace() -> Option<(u64, u64)>;
        enumerator(name: &str) -> Option<(Arc<Enum>, i64)>;
        types_missing() -> Option<Missing>;
        types_identity() -> Option<String>;
        forget_searches() -> ();
        event_id(category: &str, name: &str) -> Result<Option<u64>, Missing>;
        type_names(kind: TypeName, each: &mut dyn FnMut(&str)) -> ();
        tracepoints() -> Result<&[(String, String)], Missing>;
        has_tracepoint(category: &str, name: &str) -> Result<bool, Missing>;
        is_dynamic_tracepoint(category: &str, name: &str) -> bool;
        tracepoint(category: &str, name: &str) -> Result<Option<Tracepoint>, Missing>;
        raw_tracepoints() -> Result<&[(String, String)], Missing>;
        raw_tracepoint(name: &str) -> Option<Vec<(String, Type)>>;
        syscall_number(name: &str) -> Option<u32>;
        kernel_function(name: &str) -> Option<u32>;
        describes_function(name: &str) -> bool;
        kernel_variable(name: &str) -> Option<String>;
        may_call(function: &str, program_type: u32) -> bool;
        functions() -> Result<&Functions, Missing>;
        function_homes(name: &str) -> Result<Vec<FunctionLocation>, Missing>;
        kernel_types() -> Option<&KernelTypes>;
        prototype(module: Option<&str>, name: &str) -> Option<Prototype>;
        described_functions(each: &mut dyn FnMut(&str, &str)) -> ();
        text_symbols(name: &str) -> Symbols;
        error_injectable(function: &str) -> Option<bool>;
        running_programs() -> Result<Vec<ProgramFunction>, Missing>;
        has_module(name: &str) -> bool;
        hidden_symbols() -> Option<String>;
        kernel_symbol(name: &str) -> Option<u64>;
        counts(ty: u32, config: u64) -> Option<bool>;
        most_samples() -> Option<u64>;
        possible_cpus() -> u32;
        online_cpus() -> Vec<u32>;
        cgroup_id(path: &str) -> Result<u64, Missing>;
    }
}

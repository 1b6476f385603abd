//! The names of a snapshot's sections.

/// General information: `key<TAB>value`.
pub const ABOUT: &str = "about";
/// An unavailable section, a tab, the reason.
pub const MISSING: &str = "missing";
/// The prefix of the names of sections with BTF.
pub const BTF: &str = "btf/";
/// The BTF of the kernel itself.
pub const BTF_OF_KERNEL: &str = "btf/vmlinux";
/// Category, name and size of the format in bytes, separated by tabs.
pub const EVENTS: &str = "events";
/// The formats of the events, one after another.
pub const FORMATS: &str = "formats";
/// See [`Functions`](crate::system::kernel::functions::Functions).
pub const FUNCTIONS: &str = "functions";
/// Names of functions that cannot be traced.
pub const UNTRACEABLE: &str = "untraceable";
/// Names of variables.
pub const VARIABLES: &str = "variables";
/// Names of functions that can be overridden.
pub const INJECTABLE: &str = "injectable";
/// Names of modules.
pub const MODULES: &str = "modules";
/// Name, a tab, 0 or 1.
pub const FEATURES: &str = "features";
/// A function's name, then types of programs, separated by tabs.
pub const CALLABLE: &str = "callable";
/// The kernel's configuration, unchanged.
pub const CONFIG: &str = "config";
/// Digests of the scripts that the snapshot was made for, in hexadecimal.
pub const SCRIPTS: &str = "scripts";

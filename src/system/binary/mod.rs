//! Programs and libraries: how to find them, ELF files, debug information and code.

pub mod debug_files;
pub mod demangle;
pub mod dwarf;
pub mod dynamic_loader;
pub mod elf;
pub(in crate::system) mod file;
pub(in crate::system) mod go;
pub mod instructions;
pub mod interpreters;
pub(in crate::system) mod ldcache;
pub mod locate;
pub mod python;
pub(in crate::system) mod root;
pub mod string_layouts;
pub mod unwind;
pub mod usdt;

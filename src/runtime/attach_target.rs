//! The targets of programs with typed arguments: the ID of a function or an event in the kernel's BTF.
//!
//! libbpf finds them itself, but it reads and indexes the whole BTF for that, and compares all names for each program: at least
//! 12 ms of a start. [`KernelTypes`](crate::system::kernel_types::KernelTypes) finds them in a fraction of that. libbpf offers no
//! function to set the ID of a program, so the handlers of the sections do that, immediately before the load. Until then the
//! programs have a type for which libbpf does not need the BTF.
#![allow(unsafe_code)] // libbpf's C API

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_int, c_long};
use std::sync::Once;

use libbpf_rs::{AsRawLibbpf, OpenProgramMut};
use libbpf_sys::{bpf_prog_load_opts, bpf_program};

use crate::emit::{ProgramType, SectionDef};
use crate::system::TargetInfo;
use crate::system::kernel::functions::KERNEL;
use crate::system::kernel::known_features;
use crate::system::kernel_types::{BTF_FILES, KernelTypes, Prototype};

/// A section of such programs.
struct Section {
    ty: ProgramType,
    /// It is that of returns.
    ret: bool,
    attach_type: u32,
    /// Finds the target that the section's name ends with.
    find: fn(&KernelTypes, &str) -> Option<Prototype>,
}

const SECTIONS: &[Section] = &[
    Section {
        ty: ProgramType::TypedTracepoint,
        ret: false,
        attach_type: libbpf_sys::BPF_TRACE_RAW_TP,
        find: |types, event| types.raw_tracepoint(event),
    },
    Section { ty: ProgramType::Tracing, ret: false, attach_type: libbpf_sys::BPF_TRACE_FENTRY, find: function },
    Section { ty: ProgramType::Tracing, ret: true, attach_type: libbpf_sys::BPF_TRACE_FEXIT, find: function },
    Section {
        ty: ProgramType::Iter,
        ret: false,
        attach_type: libbpf_sys::BPF_TRACE_ITER,
        find: |types, objects| types.function(Some(KERNEL), &format!("bpf_iter_{objects}")),
    },
];

/// `module:function`.
fn function(types: &KernelTypes, target: &str) -> Option<Prototype> {
    let (module, function) = target.split_once(':')?;
    types.function(Some(module), function)
}

impl Section {
    /// Its name up to the target.
    fn prefix(&self) -> String {
        SectionDef { ty: self.ty, ret: self.ret, target: None }.name(false)
    }
}

/// The types of the kernel and of its modules do not have the target of a program.
#[derive(Debug, thiserror::Error)]
#[error("the kernel's types (BTF) do not have the target of {program}")]
pub(super) struct NoTarget {
    /// The program's name.
    pub program: String,
}

thread_local! {
    /// The targets of the programs that this thread loads, by the programs' names.
    static TARGETS: RefCell<BTreeMap<CString, u32>> = const { RefCell::new(BTreeMap::new()) };
}

/// Makes libbpf call [`set_target`] for these sections, in every object that is opened later.
pub(super) fn register() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        for row in SECTIONS {
            let Ok(section) = CString::new(format!("{}+", row.prefix())) else { continue };
            let attach_type = row.attach_type;
            let handler = libbpf_sys::libbpf_prog_handler_opts {
                sz: size_of::<libbpf_sys::libbpf_prog_handler_opts>() as u64,
                cookie: c_long::from(attach_type),
                prog_prepare_load_fn: Some(set_target),
                ..Default::default()
            };
            let stand_in = libbpf_sys::BPF_PROG_TYPE_RAW_TRACEPOINT;
            // SAFETY: libbpf copies both arguments. If it cannot (no memory), it finds the targets itself.
            unsafe { libbpf_sys::libbpf_register_prog_handler(section.as_ptr(), stand_in, attach_type, &raw const handler) };
        }
    });
}

/// Gives a program its type and its target.
unsafe extern "C" fn set_target(program: *mut bpf_program, opts: *mut bpf_prog_load_opts, attach_type: c_long) -> c_int {
    // SAFETY: libbpf passes a program of the object that it loads, and the options of this load
    unsafe {
        let name = CStr::from_ptr(libbpf_sys::bpf_program__name(program));
        if let Some(id) = TARGETS.with_borrow(|targets| targets.get(name).copied()) {
            (*opts).attach_btf_id = id;
            (*opts).expected_attach_type = attach_type as u32;
        }
        libbpf_sys::bpf_program__set_type(program, libbpf_sys::BPF_PROG_TYPE_TRACING)
    }
}

/// Forgets the targets of the programs of earlier objects.
pub(super) fn forget() {
    TARGETS.with_borrow_mut(BTreeMap::clear);
}

/// Finds the target of a program, or leaves that to libbpf, for a function of a module. A program on a function of another
/// program (`on_program`) only gets its type.
///
/// Errors: [`NoTarget`], and those of libbpf.
pub(super) fn set(program: &mut OpenProgramMut, on_program: bool, sys: &dyn TargetInfo) -> anyhow::Result<()> {
    let section = program.section().to_string_lossy().into_owned();
    let (section, target) = section.split_once('/').unwrap_or((&section, ""));
    let Some(row) = SECTIONS.iter().find(|row| section == row.prefix()) else { return Ok(()) };
    if !on_program
        && let Some(id) = id_in_kernel(row, target, sys)
        && let Ok(name) = CString::new(program.name().as_encoded_bytes())
    {
        TARGETS.with_borrow_mut(|targets| targets.insert(name, id));
        return Ok(());
    }
    let target = CString::new(target)?;
    let raw = program.as_libbpf_object().as_ptr();
    // SAFETY: the program is valid, and not loaded yet; libbpf copies the name
    let status = unsafe {
        libbpf_sys::bpf_program__set_type(raw, libbpf_sys::BPF_PROG_TYPE_TRACING);
        libbpf_sys::bpf_program__set_expected_attach_type(raw, row.attach_type);
        if on_program { 0 } else { libbpf_sys::bpf_program__set_attach_target(raw, 0, target.as_ptr()) }
    };
    match -status {
        0 => Ok(()),
        // the kernel has no such module, or no such function
        libc::ESRCH | libc::ENOENT => Err(NoTarget { program: program.name().to_string_lossy().into_owned() }.into()),
        errno => Err(libbpf_rs::Error::from_raw_os_error(errno).into()),
    }
}

/// The ID of a target in the kernel's own BTF, in contrast to that of a module.
fn id_in_kernel(row: &Section, target: &str, sys: &dyn TargetInfo) -> Option<u32> {
    // the numbers of a file that the user named may be others
    if BTF_FILES.iter().any(|variable| std::env::var_os(variable).is_some()) {
        return None;
    }
    let find = || (row.find)(sys.kernel_types()?, target).filter(|found| found.module == KERNEL).map(|found| found.id);
    known_features::target(&format!("{}/{target}", row.prefix()), find)
}

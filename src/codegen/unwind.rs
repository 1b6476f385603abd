//! The facts about the kernel that unwinding by tables needs: offsets of its structures.

use serde::{Deserialize, Serialize};

use crate::builtins;
use crate::emit::unwind::{MappingTree, ReplacedReturns, UnwindTarget};
use crate::sema::hir;
use crate::settings::Settings;
use crate::system::{TargetInfo, member_offset as offset};

/// How much of the unwinding of user stacks is compiled into a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unwinding {
    /// By tables, with the frames of interpreters.
    Whole,
    /// By tables.
    Tables,
    /// By frame pointers, as the kernel does.
    FramePointers,
}

/// A limit of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limit {
    /// Maps of a program: the tables are maps as well.
    Maps,
    /// Bytes of BPF stack.
    Stack,
    /// Functions that call each other.
    Frames,
}

/// None if the script takes no user stack, the setting disables tables, or the kernel does not describe its types.
pub(super) fn target(script: &hir::Script, sys: &dyn TargetInfo, settings: &Settings, how: Unwinding) -> Option<UnwindTarget> {
    if how == Unwinding::FramePointers {
        return None;
    }
    // finding the offsets takes longer than everything else that a short script needs
    if !wants_tables(script, settings) {
        return None;
    }
    let of = |structure: &str, path: &[&str]| offset(sys, structure, path);
    let tree = of("mm_struct", &["mm_mt", "ma_root"])
        .map(MappingTree::Maple)
        .or_else(|| Some(MappingTree::RedBlack(of("mm_struct", &["mm_rb"])?, of("vm_area_struct", &["vm_rb"])?)));
    let knows = |function: &str| sys.describes_function(function);
    Some(UnwindTarget {
        mm: of("task_struct", &["mm"])?,
        exec_vm: of("mm_struct", &["exec_vm"])?,
        start_code: of("mm_struct", &["start_code"])?,
        start_stack: of("mm_struct", &["start_stack"])?,
        vdso: of("mm_struct", &["context", "vdso"])?,
        stack: of("task_struct", &["stack"])?,
        vma: [
            of("vm_area_struct", &["vm_start"])?,
            of("vm_area_struct", &["vm_end"])?,
            of("vm_area_struct", &["vm_pgoff"])?,
            of("vm_area_struct", &["vm_file"])?,
        ],
        vm_flags: of("vm_area_struct", &["vm_flags"]),
        tree: tree?,
        replaced: replaced(sys),
        inode: of("file", &["f_inode"])?,
        inode_members: [of("inode", &["i_ino"])?, of("inode", &["i_size"])?, of("inode", &["i_sb"])?, of("inode", &["i_generation"])?],
        dev: of("super_block", &["s_dev"])?,
        thread: if how == Unwinding::Whole { builtins::thread_pointer(sys) } else { None },
        task_size: if sys.arch().unwind.links { Some(of("mm_struct", &["task_size"])?) } else { None },
        arch: &sys.arch().unwind,
        knows_registers: knows("bpf_get_current_task_btf") && knows("bpf_task_pt_regs"),
    })
}

/// Does the script take user stacks, and do the settings allow to unwind them by tables?
pub fn wants_tables(script: &hir::Script, settings: &Settings) -> bool {
    settings.unwind_tables && takes_user_stacks(script)
}

fn takes_user_stacks(script: &hir::Script) -> bool {
    let mut takes = false;
    let mut visit = |node: hir::Node<'_>| takes |= matches!(node, hir::Node::Expr(e) if builtins::holds_user_stack(&e.ty));
    for probe in &script.probes {
        hir::visit(&probe.body, &mut visit);
        probe.functions.iter().for_each(|f| hir::visit(&f.body, &mut visit));
    }
    takes
}

fn replaced(sys: &dyn TargetInfo) -> Option<ReplacedReturns> {
    let of = |structure: &str, path: &[&str]| offset(sys, structure, path);
    Some(ReplacedReturns {
        area: of("mm_struct", &["uprobes_state", "xol_area"])?,
        vaddr: of("xol_area", &["vaddr"])?,
        utask: of("task_struct", &["utask"])?,
        instances: of("uprobe_task", &["return_instances"])?,
        instance: [of("return_instance", &["stack"])?, of("return_instance", &["orig_ret_vaddr"])?, of("return_instance", &["next"])?],
    })
}

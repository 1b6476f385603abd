//! The differences between processors: a row for each supported one.

mod aarch64;
pub mod instructions;
mod x86_64;

use super::operands::At;
use instructions::Instructions;

/// A processor architecture.
#[derive(Debug)]
pub struct Arch {
    /// Its name in uname(2).
    pub name: &'static str,
    /// `e_machine` of its ELF files.
    pub elf: u16,
    /// Its directory below `arch/` in the kernel source.
    pub folder: &'static str,
    /// Macros that C compilers predefine for it: `NAME VALUE` lines.
    pub macros: &'static str,
    /// Names and offsets of registers in a probe's context (`struct pt_regs`). The other fields about registers contain such
    /// offsets.
    pub registers: &'static [(&'static str, u32)],
    /// The general registers in the order of the processor's numbers.
    pub by_number: &'static [u32],
    /// Registers of integer arguments in C, in order.
    pub args: &'static [u32],
    /// Registers of integer arguments in Go, in order.
    pub go_args: &'static [u32],
    /// Registers of the arguments of a system call, in order.
    pub syscall_args: &'static [u32],
    /// How C passes arguments that are not in integer registers.
    pub convention: Convention,
    /// Register of a function's result.
    pub result: u32,
    /// Four bytes with the number of the current system call; not a register on every processor.
    pub syscall_number: u32,
    /// The instruction pointer.
    pub ip: u32,
    /// The stack pointer.
    pub sp: u32,
    /// Offset of the first stack argument from the stack pointer at a function's entry, in bytes.
    pub stack_args: u32,
    /// The same for a Go function that passes all arguments on the stack.
    pub go_stack_args: u32,
    /// Register of the return address at a function's entry; `None` if it is on the stack.
    pub return_address: Option<u32>,
    /// Distance of the instruction pointer after a kprobe from the probed instruction, in bytes.
    pub trap: u32,
    /// How the kernel makes uprobes cheaper; `None` if it does not.
    pub optimized_uprobe: Option<OptimizedUprobe>,
    /// How to recognize a call instruction.
    pub call: Call,
    /// Extra frames at the top of a kernel stack from a raw tracepoint or a trampoline: if it starts with the program's own return
    /// address, the program appears twice (`perf_arch_fetch_caller_regs`).
    pub extra_frames: u64,
    /// All kernels since Linux 5.10 have trampolines for it (on arm64: 6.4).
    pub always_has_trampolines: bool,
    /// An enumerator of the first version whose trampolines pass arguments that are not in registers, and this version.
    pub stack_arguments: (&'static str, &'static str),
    /// The member of `struct thread_info`, and its bits, that mark a 32-bit system call.
    pub compat: (&'static str, u64),
    /// What unwinding with tables needs to know about it.
    pub unwind: Unwind,
    /// Other processors see its stores in the order of the program, and after its earlier loads.
    pub ordered_stores: bool,
    /// Its JIT gives programs private stacks (`bpf_jit_supports_private_stack`, Linux 6.13).
    pub private_stacks: bool,
    /// The processor's numbers of general registers by their DWARF numbers.
    pub by_dwarf: &'static [u8],
    /// DWARF numbers of vector registers: the first, and how many.
    pub vectors_by_dwarf: (u16, u16),
    /// Parses an assembler operand; `None` if it is not understood.
    pub operand: fn(&str) -> Option<At>,
    /// The register with the processor's mode, and the bits of the mode.
    pub mode: (u32, u64),
    /// Do zero bits mean user mode rather than kernel mode?
    pub user_is_zero: bool,
    /// Prefix of the functions that implement system calls. They take a pointer to the registers.
    pub syscall_function: &'static str,
    /// Access modes of hardware watchpoints, as the letters `r`, `w` and `x`.
    pub watch_modes: &'static [&'static str],
    /// Do compilers record the room before functions, for calls of tracers, in a separate section?
    pub lists_patch_sites: bool,
    /// Numbers of system calls by the names of their tracepoints, sorted by name.
    pub calls: &'static [(&'static str, u32)],
    /// System calls that only other architectures have, each with its replacement.
    pub replaced_calls: &'static [(&'static str, &'static str)],
    /// Calls whose names differ from their tracepoints, and calls that no current kernel has.
    pub other_calls: &'static [(&'static str, u32)],
}

/// The registers with which call frame information describes a function's frame.
#[derive(Debug)]
pub struct Unwind {
    /// Instruction pointer, stack pointer, frame pointer, and the register in [`Self::third_by_dwarf`].
    pub registers: [u32; 4],
    /// DWARF numbers of the stack pointer and the frame pointer.
    pub by_dwarf: [u16; 2],
    /// DWARF number of a further register that a walk follows: on x86-64 `rbx`, from which the lazy binding of glibc computes
    /// its frame; on AArch64 the link register.
    pub third_by_dwarf: u16,
    /// Offsets of all general registers in `struct pt_regs`, by DWARF number: the canonical frame address of a stack's first two frames
    /// may be relative to any of them, as in hand-written assembly. None if only the registers above are followed.
    pub first_frame: &'static [u32],
    /// DWARF number of the return address.
    pub return_address: u16,
    /// A call puts the return address into the link register, rather than on the stack.
    pub links: bool,
    /// The register, and its bits and their value, in 64-bit code in user space.
    pub user_mode: (u32, u64, u64),
    /// The offset of the number of a system call in `struct pt_regs`, and that of rt_sigreturn(2), whose instruction may be the last one
    /// of a function. None if it never is.
    pub signal_return: Option<(u32, u64)>,
    /// `sizeof(struct pt_regs)` in kernels without `bpf_task_pt_regs`.
    pub pt_regs: u64,
    /// Where the kernel keeps the thread pointer.
    pub thread: ThreadRegister,
}

/// The register from which pthread_self(3) computes its result.
#[derive(Debug)]
pub struct ThreadRegister {
    /// The members that lead to it, from `struct task_struct`.
    pub path: &'static [&'static str],
    /// How far below the thread pointer the result may be, in bytes. It depends on the C library and its version.
    pub max_below: u64,
}

/// The instruction for which the kernel replaces the trap of a uprobe by a call, and how to query whether it does.
#[derive(Debug)]
pub struct OptimizedUprobe {
    /// The instructions of a marker that offers both: one for any kernel, and behind it the one that becomes a call.
    pub marker: &'static [u8],
    /// Distance of the latter from the former, in bytes.
    pub distance: u64,
    /// Number of the system call that the inserted call leads to. Made from anywhere else, it fails with ENXIO; kernels without
    /// optimized uprobes do not have it (ENOSYS).
    pub call: i64,
}

/// A direct call, within the eight bytes before the return address as a little-endian number.
#[derive(Debug)]
pub struct Call {
    /// The shift that yields the operation, and the operation of a call.
    pub operation: (u64, u64),
    /// The distance: shift left, then right with sign extension, then drop this number of low bits.
    pub distance: (u64, u64, u64),
    /// Mask of the compared bits of the operation.
    pub mask: u64,
    /// Distance from the return address back to the base of the call's distance, in bytes.
    pub back: u64,
}

/// The rules of a calling convention beyond the registers.
#[derive(Debug)]
pub struct Convention {
    /// Structs that do not fit into two registers are passed by reference; else in memory.
    pub large_by_reference: bool,
    /// A struct of integers and floating-point numbers uses registers of both kinds; else integer registers.
    pub mixed: bool,
    /// The address of a large result is passed before the arguments, in the first of their registers.
    pub result_comes_first: bool,
    /// A 16-byte aligned argument in two registers starts with an even one.
    pub aligns_pairs: bool,
    /// After an argument that did not fit, no further argument is passed in registers.
    pub overflow_is_final: bool,
}

/// The supported architectures.
pub const ALL: &[&Arch] = &[&x86_64::ARCH, &aarch64::ARCH];

/// Names of other architectures: `e_machine` of include/uapi/linux/elf-em.h, and the name in uname(2).
const OTHER_ARCHITECTURES: &[(u16, &str)] =
    &[(3, "i386"), (8, "mips"), (21, "ppc64le"), (22, "s390x"), (40, "arm"), (243, "riscv64"), (247, "bpf"), (258, "loongarch64")];

/// The architecture of an ELF file, by its `e_machine`.
pub fn name_of(elf: u16) -> Option<&'static str> {
    let known = ALL.iter().find(|arch| arch.elf == elf).map(|arch| arch.name);
    known.or_else(|| OTHER_ARCHITECTURES.iter().find(|(number, _)| *number == elf).map(|(_, name)| *name))
}

/// The architecture of a kernel, by its name in uname(2).
pub fn named(machine: &str) -> Option<&'static Arch> {
    ALL.iter().find(|arch| arch.name == machine).copied()
}

/// The names of supported architectures, for messages.
pub fn names() -> String {
    ALL.iter().map(|arch| arch.name).collect::<Vec<_>>().join(" and ")
}

impl Arch {
    /// Finds another architecture with a register of this name.
    pub fn others_with_register(&self, name: &str) -> Option<&'static str> {
        ALL.iter().find(|other| other.name != self.name && other.register(name).is_some()).map(|other| other.name)
    }

    /// Returns the replacement of a call that only other architectures have.
    pub fn replaced_call(&self, name: &str) -> Option<&'static str> {
        self.replaced_calls.iter().find(|(n, _)| *n == name).map(|(_, call)| *call)
    }

    /// The system call that a function implements on another architecture, or did before Linux 4.17.
    pub fn foreign_syscall<'a>(&self, function: &'a str) -> Option<&'a str> {
        /// Prefixes of the functions of all architectures.
        const BEFORE_4_17: [&str; 2] = ["sys_", "SyS_"];
        let others = ALL.iter().filter(|other| other.name != self.name).map(|other| other.syscall_function);
        others.chain(BEFORE_4_17).find_map(|prefix| function.strip_prefix(prefix))
    }

    /// The function that implements a call of another architecture here, or its replacement.
    pub fn own_syscall_function(&self, call: &str) -> Option<String> {
        let own = self.replaced_call(call).unwrap_or(call);
        self.has_syscall(own).then(|| format!("{}{own}", self.syscall_function))
    }

    /// Is it the name of a system call of this architecture?
    pub fn has_syscall(&self, call: &str) -> bool {
        self.calls.iter().any(|(name, _)| *name == call)
    }

    /// Its instruction set. It is not a field, so that a program that reads no code does not contain decoders.
    pub fn instructions(&self) -> &'static Instructions {
        instructions::of(self)
    }

    /// The offset of a register.
    pub fn register(&self, name: &str) -> Option<u32> {
        self.registers.iter().find(|(known, _)| *known == name).map(|(_, offset)| *offset)
    }
}

/// The architecture that rbt runs on.
#[cfg(target_arch = "x86_64")]
pub const HERE: &Arch = &x86_64::ARCH;
/// The architecture that rbt runs on.
#[cfg(target_arch = "aarch64")]
pub const HERE: &Arch = &aarch64::ARCH;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sound() {
        for arch in ALL {
            assert!(arch.calls.is_sorted_by(|a, b| a.0 < b.0), "{}", arch.name);
            let known = |at: &u32| arch.registers.iter().any(|(_, other)| other == at);
            let all = [arch.by_number, arch.args, arch.go_args, arch.syscall_args].concat();
            assert!(
                all.iter().chain([&arch.result, &arch.ip, &arch.sp]).chain(&arch.return_address).chain(&arch.unwind.registers).all(known),
                "{}",
                arch.name
            );
            for (name, number) in arch.other_calls {
                assert!(!arch.calls.iter().any(|(n, _)| n == name), "{}: {name} {number} stands twice", arch.name);
            }
        }
        assert_eq!(HERE.name, std::env::consts::ARCH);
    }

    #[test]
    fn calls_differ() {
        let number = |arch: &Arch, name: &str| arch.calls.iter().find(|(n, _)| *n == name).map(|(_, number)| *number);
        let all = |name: &str| ALL.iter().map(|arch| number(arch, name)).collect::<Vec<_>>();
        assert_eq!(all("read"), [Some(0), Some(63)]);
        assert_eq!(all("openat"), [Some(257), Some(56)]);
        assert_eq!(all("newfstat"), [Some(5), Some(80)]);
        assert_eq!(all("clone3"), [Some(435), Some(435)]);
        // Newer architectures never had this call.
        assert_eq!(all("open"), [Some(2), None]);
        assert_eq!(all("fork"), [Some(57), None]);
    }

    #[test]
    fn foreign_functions_of_system_calls() {
        let [x86_64, aarch64] = ALL else { panic!("one function for each architecture") };
        let names = ["__x64_sys_openat", "__arm64_sys_openat", "sys_openat", "SyS_openat", "do_sys_open"];
        let calls = |arch: &Arch| names.map(|name| arch.foreign_syscall(name));
        assert_eq!(calls(x86_64), [None, Some("openat"), Some("openat"), Some("openat"), None]);
        assert_eq!(calls(aarch64), [Some("openat"), None, Some("openat"), Some("openat"), None]);
        let own = ["open", "openat", "arch_prctl", "opena"].map(|call| aarch64.own_syscall_function(call));
        assert_eq!(own, [Some("__arm64_sys_openat".into()), Some("__arm64_sys_openat".into()), None, None]);
    }
}

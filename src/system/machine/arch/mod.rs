//! What differs between processors: a row for each that rbt knows.

mod aarch64;
mod x86_64;

use super::operands::At;
use crate::system::binary::instructions::Instructions;

/// A kind of processor.
#[derive(Debug)]
pub struct Arch {
    /// Its name, as uname(2) has it.
    pub name: &'static str,
    /// `e_machine` of its ELF files.
    pub elf: u16,
    /// The same of the 32-bit programs that it runs.
    pub elf_of_32_bits: u16,
    /// Its folder below `arch/` in the kernel's sources.
    pub folder: &'static str,
    /// The macros that C compilers define for it: `NAME VALUE` lines.
    pub macros: &'static str,
    /// Names and offsets of registers at the start of a probe's context (`struct pt_regs`). All other fields about registers are
    /// such offsets.
    pub registers: &'static [(&'static str, u32)],
    /// The general registers by the processor's numbers of them.
    pub by_number: &'static [u32],
    /// What integer arguments of a C function come in, in order.
    pub args: &'static [u32],
    /// The same of a Go function.
    pub go_args: &'static [u32],
    /// The same of a system call.
    pub syscall_args: &'static [u32],
    /// How C passes what no integer register takes.
    pub convention: Convention,
    /// What a function returns its result in.
    pub result: u32,
    /// Holds the number of the system call in progress, in four bytes: no register of its own on every processor.
    pub syscall_number: u32,
    /// The instruction pointer.
    pub ip: u32,
    /// The stack pointer.
    pub sp: u32,
    /// Bytes from the stack pointer at a function's entry to the first argument on the stack.
    pub stack_args: u32,
    /// The same of a Go function that takes all arguments there.
    pub go_stack_args: u32,
    /// The register that holds the return address at a function's entry; none where that is on top of the stack.
    pub return_address: Option<u32>,
    /// Bytes that the instruction pointer of a kprobe is behind the instruction that is probed.
    pub trap: u32,
    /// How the instruction of a call is recognized.
    pub call: Call,
    /// Frames of a kernel stack from a raw tracepoint that come before those that every processor has there: where it begins with
    /// the program's own return address, the program is in it twice (`perf_arch_fetch_caller_regs`).
    pub raw_frames: u64,
    /// The member of `struct thread_info`, and its bits, that say that a task is in a 32-bit system call.
    pub compat: (&'static str, u64),
    /// Instruction pointer, stack pointer, frame pointer, `bx` and `cs`, of which unwinding by tables needs all; none where there
    /// are no tables yet, and stacks of processes follow frame pointers.
    pub unwinds: Option<[u32; 5]>,
    /// What its instructions are.
    pub instructions: Instructions,
    /// The processor's numbers of general registers by DWARF's.
    pub by_dwarf: &'static [u8],
    /// DWARF's numbers of vector registers: the first, and how many there are.
    pub vectors_by_dwarf: (u16, u16),
    /// Where an operand of its assembler is; none where it is not understood.
    pub operand: fn(&str) -> Option<At>,
    /// Where the processor's mode is: the bits of a register.
    pub mode: (u32, u64),
    /// Do these bits of zero mean user space, and not the kernel?
    pub user_is_zero: bool,
    /// What the names of the functions that serve system calls start with. Such a function takes a pointer to the registers.
    pub syscall_function: &'static str,
    /// What its hardware can watch memory for: `r`, `w` and `x` as letters.
    pub watch_modes: &'static [&'static str],
    /// Do compilers note the room before functions, for calls of tracers, in a section of its own?
    pub notes_room: bool,
    /// Numbers of system calls by the names of their tracepoints, sorted by name.
    pub calls: &'static [(&'static str, u32)],
    /// Calls that others have and it has not, each with the one that serves instead.
    pub replaced_calls: &'static [(&'static str, &'static str)],
    /// Calls whose names are not their tracepoints', and those that no kernel serves any more.
    pub other_calls: &'static [(&'static str, u32)],
}

/// The instruction of a direct call, within the eight bytes before the return address as a little-endian number.
#[derive(Debug)]
pub struct Call {
    /// What is shifted right by how much gives the operation, and what that is.
    pub operation: (u64, u64),
    /// The distance: it is shifted left and then, with its sign, right, and so many of its lowest bits are dropped.
    pub distance: (u64, u64, u64),
    /// Bytes of the operation that are compared, as a mask.
    pub mask: u64,
    /// Bytes from the return address back to where the distance counts from.
    pub back: u64,
}

/// What differs between conventions of calling beyond the registers.
#[derive(Debug)]
pub struct Convention {
    /// Structs that two registers do not take are passed by reference; else in memory.
    pub large_by_reference: bool,
    /// A struct of integers and floating point takes a register of each kind; else integer registers.
    pub mixed: bool,
    /// Where a large result goes to is passed before the arguments, in the first of their registers.
    pub result_comes_first: bool,
    /// Two registers for something of 16 bytes that are aligned to as many begin with an even one.
    pub even_pairs: bool,
    /// Nothing more is passed in registers after one argument did not fit.
    pub overflow_is_final: bool,
}

/// Those that rbt knows.
pub const ALL: &[&Arch] = &[&x86_64::ARCH, &aarch64::ARCH];

/// Others by name: `e_machine` of include/uapi/linux/elf-em.h, and what uname(2) has.
const OTHERS: &[(u16, &str)] =
    &[(3, "i386"), (8, "mips"), (21, "ppc64le"), (22, "s390x"), (40, "arm"), (243, "riscv64"), (247, "bpf"), (258, "loongarch64")];

/// The name of the processor that an ELF file is for, by its `e_machine`.
pub fn name_of(elf: u16) -> Option<&'static str> {
    let known = ALL.iter().find(|arch| arch.elf == elf).map(|arch| arch.name);
    known.or_else(|| OTHERS.iter().find(|(number, _)| *number == elf).map(|(_, name)| *name))
}

/// The one of a kernel, by what uname(2) says there.
pub fn named(machine: &str) -> Option<&'static Arch> {
    ALL.iter().find(|arch| arch.name == machine).copied()
}

/// Their names, for messages.
pub fn names() -> String {
    ALL.iter().map(|arch| arch.name).collect::<Vec<_>>().join(" and ")
}

impl Arch {
    /// Which others have a register of this name?
    pub fn others_with_register(&self, name: &str) -> Option<&'static str> {
        ALL.iter().find(|other| other.name != self.name && other.register(name).is_some()).map(|other| other.name)
    }

    /// The call that serves in the place of one that others have.
    pub fn replaced_call(&self, name: &str) -> Option<&'static str> {
        self.replaced_calls.iter().find(|(n, _)| *n == name).map(|(_, call)| *call)
    }

    /// The function that serves the system call which the function of this name serves on another processor.
    pub fn own_syscall_function(&self, function: &str) -> Option<String> {
        let others = ALL.iter().filter(|other| other.name != self.name);
        let call = others.into_iter().find_map(|other| function.strip_prefix(other.syscall_function))?;
        Some(format!("{}{}", self.syscall_function, self.replaced_call(call).unwrap_or(call)))
    }

    /// The offset of a register.
    pub fn register(&self, name: &str) -> Option<u32> {
        self.registers.iter().find(|(known, _)| *known == name).map(|(_, offset)| *offset)
    }
}

/// The one that rbt runs on.
#[cfg(target_arch = "x86_64")]
pub const HERE: &Arch = &x86_64::ARCH;
/// The one that rbt runs on.
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
                all.iter()
                    .chain([&arch.result, &arch.ip, &arch.sp])
                    .chain(&arch.return_address)
                    .chain(arch.unwinds.iter().flatten())
                    .all(known),
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
        // which newer architectures never had
        assert_eq!(all("open"), [Some(2), None]);
        assert_eq!(all("fork"), [Some(57), None]);
    }
}

//! What differs between processors: a row for each that rbt knows.

mod aarch64;
mod x86_64;

/// A kind of processor.
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
    /// The registers by DWARF's numbers of them.
    pub by_number: &'static [u32],
    /// What integer arguments of a C function come in, in order.
    pub args: &'static [u32],
    /// The same of a Go function.
    pub go_args: &'static [u32],
    /// The same of a system call.
    pub syscall_args: &'static [u32],
    /// What a function returns its result in.
    pub result: u32,
    /// Holds the number of the system call in progress.
    pub syscall_number: u32,
    /// The instruction pointer.
    pub ip: u32,
    /// The stack pointer.
    pub sp: u32,
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
    /// Calls whose names are not their tracepoints', and those that no kernel serves any more.
    pub other_calls: &'static [(&'static str, u32)],
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
            assert!(all.iter().chain([&arch.result, &arch.syscall_number, &arch.ip, &arch.sp]).all(known), "{}", arch.name);
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

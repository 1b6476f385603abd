//! Finds the starts of instructions, because a uprobe within an instruction changes or crashes the traced program.

pub mod follow;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::system::Function;
use crate::system::binary::elf;

/// Limit for the size of a function that is decoded, in bytes.
const MAX_FUNCTION_SIZE: u64 = 16 << 20;
/// No longer check is known.
const MAX_STACK_CHECK: u64 = 64;

/// What is at an offset from the start of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstructionBoundary {
    /// The start of an instruction.
    Instruction,
    /// Apparently the middle of an instruction.
    InsideInstruction,
    /// Another function, because this one has only this many bytes.
    Outside(u64),
    /// Unknown.
    Unknown,
}

/// Determines what is at an offset from the start of a function of this binary.
pub fn placed(path: &Path, function: &Function, offset: u64) -> InstructionBoundary {
    match offset {
        0 => InstructionBoundary::Instruction,
        _ if offset >= function.size => InstructionBoundary::Outside(function.size),
        _ if starts_at(path, function.offset, offset) == Some(true) => InstructionBoundary::Instruction,
        _ => InstructionBoundary::InsideInstruction,
    }
}

/// Does an instruction start at `offset` in the function at this file offset? The code is decoded from the function's start
/// as code of the machine that the file is for. `None` if the file cannot be read or the bytes are not code.
pub fn starts_at(path: &Path, offset: u64, function_offset: u64) -> Option<bool> {
    Some((elf::arch_of(path).instructions().starts)(&code(path, offset, function_offset)?))
}

/// Offsets of the return instructions in the function of `size` bytes at this file offset. `None` as in [`starts_at`].
pub fn returns(path: &Path, offset: u64, size: u64) -> Option<Vec<u64>> {
    (elf::arch_of(path).instructions().returns)(&code(path, offset, size)?)
}

/// The length of the check with which the Go function of `size` bytes at this file offset begins: whether its stack is large enough.
/// 0 if it begins otherwise.
pub fn stack_check(path: &Path, offset: u64, size: u64) -> u64 {
    code(path, offset, size.min(MAX_STACK_CHECK)).map_or(0, |code| (elf::arch_of(path).instructions().stack_check)(&code))
}

fn code(path: &Path, offset: u64, size: u64) -> Option<Vec<u8>> {
    let mut code = vec![0; usize::try_from(size).ok().filter(|_| size <= MAX_FUNCTION_SIZE)?];
    File::open(path).ok()?.read_exact_at(&mut code, offset).ok()?;
    Some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn only_starts_are_starts() {
        // push rbp; mov rbp, rsp; lea rax, [rip + 0x12345678]; ret
        let code = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x8d, 0x05, 0x78, 0x56, 0x34, 0x12, 0xc3];
        let path = std::env::temp_dir().join(format!("rbt-instructions-{}", std::process::id()));
        std::fs::write(&path, code).expect("a file is written");
        let starts: Vec<u64> = (0..code.len() as u64).filter(|by| starts_at(&path, 0, *by) == Some(true)).collect();
        let returns = returns(&path, 0, code.len() as u64);
        std::fs::remove_file(&path).expect("and removed");
        assert_eq!((starts, returns), (vec![0, 1, 4, 11], Some(vec![11])));
        assert_eq!(starts_at(Path::new("/nonexistent"), 0, 1), None);
    }
}

//! Finds the starts of instructions, because a uprobe within an instruction changes or crashes the traced program.

pub mod follow;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::system::Function;
use iced_x86::{Decoder, DecoderOptions, Mnemonic};

/// The longest function that is looked through, bytes.
const LONGEST: u64 = 16 << 20;

/// What is so many bytes from a function's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// An instruction starts there.
    Instruction,
    /// As far as can be told, none does.
    Midst,
    /// Another function: this one has so many bytes.
    Outside(u64),
    /// Nobody knows.
    Unknown,
}

/// What is `by` bytes from the start of a function of this binary. In the midst of an instruction, too, where that cannot be told.
pub fn placed(path: &Path, function: &Function, by: u64) -> Placed {
    match by {
        0 => Placed::Instruction,
        _ if by >= function.size => Placed::Outside(function.size),
        _ if starts_at(path, function.offset, by) == Some(true) => Placed::Instruction,
        _ => Placed::Midst,
    }
}

/// Does an instruction start `by` bytes into the function at byte `offset` of the file? Instructions are decoded from the
/// function's start, as x86-64's; none on a machine of another kind, where a file cannot be read, or where what
/// stands there is no code.
pub fn starts_at(path: &Path, offset: u64, by: u64) -> Option<bool> {
    if !cfg!(target_arch = "x86_64") || by > LONGEST {
        return None;
    }
    let mut code = vec![0; by as usize];
    File::open(path).ok()?.read_exact_at(&mut code, offset).ok()?;
    let mut decoder = Decoder::new(64, &code, DecoderOptions::NONE);
    while decoder.can_decode() {
        // an instruction that is cut short by the end of `code` goes on behind `by`
        if decoder.decode().is_invalid() {
            return Some(false);
        }
    }
    Some(true)
}

/// Where the function of `size` bytes at byte `offset` of the file returns: bytes from its start, of each instruction that does.
/// None as for [`starts_at`].
pub fn returns(path: &Path, offset: u64, size: u64) -> Option<Vec<u64>> {
    if !cfg!(target_arch = "x86_64") || size > LONGEST {
        return None;
    }
    let mut code = vec![0; size as usize];
    File::open(path).ok()?.read_exact_at(&mut code, offset).ok()?;
    let mut decoder = Decoder::new(64, &code, DecoderOptions::NONE);
    let mut all = Vec::new();
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return None;
        }
        if instruction.mnemonic() == Mnemonic::Ret {
            all.push(instruction.ip());
        }
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

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

//! Relocations of a compiled script: instructions whose numbers depend on the kernel.
//!
//! They are found by compiling several times with different numbers: the objects differ only in the offset or immediate
//! of some instructions, and the differences show how these follow from the numbers.

use std::collections::{BTreeMap, HashMap};

use object::{Object, ObjectSection, SectionKind};
use serde::{Deserialize, Serialize};

/// Size of an instruction in bytes. A 64-bit load takes two (opcode `BPF_LD | BPF_IMM | BPF_DW`).
const INSTRUCTION: usize = 8;
const WIDE_LOAD: u8 = 0x18;

/// The part of an instruction that depends on the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Slot {
    /// The offset of a load or store: 16 bits.
    Offset,
    /// The immediate: 32 bits.
    Immediate,
    /// The immediate of a 64-bit load.
    Wide,
}

/// How an instruction's number depends on the kernel: the sum of a constant and of multiples of the kernel's numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Relocation {
    /// The index of the section in the object.
    section: u32,
    /// Bytes from the start of the section.
    at: u32,
    slot: Slot,
    constant: i64,
    /// Indices of numbers, with their factors.
    terms: Vec<(u32, i64)>,
}

/// An object that was compiled with these numbers.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The ELF file.
    pub elf: Vec<u8>,
    /// The numbers, in the order of the relocations' indices.
    pub numbers: Vec<u32>,
}

/// Why an object cannot be relocated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unrelocatable {
    /// The numbers change more than offsets and immediates.
    Shape,
    /// An instruction's number is not a linear function of the numbers.
    Unexplained,
    /// The number is too large for the instruction; has the index of one of the numbers.
    TooLarge(usize),
    /// There is no such instruction.
    Damaged,
}

/// The code in a file: section and byte range.
fn code(elf: &[u8]) -> Option<Vec<(u32, std::ops::Range<usize>)>> {
    let file = object::File::parse(elf).ok()?;
    let mut found = Vec::new();
    for section in file.sections().filter(|s| s.kind() == SectionKind::Text && s.size() > 0) {
        let (at, size) = section.file_range()?;
        let (at, size) = (usize::try_from(at).ok()?, usize::try_from(size).ok()?);
        let range = at..at.checked_add(size).filter(|end| *end <= elf.len())?;
        found.push((section.index().0 as u32, range));
    }
    found.sort_by_key(|(_, range)| range.start);
    Some(found)
}

/// The numbers in instructions, with their places, and the object without them.
struct Split {
    rest: Vec<u8>,
    numbers: BTreeMap<(u32, u32, Slot), i64>,
}

fn split(elf: &[u8]) -> Option<Split> {
    let mut rest = elf.to_vec();
    let mut numbers = BTreeMap::new();
    for (section, range) in code(elf)? {
        let code = rest.get_mut(range)?;
        let mut pos = 0;
        while pos + INSTRUCTION <= code.len() {
            let wide = code.get(pos) == Some(&WIDE_LOAD);
            let slots: &[Slot] = if wide { &[Slot::Wide] } else { &[Slot::Offset, Slot::Immediate] };
            for slot in slots {
                let value = read(code, pos, *slot)?;
                numbers.insert((section, pos as u32, *slot), value);
                write(code, pos, *slot, 0)?;
            }
            pos += if wide { 2 * INSTRUCTION } else { INSTRUCTION };
        }
    }
    Some(Split { rest, numbers })
}

fn read(code: &[u8], offset: usize, slot: Slot) -> Option<i64> {
    let half = |offset: usize| code.get(offset..offset + 4)?.try_into().ok().map(i32::from_le_bytes);
    Some(match slot {
        Slot::Offset => i16::from_le_bytes(code.get(offset + 2..offset + 4)?.try_into().ok()?).into(),
        Slot::Immediate => half(offset + 4)?.into(),
        Slot::Wide => i64::from(half(offset + 12)?) << 32 | i64::from(half(offset + 4)? as u32),
    })
}

/// None if the code ends before that, or the number has too many bits.
fn write(code: &mut [u8], offset: usize, slot: Slot, value: i64) -> Option<()> {
    match slot {
        Slot::Offset => code.get_mut(offset + 2..offset + 4)?.copy_from_slice(&i16::try_from(value).ok()?.to_le_bytes()),
        Slot::Immediate => code.get_mut(offset + 4..offset + 8)?.copy_from_slice(&i32::try_from(value).ok()?.to_le_bytes()),
        Slot::Wide => {
            let bytes = value.to_le_bytes();
            let (low, high) = bytes.split_at(4);
            code.get_mut(offset + 12..offset + 16)?.copy_from_slice(high);
            code.get_mut(offset + 4..offset + 8)?.copy_from_slice(low);
        }
    }
    Some(())
}

/// Do two objects differ only in the numbers of instructions?
pub fn same_shape(a: &[u8], b: &[u8]) -> bool {
    matches!((split(a), split(b)), (Some(a), Some(b)) if a.rest == b.rest && a.numbers.keys().eq(b.numbers.keys()))
}

/// The relocations of the first object. The last one is not used to find them: it must be the result of applying them
/// to the first.
///
/// # Errors
/// The objects differ in more than relocations can change.
pub fn derive(samples: &[Sample]) -> Result<Vec<Relocation>, Unrelocatable> {
    let [first, .., last] = samples else { return Err(Unrelocatable::Damaged) };
    let known = samples.get(..samples.len() - 1).unwrap_or_default();
    let splits: Vec<Split> = known.iter().map(|s| split(&s.elf)).collect::<Option<_>>().ok_or(Unrelocatable::Damaged)?;
    let of_first = splits.first().ok_or(Unrelocatable::Damaged)?;
    if splits.iter().any(|s| s.rest != of_first.rest || !s.numbers.keys().eq(of_first.numbers.keys())) {
        return Err(Unrelocatable::Shape);
    }
    let columns: Vec<Vec<i64>> =
        (0..first.numbers.len()).map(|i| known.iter().map(|s| s.numbers.get(i).copied().unwrap_or(0).into()).collect()).collect();
    let sums = Sums::new(&columns);
    let mut relocations = Vec::new();
    for place in of_first.numbers.keys() {
        let values: Vec<i64> = splits.iter().filter_map(|s| s.numbers.get(place).copied()).collect();
        if values.iter().all(|v| Some(v) == values.first()) {
            continue;
        }
        let (constant, terms) = sums.explain(&values).ok_or(Unrelocatable::Unexplained)?;
        let (section, at, slot) = *place;
        relocations.push(Relocation { section, at, slot, constant, terms });
    }
    let mut again = first.elf.clone();
    apply(&mut again, &relocations, &last.numbers)?;
    if again == last.elf { Ok(relocations) } else { Err(Unrelocatable::Shape) }
}

/// Differences between consecutive values, which eliminate the constant.
fn steps(values: &[i64]) -> Vec<i64> {
    values.windows(2).map(|w| w.last().copied().unwrap_or(0).wrapping_sub(w.first().copied().unwrap_or(0))).collect()
}

/// Sums of numbers, indexed by their differences between samples.
struct Sums<'a> {
    columns: &'a [Vec<i64>],
    steps: Vec<Vec<i64>>,
    /// Sums of one and of two numbers, with factors of 1 and -1.
    known: HashMap<Vec<i64>, Vec<(u32, i64)>>,
}

impl<'a> Sums<'a> {
    fn new(columns: &'a [Vec<i64>]) -> Self {
        let steps: Vec<Vec<i64>> = columns.iter().map(|c| steps(c)).collect();
        let mut known = HashMap::new();
        let scaled = |of: &[i64], by: i64| of.iter().map(|s| s * by).collect::<Vec<i64>>();
        for (i, a) in (0u32..).zip(&steps) {
            for factor in [1, -1] {
                known.entry(scaled(a, factor)).or_insert_with(|| vec![(i, factor)]);
            }
        }
        for (i, a) in (0u32..).zip(&steps) {
            for (j, b) in (0u32..).zip(&steps).skip(i as usize) {
                for (f, g) in [(1, 1), (1, -1), (-1, 1)] {
                    let sum = a.iter().zip(b).map(|(x, y)| f * x + g * y).collect();
                    let terms = if i == j { vec![(i, f + g)] } else { vec![(i, f), (j, g)] };
                    known.entry(sum).or_insert(terms);
                }
            }
        }
        Self { columns, steps, known }
    }

    /// The constant and the factors that produce these values.
    fn explain(&self, values: &[i64]) -> Option<(i64, Vec<(u32, i64)>)> {
        let steps_of_values = steps(values);
        let terms = self
            .known
            .get(&steps_of_values)
            .cloned()
            .or_else(|| self.three(&steps_of_values))
            .or_else(|| self.multiple(&steps_of_values))?;
        let first = |i: u32| self.columns.get(i as usize).and_then(|c| c.first()).copied().unwrap_or(0);
        // a constant out of range cannot be that of an offset
        let constant = terms.iter().try_fold(*values.first()?, |rest, (i, f)| rest.checked_sub(f.checked_mul(first(*i))?))?;
        Some((constant, terms))
    }

    fn three(&self, steps: &[i64]) -> Option<Vec<(u32, i64)>> {
        (0u32..).zip(&self.steps).find_map(|(i, a)| {
            [1, -1].into_iter().find_map(|factor| {
                let rest: Vec<i64> = steps.iter().zip(a).map(|(w, x)| w.checked_sub(factor * x)).collect::<Option<_>>()?;
                let mut terms = self.known.get(&rest)?.clone();
                terms.push((i, factor));
                Some(terms)
            })
        })
    }

    /// The offset of an element in an array of structs: a multiple of its size.
    fn multiple(&self, steps: &[i64]) -> Option<Vec<(u32, i64)>> {
        (0u32..).zip(&self.steps).find_map(|(i, a)| {
            let (first, of) = (steps.first()?, a.first().filter(|x| **x != 0)?);
            let factor = first.checked_div(*of)?;
            a.iter().zip(steps).all(|(x, w)| x.checked_mul(factor) == Some(*w)).then(|| vec![(i, factor)])
        })
    }
}

/// Inserts a kernel's numbers into an object.
///
/// # Errors
/// The instruction does not exist, or has no room for the number.
pub fn apply(elf: &mut [u8], relocations: &[Relocation], numbers: &[u32]) -> Result<(), Unrelocatable> {
    let sections: BTreeMap<u32, std::ops::Range<usize>> = code(elf).ok_or(Unrelocatable::Damaged)?.into_iter().collect();
    for one in relocations {
        let mut value = one.constant;
        for (index, factor) in &one.terms {
            let number = i64::from(*numbers.get(*index as usize).ok_or(Unrelocatable::Damaged)?);
            value = number.checked_mul(*factor).and_then(|n| value.checked_add(n)).ok_or(Unrelocatable::Damaged)?;
        }
        let code = sections.get(&one.section).and_then(|range| elf.get_mut(range.clone())).ok_or(Unrelocatable::Damaged)?;
        let at = one.at as usize;
        if !at.is_multiple_of(INSTRUCTION) || read(code, at, one.slot).is_none() {
            return Err(Unrelocatable::Damaged);
        }
        let index = one.terms.first().map_or(0, |(index, _)| *index as usize);
        write(code, at, one.slot, value).ok_or(Unrelocatable::TooLarge(index))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_numbers_out_of_range() {
        let columns = [vec![8, 1200], vec![16, 96]];
        let sums = Sums::new(&columns);
        assert_eq!(sums.explain(&[i64::MIN, i64::MIN + 1192]), None);
        assert_eq!(sums.explain(&[i64::MAX, i64::MIN]), None);
        assert_eq!(sums.explain(&[i64::MIN, i64::MAX]), None);
    }

    #[test]
    fn finds_sums() {
        let columns = [vec![8, 1200, 64, 416], vec![16, 96, 3000, 8], vec![400, 24, 72, 1032]];
        let sums = Sums::new(&columns);
        let of = |f: &dyn Fn(i64, i64, i64) -> i64| {
            let [a, b, c] = &columns;
            sums.explain(&(0..4).map(|i| f(a[i], b[i], c[i])).collect::<Vec<i64>>())
        };
        assert_eq!(of(&|a, _, _| a + 4), Some((4, vec![(0, 1)])));
        assert_eq!(of(&|_, b, c| b + c - 1), Some((-1, vec![(1, 1), (2, 1)])));
        assert_eq!(of(&|a, _, c| c - a), Some((0, vec![(0, -1), (2, 1)])));
        assert_eq!(of(&|_, b, _| 5 * b), Some((0, vec![(1, 5)])));
        let (constant, mut terms) = of(&|a, b, c| a + b + c + 9).unwrap();
        terms.sort_unstable();
        assert_eq!((constant, terms), (9, vec![(0, 1), (1, 1), (2, 1)]));
        assert_eq!(of(&|a, b, _| a * b), None);
    }

    #[test]
    fn numbers_in_instructions_round_trip() {
        let mut code = vec![0; 16];
        for (slot, value) in [(Slot::Offset, -8), (Slot::Immediate, -70_000), (Slot::Wide, 0x1234_5678_9abc_def0), (Slot::Wide, -1)] {
            write(&mut code, 0, slot, value).unwrap();
            assert_eq!(read(&code, 0, slot), Some(value), "{slot:?}");
        }
        assert_eq!(write(&mut code, 0, Slot::Offset, 40_000), None);
        assert_eq!(write(&mut code, 8, Slot::Wide, 1), None);
    }

    #[test]
    fn rejects_files_that_are_not_objects() {
        assert_eq!(apply(&mut [0; 64], &[], &[]), Err(Unrelocatable::Damaged));
        assert!(!same_shape(b"", b""));
    }
}

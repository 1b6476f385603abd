//! Makes a compiled script as independent as possible of the kernel that it was compiled for.
//!
//! rbt finds the effect of each answer about the kernel by compiling the script with other answers. If an answer has no
//! effect, other kernels may differ in it. Offsets and sizes that only change numbers in instructions become relocations. All
//! other answers must be the same on the other kernel. rbt varies numbers widely and independently, to find code that
//! depends on comparisons of them and not only on their sums.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::codegen::artifact::{Artifact, Expansion, Manifest, Program};
use crate::launch::resolve::resolve;
use crate::probes::{Env, search};
use crate::system::portability::answers::{Change, Part, names};
use crate::system::portability::questions::{Question, Record, Recorder};
use crate::system::portability::relocations::{Relocation, Sample, derive, same_shape};
use crate::system::portability::requirements::{RecordedAnswer, Requirements};
use crate::system::portability::varied::{Variation, VariedTarget};
use crate::system::{Feature, TargetInfo};

/// The number of compilations to find relocations, and to check them.
const SAMPLES: u64 = 6;
/// The number of compilations to test whether numbers have effects other than on numbers.
const TRIALS: u64 = 3;
/// Numbers of processors for which the code must be the same if their number does not matter.
const CPUS: [u32; 4] = [1, 3, 64, 1000];

/// A script for many kernels.
pub(super) struct Template {
    pub artifact: Artifact,
    pub relocations: Vec<Relocation>,
    pub requirements: Requirements,
}

/// Compiles for a target; none if that fails.
pub(super) type Compile<'a> = dyn Fn(&dyn TargetInfo) -> Option<Artifact> + 'a;

/// A number that may become relocatable.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Number {
    Part(usize, Part),
    /// The size of a struct, by its ID.
    Size(u32),
}

/// The parts with an effect on the code, as found for other kinds of kernels: they are not tested again.
#[derive(Default)]
pub(super) struct FixedParts(HashSet<(String, Part)>);

/// An object, and the values of the numbers with which it was compiled.
type Compiled = (Artifact, Vec<u32>);

struct TrialCompiler<'a> {
    compile: &'a Compile<'a>,
    sys: &'a dyn TargetInfo,
    recorded_answers: Vec<RecordedAnswer>,
    baseline: &'a Artifact,
    /// The first places of structs, by ID.
    first_positions: HashMap<u32, (usize, Part)>,
    fixed: RefCell<&'a mut FixedParts>,
    /// The numbers and the objects of the latest samples.
    last_samples: RefCell<(Vec<Number>, Vec<Compiled>)>,
}

/// A template of a script that was compiled to `plain` for the target of `env`, with these queries. `mentions` says which names occur
/// in the script.
pub(super) fn template(
    compile: &Compile<'_>,
    env: &Env,
    asked: Record,
    plain: &Artifact,
    mentions: &dyn Fn(&str) -> bool,
    fixed: &mut FixedParts,
) -> Template {
    let sys = env.sys;
    let asked: Vec<RecordedAnswer> = asked.into_questions().map(|question| RecordedAnswer::new(question, sys)).collect();
    let fixed = RefCell::new(fixed);
    let mut trial = TrialCompiler {
        compile,
        sys,
        recorded_answers: asked,
        baseline: plain,
        first_positions: HashMap::new(),
        fixed,
        last_samples: RefCell::default(),
    };
    let numbers = trial.numbers();
    let mut free = trial.without_effect(mentions);
    let numbers: Vec<Number> =
        numbers.into_iter().filter(|number| !trial.parts_of(number).iter().any(|part| free.contains(part))).collect();
    let numbers = trial.present(numbers, &free);
    let (cpus, numbers): (Vec<Number>, Vec<Number>) = numbers.into_iter().partition(|n| matches!(n, Number::Part(_, Part::Cpus)));
    let mut moved = trial.movable(&numbers, &|numbers| trial.keeps_shape(numbers));
    let mut found = trial.relocations(&moved);
    if found.is_none() {
        // for some it is unknown how instructions depend on them
        moved = trial.movable(&moved, &|numbers| trial.relocations(numbers).is_some());
        found = trial.relocations(&moved);
    }
    if !cpus.is_empty() {
        // few compilations show code that depends on the next power of two, which no relocation describes
        if let Some(most) = trial.most_cpus() {
            free.insert(most);
        } else {
            let all: Vec<Number> = moved.iter().chain(&cpus).cloned().collect();
            if let Some(with) = trial.keeps_shape(&all).then(|| trial.relocations(&all)).flatten() {
                (moved, found) = (all, Some(with));
            }
        }
    }
    let (artifact, relocations) = found.unwrap_or_else(|| (plain.clone(), Vec::new()));
    free.extend(moved.iter().flat_map(|number| trial.parts_of(number)));
    let first: Vec<(usize, Part)> = moved.iter().filter_map(|number| trial.first_part(number)).collect();
    let varied_names = trial.names_without_effect();
    let mut artifact = artifact;
    trial.choose_expansions(&mut artifact.manifest, env, &mut free, &varied_names);
    free.extend(trial.unused(&varied_names).into_iter().map(|index| (index, Part::All)));
    let later = trial.recorded_answers.iter().enumerate().filter(|(_, one)| one.is_of_later_call());
    free.extend(later.map(|(index, _)| (index, Part::All)));
    trial.free_others(&mut free);
    let requirements = Requirements::new(&trial.recorded_answers, &free, &first);
    Template { artifact, relocations, requirements }
}

/// Is it the same code with the same description?
pub(super) fn is_same(a: &Artifact, b: &Artifact) -> bool {
    a.elf == b.elf && same_manifest(a, b)
}

/// The description apart from what a runner finds by itself.
fn same_manifest(a: &Artifact, b: &Artifact) -> bool {
    let text = |of: &Artifact| {
        let mut manifest = of.manifest.clone();
        manifest.forget_target();
        manifest.forget_places();
        format!("{manifest:?}")
    };
    text(a) == text(b)
}

/// Is it the same apart from the sites?
fn is_same_for_other_sites(a: &Artifact, b: &Artifact) -> bool {
    let without_sites = |of: &Artifact| {
        let mut of = of.clone();
        of.manifest.forget_sites();
        of
    };
    a.elf == b.elf && same_manifest(&without_sites(a), &without_sites(b))
}

impl TrialCompiler<'_> {
    fn compiled(&self, variation: &Variation) -> Option<Artifact> {
        (self.compile)(&VariedTarget::new(self.sys, &self.recorded_answers, variation))
    }

    /// Offsets and sizes.
    fn numbers(&mut self) -> Vec<Number> {
        let mut numbers = Vec::new();
        for (index, one) in self.recorded_answers.iter().enumerate() {
            for (part, _) in one.parts() {
                match &part {
                    Part::Offset => numbers.push(Number::Part(index, part)),
                    Part::FieldOffset(_) if !one.is_fixed() => numbers.push(Number::Part(index, part)),
                    Part::Size(place) => {
                        let Some(structure) = one.structure(place) else { continue };
                        if self.first_positions.insert(structure.id, (index, part)).is_none() {
                            numbers.push(Number::Size(structure.id));
                        }
                    }
                    Part::Cpus => numbers.push(Number::Part(index, part)),
                    Part::FieldOffset(_)
                    | Part::Variants
                    | Part::Field(_)
                    | Part::MoreFields
                    | Part::OtherFields(_)
                    | Part::Param(_)
                    | Part::MoreParams
                    | Part::ParamsFrom(_)
                    | Part::Feature
                    | Part::AtMost(_)
                    | Part::Namespace
                    | Part::Places
                    | Part::Names
                    | Part::All => {}
                }
            }
        }
        numbers
    }

    /// All parts that have a number.
    fn parts_of(&self, number: &Number) -> Vec<(usize, Part)> {
        let id = match number {
            Number::Part(index, part) => return vec![(*index, part.clone())],
            Number::Size(id) => *id,
        };
        let is_it = |one: &RecordedAnswer, part: &Part| {
            if let Part::Size(place) = part { one.structure(place).is_some_and(|of| of.id == id) } else { false }
        };
        let parts = |(index, one): (usize, &RecordedAnswer)| {
            let of_it: Vec<(usize, Part)> =
                one.parts().into_iter().filter(|(part, _)| is_it(one, part)).map(|(part, _)| (index, part)).collect();
            of_it
        };
        self.recorded_answers.iter().enumerate().flat_map(parts).collect()
    }

    fn first_part(&self, number: &Number) -> Option<(usize, Part)> {
        match number {
            Number::Part(index, part) => Some((*index, part.clone())),
            Number::Size(id) => self.first_positions.get(id).cloned(),
        }
    }

    /// Parts of answers that do not change the code.
    fn without_effect(&self, mentions: &dyn Fn(&str) -> bool) -> BTreeSet<(usize, Part)> {
        // sets of parts that are likely to matter, or not to matter, together
        let mut sets: BTreeMap<u32, Vec<(usize, Part)>> = BTreeMap::new();
        for (index, one) in self.recorded_answers.iter().enumerate() {
            for (part, _) in one.parts() {
                let set = match (&part, one.feature()) {
                    (Part::Feature, Some(Feature::CpuV4)) => 0,
                    (Part::Feature, Some(Feature::Fetch)) => 1,
                    (Part::Feature, Some(Feature::Loop)) => 2,
                    (Part::Feature, _) => 3,
                    (Part::Field(name), _) if !mentions(name) => 4,
                    (Part::MoreFields, _) => 4,
                    (Part::Param(number), _) if self.is_unmentioned_param(one, *number, mentions) => 9,
                    (Part::MoreParams, _) => 9,
                    (Part::Variants, _) => 5,
                    (Part::Namespace, _) => 6,
                    (Part::Cpus, _) => 7,
                    (Part::Places, _) => 8,
                    (Part::Names | Part::All, _) => continue,
                    (Part::Field(_) | Part::OtherFields(_) | Part::Param(_) | Part::ParamsFrom(_), _) => continue,
                    (Part::Offset | Part::Size(_) | Part::FieldOffset(_) | Part::AtMost(_), _) => continue,
                };
                if !self.is_fixed(index, &part) {
                    sets.entry(set).or_default().push((index, part));
                }
            }
        }
        let mut free = BTreeSet::new();
        for set in sets.values() {
            self.add_without_effect(set, &mut free);
        }
        free
    }

    /// May this parameter matter neither by its name nor as the source of a struct whose members were queried?
    fn is_unmentioned_param(&self, one: &RecordedAnswer, number: u16, mentions: &dyn Fn(&str) -> bool) -> bool {
        let is_subject = |id: u32| self.recorded_answers.iter().any(|other| other.subject().is_some_and(|of| of.id == id));
        one.param(number).is_some_and(|(name, structs)| !mentions(&name) && !structs.iter().any(|of| is_subject(of.id)))
    }

    /// The numbers that answers have even without the free parts. A kernel need not have the others.
    fn present(&mut self, numbers: Vec<Number>, free: &BTreeSet<(usize, Part)>) -> Vec<Number> {
        let mut omitted: BTreeMap<usize, BTreeSet<Part>> = BTreeMap::new();
        for (index, part) in free {
            omitted.entry(*index).or_default().insert(part.clone());
        }
        let is_present = |(index, part): &(usize, Part)| match (self.recorded_answers.get(*index), omitted.get(index)) {
            (Some(one), Some(omitted)) => !one.lacks(part, omitted),
            (Some(_), None) => true,
            (None, _) => false,
        };
        let mut present = Vec::new();
        let mut positions = Vec::new();
        for number in numbers {
            let Some(first) = self.parts_of(&number).into_iter().find(is_present) else { continue };
            if let Number::Size(id) = number {
                positions.push((id, first));
            }
            present.push(number);
        }
        self.first_positions.extend(positions);
        present
    }

    /// Where more fields or parameters have no effect, only those with one matter.
    fn free_others(&self, free: &mut BTreeSet<(usize, Part)>) {
        for (index, one) in self.recorded_answers.iter().enumerate() {
            if free.remove(&(index, Part::MoreFields)) {
                let fields = one.parts().into_iter().filter_map(|(part, _)| if let Part::Field(name) = part { Some(name) } else { None });
                let needed = fields.filter(|name| !free.remove(&(index, Part::Field(name.clone())))).collect();
                free.insert((index, Part::OtherFields(needed)));
            }
            if free.remove(&(index, Part::MoreParams)) {
                let is_needed = |number: &u16| one.param(*number).is_some() && !free.contains(&(index, Part::Param(*number)));
                let first = (0..one.params()).rev().find(is_needed).map_or(0, |last| last + 1);
                free.insert((index, Part::ParamsFrom(first)));
            }
        }
    }

    fn is_fixed(&self, index: usize, part: &Part) -> bool {
        let name = self.recorded_answers.get(index).map(RecordedAnswer::name).unwrap_or_default();
        self.fixed.borrow().0.contains(&(name, part.clone()))
    }

    fn fix(&self, index: usize, part: &Part) {
        let name = self.recorded_answers.get(index).map(RecordedAnswer::name).unwrap_or_default();
        self.fixed.borrow_mut().0.insert((name, part.clone()));
    }

    /// The code depends on the number of processors only through the next power of two.
    fn most_cpus(&self) -> Option<(usize, Part)> {
        let of =
            |(index, one): (usize, &RecordedAnswer)| one.parts().into_iter().find(|(part, _)| *part == Part::Cpus).map(|(_, n)| (index, n));
        let (index, cpus) = self.recorded_answers.iter().enumerate().find_map(of)?;
        let max = cpus?.checked_next_power_of_two()?;
        let with = |n: u32| self.compiled(&Variation { parts: [((index, Part::Cpus), Change::To(n))].into(), ..Variation::default() });
        let alike = |a: u32, b: u32| matches!((with(a), with(b)), (Some(a), Some(b)) if is_same(&a, &b));
        let as_here = |n: u32| with(n).is_some_and(|other| is_same(&other, self.baseline));
        let coarse = as_here(max / 2 + 1) && as_here(max) && alike(max + 1, 2 * max) && alike(2 * max + 1, 4 * max);
        coarse.then_some((index, Part::AtMost(max)))
    }

    /// Adds those of the parts that have no effect, even together with those already added.
    fn add_without_effect(&self, parts: &[(usize, Part)], free: &mut BTreeSet<(usize, Part)>) {
        if parts.is_empty() {
            return;
        }
        let all: Vec<(usize, Part)> = free.iter().chain(parts).cloned().collect();
        if self.have_no_effect(&all) {
            free.extend(parts.iter().cloned());
        } else if parts.len() > 1 {
            let (left, right) = parts.split_at(parts.len() / 2);
            self.add_without_effect(left, free);
            self.add_without_effect(right, free);
        } else if let [(index, part)] = parts
            && *part != Part::Namespace
            && *part != Part::Cpus
        {
            self.fix(*index, part);
        }
    }

    /// The answers whose names do not change the code, neither more of them nor fewer.
    fn names_without_effect(&self) -> BTreeSet<usize> {
        let has_names = |(index, one): (usize, &RecordedAnswer)| one.parts().iter().any(|(part, _)| *part == Part::Names).then_some(index);
        let all: Vec<usize> = self.recorded_answers.iter().enumerate().filter_map(has_names).collect();
        let mut free = BTreeSet::new();
        self.add_names_without_effect(&all, &mut free);
        free
    }

    fn add_names_without_effect(&self, answers: &[usize], free: &mut BTreeSet<usize>) {
        let all: BTreeSet<usize> = free.iter().chain(answers).copied().collect();
        let is_same = |change| self.with_names(&all, change).is_some_and(|(other, _)| is_same_for_other_sites(&other, self.baseline));
        match answers {
            [] => {}
            _ if [names::MORE, names::FIRST, names::LAST].into_iter().all(is_same) => free.extend(answers),
            [_] => {}
            many => {
                let (left, right) = many.split_at(many.len() / 2);
                self.add_names_without_effect(left, free);
                self.add_names_without_effect(right, free);
            }
        }
    }

    /// Compiles with other names in these answers. The result has the queries, too.
    fn with_names(&self, answers: &BTreeSet<usize>, change: Change) -> Option<(Artifact, Vec<Question>)> {
        let parts = answers.iter().map(|index| ((*index, Part::Names), change)).collect();
        let target = VariedTarget::new(self.sys, &self.recorded_answers, &Variation { parts, ..Variation::default() });
        let recorder = Recorder::new(&target);
        let artifact = (self.compile)(&recorder)?;
        Some((artifact, recorder.portable().ok()?.into_questions().collect()))
    }

    /// The queries that are about single names of these answers: with another name, they are not made.
    fn unused(&self, answers: &BTreeSet<usize>) -> BTreeSet<usize> {
        if answers.is_empty() {
            return BTreeSet::new();
        }
        let made: Vec<Vec<Question>> =
            [names::FIRST, names::LAST].into_iter().filter_map(|change| self.with_names(answers, change)).map(|(_, made)| made).collect();
        let is_unused = |one: &RecordedAnswer| made.iter().any(|made| !made.iter().any(|question| one.asks(question)));
        self.recorded_answers.iter().enumerate().filter(|(_, one)| is_unused(one)).map(|(index, _)| index).collect()
    }

    /// Removes the expansions of programs whose sites are part of the code, and fixes these. `names`: the answers whose names may
    /// differ.
    fn choose_expansions(&self, manifest: &mut Manifest, env: &Env, free: &mut BTreeSet<(usize, Part)>, names: &BTreeSet<usize>) {
        let queries = |expansion: &Expansion| -> Vec<usize> {
            let recorder = Recorder::new(self.sys);
            let env = Env { sys: &recorder, ..*env };
            for point in &expansion.points {
                // an error may be tolerated
                let _ = search::find(&point.attach_point(), &env);
            }
            let Ok(made) = recorder.portable() else { return Vec::new() };
            let made: Vec<Question> = made.into_questions().collect();
            let is_made = |one: &RecordedAnswer| made.iter().any(|question| one.asks(question));
            self.recorded_answers.iter().enumerate().filter(|(_, one)| is_made(one)).map(|(index, _)| index).collect()
        };
        let has = |index: &usize, wanted: Part| {
            self.recorded_answers.get(*index).is_some_and(|one| one.parts().iter().any(|(part, _)| *part == wanted))
        };
        // a runner must find the sites that the checker has found
        let mut found = manifest.clone();
        let is_found = resolve(&mut found, env).is_ok();
        let places = |program: &Program| program.sites.iter().map(|s| (s.name.clone(), s.attach.clone())).collect::<Vec<_>>();
        let same: Vec<bool> =
            manifest.programs.iter().zip(&found.programs).map(|(built, found)| is_found && places(built) == places(found)).collect();
        loop {
            let mut fixed = BTreeSet::new();
            for (program, same) in manifest.programs.iter_mut().zip(&same) {
                let made: Vec<usize> = program.expansions.iter().flat_map(queries).collect();
                if !same || made.iter().any(|index| has(index, Part::Places) && !free.contains(&(*index, Part::Places))) {
                    program.expansions.clear();
                    fixed.extend(made);
                } else {
                    let varies = made.iter().filter(|index| has(index, Part::Names)).all(|index| names.contains(index));
                    program.expansions.iter_mut().for_each(|expansion| expansion.varies = varies);
                }
            }
            let before = free.len();
            free.retain(|(index, part)| *part != Part::Places || !fixed.contains(index));
            if free.len() == before {
                break;
            }
        }
        free.extend(names.iter().map(|index| (*index, Part::Names)));
    }

    fn have_no_effect(&self, parts: &[(usize, Part)]) -> bool {
        let is_same = |cpus: u32, set: u32| {
            let change = |part: &Part| match part {
                Part::Cpus => Change::To(cpus),
                Part::Variants => Change::To(set),
                Part::Namespace => {
                    if set.is_multiple_of(2) {
                        Change::Omit
                    } else {
                        Change::To(set)
                    }
                }
                Part::Feature
                | Part::Field(_)
                | Part::MoreFields
                | Part::OtherFields(_)
                | Part::Param(_)
                | Part::MoreParams
                | Part::ParamsFrom(_)
                | Part::Offset
                | Part::FieldOffset(_)
                | Part::Size(_)
                | Part::AtMost(_)
                | Part::Places
                | Part::Names
                | Part::All => Change::Omit,
            };
            let parts = parts.iter().map(|(index, part)| ((*index, part.clone()), change(part))).collect();
            self.compiled(&Variation { parts, ..Variation::default() }).is_some_and(|other| is_same(&other, self.baseline))
        };
        let counts = parts.iter().any(|(_, part)| *part == Part::Cpus);
        let names = parts.iter().any(|(_, part)| *part == Part::Namespace);
        let cpus: &[u32] = if counts { &CPUS } else { &[1] };
        cpus.iter().all(|n| is_same(*n, 1001)) && (!names || is_same(1, 1002))
    }

    fn variation(&self, numbers: &[Number], seed: u64) -> (Variation, Vec<u32>) {
        let mut by = Variation::default();
        let mut choices = DistinctNumbers::new(seed);
        for number in numbers {
            match number {
                Number::Part(index, part) => {
                    let align = self.recorded_answers.get(*index).map_or(8, |one| one.align(part)).max(1);
                    // loads have room for the sum of three offsets
                    let value = choices.next(|any| 64 + (any % (8192 / u64::from(align))) as u32 * align);
                    by.parts.insert((*index, part.clone()), Change::To(value));
                }
                Number::Size(id) => {
                    let value = choices.next(|any| 128 + (any % 500) as u32 * 8);
                    by.sizes.insert(*id, value);
                }
            }
        }
        (by, choices.chosen)
    }

    /// The numbers that may have any value, together, by this criterion.
    fn movable(&self, numbers: &[Number], is_good: &dyn Fn(&[Number]) -> bool) -> Vec<Number> {
        let mut moved = Vec::new();
        let of = |number: &Number| self.first_part(number);
        let numbers: Vec<Number> =
            numbers.iter().filter(|n| !of(n).is_some_and(|(index, part)| self.is_fixed(index, &part))).cloned().collect();
        self.move_all(&numbers, is_good, &mut moved);
        moved
    }

    fn move_all(&self, numbers: &[Number], is_good: &dyn Fn(&[Number]) -> bool, moved: &mut Vec<Number>) {
        if numbers.is_empty() {
            return;
        }
        let all: Vec<Number> = moved.iter().chain(numbers).cloned().collect();
        if is_good(&all) {
            moved.extend(numbers.iter().cloned());
        } else if let [number] = numbers {
            if let Some((index, part)) = self.first_part(number) {
                self.fix(index, &part);
            }
        } else {
            let (left, right) = numbers.split_at(numbers.len() / 2);
            self.move_all(left, is_good, moved);
            self.move_all(right, is_good, moved);
        }
    }

    fn keeps_shape(&self, numbers: &[Number]) -> bool {
        let mut samples: Vec<(Artifact, Vec<u32>)> = Vec::new();
        for seed in 1..=TRIALS {
            let (variation, values) = self.variation(numbers, seed);
            let Some(artifact) = self.compiled(&variation) else { return false };
            if let Some((first, _)) = samples.first()
                && !(same_shape(&first.elf, &artifact.elf) && same_manifest(first, &artifact))
            {
                return false;
            }
            samples.push((artifact, values));
        }
        self.last_samples.replace((numbers.to_vec(), samples));
        true
    }

    fn relocations(&self, moved: &[Number]) -> Option<(Artifact, Vec<Relocation>)> {
        let (numbers, known) = self.last_samples.take();
        let mut samples = if numbers == moved { known } else { Vec::new() };
        for seed in samples.len() as u64 + 1..=SAMPLES {
            let (variation, values) = self.variation(moved, seed);
            samples.push((self.compiled(&variation)?, values));
        }
        let (first, _) = samples.first().filter(|(artifact, _)| same_manifest(artifact, self.baseline)).cloned()?;
        let samples: Vec<Sample> = samples.into_iter().map(|(artifact, numbers)| Sample { elf: artifact.elf, numbers }).collect();
        let relocations = derive(&samples).ok()?;
        Some((first, relocations))
    }
}

/// Random numbers, of which no two are close to each other: where two members are at the same offset, the compiler computes
/// their addresses once, and the code has another shape.
struct DistinctNumbers {
    state: u64,
    chosen: Vec<u32>,
}

impl DistinctNumbers {
    /// Different seeds yield sequences that are unrelated.
    fn new(mut seed: u64) -> Self {
        Self { state: splitmix(&mut seed), chosen: Vec::new() }
    }

    /// Another number, of those that `from` makes of random ones.
    fn next(&mut self, from: impl Fn(u64) -> u32) -> u32 {
        const DISTANCE: u32 = 8;
        const ATTEMPTS: usize = 100;
        let mut value = from(splitmix(&mut self.state));
        for _ in 0..ATTEMPTS {
            if self.chosen.iter().all(|other| other.abs_diff(value) >= DISTANCE) {
                break;
            }
            value = from(splitmix(&mut self.state));
        }
        self.chosen.push(value);
        value
    }
}

/// The splitmix generator: it yields the same numbers each time, so that a script has the same bundle.
fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_apart() {
        for seed in 1..=SAMPLES {
            let mut choices = DistinctNumbers::new(seed);
            (0..200).for_each(|n| {
                choices.next(|any| 64 + (any % 2048) as u32 * if n % 2 == 0 { 4 } else { 8 });
            });
            let mut sorted = choices.chosen.clone();
            sorted.sort_unstable();
            assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] >= 8), "seed {seed}: {sorted:?}");
        }
    }
}

//! Finds the calls after which the assumption that they return with the same stack pointer leads to a contradiction.

use std::collections::HashSet;

use iced_x86::{Decoder, DecoderOptions, FlowControl};

use super::{Flow, NONE, Reached, State, WORD};

/// What leads to contradictions.
#[derive(Default)]
pub(super) struct Distrusted {
    /// Calls that may not return.
    pub(super) calls: HashSet<u32>,
    /// Functions that return with another stack pointer.
    pub(super) functions: HashSet<u32>,
}

impl Flow<'_> {
    /// The calls that may have caused the contradictions. Where there are none, the functions themselves.
    pub(super) fn causes(&self) -> Distrusted {
        let mut causes = Distrusted::default();
        if self.contradictions.is_empty() {
            return causes;
        }
        let returning = self.returning();
        let is_sure = |target: &Option<u32>| target.is_some_and(|target| returning.contains(&target));
        for &contradiction in &self.contradictions {
            let (mut calls, mut functions) = (HashSet::new(), HashSet::new());
            self.visit_before([contradiction], |at| {
                if self.calls.get(&at).is_some_and(|target| !is_sure(target)) {
                    calls.insert(at);
                }
                let starts = self.entered.contains(&at);
                functions.extend(starts.then_some(at));
                !starts
            });
            if calls.is_empty() {
                causes.functions.extend(functions);
            }
            causes.calls.extend(calls);
        }
        causes
    }

    /// The instructions from which a path leads to a return, and not by what follows a call of code that is not known.
    fn returning(&self) -> HashSet<u32> {
        let is_return = |reached: &&Reached| {
            let code = self.code.get(reached.at as usize..).unwrap_or_default();
            let is_at_return = matches!(reached.state, State::Function { sp: Some(WORD), .. });
            is_at_return && Decoder::new(64, code, DecoderOptions::NONE).decode().flow_control() == FlowControl::Return
        };
        let mut all = HashSet::new();
        self.visit_before(self.reached.iter().filter(is_return).map(|reached| reached.at), |at| {
            let known = !matches!(self.calls.get(&at), Some(None));
            if known {
                all.insert(at);
            }
            known
        });
        all
    }

    /// Visits instructions and those before them. `visit`: do those before it matter?
    fn visit_before(&self, from: impl IntoIterator<Item = u32>, mut visit: impl FnMut(u32) -> bool) {
        let mut open: Vec<u32> = from.into_iter().collect();
        let mut seen: HashSet<u32> = open.iter().copied().collect();
        while let Some(at) = open.pop() {
            if visit(at) {
                let before = self.get(at).map(|reached| reached.before).filter(|before| *before != NONE);
                open.extend(before.iter().chain(self.others.get(&at).into_iter().flatten()).filter(|before| seen.insert(**before)));
            }
        }
    }
}

//! Stacks merged by their outermost frames, without boxes that are too narrow to see. A document of a million stacks is as small as
//! one of a hundred thousand.

use std::collections::HashMap;

/// Stacks with the same frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Indices of frames, outermost first.
    pub frames: Vec<u32>,
    /// The weight.
    pub weight: u64,
    /// The weight in the run or map that it is compared with.
    pub before: u64,
}

/// A box of a flame graph.
#[derive(Default)]
struct Node {
    parent: usize,
    frame: u32,
    /// The sum of the stacks that go through it, and of those that end here.
    total: u64,
    self_weight: (u64, u64),
}

/// The stacks, cut so that they have at most `max_boxes` boxes. The narrowest boxes are removed, and their weight remains in their
/// callers. The second value is the weight from which on all boxes are there; 0 if none was removed.
pub fn bounded(stacks: Vec<Merged>, max_boxes: usize) -> (Vec<Merged>, u64) {
    if stacks.iter().map(|stack| stack.frames.len()).sum::<usize>() <= max_boxes {
        return (stacks, 0);
    }
    let mut nodes = vec![Node::default()];
    let mut children: HashMap<(usize, u32), usize> = HashMap::new();
    let mut add = |nodes: &mut Vec<Node>, parent: usize, frame: u32| {
        *children.entry((parent, frame)).or_insert_with(|| {
            nodes.push(Node { parent, frame, ..Node::default() });
            nodes.len() - 1
        })
    };
    for stack in stacks {
        let mut pos = 0;
        for frame in stack.frames {
            pos = add(&mut nodes, pos, frame);
            if let Some(node) = nodes.get_mut(pos) {
                node.total = node.total.saturating_add(stack.weight);
            }
        }
        if let Some(node) = nodes.get_mut(pos) {
            node.self_weight = (node.self_weight.0.saturating_add(stack.weight), node.self_weight.1.saturating_add(stack.before));
        }
    }
    let mut weights: Vec<u64> = nodes.iter().skip(1).map(|node| node.total).collect();
    weights.sort_unstable_by(|a, b| b.cmp(a));
    let removed = weights.get(max_boxes).copied().unwrap_or(0);
    // callers come before what they call
    for index in (1..nodes.len()).rev() {
        let Some(node) = nodes.get_mut(index).filter(|node| node.total <= removed) else { continue };
        let (parent, own) = (node.parent, std::mem::take(&mut node.self_weight));
        if let Some(caller) = nodes.get_mut(parent) {
            caller.self_weight = (caller.self_weight.0.saturating_add(own.0), caller.self_weight.1.saturating_add(own.1));
        }
    }
    let path = |mut pos: usize| {
        let mut frames = Vec::new();
        while let Some(node) = nodes.get(pos).filter(|_| pos > 0) {
            frames.push(node.frame);
            pos = node.parent;
        }
        frames.reverse();
        frames
    };
    let kept = nodes.iter().enumerate().filter(|(_, node)| node.self_weight != (0, 0));
    (
        kept.map(|(pos, node)| Merged { frames: path(pos), weight: node.self_weight.0, before: node.self_weight.1 }).collect(),
        removed.saturating_add(1),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(frames: &[u32], weight: u64) -> Merged {
        Merged { frames: frames.to_vec(), weight, before: weight * 2 }
    }

    #[test]
    fn few_stacks_are_unchanged() {
        let stacks = vec![stack(&[1, 2], 3), stack(&[1], 1)];
        assert_eq!(bounded(stacks.clone(), 3), (stacks, 0));
    }

    #[test]
    fn narrow_boxes_become_part_of_their_callers() {
        let stacks = vec![stack(&[1, 2, 3], 1), stack(&[1, 2, 4], 9), stack(&[1, 5], 1), stack(&[6], 1)];
        let (cut, least) = bounded(stacks, 3);
        assert_eq!(least, 2);
        let mut cut: Vec<(Vec<u32>, u64, u64)> = cut.into_iter().map(|s| (s.frames, s.weight, s.before)).collect();
        cut.sort();
        assert_eq!(cut, [(vec![], 1, 2), (vec![1], 1, 2), (vec![1, 2], 1, 2), (vec![1, 2, 4], 9, 18)]);
    }

    #[test]
    fn many_stacks_keep_their_sum() {
        let stacks = (0..1u32 << 16).map(|n| stack(&(0..8).map(|level| n >> (2 * level) & 3).collect::<Vec<_>>(), 1)).collect();
        let (cut, least) = bounded(stacks, 6_000);
        assert!(cut.len() <= 6_001 && least > 1, "{} {least}", cut.len());
        assert_eq!(cut.iter().map(|s| s.weight).sum::<u64>(), 1 << 16);
    }
}

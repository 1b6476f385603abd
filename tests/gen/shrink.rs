//! From a script that fails to the smallest part of it that fails the same way.

use super::tree::{Cut, Node, count, cut, text};

/// Leaves out what may be left out; `fails` says whether a text still fails the same way.
pub fn shrink(nodes: Vec<Node>, fails: &mut dyn FnMut(&str) -> bool) -> Vec<Node> {
    let mut best = nodes;
    loop {
        let before = count(&best);
        let mut at = count(&best);
        while at > 0 {
            at -= 1;
            for how in [Cut::Drop, Cut::Open] {
                let Some(less) = cut(&best, at, how) else { continue };
                if fails(&text(&less)) {
                    best = less;
                    break;
                }
            }
            at = at.min(count(&best));
        }
        if count(&best) == before {
            return best;
        }
    }
}

//! Reduces a failing script to the smallest part that fails in the same way.

use super::tree::{Cut, Node, count, cut, text};

/// Removes parts of a script. `fails` determines whether a text still fails in the same way.
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

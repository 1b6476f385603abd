//! Represents a script as a tree of statements that can be removed one by one.

/// A statement, possibly with bodies.
#[derive(Clone, Debug)]
pub struct Node {
    /// The statement, or its text before the brace.
    pub head: String,
    /// The bodies in braces. Each has the text before the next body (`else`) or after the last one (`;`).
    pub bodies: Vec<(Vec<Node>, String)>,
}

impl Node {
    /// Makes a statement without a body.
    pub fn line(text: impl Into<String>) -> Self {
        Self { head: text.into(), bodies: Vec::new() }
    }

    /// Makes a statement with a body.
    pub fn with(head: impl Into<String>, body: Vec<Node>) -> Self {
        Self { head: head.into(), bodies: vec![(body, String::new())] }
    }

    fn write(&self, depth: usize, to: &mut String) {
        let indent = "  ".repeat(depth);
        to.push_str(&indent);
        to.push_str(&self.head);
        for (body, after) in &self.bodies {
            to.push_str(" {\n");
            body.iter().for_each(|n| n.write(depth + 1, to));
            to.push_str(&indent);
            to.push('}');
            if !after.is_empty() {
                to.push(' ');
                to.push_str(after);
            }
        }
        to.push('\n');
    }

    fn size(&self) -> usize {
        1 + self.bodies.iter().map(|(b, _)| count(b)).sum::<usize>()
    }
}

/// Counts all nodes.
pub fn count(nodes: &[Node]) -> usize {
    nodes.iter().map(Node::size).sum()
}

/// Renders nodes as text.
pub fn text(nodes: &[Node]) -> String {
    let mut out = String::new();
    nodes.iter().for_each(|n| n.write(0, &mut out));
    out
}

/// A way to reduce a script.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// Removes the statement.
    Drop,
    /// Replaces the statement by its first body.
    Open,
}

/// Cuts the `at`-th node, in the order of the text. Returns `None` if that is impossible.
pub fn cut(nodes: &[Node], mut at: usize, how: Cut) -> Option<Vec<Node>> {
    let mut out = Vec::with_capacity(nodes.len());
    for (i, node) in nodes.iter().enumerate() {
        if at == 0 {
            match how {
                Cut::Drop => {}
                Cut::Open => out.extend(node.bodies.first()?.0.iter().cloned()),
            }
            out.extend(nodes[i + 1..].iter().cloned());
            return Some(out);
        }
        if at < node.size() {
            let mut node = node.clone();
            at -= 1;
            for (body, _) in &mut node.bodies {
                let n = count(body);
                if at < n {
                    *body = cut(body, at, how)?;
                    break;
                }
                at -= n;
            }
            out.push(node);
            out.extend(nodes[i + 1..].iter().cloned());
            return Some(out);
        }
        at -= node.size();
        out.push(node.clone());
    }
    None
}

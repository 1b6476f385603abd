//! A script as a tree of statements, which can be removed separately.

/// A statement, or one with a body.
#[derive(Clone, Debug)]
pub struct Node {
    /// The statement, or what stands before the brace.
    pub head: String,
    /// Bodies in braces, each with what stands before the next one (`else`) or after the last (`;`).
    pub bodies: Vec<(Vec<Node>, String)>,
}

impl Node {
    /// A plain statement.
    pub fn line(text: impl Into<String>) -> Self {
        Self { head: text.into(), bodies: Vec::new() }
    }

    /// One with a body.
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

/// Nodes in all.
pub fn count(nodes: &[Node]) -> usize {
    nodes.iter().map(Node::size).sum()
}

/// As text.
pub fn text(nodes: &[Node]) -> String {
    let mut out = String::new();
    nodes.iter().for_each(|n| n.write(0, &mut out));
    out
}

/// A way to make it smaller.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// Without the statement.
    Drop,
    /// Its first body in its stead.
    Open,
}

/// The same with the `at`-th node (in order of the text) cut; nothing where that cannot be done.
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

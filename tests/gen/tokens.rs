//! Reduces a failing script by removing tokens.

/// Removes tokens and groups in brackets, and replaces groups by their contents.
pub fn shrink(text: &str, fails: &mut dyn FnMut(&str) -> bool) -> String {
    let mut best = tokens(text);
    loop {
        let before = best.len();
        best = groups(best, fails);
        let mut width = 8;
        while width > 0 {
            let mut at = 0;
            while at < best.len() {
                let end = (at + width).min(best.len());
                let less = without(&best, at..end);
                if balanced(&best[at..end]) && fails(&join(&less)) {
                    best = less;
                } else {
                    at += 1;
                }
            }
            width /= 2;
        }
        if best.len() == before {
            return join(&best);
        }
    }
}

/// Removes or replaces statements, blocks and groups in brackets, starting with the largest.
fn groups(mut best: Vec<String>, fails: &mut dyn FnMut(&str) -> bool) -> Vec<String> {
    let mut sizes: Vec<(usize, usize)> = spans(&best);
    while let Some((from, to)) = sizes.pop() {
        let Some(group) = best.get(from..to) else { continue };
        let number = vec!["1".to_string()];
        let inner = if group.len() > 2 { group[1..group.len() - 1].to_vec() } else { Vec::new() };
        for instead in [Vec::new(), number, inner] {
            let less = [&best[..from], &instead, &best[to..]].concat();
            if less.len() < best.len() && fails(&join(&less)) {
                best = less;
                // The groups before it have not been tried yet, or are shorter now.
                sizes = spans(&best);
                sizes.retain(|(f, t)| t - f <= to - from || *f < from);
                break;
            }
        }
    }
    best
}

/// The ranges of statements, up to their semicolon or the end of their block, and of groups in brackets. The longest are last.
fn spans(tokens: &[String]) -> Vec<(usize, usize)> {
    let mut all = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    let mut starts = vec![0];
    for (i, t) in tokens.iter().enumerate() {
        match t.as_str() {
            "(" | "[" | "{" => {
                open.push(i);
                starts.push(i + 1);
            }
            ")" | "]" | "}" => {
                starts.pop();
                if let Some(from) = open.pop() {
                    all.push((from, i + 1));
                }
                if let ("}", Some(start)) = (t.as_str(), starts.last_mut()) {
                    all.push((*start, i + 1));
                    *start = i + 1;
                }
            }
            ";" => {
                if let Some(start) = starts.last_mut() {
                    all.push((*start, i + 1));
                    *start = i + 1;
                }
            }
            _ => {}
        }
        if starts.is_empty() {
            starts.push(i + 1);
        }
    }
    all.sort_by_key(|(from, to)| (to - from, *from));
    all.dedup();
    all
}

fn without(tokens: &[String], range: std::ops::Range<usize>) -> Vec<String> {
    [&tokens[..range.start], &tokens[range.end..]].concat()
}

fn balanced(tokens: &[String]) -> bool {
    let count = |a: &str, b: &str| tokens.iter().filter(|t| *t == a).count() == tokens.iter().filter(|t| *t == b).count();
    count("(", ")") && count("{", "}") && count("[", "]")
}

fn join(tokens: &[String]) -> String {
    tokens.concat()
}

/// Splits a text into words, strings, brackets and runs of other characters. Each token includes the blanks before it.
fn tokens(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let mut t = String::from(c);
        match c {
            '"' => {
                while let Some(d) = chars.next() {
                    t.push(d);
                    if d == '\\' {
                        t.extend(chars.next());
                    } else if d == '"' {
                        break;
                    }
                }
            }
            c if c.is_alphanumeric() || "_$@".contains(c) => {
                while let Some(d) = chars.next_if(|d| d.is_alphanumeric() || *d == '_') {
                    t.push(d);
                }
            }
            ' ' | '\n' => {
                while let Some(d) = chars.next_if(|d| " \n".contains(*d)) {
                    t.push(d);
                }
            }
            _ => {}
        }
        all.push(t);
    }
    all
}

//! Passes queries on to another [`TargetInfo`](crate::system::TargetInfo), for a target in front of it.

/// Methods that give the answers of the target in a field. Before each, `$first` runs with `self`.
macro_rules! forward {
    ($to:tt, $first:expr; $($method:ident($($arg:ident: $ty:ty),*) -> $answer:ty;)*) => {
        $(fn $method(&self, $($arg: $ty),*) -> $answer {
            let first: fn(&Self) = $first;
            first(self);
            self.$to.$method($($arg),*)
        })*
    };
}

pub(crate) use forward;

#[cfg(test)]
mod tests {
    /// Otherwise, a query with a default answer could be omitted unnoticed.
    #[test]
    fn forwards_every_question() {
        let of_trait =
            include_str!("../mod.rs").split("pub trait TargetInfo {").nth(1).and_then(|t| t.split("\n}\n").next()).unwrap_or_default();
        let names: Vec<&str> = of_trait.lines().filter_map(|l| l.trim().strip_prefix("fn ")?.split('(').next()).collect();
        assert!(names.len() > 40, "the trait was not found");
        for (front, text) in [
            ("overlay", include_str!("../../cdecl/overlay.rs")),
            ("questions", include_str!("questions.rs")),
            ("varied", include_str!("varied.rs")),
        ] {
            let passes = |name: &str| text.contains(&format!("self.sys.{name}(")) || text.contains(&format!("        {name}("));
            let lost: Vec<&&str> = names.iter().filter(|n| !passes(n)).collect();
            assert!(lost.is_empty(), "{front} does not pass on: {lost:?}");
        }
    }
}

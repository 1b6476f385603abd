//! Checks that clippy reports no warnings and none of the lints that Cargo.toml denies. This test is not part of a plain
//! `cargo test`, because clippy compiles everything again. Run it with `cargo test --test lint`.

use std::process::Command;

/// The targets to check. `--all-targets` omits the tests that a plain `cargo test` omits, so they are listed by name.
const TARGETS: [&[&str]; 2] =
    [&["--all-targets"], &["--test", "lint", "--test", "long", "--test", "mutate", "--test", "programs", "--test", "vm"]];

#[test]
fn linted() {
    let features = if cfg!(feature = "static-llvm") { "static-llvm" } else { "dynamic-llvm" };
    for targets in TARGETS {
        let mut clippy = Command::new("cargo");
        clippy.args(["clippy", "--quiet", "--no-default-features", "--features", features]).args(targets).args(["--", "-D", "warnings"]);
        let out = match clippy.current_dir(env!("CARGO_MANIFEST_DIR")).output() {
            Ok(out) => out,
            Err(e) => panic!("cargo clippy: {e}"),
        };
        let err = String::from_utf8_lossy(&out.stderr);
        let lacking = ["no such command", "not installed"].iter().any(|what| err.contains(what));
        let required = std::env::var("RBT_TEST_REQUIRE").is_ok_and(|v| v == "all");
        if lacking && !required {
            eprintln!("skipped: needs clippy");
            return;
        }
        assert!(out.status.success(), "cargo clippy {}\n{}{err}", targets.join(" "), String::from_utf8_lossy(&out.stdout));
    }
}

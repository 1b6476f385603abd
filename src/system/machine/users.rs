//! Names of users.
//!
//! getpwuid_r(3) is not used: a C library looks up users through shared libraries, which a static binary cannot load.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::input;

/// The file with the machine's local users.
const PASSWD: &str = "/etc/passwd";

/// The program that looks up users in all databases of the machine (LDAP, SSSD, systemd).
const GETENT: &[&str] = &["/usr/bin/getent", "/bin/getent"];

/// A cache of names.
static NAMES: LazyLock<Mutex<HashMap<u32, String>>> = LazyLock::new(Mutex::default);

/// The name of a user in the user database; empty if there is none.
pub fn name(uid: u32) -> String {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    names.entry(uid).or_insert_with(|| local(uid).or_else(|| elsewhere(uid)).unwrap_or_default()).clone()
}

fn local(uid: u32) -> Option<String> {
    name_in_passwd(&input::read_regular(Path::new(PASSWD), input::TEXT).ok()?, uid)
}

fn elsewhere(uid: u32) -> Option<String> {
    let program = GETENT.iter().find(|path| Path::new(path).exists())?;
    let mut getent = Command::new(program);
    getent.args(["passwd", &uid.to_string()]).stdin(Stdio::null()).stderr(Stdio::null());
    name_in_passwd(&getent.output().ok()?.stdout, uid)
}

/// Finds the name with this ID in lines of passwd(5).
fn name_in_passwd(lines: &[u8], uid: u32) -> Option<String> {
    String::from_utf8_lossy(lines).lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        // Entries that start with these characters include other databases.
        (id.parse() == Ok(uid) && !name.is_empty() && !name.starts_with(['+', '-'])).then(|| name.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_names() {
        assert_eq!(name(0), "root");
        assert_eq!(name(0), "root");
        assert_eq!(name(u32::MAX - 7), "");
    }

    #[test]
    fn lines_of_passwd() {
        let lines =
            b"# users\n\nroot:x:0:0:root:/root:/bin/sh\n+:x:7:::::\nsh\xf6n:x:7:7::/:/bin/sh\nother:x:7:7::/:\n:x:8:8::/:\nshort:x\n";
        assert_eq!(name_in_passwd(lines, 0).as_deref(), Some("root"));
        assert_eq!(name_in_passwd(lines, 7).as_deref(), Some("sh\u{fffd}n"));
        assert_eq!((name_in_passwd(lines, 8), name_in_passwd(lines, 9), name_in_passwd(b"", 0)), (None, None, None));
    }

    #[test]
    fn getent_agrees() {
        if !GETENT.iter().any(|path| Path::new(path).exists()) {
            return eprintln!("skipped: needs getent");
        }
        assert_eq!(elsewhere(0), local(0));
    }
}

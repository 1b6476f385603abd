//! What reading must know of words, and no more.

/// Is this the name of a value that every script has? `(pid) - 1` subtracts, while `(name) - 1` casts -1 to a type.
pub fn is_value_word(word: &str) -> bool {
    const VALUES: &[&str] = &[
        "args",
        "cgroup",
        "comm",
        "cpid",
        "cpu",
        "ctx",
        "curtask",
        "elapsed",
        "func",
        "gid",
        "jiffies",
        "kstack",
        "ncpus",
        "nsecs",
        "numaid",
        "pid",
        "ppid",
        "probe",
        "probetype",
        "rand",
        "retval",
        "tid",
        "uid",
        "username",
        "usermode",
        "ustack",
    ];
    let argument = |w: &str| w.strip_prefix("arg").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    VALUES.contains(&word) || argument(word)
}

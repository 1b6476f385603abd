//! Failures that end the command: a message, a remedy and the exit status. Errors in a script are [`crate::diag::Diagnostics`].

use std::io;

use crate::diag::nearest;

/// Why a run does not start or continue: a message, a remedy, and the exit status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Exit status of the process.
    pub status: u8,
    /// A stable code, as for a diagnostic: `usage`, `no-permission`.
    pub code: &'static str,
    /// The message: one line without a final period.
    pub message: String,
    /// Lines below the message: the subject, as it was given, or the usage.
    pub excerpt: Option<String>,
    /// The remedy, if there is one.
    pub help: Option<String>,
}

/// See [`Failure::reported`].
const REPORTED: &str = "reported";

impl Failure {
    /// Wrong usage, a wrong script, or a missing permission: status 1.
    pub fn new(message: impl Into<String>) -> Self {
        Self { status: 1, code: "usage", message: without_os_error(&message.into()), excerpt: None, help: None }
    }

    /// Sets a code other than `usage`.
    pub fn code(mut self, code: &'static str) -> Self {
        self.code = code;
        self
    }

    /// Adds lines below the message.
    pub fn excerpt(mut self, lines: impl Into<String>) -> Self {
        self.excerpt = Some(lines.into()).filter(|lines| !lines.is_empty());
        self
    }

    /// Adds the remedy.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Sets another status.
    pub fn status(mut self, status: u8) -> Self {
        self.status = status;
        self
    }

    /// Splits a text: the part before the first semicolon is the message, and the rest is the remedy.
    pub fn from_text(text: &str) -> Self {
        match text.split_once("; ") {
            Some((message, remedy)) => Self::new(message).help(without_os_error(remedy)),
            None => Self::new(text),
        }
    }

    /// A failure that has been reported already: there is nothing more to print.
    pub fn reported(status: u8) -> Self {
        Self { status, code: REPORTED, message: String::new(), excerpt: None, help: None }
    }

    /// Has it been reported?
    pub fn is_reported(&self) -> bool {
        self.code == REPORTED
    }

    /// Adds `did you mean`, or all accepted words.
    pub fn suggest(self, word: &str, words: &[&'static str]) -> Self {
        match nearest(word, words.iter().copied()) {
            Some(near) => self.help(format!("did you mean `{near}`?")),
            None => self.help(format!("one of {}", words.join(", "))),
        }
    }
}

/// The text without the `(os error N)` that Rust's standard library appends to the text of strerror(3).
pub fn without_os_error(text: &str) -> String {
    match text.split_once(" (os error ").and_then(|(before, after)| Some((before, after.split_once(')')?.1))) {
        Some((before, after)) => format!("{before}{after}"),
        None => text.to_string(),
    }
}

/// The text of strerror(3).
pub fn strerror(errno: i32) -> String {
    without_os_error(&io::Error::from_raw_os_error(errno).to_string())
}

/// The text of strerror(3) in the form that follows a colon: with a lowercase first letter, and without a number.
pub fn reason(e: &io::Error) -> String {
    let text = without_os_error(&e.to_string());
    let mut letters = text.chars();
    match (letters.next(), letters.next()) {
        // an abbreviation
        (Some(first), Some(second)) if first.is_uppercase() && second.is_uppercase() => text,
        (Some(first), _) => first.to_lowercase().chain(text.chars().skip(1)).collect(),
        (None, _) => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_remedies_and_no_numbers() {
        let failure = Failure::from_text("cannot write: No space left on device (os error 28); make room");
        assert_eq!((failure.message.as_str(), failure.help.as_deref()), ("cannot write: No space left on device", Some("make room")));
        assert_eq!(without_os_error("plain"), "plain");
        for (text, expected) in
            [("Is a directory", "is a directory"), ("TLS failed", "TLS failed"), ("It is not UTF-8", "it is not UTF-8"), ("", "")]
        {
            assert_eq!(reason(&io::Error::other(text)), expected);
        }
    }
}

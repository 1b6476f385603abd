//! Frames of Python code in stacks: alone (`pystack`), or among native frames (`ustack`).

use crate::emit::shared::{BEFORE_FIRST, CODE_HASH, CODE_ID, MARKER_BITS, OFFSETS, PYTHON_REASON, Reason, TOO_LARGE};
use crate::host::Host;
use crate::types::Deferred;
use crate::value::Frame;

/// What is wrong with stacks: its name in JSON, a verb for one, the verb for several, and the rest of the sentence.
pub(super) type Incomplete = (&'static str, &'static str, &'static str, &'static str);

/// The ID of a stack of Python frames only. A code object has the same ID in all processes, and so has a stack.
pub(super) const STACK: &str = "pystack";

/// Is it a stack of Python frames only?
pub(super) fn is_tag(tag: &Deferred) -> bool {
    tag.tag == STACK
}

/// Why Python frames may be missing: the counter, and the message about such stacks at the end.
pub(super) const INCOMPLETE: &[(u64, Incomplete)] = &[
    (Reason::UnknownCode.number(), ("python_name", "has", "have", "a Python function whose name could not be read or sent")),
    (Reason::TooMany.number(), ("python_threads", "is", "are", "of Python processes with too many threads")),
    (Reason::Unreadable.number(), ("python_unreadable", "has", "have", "Python frames that could not be read")),
    (Reason::Unsupported.number(), ("python_version", "is", "are", "of a build of Python that is not supported")),
    (Reason::LeftOut.number(), ("python_left_out", "has", "have", "no Python frames, because a probe leaves no room for these")),
];

/// Is a word in a stack of Python and native frames a Python frame?
pub(super) fn is_frame(word: u64) -> bool {
    word & MARKER_BITS == PYTHON_REASON
}

/// The Python frame of such a word.
pub(super) fn frame_of_word(word: u64, host: &mut dyn Host) -> Frame {
    let code = word & CODE_ID == CODE_ID;
    let offset = match word & OFFSETS {
        BEFORE_FIRST => u32::MAX,
        // beyond any line table
        TOO_LARGE => i32::MAX as u32,
        half => (half * 2) as u32,
    };
    let found = if code { frame(word & (CODE_ID | CODE_HASH), offset, host) } else { frame(word & 0xff, (word >> 8) as u8 as u32, host) };
    found.unwrap_or_else(|| placeholder("[more Python frames]".into()))
}

/// None at the end of the stack.
pub(super) fn frame(id: u64, offset: u32, host: &mut dyn Host) -> Option<Frame> {
    let reasons =
        [Reason::Cut, Reason::UnknownCode, Reason::TooMany, Reason::Unreadable, Reason::Unsupported, Reason::LeftOut, Reason::Gap];
    let frame = match reasons.into_iter().find(|reason| *reason as u64 == id) {
        None => host.python_frame(id, offset).unwrap_or_else(|| placeholder("[unknown function]".into())),
        Some(Reason::Cut) => return None,
        Some(Reason::UnknownCode) => placeholder("[unknown function]".into()),
        Some(Reason::TooMany) => placeholder("[too many threads]".into()),
        Some(Reason::Unreadable) => placeholder("[Python's memory is unreadable]".into()),
        Some(Reason::LeftOut) => placeholder("[Python frames left out]".into()),
        Some(Reason::Gap) => placeholder("[frames missing]".into()),
        Some(Reason::Unsupported) if offset == 0 => placeholder("[this build of Python is not supported]".into()),
        Some(Reason::Unsupported) => placeholder(format!("[Python 3.{offset} is not supported]")),
    };
    Some(frame)
}

/// A word in place of a frame.
pub(super) fn placeholder(text: String) -> Frame {
    Frame { symbol: Some(text), ..Frame::default() }
}

//! The interface that the user-space part of a builtin uses. The running session implements it; tests use a fake.

use crate::output::Output;
use crate::settings::Settings;
use crate::timeline::Spans;
use crate::value::{Frame, MapView, Value};

/// Who reads a text that contains values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Who reads the run's output.
    Output,
    /// Who reads the messages about the run.
    Messages,
    /// A program: the text is a command, the name of a file, or the script's own. It stays as it is.
    Program,
}

/// Services for handlers and decoders.
pub trait Host {
    /// Says something to the reader of the run.
    fn say(&mut self, output: Output);
    /// Appends a value as `%s` shows it in the chosen format to `reader`.
    fn text(&self, value: &Value, reader: Reader, to: &mut Vec<u8>);
    /// How often the run is ending: a handler that waits for others gives up when there is one time more.
    fn ending(&self) -> u32;
    /// Is what is done now asked for by `end`, which comes after everything else?
    fn in_end(&self) -> bool;
    /// Settings of the run.
    fn settings(&self) -> &Settings;
    /// Reads a whole map, merged across CPUs.
    fn map(&mut self, map: usize) -> anyhow::Result<MapView>;
    /// Reads a whole map and empties it, in one moment: an update by a program is in what is given, or in the map afterwards.
    /// With `keys`, these stay, with zeros.
    fn take_map(&mut self, map: usize, keys: bool) -> anyhow::Result<MapView>;
    /// Reads one element by the bytes of its key; zero of its kind when it is not there.
    fn map_element(&mut self, map: usize, key: &[u8]) -> anyhow::Result<Value>;
    /// Removes all elements.
    fn clear_map(&mut self, map: usize) -> anyhow::Result<()>;
    /// Sets all elements to zero.
    fn zero_map(&mut self, map: usize) -> anyhow::Result<()>;
    /// The spans that are open.
    fn spans(&mut self) -> &mut Spans;
    /// Ends the run after the events that came before.
    fn exit(&mut self, status: u8);
    /// Name and offset of a kernel address.
    fn kernel_symbol(&mut self, addr: u64) -> Option<Frame>;
    /// Name and offset of an address in a process.
    fn user_symbol(&mut self, pid: u32, addr: u64) -> Option<Frame>;
    /// Frames of a kernel stack, leaf first, inlined ones included; names are looked up when `resolve`.
    fn kernel_frames(&mut self, addrs: &[u64], resolve: bool) -> Vec<Frame>;
    /// The same for a process's stack.
    fn user_frames(&mut self, pid: u32, addrs: &[u64], resolve: bool) -> Vec<Frame>;
    /// Addresses kept under a stack's id in the stack map of this many frames.
    fn stack(&mut self, limit: u32, id: u64) -> Option<Vec<u64>>;
    /// The frame of a Python code object, by its ID and the offset of the instruction in it; none if nothing is known of it.
    fn python_frame(&mut self, id: u64, offset: u32) -> Option<Frame>;
    /// What to add to a reading of `CLOCK_BOOTTIME` to get nanoseconds since 1970.
    fn boot_to_unix_ns(&self) -> u64;
}

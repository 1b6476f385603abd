//! The interface that the user-space part of a builtin uses. The running session implements it; tests use a fake.

use crate::output::Output;
use crate::settings::Settings;
use crate::timeline::Spans;
use crate::value::{Frame, FramesBuilder, MapView, ShowOptions, Value};

/// Who reads a text that contains values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Who reads the run's output.
    Output,
    /// Who reads the messages about the run.
    Messages,
    /// A program: the text is a command, the name of a file, or the script's own. It stays unchanged.
    Program,
}

/// Services for handlers and decoders.
pub trait Host {
    /// Sends output to the reader of the run.
    fn say(&mut self, output: Output);
    /// Appends a value as `%s` shows it in the chosen format to `reader`.
    fn text(&self, value: &Value, reader: Reader, to: &mut Vec<u8>);
    /// How often the end of the run was requested: a handler that waits for others gives up when the number increases.
    fn ending(&self) -> u32;
    /// Is the current record from `end`, which runs after everything else?
    fn in_end(&self) -> bool;
    /// Settings of the run.
    fn settings(&self) -> &Settings;
    /// Would a print of a large map only repeat the last one? A signal has ended the run, and programs no longer change the map. If
    /// so, it is omitted, and counted.
    fn repeats_print(&mut self, map: usize, show: &ShowOptions) -> bool {
        let _ = (map, show);
        false
    }
    /// Reads a whole map, merged across CPUs.
    fn map(&mut self, map: usize) -> anyhow::Result<MapView>;
    /// Reads a map and clears it in one step: an update by a program is either in the result, or in the map afterwards.
    /// With `keys`, the keys stay, with zeros.
    fn take_map(&mut self, map: usize, keys: bool) -> anyhow::Result<MapView>;
    /// Reads an element by the bytes of its key; if it does not exist, the result is zero.
    fn map_element(&mut self, map: usize, key: &[u8]) -> anyhow::Result<Value>;
    /// Removes all elements.
    fn clear_map(&mut self, map: usize) -> anyhow::Result<()>;
    /// Sets all elements to zero.
    fn zero_map(&mut self, map: usize) -> anyhow::Result<()>;
    /// The open spans.
    fn spans(&mut self) -> &mut Spans;
    /// Ends the run after the preceding events.
    fn exit(&mut self, status: u8);
    /// Name and offset of a kernel address.
    fn kernel_symbol(&mut self, addr: u64) -> Option<Frame>;
    /// Name and offset of an address in a process.
    fn user_symbol(&mut self, pid: u32, addr: u64) -> Option<Frame>;
    /// A new stack of about this many frames.
    fn new_frames(&mut self, capacity: usize) -> FramesBuilder;
    /// Adds the frames of a kernel stack, leaf first, including inlined ones; names are looked up if `resolve` is true.
    fn kernel_frames(&mut self, addrs: &[u64], resolve: bool, to: &mut FramesBuilder);
    /// The same for a stack of a process.
    fn user_frames(&mut self, pid: u32, addrs: &[u64], resolve: bool, to: &mut FramesBuilder);
    /// The addresses of a stack ID in the stack map of this many frames.
    fn stack(&mut self, limit: u32, id: u64) -> Option<Vec<u64>>;
    /// The frame of a Python code object, by its ID and the offset of the instruction in it; none if it is unknown.
    fn python_frame(&mut self, id: u64, offset: u32) -> Option<Frame>;
    /// The difference between nanoseconds since 1970 and `CLOCK_BOOTTIME`.
    fn boot_to_unix_ns(&self) -> u64;
}

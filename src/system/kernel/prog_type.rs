//! The types of programs that rbt loads: `enum bpf_prog_type` of include/uapi/linux/bpf.h.

/// `BPF_PROG_TYPE_KPROBE`
pub const KPROBE: u32 = 2;
/// `BPF_PROG_TYPE_TRACEPOINT`
pub const TRACEPOINT: u32 = 5;
/// `BPF_PROG_TYPE_PERF_EVENT`
pub const PERF_EVENT: u32 = 7;
/// `BPF_PROG_TYPE_RAW_TRACEPOINT`
pub const RAW_TRACEPOINT: u32 = 17;
/// `BPF_PROG_TYPE_TRACING`
pub const TRACING: u32 = 26;
/// `BPF_PROG_TYPE_LSM`
pub const LSM: u32 = 29;

/// All of them.
pub const ALL: [u32; 6] = [KPROBE, TRACEPOINT, PERF_EVENT, RAW_TRACEPOINT, TRACING, LSM];

//! Kernel helpers by name. Numbers: `include/uapi/linux/bpf.h`, `___BPF_FUNC_MAPPER`.

use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::types::BasicMetadataTypeEnum;
use inkwell::values::{BasicMetadataValueEnum, BasicValueEnum, IntValue, PointerValue};

use super::{Builder, ok};
use crate::bug;
use crate::diag::Diagnostic;

macro_rules! helpers {
    ($($variant:ident = $number:literal, $name:literal;)*) => {
        /// A helper function of the kernel.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)] // each is `bpf_` and its name in bpf-helpers(7)
        pub enum Helper { $($variant = $number,)* }

        impl Helper {
            /// The name without `bpf_`.
            pub fn name(self) -> &'static str {
                match self { $(Helper::$variant => $name,)* }
            }
        }

        /// The name of the helper with this number, without `bpf_`, if rbt uses it.
        pub fn helper_name(number: u32) -> Option<&'static str> {
            match number { $($number => Some($name),)* _ => None }
        }
    };
}

helpers! {
    MapLookupElem = 1, "map_lookup_elem";
    MapUpdateElem = 2, "map_update_elem";
    MapDeleteElem = 3, "map_delete_elem";
    KtimeGetNs = 5, "ktime_get_ns";
    TracePrintk = 6, "trace_printk";
    GetPrandomU32 = 7, "get_prandom_u32";
    GetSmpProcessorId = 8, "get_smp_processor_id";
    TailCall = 12, "tail_call";
    GetCurrentPidTgid = 14, "get_current_pid_tgid";
    GetCurrentUidGid = 15, "get_current_uid_gid";
    GetCurrentComm = 16, "get_current_comm";
    GetStackid = 27, "get_stackid";
    GetCurrentTask = 35, "get_current_task";
    ProbeWriteUser = 36, "probe_write_user";
    GetNumaNodeId = 42, "get_numa_node_id";
    GetSocketCookie = 46, "get_socket_cookie";
    OverrideReturn = 58, "override_return";
    GetStack = 67, "get_stack";
    GetCurrentCgroupId = 80, "get_current_cgroup_id";
    SendSignal = 109, "send_signal";
    ProbeReadUser = 112, "probe_read_user";
    ProbeReadKernel = 113, "probe_read_kernel";
    ProbeReadUserStr = 114, "probe_read_user_str";
    ProbeReadKernelStr = 115, "probe_read_kernel_str";
    SendSignalThread = 117, "send_signal_thread";
    Jiffies64 = 118, "jiffies64";
    GetNsCurrentPidTgid = 120, "get_ns_current_pid_tgid";
    KtimeGetBootNs = 125, "ktime_get_boot_ns";
    SeqPrintf = 126, "seq_printf";
    SeqWrite = 127, "seq_write";
    GetCurrentAncestorCgroupId = 123, "get_current_ancestor_cgroup_id";
    RingbufOutput = 130, "ringbuf_output";
    RingbufReserve = 131, "ringbuf_reserve";
    RingbufSubmit = 132, "ringbuf_submit";
    RingbufDiscard = 133, "ringbuf_discard";
    RingbufQuery = 134, "ringbuf_query";
    DPath = 147, "d_path";
    GetCurrentTaskBtf = 158, "get_current_task_btf";
    CopyFromUser = 148, "copy_from_user";
    ForEachMapElem = 164, "for_each_map_elem";
    GetFuncIp = 173, "get_func_ip";
    GetAttachCookie = 174, "get_attach_cookie";
    TaskPtRegs = 175, "task_pt_regs";
    Loop = 181, "loop";
    MapLookupPercpuElem = 195, "map_lookup_percpu_elem";
    KtimeGetTaiNs = 208, "ktime_get_tai_ns";
}

impl<'c> Builder<'_, 'c> {
    /// Calls a helper that returns a number.
    pub fn call(&mut self, helper: Helper, args: &[BasicMetadataValueEnum<'c>]) -> IntValue<'c> {
        let BasicValueEnum::IntValue(v) = self.call_any(helper, args, false) else {
            bug!("helper {} returns a number", helper.name());
        };
        v
    }

    /// Calls a helper that returns a pointer, which may be null.
    pub fn call_ptr(&mut self, helper: Helper, args: &[BasicMetadataValueEnum<'c>]) -> PointerValue<'c> {
        let BasicValueEnum::PointerValue(v) = self.call_any(helper, args, true) else {
            bug!("helper {} returns a pointer", helper.name());
        };
        v
    }

    /// The number of the current CPU.
    pub fn cpu(&mut self) -> IntValue<'c> {
        if !self.program.is_long || self.scope.outlining {
            return self.call(Helper::GetSmpProcessorId, &[]);
        }
        // see `Builder::lookup`
        self.shared_part("current_cpu", &[], |e, _| e.call(Helper::GetSmpProcessorId, &[]))
    }

    fn call_any(&mut self, helper: Helper, args: &[BasicMetadataValueEnum<'c>], pointer: bool) -> BasicValueEnum<'c> {
        if let Some((.., help)) = self.target.newer_helpers.iter().find(|(newer, has, _)| *newer == helper && !has.holds()) {
            let message = format!("this needs the helper `bpf_{}`, which this kernel lacks", helper.name());
            self.missing_helper_errors.borrow_mut().push(Diagnostic::error("no-helper", self.scope.span, message).help(*help));
        }
        let types: Vec<BasicMetadataTypeEnum> =
            args.iter().map(|a| if a.is_pointer_value() { self.ptrt().into() } else { self.i64t().into() }).collect();
        let ty = if pointer { self.ptrt().fn_type(&types, false) } else { self.i64t().fn_type(&types, false) };
        let target = self.i64t().const_int(helper as u64, false).const_to_pointer(self.ptrt());
        let call = ok(self.b.build_indirect_call(ty, target, args, ""));
        if self.scope.keeps_calls_separate {
            let kind = Attribute::get_named_enum_kind_id("nomerge");
            call.add_attribute(AttributeLoc::Function, self.llcx.create_enum_attribute(kind, 0));
        }
        match call.try_as_basic_value().basic() {
            Some(v) => v,
            None => bug!("helper {} returns something", helper.name()),
        }
    }
}

# Prints the functions on which a probe might harm the kernel, as lines "FUNCTION DEPTH SET". It follows the calls from the roots
# of each set up to the set's depth, including the calls of functions that cannot be traced.
#
#   awk -f hunt-set.awk EDGES
BEGIN {
    # The name of a set, its depth, and its roots.
    row("trampoline", 4, "^(__bpf_prog_(enter|exit).*|__bpf_tramp_(enter|exit))$")
    row("dispatch", 3, "^(kprobe_(int3_handler|ftrace_handler|dispatcher|perf_func|multi_link.*)|kretprobe_(dispatcher|perf_func|rethook_handler)" \
        "|aggr_(pre|post)_handler|optimized_callback|setup_detour_execution|pre_handler_kretprobe|(__kretprobe_)?trampoline_handler" \
        "|arch_rethook.*|rethook_.*|fprobe_.*(handler|entry|return)|arch_ftrace_ops_list_func|function_graph_enter.*" \
        "|ftrace_(return_to_handler|graph_func)|trace_call_bpf|__bpf_trace_run|bpf_trace_run[0-9]*" \
        "|perf_(tp_event|trace_(run_bpf_submit|buf_alloc|buf_update)|swevent_.*|sys(call)?_(enter|exit))|__perf_event_overflow)$")
    row("helpers", 2, "^(bpf_(map_|get_|probe_|ktime|ringbuf|perf_|loop|for_each|send_|snprintf|trace_printk|spin_|jiffies|strncmp|copy_from" \
        "|this_cpu|per_cpu|d_path|override|current_|cgroup_|stackmap|bprintf|event_output|mem_)" \
        "|(__)?(htab|array|percpu_array|stack_map|ringbuf|pcpu_freelist)_)")
    row("entry", 2, "^(exc_.*|default_do_nmi|nmi_handle|do_nmi|do_syscall_64|syscall_(enter|exit).*|irqentry_.*|irq_(enter|exit).*" \
        "|sysvec_.*|common_interrupt|do_int3.*|error_entry|ret_from_fork.*|__switch_to|finish_task_switch.*|do_error_trap|fixup_bad_iret" \
        "|sync_regs|__do_softirq|handle_softirqs|ct_.*|context_tracking.*|user_(enter|exit).*|__schedule|schedule_tail)$")
}
function row(name, far, roots) { sets[++rows] = name; depth[rows] = far; root[rows] = roots }
{ called[$1] = called[$1] " " $2; all[$1]; all[$2] }
END {
    for (r = 1; r <= rows; r++) {
        n = 0
        for (f in all) if (f ~ root[r]) { queue[++n] = f; at[r, f] = 0 }
        for (i = 1; i <= n; i++) {
            f = queue[i]
            if (!(f in seen)) { seen[f]; print f, at[r, f], sets[r] }
            if (at[r, f] >= depth[r]) continue
            k = split(called[f], callee, " ")
            for (c = 1; c <= k; c++) if (!((r, callee[c]) in at)) { at[r, callee[c]] = at[r, f] + 1; queue[++n] = callee[c] }
        }
    }
}

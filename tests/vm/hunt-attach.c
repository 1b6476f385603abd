/* Attaches one small program to many functions with trampolines, runs a command, and detaches. rbt does the same for fentry and
 * fexit, but in an emulated machine, its compiler takes a second for each function. The program counts calls by kernel stack.
 * If the kernel does not prevent a program from calling itself, the program prevents it, as the programs of rbt do.
 *
 *   hunt-attach fentry|fexit COMMAND ARGUMENT FUNCTION...
 *
 * It prints "Attached N probes" to standard error. N does not include functions that the kernel rejects.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/btf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char *btf;
static size_t btf_size;

static int sys_bpf(int cmd, union bpf_attr *attr) { return syscall(SYS_bpf, cmd, attr, sizeof *attr); }

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void read_btf(void) {
    int fd = open("/sys/kernel/btf/vmlinux", O_RDONLY);
    size_t room = 16 << 20;
    ssize_t n;
    btf = malloc(room);
    if (fd < 0 || !btf) die("/sys/kernel/btf/vmlinux");
    while ((n = read(fd, btf + btf_size, room - btf_size)) > 0) btf_size += n;
    close(fd);
}

/* Finds the BTF ID of each named function, or 0 if the kernel has no such function. */
static void find(char **names, unsigned *ids, int n) {
    struct btf_header *h = (void *)btf;
    char *at = btf + h->hdr_len + h->type_off, *end = at + h->type_len, *text = btf + h->hdr_len + h->str_off;
    for (unsigned id = 1; at < end; id++) {
        struct btf_type *t = (void *)at;
        unsigned vlen = BTF_INFO_VLEN(t->info), size = sizeof *t;
        switch (BTF_INFO_KIND(t->info)) {
        case BTF_KIND_FUNC:
            for (int i = 0; i < n; i++)
                if (!ids[i] && !strcmp(text + t->name_off, names[i])) ids[i] = id;
            break;
        case BTF_KIND_INT: case BTF_KIND_VAR: case BTF_KIND_DECL_TAG: size += 4; break;
        case BTF_KIND_ARRAY: size += sizeof(struct btf_array); break;
        case BTF_KIND_STRUCT: case BTF_KIND_UNION: size += vlen * sizeof(struct btf_member); break;
        case BTF_KIND_ENUM: size += vlen * sizeof(struct btf_enum); break;
        case BTF_KIND_FUNC_PROTO: size += vlen * sizeof(struct btf_param); break;
        case BTF_KIND_DATASEC: size += vlen * sizeof(struct btf_var_secinfo); break;
        case 19: size += vlen * 12; break; /* BTF_KIND_ENUM64 */
        }
        at += size;
    }
}

static int map(int type, int key, int value, int entries) {
    union bpf_attr a = { .map_type = type, .key_size = key, .value_size = value, .max_entries = entries };
    int fd = sys_bpf(BPF_MAP_CREATE, &a);
    if (fd < 0) die("a map");
    return fd;
}

#define I(c, d, s, o, i) ((struct bpf_insn){ .code = (c), .dst_reg = (d), .src_reg = (s), .off = (o), .imm = (i) })
#define MOV(d, s) I(BPF_ALU64 | BPF_MOV | BPF_X, d, s, 0, 0)
#define MOVI(d, i) I(BPF_ALU64 | BPF_MOV | BPF_K, d, 0, 0, i)
#define ADDI(d, i) I(BPF_ALU64 | BPF_ADD | BPF_K, d, 0, 0, i)
#define STX(d, o, s) I(BPF_STX | BPF_MEM | BPF_DW, d, s, o, 0)
#define STI(d, o, i) I(BPF_ST | BPF_MEM | BPF_DW, d, 0, o, i)
#define LDX(d, s, o) I(BPF_LDX | BPF_MEM | BPF_DW, d, s, o, 0)
#define MAP(d, fd) I(BPF_LD | BPF_DW | BPF_IMM, d, BPF_PSEUDO_MAP_FD, 0, fd), I(0, 0, 0, 0, 0)
#define CALL(f) I(BPF_JMP | BPF_CALL, 0, 0, 0, f)

static struct bpf_insn insns[64];
static int count;

static void add(const struct bpf_insn *from, int n) {
    memcpy(insns + count, from, n * sizeof *from);
    count += n;
}

static void build(int guards, int busy, int stacks, int counts) {
    struct bpf_insn head[] = { MOV(6, 1) };
    struct bpf_insn enter[] = {
        CALL(BPF_FUNC_get_smp_processor_id), I(BPF_ALU64 | BPF_AND | BPF_K, 0, 0, 0, 255),
        I(BPF_STX | BPF_MEM | BPF_W, 10, 0, -4, 0), MAP(1, busy), MOV(2, 10), ADDI(2, -4), CALL(BPF_FUNC_map_lookup_elem),
        I(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 29, 0), MOV(7, 0), LDX(1, 7, 0), I(BPF_JMP | BPF_JNE | BPF_K, 1, 0, 26, 0), STI(7, 0, 1),
    };
    struct bpf_insn body[] = {
        MOV(1, 6), MAP(2, stacks), MOVI(3, BPF_F_REUSE_STACKID), CALL(BPF_FUNC_get_stackid), STX(10, -16, 0),
        MAP(1, counts), MOV(2, 10), ADDI(2, -16), CALL(BPF_FUNC_map_lookup_elem), I(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 3, 0),
        MOVI(1, 1), I(BPF_STX | BPF_XADD | BPF_DW, 0, 1, 0, 0), I(BPF_JMP | BPF_JA, 0, 0, 9, 0),
        STI(10, -24, 1), MAP(1, counts), MOV(2, 10), ADDI(2, -16), MOV(3, 10), ADDI(3, -24), MOVI(4, BPF_ANY), CALL(BPF_FUNC_map_update_elem),
    };
    struct bpf_insn leave[] = { STI(7, 0, 0) }, end[] = { MOVI(0, 0), I(BPF_JMP | BPF_EXIT, 0, 0, 0, 0) };
#define ADD(a) add(a, sizeof a / sizeof *a)
    ADD(head);
    if (guards) ADD(enter);
    ADD(body);
    if (guards) ADD(leave);
    ADD(end);
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    int n = argc - 4, attached = 0, status = 0, exit_ = !strcmp(argv[1], "fexit");
    char **names = argv + 4, log[4096];
    unsigned *ids = calloc(n, sizeof *ids);
    struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY }, files = { 8192, 8192 };
    setrlimit(RLIMIT_MEMLOCK, &all);
    setrlimit(RLIMIT_NOFILE, &files);
    read_btf();
    find(names, ids, n);
    int guards = !memmem(btf, btf_size, "recursion_misses", 16);
    int counts = map(BPF_MAP_TYPE_HASH, 8, 8, 4096);
    build(guards, map(BPF_MAP_TYPE_ARRAY, 4, 8, 256), map(BPF_MAP_TYPE_STACK_TRACE, 4, 3 * 8, 4096), counts);
    int *programs = calloc(n, sizeof *programs);
    for (int i = 0; i < n; i++) {
        programs[i] = -1;
        if (!ids[i]) continue;
        union bpf_attr a = { .prog_type = BPF_PROG_TYPE_TRACING, .insns = (long)insns, .insn_cnt = count, .license = (long)"GPL",
            .expected_attach_type = exit_ ? BPF_TRACE_FEXIT : BPF_TRACE_FENTRY, .attach_btf_id = ids[i] };
        programs[i] = sys_bpf(BPF_PROG_LOAD, &a);
        if (programs[i] < 0 && !i) {
            a.log_buf = (long)log, a.log_size = sizeof log, a.log_level = 1;
            sys_bpf(BPF_PROG_LOAD, &a);
            fprintf(stderr, "%s: %s: %s\n", names[i], strerror(errno), log);
        }
    }
    for (int i = 0; i < n; i++) {
        union bpf_attr a = { .raw_tracepoint.prog_fd = programs[i] };
        if (programs[i] >= 0 && sys_bpf(BPF_RAW_TRACEPOINT_OPEN, &a) >= 0) attached++;
    }
    fprintf(stderr, "Attached %d probes\n", attached);
    pid_t pid = fork();
    if (pid == 0) {
        execlp(argv[2], argv[2], argv[3], (char *)NULL);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    unsigned long long key = 0, next, value;
    union bpf_attr a = { .map_fd = counts, .next_key = (long)&next };
    while (!sys_bpf(BPF_MAP_GET_NEXT_KEY, &a)) {
        union bpf_attr l = { .map_fd = counts, .key = (long)&next, .value = (long)&value };
        if (!sys_bpf(BPF_MAP_LOOKUP_ELEM, &l)) printf("]: %llu\n", value);
        key = next;
        a.key = (long)&key;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

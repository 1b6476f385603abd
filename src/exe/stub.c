// The start of a compressed program (`rbt build --exe`): it unpacks the runner into memory, and jumps to it.
//
// The program is an ELF file with two segments: this code, and the compressed runner, which the kernel maps as well. So the stub
// needs no file: it works without /proc, in an empty root directory, and for a file that its user cannot read. The runner is
// position-independent, and brings its own C library. The stub places it where the kernel wants, unpacks it there, and patches those
// entries of the auxiliary vector that describe the program. The rest of the stack stays as the kernel made it, and the runner
// starts as if the kernel had loaded it.
//
// The code must not need relocations, because nothing applies them: it has no variables, and no tables with addresses.
// `build.rs` checks this.

#include <stdint.h>

// zstd's decompressor, as one unit with this file, so that the compiler leaves out the rest of it.
#define DEBUGLEVEL 0
#define XXH_PRIVATE_API
#define ZSTD_DISABLE_ASM 1
#define HUF_FORCE_DECOMPRESS_X1 1
#define ZSTD_FORCE_DECOMPRESS_SEQUENCES_SHORT 1
#define ZSTD_LEGACY_SUPPORT 0
#define ZSTD_STATIC_LINKING_ONLY
#define ZSTD_STRIP_ERROR_STRINGS
#define ZSTD_TRACE 0
#define ZSTD_DEPS_MALLOC
#define ZSTD_malloc(size) ((void)(size), (void *)0)
#define ZSTD_calloc(count, size) ((void)(count), (void)(size), (void *)0)
#define ZSTD_free(memory) ((void)(memory))
#include "common/entropy_common.c"
#include "common/error_private.c"
#include "common/fse_decompress.c"
#include "common/zstd_common.c"
#include "decompress/huf_decompress.c"
#include "decompress/zstd_ddict.c"
#include "decompress/zstd_decompress.c"
#include "decompress/zstd_decompress_block.c"

#include <asm/unistd.h>
#include <elf.h>
#include <linux/auxvec.h>
#include <linux/errno.h>
#include <linux/mman.h>
#include <signal.h>

// ---- what `exe/mod.rs` writes

// A part of the runner with its own protection. Offsets are from its start.
struct part {
  uint64_t start, size, protection;
};

// It follows the program headers. Places in the file are those in memory, too.
struct header {
  // The end of the code, which begins after this structure. The digest of everything before it follows.
  uint64_t code_end;
  // The compressed runner, its exact size, its size with the zeros that follow, and the digest of both.
  uint64_t packed, packed_size, padded_size, packed_digest;
  // The size of the runner, without and with the memory that begins as zeros.
  uint64_t size, memory_size;
  // That of the segments of both: a multiple of the size of a page.
  uint64_t alignment;
  // The rest are offsets from the start of the runner.
  uint64_t entry;
  uint64_t program_headers, program_header_count;
  uint64_t part_count;
  struct part parts[MAX_PARTS];
};

// A digest that finds damage. `exe/digest.rs` has the same: each step is a bijection, so no single change goes unnoticed.
struct digest {
  uint64_t lanes[4];
};

static void digest_more(struct digest *digest, const char *from, const char *end) {
  for (; end - from >= 32; from += 32) {
    for (int i = 0; i < 4; i++) {
      uint64_t word;
      __builtin_memcpy(&word, from + 8 * i, 8);
      word ^= digest->lanes[i];
      digest->lanes[i] = (word << 29 | word >> 35) * 0x9e3779b97f4a7c15u;
    }
  }
}

static uint64_t digest_end(const struct digest *digest) {
  uint64_t all = 0;
  for (int i = 0; i < 4; i++) {
    all ^= digest->lanes[i];
    all = (all << 29 | all >> 35) * 0x9e3779b97f4a7c15u;
  }
  return all;
}

// ---- system calls

#if defined(__x86_64__)

static long syscall6(long number, long a, long b, long c, long d, long e, long f) {
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  long result;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}

// The entry. rdx must be zero for the runner: a function in it would be called at the end of the process.
__asm__(".pushsection .text.entry, \"ax\", @progbits\n"
        ".globl entry\n"
        "entry:\n"
        "  mov %rsp, %rbx\n"
        "  mov %rsp, %rdi\n"
        "  and $-16, %rsp\n"
        "  call unpack\n"
        "  mov %rbx, %rsp\n"
        "  xor %ebx, %ebx\n"
        "  xor %ebp, %ebp\n"
        "  xor %edx, %edx\n"
        "  jmp *%rax\n"
        ".popsection\n");

static void make_executable(char *start, char *end) {
  (void)start, (void)end;
}

#elif defined(__aarch64__)

static long syscall6(long number, long a, long b, long c, long d, long e, long f) {
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}

// The entry. x0 must be zero for the runner: a function in it would be called at the end of the process.
__asm__(".pushsection .text.entry, \"ax\", %progbits\n"
        ".globl entry\n"
        "entry:\n"
        "  mov x19, sp\n"
        "  mov x0, sp\n"
        "  bl unpack\n"
        "  mov sp, x19\n"
        "  mov x16, x0\n"
        "  mov x0, 0\n"
        "  mov x19, 0\n"
        "  mov x29, 0\n"
        "  mov x30, 0\n"
        "  br x16\n"
        ".popsection\n");

// Makes the processor read new instructions.
static void make_executable(char *start, char *end) {
  uint64_t sizes;
  __asm__ volatile("mrs %0, ctr_el0" : "=r"(sizes));
  uint64_t data_line = 4u << (sizes >> 16 & 15), code_line = 4u << (sizes & 15);
  for (uint64_t at = (uint64_t)start & ~(data_line - 1); at < (uint64_t)end; at += data_line)
    __asm__ volatile("dc cvau, %0" : : "r"(at) : "memory");
  __asm__ volatile("dsb ish" : : : "memory");
  for (uint64_t at = (uint64_t)start & ~(code_line - 1); at < (uint64_t)end; at += code_line)
    __asm__ volatile("ic ivau, %0" : : "r"(at) : "memory");
  __asm__ volatile("dsb ish\nisb" : : : "memory");
}

#else
#error "the entry is missing for this processor"
#endif

static int is_error(long result) { return (unsigned long)result > -4096ul; }

// ---- functions of the C library that the compiler calls

void *memcpy(void *to, const void *from, size_t count) {
  char *t = to;
  const char *f = from;
  for (; count >= 8; count -= 8, t += 8, f += 8)
    __builtin_memcpy(t, f, 8);
  for (; count; count--)
    *t++ = *f++;
  return to;
}

void *memmove(void *to, const void *from, size_t count) {
  char *t = to;
  const char *f = from;
  if (t <= f || t >= f + count)
    return memcpy(to, from, count);
  while (count--)
    t[count] = f[count];
  return to;
}

void *memset(void *to, int byte, size_t count) {
  char *t = to;
  uint64_t all = 0x0101010101010101u * (unsigned char)byte;
  for (; count >= 8; count -= 8, t += 8)
    __builtin_memcpy(t, &all, 8);
  for (; count; count--)
    *t++ = (char)byte;
  return to;
}

// ---- messages

enum { STDERR = 2, FAILED = 1, LINE = 400 };

struct text {
  unsigned length;
  char bytes[LINE];
};

static void add(struct text *text, const char *more) {
  while (*more && text->length < LINE)
    text->bytes[text->length++] = *more++;
}

static void add_number(struct text *text, unsigned long number) {
  char digits[24];
  char *first = digits + sizeof digits;
  *--first = 0;
  do {
    *--first = (char)('0' + number % 10);
    number /= 10;
  } while (number);
  add(text, first);
}

static void print_and_exit(struct text *text) __attribute__((noreturn));
static void print_and_exit(struct text *text) {
  syscall6(__NR_write, STDERR, (long)text->bytes, text->length, 0, 0, 0);
  for (;;)
    syscall6(__NR_exit_group, FAILED, 0, 0, 0, 0, 0);
}

static void refuse_damage(void) __attribute__((noreturn));
static void refuse_damage(void) {
  struct text text;
  text.length = 0;
  add(&text, "error[bundle]: this program is damaged: it is truncated, or its digest does not match\n"
             "help: copy it again, or build it again\n");
  print_and_exit(&text);
}

static void refuse_call(const char *call, long result) __attribute__((noreturn));
static void refuse_call(const char *call, long result) {
  struct text text;
  text.length = 0;
  add(&text, "error[no-memory]: this program cannot unpack its code: ");
  add(&text, call);
  switch (result) {
  case -EPERM: add(&text, " is not permitted (EPERM)"); break;
  case -EACCES: add(&text, " is denied (EACCES)"); break;
  case -ENOMEM: add(&text, ": there is not enough memory (ENOMEM)"); break;
  default: add(&text, " fails with error "), add_number(&text, -result); break;
  }
  add(&text, "\nhelp: ");
  add(&text, result == -ENOMEM ? "raise the limit of memory (`ulimit -v`)" : "a policy of this machine forbids executable memory without a file");
  add(&text, "; `rbt build --exe --no-compress` writes a program that need not be unpacked\n");
  print_and_exit(&text);
}

static char *map(unsigned long size) {
  long memory = syscall6(__NR_mmap, 0, (long)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (is_error(memory))
    refuse_call("mmap", memory);
  return (char *)memory;
}

static void unmap(char *start, char *end) {
  if (start < end)
    syscall6(__NR_munmap, (long)start, end - start, 0, 0, 0, 0);
}

// ---- unpacking

// The compressed bytes that stay mapped at most. A smaller number means more system calls.
#define MAX_CONSUMED (256u << 10)

// The memory that the kernel provides at once, before blocks are written to it: a page fault for each page would take longer.
#define PROVIDED (512u << 10)

// Kernels before 5.14 do not have this, and fail.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

// Unpacks `header->packed` to `to`. Each block is decompressed where it belongs, and needs no copy. Pages that were read are
// unmapped, so that the peak of the memory is that of the runner.
static void decompress(const struct header *header, char *packed, char *to) {
  struct digest digest = {{0}};
  size_t workspace = ZSTD_estimateDCtxSize();
  char *memory = map(workspace);
  ZSTD_DCtx *context = ZSTD_initStaticDCtx(memory, workspace);
  if (!context || ZSTD_isError(ZSTD_decompressBegin(context)))
    refuse_damage();
  char *from = packed, *mapped = packed, *end = packed + header->packed_size, *padded_end = packed + header->padded_size;
  size_t written = 0, provided = 0, next;
  while ((next = ZSTD_nextSrcSizeToDecompress(context))) {
    if (next > (size_t)(end - from))
      refuse_damage();
    while (provided < header->size && provided < written + ZSTD_BLOCKSIZE_MAX) {
      size_t rest = header->size - provided, more = rest < PROVIDED ? rest : PROVIDED;
      syscall6(__NR_madvise, (long)(to + provided), (long)more, MADV_POPULATE_WRITE, 0, 0, 0);
      provided += more;
    }
    size_t made = ZSTD_decompressContinue(context, to + written, header->size - written, from, next);
    if (ZSTD_isError(made))
      refuse_damage();
    written += made;
    from += next;
    if (from - mapped >= MAX_CONSUMED) {
      char *consumed = (char *)((uintptr_t)from & -header->alignment);
      digest_more(&digest, mapped, consumed);
      unmap(mapped, consumed);
      mapped = consumed;
    }
  }
  digest_more(&digest, mapped, padded_end);
  if (written != header->size || from != end || digest_end(&digest) != header->packed_digest)
    refuse_damage();
  unmap(mapped, (char *)(((uintptr_t)padded_end + header->alignment - 1) & -header->alignment));
  unmap(memory, memory + workspace);
}

// Places the runner in memory, with the address of its first byte a multiple of its alignment.
static char *place(const struct header *header) {
  // Mappings begin at pages, whose size is not known here, but the alignment is a multiple of it.
  uint64_t alignment = header->alignment;
  char *memory = map(header->memory_size + alignment), *end = memory + header->memory_size + alignment;
  char *start = (char *)(((uintptr_t)memory + alignment - 1) & -alignment);
  unmap(memory, start);
  unmap(start + header->memory_size, end);
  return start;
}

// Returns the address at which the runner begins. `stack` is that of the kernel.
__attribute__((used)) uintptr_t unpack(uintptr_t *stack) {
  uintptr_t *vector = stack + 1 + *stack + 1;
  while (*vector++)
    ;
  Elf64_auxv_t *first = (Elf64_auxv_t *)vector, *entry;
  uintptr_t headers = 0;
  for (entry = first; entry->a_type != AT_NULL; entry++)
    if (entry->a_type == AT_PHDR)
      headers = entry->a_un.a_val;
  char *file = (char *)headers - sizeof(Elf64_Ehdr);
  const struct header *header =
      (const struct header *)(headers + ((const Elf64_Ehdr *)file)->e_phnum * sizeof(Elf64_Phdr));

  struct digest digest = {{0}};
  // a wrong size would lead to addresses without memory
  uint64_t mapped = ((const Elf64_Phdr *)headers)->p_filesz - sizeof(uint64_t);
  uint64_t code_end = header->code_end < mapped ? header->code_end : mapped;
  digest_more(&digest, file, file + code_end);
  if (digest_end(&digest) != *(uint64_t *)(file + code_end))
    refuse_damage();

  // In a truncated file, the last bytes have no memory. The kernel says so when it reads them. They are zeros: no signal.
  char *packed = file + header->packed;
  if (is_error(syscall6(__NR_rt_sigprocmask, SIG_BLOCK, (long)(packed + header->padded_size - 8), 0, 8, 0, 0)))
    refuse_damage();

  char *base = place(header);
  decompress(header, packed, base);
  for (uint64_t i = 0; i < header->part_count; i++) {
    const struct part *part = &header->parts[i];
    char *start = base + part->start;
    if (part->protection & PROT_EXEC)
      make_executable(start, start + part->size);
    if (part->protection != (PROT_READ | PROT_WRITE)) {
      long result = syscall6(__NR_mprotect, (long)start, (long)part->size, (long)part->protection, 0, 0, 0);
      if (is_error(result))
        refuse_call(part->protection & PROT_EXEC ? "mprotect for executable memory" : "mprotect", result);
    }
  }
  for (entry = first; entry->a_type != AT_NULL; entry++) {
    switch (entry->a_type) {
    case AT_PHDR: entry->a_un.a_val = (uintptr_t)base + header->program_headers; break;
    case AT_PHNUM: entry->a_un.a_val = header->program_header_count; break;
    case AT_ENTRY: entry->a_un.a_val = (uintptr_t)base + header->entry; break;
    default: break;
    }
  }
  return (uintptr_t)base + header->entry;
}

//! The macros and headers that are part of a C compiler rather than of the platform.

/// The pretended directory of the compiler's headers.
pub const FOLDER: &str = "/built-in";

/// Macros that every C text may use: the operand of a `#define` per line.
///
/// Values for the machine's 64-bit ABI (LP64, little-endian).
pub const MACROS: &str = "\
__STDC__ 1
__STDC_VERSION__ 201710L
__STDC_HOSTED__ 1
__GNUC__ 4
__GNUC_MINOR__ 2
__GNUC_PATCHLEVEL__ 1
__GNUC_STDC_INLINE__ 1
__clang__ 1
__clang_major__ 19
__clang_minor__ 1
__VERSION__ \"19\"
__linux__ 1
__linux 1
linux 1
__gnu_linux__ 1
__unix__ 1
__unix 1
unix 1
__ELF__ 1
__LP64__ 1
_LP64 1
__CHAR_BIT__ 8
__SIZEOF_SHORT__ 2
__SIZEOF_INT__ 4
__SIZEOF_LONG__ 8
__SIZEOF_LONG_LONG__ 8
__SIZEOF_POINTER__ 8
__SIZEOF_SIZE_T__ 8
__SIZEOF_PTRDIFF_T__ 8
__SIZEOF_WCHAR_T__ 4
__SIZEOF_WINT_T__ 4
__SIZEOF_FLOAT__ 4
__SIZEOF_DOUBLE__ 8
__SIZEOF_INT128__ 16
__SCHAR_MAX__ 127
__SHRT_MAX__ 32767
__INT_MAX__ 2147483647
__LONG_MAX__ 9223372036854775807L
__LONG_LONG_MAX__ 9223372036854775807LL
__WCHAR_MAX__ 2147483647
__WINT_MAX__ 4294967295U
__SIZE_MAX__ 18446744073709551615UL
__PTRDIFF_MAX__ 9223372036854775807L
__INTMAX_MAX__ 9223372036854775807L
__UINTMAX_MAX__ 18446744073709551615UL
__SIZE_TYPE__ unsigned long
__PTRDIFF_TYPE__ long
__WCHAR_TYPE__ int
__WINT_TYPE__ unsigned int
__INTMAX_TYPE__ long
__UINTMAX_TYPE__ unsigned long
__INT8_TYPE__ signed char
__INT16_TYPE__ short
__INT32_TYPE__ int
__INT64_TYPE__ long
__UINT8_TYPE__ unsigned char
__UINT16_TYPE__ unsigned short
__UINT32_TYPE__ unsigned int
__UINT64_TYPE__ unsigned long
__INTPTR_TYPE__ long
__UINTPTR_TYPE__ unsigned long
__SIG_ATOMIC_TYPE__ int
__BIGGEST_ALIGNMENT__ 16
__ORDER_LITTLE_ENDIAN__ 1234
__ORDER_BIG_ENDIAN__ 4321
__BYTE_ORDER__ 1234
__LITTLE_ENDIAN__ 1
__USER_LABEL_PREFIX__
";

/// Constants that kernel headers define as macros, so that BTF lacks them, and that kernels have shown to user space
/// unchanged for decades: task states as reported by `sched_switch` and /proc/PID/stat (include/linux/sched.h), and
/// address families (linux/socket.h). By the header that a script includes.
pub const KERNELS: [(&str, &[(&str, i64)]); 2] = [
    ("linux/sched.h", &[("TASK_RUNNING", 0), ("TASK_INTERRUPTIBLE", 1), ("TASK_UNINTERRUPTIBLE", 2)]),
    ("linux/socket.h", &[("AF_UNSPEC", 0), ("AF_UNIX", 1), ("AF_INET", 2), ("AF_INET6", 10), ("AF_NETLINK", 16), ("AF_PACKET", 17)]),
];

/// A header of the compiler.
pub fn header(name: &str) -> Option<&'static str> {
    HEADERS.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
}

/// C11, 7.7 and 7.10, 7.16, 7.18 and 7.19; values of the LP64 ABI.
const HEADERS: [(&str, &str); 6] = [
    (
        "stddef.h",
        "typedef __SIZE_TYPE__ size_t;\ntypedef __PTRDIFF_TYPE__ ptrdiff_t;\ntypedef __WCHAR_TYPE__ wchar_t;\n\
         #ifdef __need_wint_t\ntypedef __WINT_TYPE__ wint_t;\n#endif\n\
         #undef NULL\n#define NULL ((void *)0)\n#undef offsetof\n#define offsetof(t, m) __builtin_offsetof(t, m)\n\
         typedef struct { long long __a __attribute__((aligned(8))); long double __b __attribute__((aligned(16))); } max_align_t;\n",
    ),
    ("stdarg.h", "typedef __builtin_va_list va_list;\ntypedef __builtin_va_list __gnuc_va_list;\n"),
    ("stdbool.h", "#define bool _Bool\n#define true 1\n#define false 0\n"),
    ("stdalign.h", "#define alignas _Alignas\n#define alignof _Alignof\n"),
    ("stdnoreturn.h", "#define noreturn _Noreturn\n"),
    (
        "limits.h",
        "#ifndef _GCC_LIMITS_H_\n#define _GCC_LIMITS_H_ 1\n#include_next <limits.h>\n#endif\n\
         #define CHAR_BIT 8\n#define SCHAR_MAX 127\n#define SCHAR_MIN (-128)\n#define UCHAR_MAX 255\n#define CHAR_MIN (-128)\n\
         #define CHAR_MAX 127\n#define SHRT_MAX 32767\n#define SHRT_MIN (-32768)\n#define USHRT_MAX 65535\n\
         #define INT_MAX 2147483647\n#define INT_MIN (-2147483647 - 1)\n#define UINT_MAX 4294967295U\n\
         #define LONG_MAX 9223372036854775807L\n#define LONG_MIN (-9223372036854775807L - 1)\n\
         #define ULONG_MAX 18446744073709551615UL\n#define LLONG_MAX 9223372036854775807LL\n\
         #define LLONG_MIN (-9223372036854775807LL - 1)\n#define ULLONG_MAX 18446744073709551615ULL\n",
    ),
];

// Functions whose arguments compilers often change.
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEPT __attribute__((noinline))

struct pair { int a, b; };
struct triple { long a; int b; };
struct odd { char c; short s; int i; };
struct large { long a[6]; };
struct request { int code; long length; const char *path; struct pair at; };
enum colour { RED = -1, GREEN = 5, BLUE = 70000 };

static volatile long sink;

// Only some members are used, so the compiler passes them one by one.
static KEPT long members(struct request *r, int unused, int times)
{
    long n = 0;
    for (int i = 0; i < times; i++)
        n += r->code * r->length + i + sink;
    return n;
}

// This argument has the same value in all calls.
static KEPT long constant(int always, int other)
{
    sink += other * always;
    return sink + always;
}

static KEPT long dead(int unused, long used, int unused2, char *text)
{
    sink += used;
    return strlen(text) + used;
}

KEPT long reassigned(int a, int b, int c)
{
    a = b;
    b = c;
    sink += a;
    return sink + b;
}

static KEPT long swapped(long a, long b)
{
    long t = a;
    a = b;
    b = t;
    sink += a;
    printf("%ld %ld\n", a, b);
    return a - b;
}

KEPT long addressed(int n, long *to)
{
    int *p = &n;
    sink = (long)p & 1;
    *to += *p;
    return *to;
}

KEPT long kinds(char c, short s, int i, long l, bool b, uint8_t u, enum colour e, const char *text, bool last)
{
    sink += c + s + i + l + b + u + e + last;
    return sink + text[0];
}

KEPT long structs(struct pair p, struct triple t, struct odd o, struct large l, int after)
{
    sink += p.a + p.b + t.a + t.b + o.c + o.s + o.i + l.a[5] + after;
    return sink;
}

KEPT double floats(int a, double d, long b, float f, struct pair p)
{
    sink += a + b + p.a;
    return d * f;
}

KEPT int varied(const char *format, int n, ...)
{
    __builtin_va_list list;
    __builtin_va_start(list, n);
    int sum = strlen(format);
    for (int i = 0; i < n; i++)
        sum += __builtin_va_arg(list, int);
    __builtin_va_end(list);
    return sum;
}

KEPT long framed(int n, const char *text)
{
    char room[20000];
    snprintf(room, sizeof room, "%s %d", text, n);
    sink += room[3];
    return strlen(room);
}

KEPT long aligned(long n, const char *text)
{
    _Alignas(64) long room[16] = {n, *text};
    sink += (long)room & 63;
    return room[0] + room[n & 7];
}

KEPT long early(long n, struct request *r)
{
    if (!r)
        return n;
    n = n * 3 + r->code;
    sink += n;
    return n;
}

KEPT __int128 wide(__int128 w, int n)
{
    sink += n;
    return w * n;
}

static KEPT int compare(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    struct request r = {200, 4096, "/index", {3, 4}};
    struct pair p = {10, -20};
    struct triple t = {30, 40};
    struct odd o = {'o', -3, 77};
    struct large l = {{1, 2, 3, 4, 5, 6}};
    long n = argc;
    int order[] = {5, 3, 9, 1};
    for (int i = 1; i < 4; i++) {
        n += members(&r, i + 50, i + 60) + constant(7, i * 11) + dead(i + 70, i + 80, i + 90, "text");
        n += reassigned(i + 100, i + 200, i + 300) + swapped(i + 400, i + 500) + addressed(i + 600, &n);
        n += kinds('c' + i, -2, 3, 1L << 40, i & 1, 250, BLUE, "kinds", !(i & 1)) + structs(p, t, o, l, i);
        n += floats(i, 2.5, i + 1, 1.5, p) + varied("%d", 2, i, i) + framed(i, "framed") + aligned(i, "aligned");
        n += early(i, &r) + (long)wide((__int128)i << 70, i);
    }
    qsort(order, 4, sizeof *order, compare);
    return n == 12345;
}

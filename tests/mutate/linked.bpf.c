// Functions, a map and global data for scripts that import it, without headers.
typedef unsigned int u32;
typedef unsigned long long u64;

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;

#define __uint(name, value) int(*name)[value]
#define __type(name, type) type *name

struct {
	__uint(type, 2);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, u64);
} sums __attribute__((section(".maps"), used));

enum color { RED, GREEN };
struct pair {
	int a, b;
};
struct task_struct;

int calls;
const volatile int step = 3;
// the name of a variable of rbt, too
int start = 100;

int triple(int x)
{
	calls++;
	return x * step;
}

u64 total(u32 key, u64 by)
{
	u64 *sum = bpf_map_lookup_elem(&sums, &key);
	if (!sum)
		return 0;
	*sum += by;
	return *sum;
}

signed char before(signed char c)
{
	return c - 1;
}

_Bool odd(u32 x)
{
	return x & 1;
}

// The kernel checks hidden functions with their callers, so they may return nothing.
__attribute__((visibility("hidden"))) void twice(u64 *p)
{
	*p *= 2;
}

int add_to(int *p)
{
	if (!p)
		return -1;
	*p += start;
	return calls;
}

int five(int a, long b, short c, char d, enum color e)
{
	return a + b + c + d + e;
}

__attribute__((visibility("hidden"))) struct task_struct *same(struct task_struct *task)
{
	return task;
}

// cannot be called by scripts
__attribute__((visibility("hidden"))) int by_value(struct pair p)
{
	return p.a;
}

__attribute__((visibility("hidden"))) int with_callback(int (*f)(int))
{
	return f != 0;
}

char _license[] __attribute__((section("license"), used)) = "Dual BSD/GPL";

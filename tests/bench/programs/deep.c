/* deep FRAMES CALLS: makes CALLS system calls from a stack of FRAMES frames of a usual size with frame pointers. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static long calls;

__attribute__((noinline)) static long deep(long frames)
{
    volatile char room[64];
    room[0] = 1;
    if (frames > 0)
        return deep(frames - 1) + room[0];
    for (long i = 0; i < calls; i++)
        syscall(SYS_getppid);
    return room[0];
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    calls = atol(argv[2]);
    return deep(atol(argv[1])) == 0;
}

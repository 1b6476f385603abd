/* Generates a load that uses as many parts of the kernel as a small program can: files, pipes, sockets, memory, processes,
 * threads, signals, timers and faults. hunt.sh runs it while probes are attached.
 *
 *   hunt-load SECONDS
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t signals, done;

static void on_signal(int n) { (void)n; signals++; }
static void on_end(int n) { (void)n; done = 1; }

static void files(void) {
    char name[64], buf[8192];
    snprintf(name, sizeof name, "/tmp/hunt-load.%d", (int)getpid());
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) return;
    memset(buf, 'x', sizeof buf);
    for (int i = 0; i < 8; i++) if (write(fd, buf, sizeof buf) < 0) break;
    lseek(fd, 0, SEEK_SET);
    while (read(fd, buf, sizeof buf) > 0) {}
    void *m = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (m != MAP_FAILED) { memset(m, 'y', 65536); msync(m, 65536, MS_SYNC); munmap(m, 65536); }
    struct stat st;
    fstat(fd, &st);
    ftruncate(fd, 100);
    fsync(fd);
    close(fd);
    char other[80];
    snprintf(other, sizeof other, "%s.2", name);
    rename(name, other);
    stat(other, &st);
    unlink(other);
    fd = open("/proc/self/maps", O_RDONLY);
    if (fd >= 0) { while (read(fd, buf, sizeof buf) > 0) {} close(fd); }
    fd = open("/sys/kernel/uevent_seqnum", O_RDONLY);
    if (fd >= 0) { if (read(fd, buf, sizeof buf) < 0) {} close(fd); }
    fd = open("/dev/urandom", O_RDONLY);
    if (fd >= 0) { if (read(fd, buf, sizeof buf) < 0) {} close(fd); }
}

static void memory(void) {
    size_t size = 4 << 20;
    char *m = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) return;
    for (size_t i = 0; i < size; i += 4096) m[i] = 1;
    mprotect(m, size / 2, PROT_READ);
    madvise(m + size / 2, size / 2, MADV_DONTNEED);
    m[size - 1] = 1;
    m = mremap(m, size, 2 * size, MREMAP_MAYMOVE);
    if (m != MAP_FAILED) munmap(m, 2 * size);
}

static void sockets(void) {
    int s[2];
    char buf[512] = "x";
    if (!socketpair(AF_UNIX, SOCK_STREAM, 0, s)) {
        if (write(s[0], buf, sizeof buf) < 0 || read(s[1], buf, sizeof buf) < 0) {}
        close(s[0]);
        close(s[1]);
    }
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof a;
    int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), u = socket(AF_INET, SOCK_DGRAM, 0);
    if (!bind(l, (struct sockaddr *)&a, n) && !listen(l, 4) && !getsockname(l, (struct sockaddr *)&a, &n)) {
        connect(c, (struct sockaddr *)&a, n);
        fcntl(l, F_SETFL, O_NONBLOCK);
        int p = accept(l, NULL, NULL);
        if (p >= 0) {
            send(c, buf, sizeof buf, MSG_NOSIGNAL);
            recv(p, buf, sizeof buf, MSG_DONTWAIT);
            close(p);
        }
        sendto(u, buf, 100, 0, (struct sockaddr *)&a, n);
    }
    close(l);
    close(c);
    close(u);
}

static void waits(void) {
    int p[2], e = epoll_create1(0), v = eventfd(0, EFD_NONBLOCK), t = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec in = { .it_value.tv_nsec = 200000 };
    struct epoll_event ev = { .events = EPOLLIN };
    timerfd_settime(t, 0, &in, NULL);
    epoll_ctl(e, EPOLL_CTL_ADD, t, &ev);
    epoll_ctl(e, EPOLL_CTL_ADD, v, &ev);
    epoll_wait(e, &ev, 1, 5);
    unsigned long long one = 1;
    if (write(v, &one, sizeof one) < 0) {}
    close(e);
    close(v);
    close(t);
    if (!pipe(p)) {
        char buf[64] = "";
        if (write(p[1], buf, sizeof buf) < 0 || read(p[0], buf, sizeof buf) < 0) {}
        close(p[0]);
        close(p[1]);
    }
    struct timespec ts = { .tv_nsec = 50000 };
    nanosleep(&ts, NULL);
    sched_yield();
}

static void signalled(void) {
    struct itimerval t = { .it_value.tv_usec = 300 };
    raise(SIGUSR1);
    kill(getpid(), SIGUSR2);
    setitimer(ITIMER_REAL, &t, NULL);
    usleep(600);
}

static void *thread(void *lock) {
    for (int i = 0; i < 20; i++) {
        pthread_mutex_lock(lock);
        sched_yield();
        pthread_mutex_unlock(lock);
    }
    return NULL;
}

static void threads(void) {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_t t[3];
    int n = 0;
    while (n < 3 && !pthread_create(&t[n], NULL, thread, &lock)) n++;
    while (n > 0) pthread_join(t[--n], NULL);
}

static void processes(void) {
    pid_t pid = fork();
    if (pid == 0) {
        /* End with a fatal fault, by executing a program, or with an ordinary exit. */
        static int turn;
        switch ((getpid() + turn++) % 3) {
        case 0: prctl(PR_SET_DUMPABLE, 0); signal(SIGSEGV, SIG_DFL); *(volatile int *)8 = 1; break;
        case 1: execl("/bin/true", "true", NULL); break;
        }
        _exit(0);
    }
    if (pid > 0) {
        int status;
        struct rusage use;
        wait4(pid, &status, 0, &use);
    }
}

static void rest(void) {
    cpu_set_t set, was;
    struct timespec ts;
    sched_getaffinity(0, sizeof was, &was);
    CPU_ZERO(&set);
    CPU_SET(rand() % 2, &set);
    sched_setaffinity(0, sizeof set, &set);
    sched_setaffinity(0, sizeof was, &was);
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &ts);
    syscall(SYS_getppid);
    setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0));
    close(-1);
    open("/nonexistent/file", O_RDONLY);
    /* Trap with a breakpoint. memory() causes a page fault on a guard page. */
    __asm__ volatile("int3");
}

int main(int argc, char **argv) {
    void (*const all[])(void) = { files, memory, sockets, waits, signalled, threads, processes, rest };
    int seconds = argc > 1 ? atoi(argv[1]) : 2;
    int each[] = { SIGUSR1, SIGUSR2, SIGALRM, SIGTRAP, SIGPIPE };
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) signal(each[i], on_signal);
    struct timespec from, now;
    clock_gettime(CLOCK_MONOTONIC, &from);
    pid_t other = fork();
    signal(SIGTERM, on_end);
    unsigned long turns = 0;
    do {
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) all[i]();
        turns++;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (!done && now.tv_sec - from.tv_sec < seconds);
    if (other > 0) {
        waitpid(other, NULL, 0);
        printf("load: %lu turns\n", turns);
    }
    return 0;
}

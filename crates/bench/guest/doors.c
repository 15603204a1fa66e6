// An ordinary program whose calls the kernel serves, which `sojourn-bench doors` runs plainly and
// under Sojourn: the difference is what the way to the preload library costs.
//
// It is built dynamically, statically, and statically with a system call that cannot be rewritten
// (TRAPPED), which the kernel traps instead.
#define _GNU_SOURCE
#include "measure.h"
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

static long parent(void)
{
#if defined(TRAPPED) && defined(__x86_64__)
    // Jumps lead to the call and away from it, so that nothing beside it can be moved.
    long result = SYS_getppid;
    __asm__ volatile("jmp 1f\n1: syscall\n\tjmp 2f\n2:" : "+a"(result) : : "rcx", "r11", "memory");
    return result;
#else
    return getppid();
#endif
}

static void ask_parent(void *of)
{
    if (parent() != *(long *)of)
        fail("getppid");
}

static void write_byte(void *of)
{
    if (write(*(int *)of, "x", 1) != 1)
        fail("write");
}

static void put_byte(void *of)
{
    if (fputc('x', of) != 'x')
        fail("fputc");
}

__attribute__((noinline)) static int nothing(int value)
{
    return value;
}

static void call_function(void *of)
{
    int (*volatile function)(int) = nothing;
    if (function(1) != 1)
        fail(of);
}

int main(int count, char **words)
{
    if (count == 1)
        return 0;
    if (count != 4)
        return 2;
    double ms = atof(words[3]);
    pin(atoi(words[2]));
    long pid = getppid();
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    // A stream of a pipe has the library look at streams from then on.
    int ends[2];
    if (null < 0 || pipe(ends) != 0 || fdopen(ends[1], "w") == NULL)
        fail("/dev/null");
    FILE *file = fdopen(dup(null), "w");
    if (file == NULL)
        fail("fdopen");
    setvbuf(file, NULL, _IONBF, 0);
    if (strcmp(words[1], "parent") == 0)
        measure(ask_parent, &pid, ms);
    else if (strcmp(words[1], "write") == 0)
        measure(write_byte, &null, ms);
    else if (strcmp(words[1], "stdio") == 0)
        measure(put_byte, file, ms);
    else if (strcmp(words[1], "function") == 0)
        measure(call_function, "function", ms);
    else
        return 2;
    return 0;
}

// What the measured programs share: samples, and a processor of their own. Each program is one
// file, which includes this one first.
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SAMPLES_MAX 2000
// A sample covers at least this long, so that reading the clock does not count.
#define GROUP_NS 2000.0

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void fail(const char *what)
{
    fprintf(stderr, "guest: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void pin(int processor)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        fail("sched_setaffinity");
}

// Repeats `once` for so long; prints a sample for each group.
static void measure(void (*once)(void *), void *of, double ms)
{
    static double samples[SAMPLES_MAX];
    double start = now_ns(), warm = ms * 1e6 / 2;
    long count = 0;
    while (now_ns() - start < warm) {
        once(of);
        count++;
    }
    double each = (now_ns() - start) / (double)count, all = ms * 1e6;
    double least = GROUP_NS > all / SAMPLES_MAX ? GROUP_NS : all / SAMPLES_MAX;
    long group = (long)(least / each) + 1;
    int taken = 0;
    double begun = now_ns(), last = begun;
    while (taken < SAMPLES_MAX && last - begun < all) {
        for (long i = 0; i < group; i++)
            once(of);
        double now = now_ns();
        samples[taken++] = (now - last) / (double)group;
        last = now;
    }
    printf("{\"samples\":[");
    for (int i = 0; i < taken; i++)
        printf("%s%.2f", i == 0 ? "" : ",", samples[i]);
    printf("]}\n");
}

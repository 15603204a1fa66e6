/* Calls that wait for many, each with a limit of its own. See sequences.h. */
#include "sequences.h"

/* Tells what a poll found. Whether a direction that was filled has room is not told. */
static void tell(long n, const struct pollfd *all, int count, const long *slots) {
    if (n < 0) { result(n); return; }
    for (int i = 0; i < count; i++) {
        int hidden = is_full_out(slots[2 * i]) ? POLLOUT | POLLWRNORM | POLLWRBAND : 0;
        say(" %x", (unsigned)(unsigned short)(all[i].revents & ~hidden));
    }
}

/* poll MILLISECONDS (SLOT EVENTS)... */
static void do_poll(const long *a, int count) {
    struct pollfd all[10];
    int n = 0;
    for (int i = 1; i + 1 < count && n < 10; i += 2) all[n++] = (struct pollfd){fd_of(a[i]), (short)a[i + 1], 0x7fff};
    tell(poll(all, (nfds_t)n, (int)a[0]), all, n, a + 1);
}

static void do_ppoll(const long *a, int count) {
    struct pollfd all[10];
    struct timespec span = {a[0] / 1000, a[0] % 1000 * 1000000};
    sigset_t none;
    int n = 0;
    sigemptyset(&none);
    for (int i = 1; i + 1 < count && n < 10; i += 2) all[n++] = (struct pollfd){fd_of(a[i]), (short)a[i + 1], 0};
    tell(ppoll(all, (nfds_t)n, &span, &none), all, n, a + 1);
}

/* select MILLISECONDS (SLOT 1|2|4)...: reading, writing, exceptions. pselect likewise. */
static void select_by(const long *a, int count, int is_pselect) {
    fd_set sets[3];
    int top = 0;
    for (int k = 0; k < 3; k++) FD_ZERO(&sets[k]);
    for (int i = 1; i + 1 < count; i += 2) {
        int fd = fd_of(a[i]);
        if (fd < 0 || fd >= FD_SETSIZE) continue;
        for (int k = 0; k < 3; k++)
            if (a[i + 1] >> k & 1) FD_SET(fd, &sets[k]);
        if (fd >= top) top = fd + 1;
    }
    struct timeval span = {a[0] / 1000, a[0] % 1000 * 1000};
    struct timespec fine = {a[0] / 1000, a[0] % 1000 * 1000000};
    result(is_pselect ? pselect(top, &sets[0], &sets[1], &sets[2], &fine, NULL) : select(top, &sets[0], &sets[1], &sets[2], &span));
    for (int i = 1; i + 1 < count; i += 2) {
        int fd = fd_of(a[i]);
        if (fd < 0 || fd >= FD_SETSIZE) continue;
        say(" %c%c%c", FD_ISSET(fd, &sets[0]) ? 'r' : '-', FD_ISSET(fd, &sets[1]) ? 'w' : '-', FD_ISSET(fd, &sets[2]) ? 'e' : '-');
    }
}

static void do_select(const long *a, int count) { select_by(a, count, 0); }
static void do_pselect(const long *a, int count) { select_by(a, count, 1); }

static void do_epoll_create(const long *a, int count) {
    (void)count;
    int fd = (int)result(epoll_create1((int)a[1]));
    if (fd >= 0) put_slot(a[0], fd, -1);
}

/* epoll_ctl SET OPERATION SLOT EVENTS DATA */
static void do_epoll_ctl(const long *a, int count) {
    struct epoll_event event = {.events = (uint32_t)a[3], .data.u64 = (uint64_t)a[4]};
    (void)count;
    result(epoll_ctl(fd_of(a[0]), (int)a[1], fd_of(a[2]), &event));
}

static int by_data(const void *a, const void *b) {
    const struct epoll_event *x = a, *y = b;
    return x->data.u64 < y->data.u64 ? -1 : x->data.u64 > y->data.u64;
}

/* epoll_wait SET MILLISECONDS: waits three times, as one call may tell fewer events than there are,
 * and tells of all. */
static void do_epoll_wait(const long *a, int count) {
    struct epoll_event all[3 * 16];
    int n = 0, is_first = 1, set = fd_of(a[0]);
    (void)count;
    for (int i = 0; i < 3; i++, is_first = 0) {
        int got = epoll_wait(set, all + n, 16, is_first ? (int)a[1] : 0);
        if (got < 0) { result(-1); return; }
        n += got;
    }
    qsort(all, (size_t)n, sizeof *all, by_data);
    say(" events");
    for (int i = 0; i < n; i++) {
        uint32_t events = all[i].events;
        while (i + 1 < n && all[i + 1].data.u64 == all[i].data.u64) events |= all[++i].events;
        say(" %ld:%x", (long)all[i].data.u64, events);
    }
}

const struct call wait_calls[] = {
    {"poll", do_poll}, {"ppoll", do_ppoll}, {"select", do_select}, {"pselect", do_pselect},
    {"epoll_create", do_epoll_create}, {"epoll_ctl", do_epoll_ctl}, {"epoll_wait", do_epoll_wait}, {NULL, NULL},
};

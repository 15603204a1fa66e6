/* Calls that make, change and end descriptors. See sequences.h. */
#include "sequences.h"

/* Puts what a call has returned into a slot, and tells its number. */
static void made(long slot, long fd, long like) {
    result(fd);
    if (fd >= 0) put_slot(slot, (int)fd, like);
}

static void do_dup(const long *a, int count) { (void)count; made(a[1], dup(fd_of(a[0])), a[0]); }

/* Slots whose descriptor another takes the number of are empty then. */
static void forget(int fd) {
    for (int i = 0; i < SLOTS; i++)
        if (shared->slots[actor][i].fd == fd) shared->slots[actor][i] = (struct slot){-1, -1, 0};
}

static void dup_to(long from, long slot, int number, int flags) {
    struct slot like = *slot_of(from);
    errno = 0;
    long fd = flags < 0 ? dup2(like.fd, number) : dup3(like.fd, number, flags);
    result(fd);
    if (fd < 0) return;
    if (fd != like.fd) forget((int)fd);
    like.fd = (int)fd;
    *slot_of(slot) = like;
}

/* dup2 SLOT SLOT NUMBER; dup3 has flags behind it; dupto SLOT SLOT puts one on another's number. */
static void do_dup2(const long *a, int count) { (void)count; dup_to(a[0], a[1], (int)a[2], -1); }
static void do_dup3(const long *a, int count) { (void)count; dup_to(a[0], a[1], (int)a[2], (int)a[3]); }
static void do_dupto(const long *a, int count) { (void)count; dup_to(a[0], a[1], fd_of(a[1]), -1); }
static void do_dupfd(const long *a, int count) { (void)count; made(a[1], fcntl(fd_of(a[0]), (int)a[3], (int)a[2]), a[0]); }

static void do_close(const long *a, int count) {
    int fd = fd_of(a[0]);
    (void)count;
    if (result(close(fd)) == 0) forget(fd);
}

/* close_range SLOT SLOT FLAGS: the numbers from the one's to the other's. */
static void do_close_range(const long *a, int count) {
    int from = fd_of(a[0]), to = fd_of(a[1]);
    (void)count;
    if (from > to) { int kept = from; from = to, to = kept; }
    if (from < 3 || to >= CHANNEL) { say(" not"); return; }
    if (result(close_range((unsigned)from, (unsigned)to, (int)a[2])) || a[2] & CLOSE_RANGE_CLOEXEC) return;
    for (int fd = from; fd <= to; fd++) forget(fd);
}

static void do_shutdown(const long *a, int count) { (void)count; result(shutdown(fd_of(a[0]), (int)a[1])); }

static void do_getfl(const long *a, int count) {
    (void)count;
    long flags = fcntl(fd_of(a[0]), F_GETFL);
    if (flags < 0) result(-1);
    else say(" %lx", flags & ~(long)O_LARGEFILE);
}

static void do_fcntl(const long *a, int count) { result(count > 2 ? fcntl(fd_of(a[0]), (int)a[1], a[2]) : fcntl(fd_of(a[0]), (int)a[1])); }

static void do_pipe(const long *a, int count) {
    int ends[2];
    (void)count;
    if (result(pipe2(ends, (int)a[2])) < 0) return;
    say(" %d %d", ends[0], ends[1]);
    put_slot(a[0], ends[0], -1), put_slot(a[1], ends[1], -1);
}

static void do_socketpair(const long *a, int count) {
    int ends[2];
    (void)count;
    if (result(socketpair(AF_UNIX, SOCK_STREAM | (int)a[2], 0, ends)) < 0) return;
    say(" %d %d", ends[0], ends[1]);
    put_slot(a[0], ends[0], -1), put_slot(a[1], ends[1], -1);
}

static void do_memfd(const long *a, int count) {
    int fd = memfd_create("sequence", (unsigned)MFD_CLOEXEC);
    (void)count;
    made(a[0], fd, -1);
    for (long i = 0; i < a[1]; i++) bytes[i] = (unsigned char)i;
    if (fd >= 0 && write(fd, bytes, (size_t)a[1]) != a[1]) say(" short");
    if (fd >= 0) lseek(fd, 0, SEEK_SET);
}

static void do_lseek(const long *a, int count) { (void)count; result(lseek(fd_of(a[0]), a[1], (int)a[2])); }
static void do_ftruncate(const long *a, int count) { (void)count; result(ftruncate(fd_of(a[0]), a[1])); }
static void do_fsync(const long *a, int count) { (void)count; result(fsync(fd_of(a[0]))); }
static void do_fdatasync(const long *a, int count) { (void)count; result(fdatasync(fd_of(a[0]))); }
static void do_pread(const long *a, int count) { (void)count; blank(a[1]); result(pread(fd_of(a[0]), bytes, (size_t)a[1], a[2])); }
static void do_pwrite(const long *a, int count) { (void)count; result(pwrite(fd_of(a[0]), bytes, (size_t)a[1], a[2])); }

static void do_fstat(const long *a, int count) {
    struct stat about;
    (void)count;
    if (result(fstat(fd_of(a[0]), &about)) == 0) say(" %o %ld %ld", about.st_mode, (long)about.st_size, (long)about.st_blksize);
}

/* Looks which numbers are open. */
static void do_open(const long *a, int count) {
    (void)a, (void)count;
    for (int fd = 3; fd < CHANNEL; fd++)
        if (fcntl(fd, F_GETFD) >= 0) say(" %d", fd);
}

const struct call descriptor_calls[] = {
    {"dup", do_dup}, {"dup2", do_dup2}, {"dup3", do_dup3}, {"dupto", do_dupto}, {"dupfd", do_dupfd}, {"close", do_close}, {"close_range", do_close_range},
    {"shutdown", do_shutdown}, {"getfl", do_getfl}, {"fcntl", do_fcntl}, {"pipe", do_pipe}, {"socketpair", do_socketpair}, {"memfd", do_memfd},
    {"lseek", do_lseek}, {"ftruncate", do_ftruncate}, {"fsync", do_fsync}, {"fdatasync", do_fdatasync}, {"pread", do_pread}, {"pwrite", do_pwrite},
    {"fstat", do_fstat}, {"open", do_open}, {NULL, NULL},
};

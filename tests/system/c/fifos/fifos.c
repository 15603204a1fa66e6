/* One end of a FIFO, for tests/fifos.rs.
 *
 * fifos [WORD...] read PATH             reads records until the end, into the file NAME.got
 * fifos [WORD...] write PATH FIRST      writes records FIRST, FIRST + 1, ... until the file `end`
 *                                       is there, and prints how many
 *
 * All files are in the current folder. A record is a number of eight bytes. NAME.open appears when
 * PATH is open, and NAME.half when some records have gone through and the file `go` is there. Each
 * WORD is one of
 *
 *   name=NAME    instead of `read` or `write`
 *   nonblock     sets O_NONBLOCK once PATH is open, and waits with poll
 *   child once NAME.half is there, a child of fork writes records, too, from FIRST + 2^40 on,
 *                or reads, too, into NAME-child.got
 *   twice        opens PATH twice, and sets O_NONBLOCK on the other descriptor before NAME.half
 *   ignore       ignores SIGPIPE, and prints `broken` where the end is told by EPIPE
 *
 * All of it ends after a minute. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The most records of one write, which are fewer than PIPE_BUF bytes, and of one read. */
enum { WRITTEN = 300, TAKEN = 2048, SOME = 2000, PAUSE_US = 50 };

static const char *name;
static int waits_by_poll, has_child, other = -1;

static void need(int is_fine, const char *what)
{
    if (!is_fine) {
        perror(what);
        exit(1);
    }
}

static void touch(const char *suffix)
{
    char path[200];
    snprintf(path, sizeof path, "%s.%s", name, suffix);
    int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    need(file >= 0, path);
    close(file);
}

/* Some records have gone through. */
static void is_half_done(void)
{
    if (other >= 0)
        need(fcntl(other, F_SETFL, fcntl(other, F_GETFL) | O_NONBLOCK) == 0, "O_NONBLOCK");
    touch("half");
}

static void await_it(int fd, short events)
{
    struct pollfd one = { .fd = fd, .events = events };
    need(poll(&one, 1, 60000) == 1, "poll");
}

/* Writes all of it, and returns 0 if nobody reads any more. */
static int put(int fd, const uint64_t *records, size_t count)
{
    for (;;) {
        ssize_t done = write(fd, records, count * 8);
        if (done < 0 && errno == EAGAIN && waits_by_poll) {
            await_it(fd, POLLOUT);
            continue;
        }
        if (done < 0 && errno == EPIPE)
            return 0;
        need(done == (ssize_t)(count * 8), "a write of less than PIPE_BUF bytes goes in one piece");
        return 1;
    }
}

static uint64_t write_from(int fd, uint64_t first, int forks)
{
    uint64_t records[WRITTEN], next = first;
    unsigned size = 1;
    int is_half = 0;
    while (access("end", F_OK) != 0) {
        size = (size * 7 + 3) % WRITTEN + 1;
        /* Mostly short ones. */
        size_t count = size % 8 ? size % 16 + 1 : size;
        for (size_t i = 0; i < count; i++)
            records[i] = next + i;
        if (!put(fd, records, count)) {
            puts("broken");
            break;
        }
        next += count;
        if (!is_half && next - first > SOME && access("go", F_OK) == 0) {
            is_half = 1;
            is_half_done();
            if (forks && fork() == 0) {
                printf("%llu %llu\n", (unsigned long long)(first + (1ULL << 40)),
                       (unsigned long long)write_from(fd, first + (1ULL << 40), 0));
                exit(0);
            }
        }
        usleep(PAUSE_US);
    }
    return next - first;
}

static void read_into(int fd, const char *suffix, int forks)
{
    static uint64_t records[TAKEN];
    char path[200];
    uint64_t all = 0;
    int is_half = 0;
    snprintf(path, sizeof path, "%s%s.got", name, suffix);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    need(file >= 0, path);
    for (;;) {
        ssize_t got = read(fd, records, sizeof records);
        if (got < 0 && errno == EAGAIN && waits_by_poll) {
            await_it(fd, POLLIN);
            continue;
        }
        need(got >= 0, "read");
        if (got == 0)
            break;
        need(write(file, records, got) == got, "write to a file");
        all += got / 8;
        if (!is_half && all > SOME && access("go", F_OK) == 0) {
            is_half = 1;
            is_half_done();
            if (forks && fork() == 0) {
                read_into(fd, "-child", 0);
                exit(0);
            }
        }
    }
    close(file);
}

int main(int argc, char **argv)
{
    int flags = O_CLOEXEC, opens_twice = 0;
    alarm(60);
    setvbuf(stdout, NULL, _IONBF, 0);
    for (argc--, argv++; argc > 0; argc--, argv++) {
        if (strncmp(*argv, "name=", 5) == 0)
            name = *argv + 5;
        else if (strcmp(*argv, "nonblock") == 0)
            waits_by_poll = 1;
        else if (strcmp(*argv, "child") == 0)
            has_child = 1;
        else if (strcmp(*argv, "twice") == 0)
            opens_twice = 1;
        else if (strcmp(*argv, "ignore") == 0)
            signal(SIGPIPE, SIG_IGN);
        else
            break;
    }
    need(argc >= 2, "arguments");
    int writes = strcmp(argv[0], "write") == 0;
    if (!name)
        name = argv[0];
    int fd = open(argv[1], (writes ? O_WRONLY : O_RDONLY) | flags);
    need(fd >= 0, argv[1]);
    if (opens_twice)
        need((other = open(argv[1], (writes ? O_WRONLY : O_RDONLY) | flags)) >= 0, argv[1]);
    if (waits_by_poll)
        need(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0, "O_NONBLOCK");
    touch("open");
    if (writes) {
        uint64_t first = strtoull(argv[2], NULL, 10);
        uint64_t count = write_from(fd, first, has_child);
        printf("%llu %llu\n", (unsigned long long)first, (unsigned long long)count);
    } else {
        read_into(fd, "", has_child);
    }
    close(fd);
    if (opens_twice)
        close(other);
    if (has_child)
        wait(NULL);
    return 0;
}

/* `hostile KIND PEER END`: a program with twenty sessions (KIND: `unix`, `tcp`) to a hostile peer,
 * which is another process.
 *
 * Both exchange bytes until the sessions have moved. Then the peer acts as PEER says: `writes`
 * writes random values into every word of the regions that it shares with the program, as fast as
 * it can; `stops` sends some bytes and stops; `lies` marks the words of its rings as frozen and
 * stops; `rings` writes to every event that it shares with the program, as fast as it can. The
 * program goes on for a while with calls that do not wait, and ends as END says: it
 * `close`s its sessions, `fork`s a child that uses them, `exec`s another program that inherits
 * them, `exit`s, or makes no call for a second and `counts` how often its other threads have slept
 * meanwhile.
 *
 * The output is "away N", the number of regions that the peer has found, and with `counts` another
 * line, "slept N". The exit status is 0
 * whatever the calls return. The caller limits the time. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 64, SESSIONS = 20, ROUNDS = 2000, CALLS = 4000, PAGE = 4096 };

static void fail(const char *what) {
    fprintf(stderr, "hostile: %s: %s\n", what, strerror(errno));
    _exit(1);
}

static uint64_t state = 88172645463325252u;

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static void rest_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* Finds the control pages of the streams that this process maps. */
static int regions(volatile uint64_t *found[], int most) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[600];
    int count = 0;
    while (maps && count < most && fgets(line, sizeof line, maps)) {
        unsigned long begin, end;
        char access[8];
        if (strstr(line, "sojourn-stream") && sscanf(line, "%lx-%lx %7s", &begin, &end, access) == 3 && access[1] == 'w')
            found[count++] = (volatile uint64_t *)begin;
    }
    if (maps) fclose(maps);
    return count;
}

/* Writes to every event of this process without end. */
static void ring(void) {
    const uint64_t one = 1;
    int events[EVENTS], count = 0;
    DIR *open = opendir("/proc/self/fd");
    for (struct dirent *entry; open && count < EVENTS && (entry = readdir(open));) {
        char path[300], name[100] = {0};
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        if (readlink(path, name, sizeof name - 1) > 0 && strstr(name, "[eventfd]")) events[count++] = atoi(entry->d_name);
    }
    if (!count) fail("no event");
    for (;;)
        for (int i = 0; i < count; i++) (void)!write(events[i], &one, sizeof one);
}

/* Counts how often the other threads of this process have gone to sleep. */
static long slept(void) {
    DIR *threads = opendir("/proc/self/task");
    long all = 0;
    for (struct dirent *entry; threads && (entry = readdir(threads));) {
        char path[300], line[200];
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *status = atoi(entry->d_name) == getpid() ? NULL : fopen(path, "r");
        long here;
        while (status && fgets(line, sizeof line, status))
            if (sscanf(line, "voluntary_ctxt_switches: %ld", &here) == 1) all += here;
        if (status) fclose(status);
    }
    if (threads) closedir(threads);
    return all;
}

/* Sends a byte each way over every session, for so many rounds that all move, and on a busy machine
 * for more, until the peer has found all regions or has had enough of it. */
static void talk(const int fds[], int first) {
    volatile uint64_t *found[SESSIONS];
    char byte = 0;
    for (int round = 0; byte != 'd'; round++) {
        int is_last = !first && round >= ROUNDS && (round >= 10 * ROUNDS || regions(found, SESSIONS) == SESSIONS);
        for (int i = 0; i < SESSIONS; i++) {
            byte = 'x';
            if (first && write(fds[i], &byte, 1) != 1) fail("write");
            if (read(fds[i], &byte, 1) != 1) fail("read");
            if (is_last) byte = 'd';
            if (!first && write(fds[i], &byte, 1) != 1) fail("write");
        }
    }
}

static void be_peer(const int fds[], const char *how, int tells) {
    volatile uint64_t *found[SESSIONS];
    talk(fds, 0);
    int count = regions(found, SESSIONS), said;
    char sent[100] = "owed";
    for (int i = 0; i < SESSIONS; i++)
        if (write(fds[i], sent, sizeof sent) < 0) fail("write");
    /* Waits until the program has received the bytes that it waits for. */
    if (write(tells, &count, sizeof count) < 0 || read(tells, &said, sizeof said) < 0) fail("tell");
    if (!strcmp(how, "stops")) {
        raise(SIGSTOP);
        _exit(0);
    }
    if (!strcmp(how, "rings")) ring();
    const uint64_t frozen = 1ull << 63;
    if (!strcmp(how, "lies")) {
        /* The words of each ring: tail, head, and the writer's flush word. */
        for (int i = 0; i < count; i++)
            for (int ring = 0; ring < 2; ring++) {
                found[i][ring * 64] |= frozen;
                found[i][ring * 64 + 16] |= frozen;
                found[i][ring * 64 + 50] = 50 | frozen;
            }
        /* The peer's library would correct these words, so the process stops. */
        raise(SIGSTOP);
    }
    for (;;) {
        for (int i = 0; i < count; i++) {
            /* Chooses heads and tails, or any word, and mostly values that are nearly valid. */
            uint64_t which = next(), near = next() >> 20 & 0x3ffff;
            int at = which & 1 ? (int)(which >> 8 & 7) * 16 : (int)(which >> 8 & (PAGE / 8 - 1));
            uint64_t value = which & 2 ? near : which & 4 ? near | frozen : which & 16 ? 0 : next();
            found[i][at] = value;
        }
    }
}

static void listen_and_fork(const char *kind, int ours[], const char *how, int *peer, int *count) {
    int is_tcp = !strcmp(kind, "tcp"), told[2], all;
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    socklen_t len = is_tcp ? sizeof in : sizeof un.sun_family;
    struct sockaddr *place = is_tcp ? (struct sockaddr *)&in : (struct sockaddr *)&un;
    int listener = socket(is_tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, place, len) || listen(listener, SESSIONS)) fail("listen");
    len = is_tcp ? sizeof in : sizeof un;
    if (getsockname(listener, place, &len) || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, told)) fail("getsockname");
    *peer = fork();
    if (*peer < 0) fail("fork");
    if (*peer == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int fds[SESSIONS];
        close(listener);
        for (int i = 0; i < SESSIONS; i++) {
            fds[i] = socket(is_tcp ? AF_INET : AF_UNIX, SOCK_STREAM, 0);
            if (connect(fds[i], place, len)) fail("connect");
        }
        be_peer(fds, how, told[1]);
    }
    const struct timeval limit = {0, 20000};
    for (int i = 0; i < SESSIONS; i++)
        if ((ours[i] = accept(listener, NULL, NULL)) < 0) fail("accept");
    close(listener);
    talk(ours, 1);
    if (read(told[0], &all, sizeof all) != sizeof all || write(told[0], &all, sizeof all) < 0) fail("the peer");
    *count = all;
    for (int i = 0; i < SESSIONS; i++)
        if (setsockopt(ours[i], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit)) fail("setsockopt");
}

/* Makes a call that waits, with a time limit. */
static void receive(int fd) {
    char room[3000];
    (void)!recv(fd, room, sizeof room, 0);
}

/* Makes a call that does not wait. */
static void call(int fd) {
    char room[3000];
    memset(room, 7, sizeof room);
    size_t len = next() % sizeof room;
    struct pollfd polled = {fd, POLLIN | POLLOUT, 0};
    int queued;
    switch (next() % 5) {
    case 0: (void)!send(fd, room, len, MSG_DONTWAIT | MSG_NOSIGNAL); break;
    case 1: (void)!recv(fd, room, len, MSG_DONTWAIT); break;
    case 2: (void)!recv(fd, room, len, MSG_DONTWAIT | MSG_PEEK); break;
    case 3: (void)!ioctl(fd, FIONREAD, &queued); break;
    default: (void)!poll(&polled, 1, 0);
    }
}

int main(int count, char **words) {
    if (count != 4) return 64;
    int fds[SESSIONS], peer, found = 0;
    signal(SIGPIPE, SIG_IGN);
    int stops = !strcmp(words[2], "stops");
    listen_and_fork(words[1], fds, words[2], &peer, &found);
    if (strcmp(words[2], "writes") && strcmp(words[2], "rings")) waitpid(peer, NULL, WUNTRACED);
    else rest_ms(20);
    /* The session still lacks the bytes of a stopped peer when the program ends. */
    for (int i = 0; i < CALLS && !stops; i++) call(fds[i % SESSIONS]);
    for (int i = 0; i < SESSIONS && !stops; i++) receive(fds[i]);
    printf("away %d\n", found);
    fflush(stdout);
    if (!strcmp(words[3], "close")) {
        for (int i = 0; i < SESSIONS; i++) close(fds[i]);
    } else if (!strcmp(words[3], "counts")) {
        long before = slept();
        rest_ms(1000);
        printf("slept %ld\n", slept() - before);
        fflush(stdout);
    } else if (!strcmp(words[3], "fork")) {
        int child = fork();
        for (int i = 0; i < 200 && child == 0; i++) call(fds[i % SESSIONS]);
        if (child == 0) _exit(0);
        waitpid(child, NULL, 0);
    } else if (!strcmp(words[3], "exec")) {
        execl("/bin/true", "true", NULL);
        fail("exec");
    }
    kill(peer, SIGKILL);
    return 0;
}

/* Descriptor numbers: duplicates, replacement, close_range, flags, limits, and their view in /proc.
 */
#include "conform.h"
#include <dirent.h>
#include <linux/close_range.h>

/* Prints every open descriptor in the range that a program would use. The library's own are at the
 * top of the allowed range. */
static void say_numbers(void) {
    char text[400] = "";
    DIR *folder = opendir("/proc/self/fd");
    NEED(folder);
    char found[256] = {0};
    for (struct dirent *entry; (entry = readdir(folder));) {
        int fd = atoi(entry->d_name);
        if (entry->d_name[0] != '.' && fd != dirfd(folder) && fd < 256) found[fd] = 1;
    }
    closedir(folder);
    for (int i = 0; i < 256; i++)
        if (found[i]) sprintf(text + strlen(text), " %d", i);
    say("open:%s", text);
}

CASE(numbers, ANY, ALL_PHASES) {
    if (phase == 'm') {
        say_numbers();
        int fd = open("/dev/null", O_RDONLY);
        say("next: %d", fd);
        close(fd);
    }
    works("session");
    point();
    if (phase == 'm') say_numbers();
    int limit = 0;
    for (int i = 3; i < 300; i++)
        if (fcntl(i, F_GETFD) != -1) limit++;
    SAY(limit);
}

CASE(every_other_number_closed, ANY, ALL_PHASES) {
    for (int i = 3; i < 2000; i++)
        if (i != S && i != conform_channel()) close(i);
    works("session");
    point();
    works("session");
    /* While a session moves, the library uses a low number for moments
     * (docs/use/linux-differences.md). */
    if (phase == 'm') say_numbers();
    for (int i = 0; i < 30; i++) {
        NEED(kind == POUT || (peer(OP_SEND, 1) == 1 && get(1) == 1));
        NEED(kind == PIN || (put(1) == 1 && peer(OP_RECV, 1) == 1));
    }
}

CASE(close_range_of_others, ANY, ALL_PHASES) {
    int low = S < conform_channel() ? S : conform_channel(), high = S < conform_channel() ? conform_channel() : S;
    SAY(close_range(high + 1, ~0U, 0));
    SAY(close_range(low + 1, high - 1, 0));
    works("session");
    point();
    works("session");
    SAY(close_range(high + 1, ~0U, CLOSE_RANGE_CLOEXEC));
    SAY(close_range(5, 4, 0));
    SAY(close_range(5, 6, 0x100));
    works("session");
    SAY(close_range(S, S, 0));
    if (phase == 'm') SAY(fcntl(S, F_GETFD));
    if (kind != POUT && phase == 'm') SAY(read(S, &(char){0}, 1));
    if (kind & SOCK) SAY_PEER(OP_DRAIN, 0);
}

CASE(closefrom_the_rest, ANY, ALL_PHASES) {
    int high = S < conform_channel() ? conform_channel() : S;
    closefrom(high + 1);
    works("session");
    point();
    works("session");
    int one = S;
    NEED(conform_channel() > 2);
    if (one > conform_channel()) {
        closefrom(one);
        SAY(fcntl(one, F_GETFD));
        if (kind != PIN) SAY_PEER(OP_DRAIN, 0);
    }
}

CASE(duplicates, ANY, ALL_PHASES) {
    int first = S;
    S = SAY(dup(first)) >= 0 ? dup(first) : -1;
    works("dup");
    point();
    int third = fcntl(first, F_DUPFD, 100);
    SAY(third);
    S = third;
    works("F_DUPFD");
    int fourth = fcntl(first, F_DUPFD_CLOEXEC, 100);
    SAY(fourth);
    SAY(fcntl(fourth, F_GETFD));
    SAY(fcntl(third, F_GETFD));
    S = fourth;
    works("F_DUPFD_CLOEXEC");
    SAY(close(first));
    works("without the first");
    SAY(dup2(fourth, 150));
    S = 150;
    works("dup2");
    SAY(dup3(150, 151, O_CLOEXEC));
    SAY(fcntl(151, F_GETFD));
    SAY(dup3(150, 150, 0));
    SAY(dup2(150, 150));
    SAY(dup2(9999, 150));
    works("still");
    SAY(dup3(150, 151, 0x1000000));
    close(third), close(fourth), close(151);
    works("one left");
}

CASE(close_of_a_duplicate, ANY, ALL_PHASES) {
    int other = dup(S);
    works("both");
    point();
    SAY(close(other));
    works("one");
    /* The peer sees no end of file until the last duplicate is closed. */
    other = dup(S);
    SAY(close(S));
    S = other;
    works("the other");
    SAY(close(S));
    if (kind != PIN) SAY_PEER(OP_DRAIN, 0);
}

CASE(dup2_over_the_session, ANY, ALL_PHASES) {
    int pair[2];
    char bytes[10];
    NEED(pipe2(pair, O_CLOEXEC) == 0);
    if (kind != PIN) SAY(put(10));
    point();
    HOLDS(dup2(pair[0], S) == S);
    SAY(write(pair[1], "hello", 5));
    SAY(read(S, bytes, 10));
    if (kind != PIN) SAY_PEER(OP_DRAIN, 0);
    else {
        nap(1);
        SAY_PEER(OP_SEND, 10);
    }
}

CASE(dup2_of_another_session_over_it, TCP | UNIX, ALL_PHASES) {
    int first = S, other = second_session();
    NEED(other >= 0);
    int kept = S;
    S = other;
    works("second");
    S = kept;
    HOLDS(dup2(other, first) == first);
    point();
    S = first;
    works("second under the first's number");
    close(other);
    works("second alone");
    peer_use(0);
    SAY_PEER(OP_DRAIN, 0);
}

/* The kernel leaves the thread waiting, and a moved session ends the wait
 * (docs/use/linux-differences.md). In no case may the thread read from the object that has taken
 * over the number. */
static int end_is_fine;
static void *loose_reader(void *unused) {
    char bytes[100];
    (void)unused;
    ssize_t n = read(S, bytes, 100);
    note("thread: %s", n == 10 || (n == 0 && end_is_fine) || (n == -1 && errno == EBADF) ? "as it may" : n == 0 ? "end" : "wrong");
    return NULL;
}

CASE(dup2_under_a_blocked_reader, IN, ALL_PHASES) {
    int null = open("/dev/null", O_RDWR);
    pthread_t thread = begin(loose_reader);
    point();
    HOLDS(dup2(null, S) == S);
    SAY(read(S, &(char){0}, 1));
    nap(5);
    peer(OP_SEND, 10);
    join(thread);
}

/* The way in which language runtimes wake a blocked thread: shutdown of the socket, then dup2 of
 * another socket over its number. */
CASE(shutdown_then_dup2_under_a_blocked_reader, SOCK, ALL_PHASES) {
    int pair[2];
    NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    close(pair[1]);
    end_is_fine = 1;
    pthread_t thread = begin(loose_reader);
    SAY(shutdown(S, SHUT_RDWR));
    nap(2);
    HOLDS(dup2(pair[0], S) == S);
    join(thread);
    SAY(read(S, &(char){0}, 1));
}

CASE(nonblocking_through_a_duplicate, IN, ALL_PHASES) {
    int other = dup(S), on = 1, off = 0;
    SAY(fcntl(other, F_SETFL, O_RDWR | O_NONBLOCK));
    SAY(fcntl(S, F_GETFL) & O_NONBLOCK);
    SAY(read(S, &(char){0}, 1));
    point();
    SAY(ioctl(other, FIONBIO, &off));
    later(OP_SEND, 10);
    SAY(get(10));
    peer_done();
    SAY(ioctl(other, FIONBIO, &on));
    SAY(close(other));
    SAY(read(S, &(char){0}, 1));
    SAY(fcntl(S, F_SETFL, fcntl(S, F_GETFL) & ~O_NONBLOCK));
    later(OP_SEND, 10);
    SAY(get(10));
    peer_done();
}

/* O_NONBLOCK belongs to the open file description, which a child shares (open(2)). */
CASE(nonblocking_through_a_child, IN, ALL_PHASES) {
    pid_t child = fork();
    if (child == 0) _exit(fcntl(S, F_SETFL, O_RDWR | O_NONBLOCK) == 0 ? 0 : 1);
    int status;
    waitpid(child, &status, 0);
    say_status("child", status);
    SAY(fcntl(S, F_GETFL) & O_NONBLOCK);
    SAY(read(S, &(char){0}, 1));
}

CASE(flags, ANY, ALL_PHASES) {
    SAY(fcntl(S, F_GETFL));
    SAY(fcntl(S, F_GETFD));
    SAY(fcntl(S, F_SETFD, 0));
    SAY(fcntl(S, F_GETFD));
    point();
    SAY(fcntl(S, F_SETFL, O_APPEND));
    SAY(fcntl(S, F_GETFL));
    works("session");
    SAY(fcntl(S, 9999));
    SAY(fcntl(9999, F_GETFL));
    SAY(ioctl(S, TCGETS, NULL) == -1);
    SAY(isatty(S));
    struct stat one, two;
    SAY(fstat(S, &one));
    int other = dup(S);
    SAY(fstat(other, &two));
    HOLDS(one.st_ino == two.st_ino);
}

CASE(a_limit_of_descriptors, ANY, ALL_PHASES) {
    struct rlimit limit = {S + 3, S + 3};
    SAY(setrlimit(RLIMIT_NOFILE, &limit));
    works("session");
    point();
    works("session");
    int last = -1;
    while ((last = dup(0)) >= 0) {}
    say("%s", strerrorname_np(errno));
    works("session");
    for (int i = 0; i < 30; i++) {
        NEED(kind == POUT || (peer(OP_SEND, 1) == 1 && get(1) == 1));
        NEED(kind == PIN || (put(1) == 1 && peer(OP_RECV, 1) == 1));
    }
    say("on and on");
}

CASE(a_full_table, ANY, "k") {
    /* No descriptor number is free when the session becomes hot. */
    struct rlimit limit = {250, 250};
    SAY(setrlimit(RLIMIT_NOFILE, &limit));
    while (dup(0) >= 0) {}
    say("%s", strerrorname_np(errno));
    for (int i = 0; i < 30; i++) {
        NEED(kind == POUT || (peer(OP_SEND, 1) == 1 && get(1) == 1));
        NEED(kind == PIN || (put(1) == 1 && peer(OP_RECV, 1) == 1));
        if (i % 10 == 0) nap(2);
    }
    works("session");
}

CASE(numbers_used_again, TCP | UNIX, ALL_PHASES) {
    for (int i = 0; i < 6; i++) {
        int number = S;
        SAY(close(S));
        S = second_session();
        if (phase == 'm' && i == 0) HOLDS(S == number);
        for (int k = 0; k < 5; k++) {
            NEED(peer(OP_SEND, 10) == 10 && get(10) == 10);
            NEED(put(10) == 10 && peer(OP_RECV, 10) == 10);
        }
        if (i == 3) point();
    }
}

CASE(closed_numbers, ANY, ALL_PHASES) {
    char bytes[10];
    int number = S;
    SAY(close(S));
    SAY(close(number));
    SAY(read(number, bytes, 1));
    SAY(write(number, bytes, 1));
    SAY(recv(number, bytes, 1, 0));
    SAY(send(number, bytes, 1, 0));
    SAY(fcntl(number, F_GETFL));
    SAY(dup(number));
    SAY(shutdown(number, SHUT_WR));
    SAY(ioctl(number, FIONREAD, &(int){0}));
    struct pollfd one = {number, POLLIN, 0};
    SAY(poll(&one, 1, 0));
    SAY(one.revents);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(number, &set);
    SAY(select(number + 1, &set, NULL, NULL, &(struct timeval){0, 0}));
}

CASE(through_proc, ANY, ALL_PHASES) {
    char path[64], target[128];
    snprintf(path, sizeof path, "/proc/self/fd/%d", S);
    ssize_t n = readlink(path, target, sizeof target - 1);
    target[n > 0 ? n : 0] = 0;
    say("%.7s", target);
    /* A pipe can be opened again by its path in /proc, a socket cannot. The path shows the kernel
     * object, not the moved session (docs/use/linux-differences.md). */
    if (kind == PIN && phase != 'k') go_home();
    int again = open(path, (kind == POUT ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
    if (again < 0) say("%s", strerrorname_np(errno));
    else {
        int first = S;
        S = again;
        works("opened again");
        S = first;
        close(again);
        works("the first");
    }
}

/* Uses a pipe's end in turn by its descriptor and by a second open file description, which an open
 * of its path in /proc has made. */
static void by_turns(int other) {
    int first = S;
    for (int i = 0; i < 40; i++) {
        S = i % 2 ? first : other;
        if (kind == PIN) NEED(peer(OP_SEND, 10) == 10);
        if ((kind == PIN ? get(10) : put(10)) != 10) say("%d: not 10", i);
        if (kind == POUT) NEED(peer(OP_RECV, 10) == 10);
        if (i % 8 == 0) nap(1);
    }
    S = first;
}

CASE(opened_again_by_name, PIN | POUT, ALL_PHASES) {
    static const char *const names[] = {"/dev/fd/%d", "/proc/self/fd/%d", "/proc/thread-self/fd/%d"};
    for (int i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, names[i], S);
        int other = open(name, kind == PIN ? O_RDONLY : O_WRONLY);
        NEED(other >= 0);
        by_turns(other);
        point();
        SAY(close(other));
        works("after it");
        warm();
    }
    int folder = open("/proc/self/fd", O_RDONLY | O_DIRECTORY);
    char number[16];
    snprintf(number, sizeof number, "%d", S);
    by_turns(openat(folder, number, kind == PIN ? O_RDONLY : O_WRONLY));
}

/* Inherited standard input and output, opened by the names that shells and scripts use. */
CASE(opened_as_standard, PIN | POUT, ALL_PHASES) {
    int is_in = kind == PIN, kept = dup(is_in ? 0 : 1);
    NEED(dup2(S, is_in ? 0 : 1) >= 0);
    int other = open(is_in ? "/dev/stdin" : "/dev/stdout", is_in ? O_RDONLY : O_WRONLY);
    by_turns(other);
    FILE *file = fopen(is_in ? "/dev/stdin" : "/dev/stdout", is_in ? "r" : "w");
    char bytes[10];
    if (is_in) NEED(peer(OP_SEND, 30) == 30);
    long n = is_in ? (long)fread(bytes, 1, 10, file) : (setvbuf(file, NULL, _IONBF, 0), (long)fwrite(fill(bytes, 10), 1, 10, file));
    if (is_in) check(bytes, 10);
    else NEED(peer(OP_RECV, 10) == 10);
    NEED(dup2(kept, is_in ? 0 : 1) >= 0);
    say("by a FILE: %ld", n);
}

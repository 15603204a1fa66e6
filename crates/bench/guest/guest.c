// An ordinary program of plain calls, which `sojourn-bench papers` runs in the kernel's way and
// emulated: getpid(2) again and again, or a ping-pong with a child over two pipes. It knows nothing
// of who answers its calls, and prints its samples (nanoseconds an operation) as JSON.
//
// Not here: anything of Sojourn. It is built twice, for the C library's functions to be taken over
// and statically for its own system calls to be rewritten.
#define _GNU_SOURCE
#include "measure.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

// One end of the ping-pong.
struct end {
    int in, out;
    size_t size;
    unsigned char *bytes;
    unsigned char number;
};

static void put(struct end *end)
{
    end->number++;
    end->bytes[0] = end->bytes[end->size - 1] = end->number;
    for (size_t done = 0; done < end->size;) {
        ssize_t wrote = write(end->out, end->bytes + done, end->size - done);
        if (wrote > 0)
            done += (size_t)wrote;
        else if (errno == EAGAIN)
            sched_yield();
        else
            fail("write");
    }
}

static void take(struct end *end)
{
    for (size_t done = 0; done < end->size;) {
        ssize_t got = read(end->in, end->bytes + done, end->size - done);
        if (got > 0)
            done += (size_t)got;
        else if (got < 0 && errno == EAGAIN)
            sched_yield();
        else
            fail("read");
    }
}

static void ping(void *of)
{
    struct end *end = of;
    put(end);
    take(end);
    if (end->bytes[0] != end->number || end->bytes[end->size - 1] != end->number) {
        errno = EBADMSG;
        fail("what came back");
    }
}

static void ask_pid(void *of)
{
    pid_t *expected = of;
    if (getpid() != *expected) {
        errno = EBADMSG;
        fail("getpid");
    }
}

static void set_nonblocking(int descriptor)
{
    if (fcntl(descriptor, F_SETFL, O_NONBLOCK) != 0)
        fail("O_NONBLOCK");
}

// guest pipe NEAR FAR SIZE MS POLL
static void pipes(char **words)
{
    int there[2], back[2];
    size_t size = (size_t)atol(words[2]);
    if (pipe(there) != 0 || pipe(back) != 0)
        fail("pipe");
    if (atoi(words[4])) {
        for (int i = 0; i < 2; i++) {
            set_nonblocking(there[i]);
            set_nonblocking(back[i]);
        }
    }
    unsigned char *bytes = calloc(1, size);
    if (bytes == NULL)
        fail("calloc");
    pid_t child = fork();
    if (child < 0)
        fail("fork");
    if (child == 0) {
        struct end far = { there[0], back[1], size, bytes, 0 };
        pin(atoi(words[1]));
        close(there[1]);
        close(back[0]);
        for (;;) {
            take(&far);
            far.number = (unsigned char)(far.bytes[0] - 1);
            put(&far);
        }
    }
    struct end near = { back[0], there[1], size, bytes, 0 };
    pin(atoi(words[0]));
    close(there[0]);
    close(back[1]);
    measure(ping, &near, atof(words[3]));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

int main(int count, char **words)
{
    if (count == 5 && strcmp(words[1], "getpid") == 0) {
        // The last word is what getpid(2) is to answer; 0 for what it answers now.
        pid_t expected = (pid_t)atol(words[4]);
        pin(atoi(words[2]));
        if (expected == 0)
            expected = getpid();
        measure(ask_pid, &expected, atof(words[3]));
        return 0;
    }
    if (count == 7 && strcmp(words[1], "pipe") == 0) {
        pipes(words + 2);
        return 0;
    }
    fprintf(stderr, "usage: guest getpid CPU MS PID | guest pipe CPU CPU SIZE MS 0|1\n");
    return 2;
}

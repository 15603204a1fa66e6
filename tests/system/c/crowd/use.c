/* Threads of one side of the crowd, and the children that these threads fork. See crowd.h. */
#include "crowd.h"

static struct end *end;
static atomic_int is_over;

/* ---- records ---- */

static unsigned char filling(unsigned writer, unsigned number, unsigned at) { return (unsigned char)(writer * 85 + number * 7 + at); }

static void make(struct record *record, unsigned writer, unsigned number) {
    *record = (struct record){.writer = writer, .number = number};
    for (unsigned i = 0; i < sizeof record->filling; i++) record->filling[i] = filling(writer, number, i);
    if (is_tcp) memset(record, (int)writer, sizeof *record);
}

static void note(const struct record *record, ssize_t len) {
    if (is_tcp) {
        for (ssize_t i = 0; i < len; i++) {
            unsigned writer = ((const unsigned char *)record)[i];
            if (writer > CHILDREN) fail("nobody wrote a byte %u", writer);
            atomic_fetch_add(&end->to_us->found[writer], 1);
        }
        return;
    }
    if (len != RECORD) fail("a record of %zd bytes", len);
    if (record->writer > CHILDREN || record->number >= RECORDS_MAX) fail("no record: %u %u", record->writer, record->number);
    for (unsigned i = 0; i < sizeof record->filling; i++)
        if (record->filling[i] != filling(record->writer, record->number, i)) fail("record %u of %u is torn at %u", record->number, record->writer, i);
    if (atomic_fetch_add(&end->to_us->seen[record->writer][record->number], 1)) fail("record %u of %u twice", record->number, record->writer);
    atomic_fetch_add(&end->to_us->found[record->writer], RECORD);
}

/* ---- calls ---- */

static ssize_t write_some(const char *bytes, size_t len, unsigned how) {
    struct iovec parts[2] = {{(void *)bytes, len / 3}, {(void *)(bytes + len / 3), len - len / 3}};
    switch (how % 3) {
    case 0: return write(end->out, bytes, len);
    case 1: return writev(end->out, parts, 2);
    default: return is_pipe ? pwritev2(end->out, parts, 2, -1, 0) : send(end->out, bytes, len, MSG_NOSIGNAL);
    }
}

static void put(unsigned writer, unsigned number) {
    struct record record;
    make(&record, writer, number);
    for (size_t done = 0; done < RECORD;) {
        ssize_t n = write_some((char *)&record + done, RECORD - done, writer + number);
        if (n < 0) fail("write: %m");
        if (!is_tcp && n != RECORD) fail("%zd bytes of a record were taken", n);
        done += (size_t)n;
    }
    atomic_fetch_add(&end->from_us->written[writer], RECORD);
}

static ssize_t take(struct record *record, unsigned how) {
    struct iovec parts[2] = {{record, 100}, {(char *)record + 100, RECORD - 100}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    switch (how % 3) {
    case 0: return read(end->in, record, RECORD);
    case 1: return readv(end->in, parts, 2);
    default: return is_pipe ? preadv2(end->in, parts, 2, -1, 0) : recvmsg(end->in, &message, 0);
    }
}

static ssize_t take_without_waiting(struct record *record) {
    struct iovec one = {record, RECORD};
    return is_pipe ? preadv2(end->in, &one, 1, -1, RWF_NOWAIT) : recv(end->in, record, RECORD, MSG_DONTWAIT);
}

/* ---- threads ---- */

static void breathe(void) {
    struct timespec span = {0, 1000000};
    nanosleep(&span, NULL);
}

static void *write_all(void *which) {
    unsigned writer = (unsigned)(long)which;
    for (long i = 0; i < records && !atomic_load(&is_over); i++) {
        put(writer, (unsigned)i);
        if (i % 64) continue;
        if (until && access(until, F_OK) == 0) atomic_store(&is_over, 1);
        /* A TCP session moves only while none of its bytes are in transit, which writers without a
         * pause would prevent. */
        if (is_tcp) breathe();
    }
    return NULL;
}

static void *read_all(void *which) {
    struct record record;
    struct pollfd one = {end->in, POLLIN, 0};
    for (unsigned i = (unsigned)(long)which;; i++) {
        if (i % 7 == 0 && poll(&one, 1, -1) != 1) fail("poll: %m");
        ssize_t n = take(&record, i);
        if (n < 0) fail("read: %m");
        if (n == 0) return NULL;
        note(&record, n);
    }
}

/* Runs a child: it ends at once, or executes another program, or transfers one record each way
 * first. */
static void be_child(int number) {
    struct record record;
    if (number % 4 == 0) _exit(0);
    if (number % 4 == 1) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    if (end->out >= 0) put(CHILDREN, (unsigned)number);
    ssize_t n = end->in >= 0 ? take_without_waiting(&record) : 0;
    if (n > 0) note(&record, n);
    /* _exit, because handlers and buffers of the C library belong to the parent (_exit(2)). */
    _exit(0);
}

static void *fork_all(void *unused) {
    (void)unused;
    for (int i = 0; !atomic_load(&is_over) && i < RECORDS_MAX; i++) {
        if (end->out < 0 && access(until, F_OK) == 0) atomic_store(&is_over, 1);
        pid_t child = fork();
        if (child < 0) fail("fork: %m");
        if (child == 0) be_child(i);
        int status;
        if (waitpid(child, &status, 0) != child || status != 0) fail("child %d: status %x", i, status);
        breathe();
    }
    return NULL;
}

void use_end(struct end *own, int forks) {
    pthread_t writers[WRITERS], readers[READERS], forker;
    end = own;
    for (long i = 0; i < READERS && end->in >= 0; i++) pthread_create(&readers[i], NULL, read_all, (void *)i);
    for (long i = 0; i < WRITERS && end->out >= 0; i++) pthread_create(&writers[i], NULL, write_all, (void *)i);
    if (forks) pthread_create(&forker, NULL, fork_all, NULL);
    for (int i = 0; i < WRITERS && end->out >= 0; i++) pthread_join(writers[i], NULL);
    /* A side that only reads has no writers that end. Its forking thread looks for the end of file
     * itself. */
    if (end->out >= 0) atomic_store(&is_over, 1);
    if (forks) pthread_join(forker, NULL);
    if (end->out >= 0 && (is_pipe ? close(end->out) : shutdown(end->out, SHUT_WR))) fail("the end: %m");
    for (int i = 0; i < READERS && end->in >= 0; i++) pthread_join(readers[i], NULL);
}

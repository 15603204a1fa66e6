/* io_uring on sessions. Rings are made by the C library's syscall ("libc"), by inline system calls
   ("inline"), with a thread of the kernel ("polled"), or as libuv's ring for files ("libuv"),
   before or after the session moves. The queues are used directly, as in liburing. */
#include "peer.h"
#include <linux/io_uring.h>

/* The ways in which system calls for rings are made. */
enum { LIBC, INLINE, POLLED };
static int maker, early, size = 8;

#define CALL(...) (maker == INLINE ? inline_call(__VA_ARGS__) : syscall(__VA_ARGS__))

struct ring {
    int fd;
    unsigned *head, *tail, *mask, *array, *flags, *cq_head, *cq_tail, *cq_mask;
    struct io_uring_sqe *sqes;
    struct io_uring_cqe *cqes;
    void *queue, *completions;
    size_t queue_len, completions_len, sqes_len;
};

static struct ring ring = {-1};

static void make(struct ring *r, unsigned entries) {
    struct io_uring_params p = {0};
    if (maker == POLLED) p.flags = IORING_SETUP_SQPOLL, p.sq_thread_idle = 10;
    CHECK((r->fd = CALL(SYS_io_uring_setup, entries, (long)&p, 0, 0, 0, 0)) >= 0);
    r->queue_len = p.sq_off.array + p.sq_entries * 4;
    r->completions_len = p.cq_off.cqes + p.cq_entries * sizeof *r->cqes;
    r->sqes_len = p.sq_entries * sizeof *r->sqes;
    char *q = r->queue = mmap(0, r->queue_len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_SQ_RING);
    char *c = r->completions = mmap(0, r->completions_len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_CQ_RING);
    r->sqes = mmap(0, r->sqes_len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_SQES);
    CHECK(q != MAP_FAILED && c != MAP_FAILED && r->sqes != MAP_FAILED);
    r->head = (void *)(q + p.sq_off.head), r->tail = (void *)(q + p.sq_off.tail), r->mask = (void *)(q + p.sq_off.ring_mask);
    r->array = (void *)(q + p.sq_off.array), r->flags = (void *)(q + p.sq_off.flags);
    r->cq_head = (void *)(c + p.cq_off.head), r->cq_tail = (void *)(c + p.cq_off.tail), r->cq_mask = (void *)(c + p.cq_off.ring_mask);
    r->cqes = (void *)(c + p.cq_off.cqes);
}

static void unmake(struct ring *r) {
    /* Closing and unmapping work in either order. */
    if (r->fd % 2) close(r->fd), r->fd = -1;
    munmap(r->queue, r->queue_len), munmap(r->completions, r->completions_len), munmap(r->sqes, r->sqes_len);
    if (r->fd >= 0) close(r->fd), r->fd = -1;
}

/* Returns the next entry, which is zero except for these fields. */
static struct io_uring_sqe *entry(int op, int fd, const void *at, unsigned len, unsigned long offset) {
    unsigned tail = *ring.tail, index = tail & *ring.mask;
    struct io_uring_sqe *e = &ring.sqes[index];
    memset(e, 0, sizeof *e);
    e->opcode = op, e->fd = fd, e->addr = (unsigned long)at, e->len = len, e->off = offset, e->user_data = 7;
    ring.array[index] = index;
    return e;
}

static void publish(void) {
    __atomic_store_n(ring.tail, *ring.tail + 1, __ATOMIC_RELEASE);
}

static void enter(unsigned submit, unsigned wait) {
    unsigned flags = wait ? IORING_ENTER_GETEVENTS : 0;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (maker == POLLED && *(volatile unsigned *)ring.flags & IORING_SQ_NEED_WAKEUP) flags |= IORING_ENTER_SQ_WAKEUP;
    if (maker != POLLED || flags) CHECK(CALL(SYS_io_uring_enter, ring.fd, submit, wait, flags, 0, 0) >= 0);
}

/* Waits for the next completion. Returns its result. */
static int completion(void) {
    while (*ring.cq_head == __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE)) enter(0, 1);
    struct io_uring_cqe *c = &ring.cqes[*ring.cq_head & *ring.cq_mask];
    int result = c->res;
    CHECK(c->user_data == 7);
    __atomic_store_n(ring.cq_head, *ring.cq_head + 1, __ATOMIC_RELEASE);
    return result;
}

static int submit(void) {
    publish();
    enter(1, 0);
    return 0;
}

static int run(void) {
    submit();
    return completion();
}

/* Uses a ring for files, as most programs do. */
static void use_files(void) {
    char b[64];
    int null = open("/dev/null", O_RDWR);
    entry(IORING_OP_WRITE, null, b, 64, -1);
    CHECK(run() == 64);
    entry(IORING_OP_NOP, -1, 0, 0, 0);
    CHECK(run() == 0);
    close(null);
}

static char bytes[1000];

static void op_recv(void) {
    entry(IORING_OP_RECV, s, bytes, 64, 0);
    submit();
    tell('w', 64);
    SAY(completion());
}

/* Reads bytes that have arrived before, and bytes that arrive after the submission. */
static void op_read(void) {
    struct iovec parts[2] = {{bytes, 10}, {bytes + 20, 20}};
    SAY(ask('s', 64));
    SAY(read(s, bytes, 4));
    entry(IORING_OP_READ, s, bytes, 20, 0);
    SAY(run());
    entry(IORING_OP_READV, s, parts, 2, 0);
    SAY(run());
    SAY(read(s, bytes, 100));
}

static void op_message(void) {
    struct iovec part = {bytes, 64};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    entry(IORING_OP_RECVMSG, s, &message, 1, 0);
    submit();
    tell('w', 64);
    SAY(completion());
    entry(IORING_OP_SENDMSG, s, &message, 1, 0);
    SAY(run());
    SAY(ask('h', 64));
}

/* Bytes of plain calls and of submissions stay in order. */
static void op_send(void) {
    for (int i = 0; i < 1000; i++) bytes[i] = i * 7;
    SAY(write(s, bytes, 100));
    entry(IORING_OP_SEND, s, bytes + 100, 200, 0);
    SAY(run());
    SAY(write(s, bytes + 300, 100));
    entry(IORING_OP_WRITE, s, bytes + 400, 100, 0);
    SAY(run());
    SAY(ask('h', 500));
}

static void op_poll(void) {
    entry(IORING_OP_POLL_ADD, s, 0, 0, 0)->poll32_events = POLLIN;
    submit();
    tell('w', 64);
    SAY(completion() & POLLIN);
    SAY(read(s, bytes, 100));
}

/* A submission names a registered file by its index. */
static void op_registered(void) {
    int files[3] = {-1, s, -1};
    SAY(CALL(SYS_io_uring_register, ring.fd, IORING_REGISTER_FILES, (long)files, 3, 0, 0));
    entry(IORING_OP_RECV, 1, bytes, 64, 0)->flags = IOSQE_FIXED_FILE;
    submit();
    tell('w', 64);
    SAY(completion());
}

static void op_splice(void) {
    int p[2];
    CHECK(!pipe(p));
    struct io_uring_sqe *e = entry(IORING_OP_SPLICE, p[1], 0, 64, -1);
    e->splice_fd_in = s, e->splice_off_in = -1;
    submit();
    tell('w', 64);
    SAY(completion());
    SAY(read(p[0], bytes, 100));
    close(p[0]), close(p[1]);
}

static void op_shutdown(void) {
    SAY(write(s, "12345", 5));
    entry(IORING_OP_SHUTDOWN, s, 0, SHUT_WR, 0);
    SAY(run());
    SAY(ask('e', 0));
}

static void op_close(void) {
    int again = dup(0);
    SAY(write(s, "12345", 5));
    entry(IORING_OP_CLOSE, s, 0, 0, 0);
    SAY(run());
    SAY(ask('e', 0));
    SAY(write(s, "x", 1));
    CHECK(dup2(again, s) == s);
    close(again);
}

/* A ring changes a set, which reports events; then the session moves, and the set reports events
   again. */
static void op_set(void) {
    struct epoll_event event = {EPOLLIN, {.u64 = 99}}, got = {0};
    int set = epoll_create1(0);
    entry(IORING_OP_EPOLL_CTL, set, &event, EPOLL_CTL_ADD, s);
    SAY(run());
    entry(IORING_OP_EPOLL_CTL, set, &event, EPOLL_CTL_ADD, s);
    SAY(run());
    entry(IORING_OP_EPOLL_CTL, set, &event, EPOLL_CTL_ADD, 999);
    SAY(run());
    /* The session may move only if the library sees the ring that has changed the set. */
    int moves = getenv("LD_PRELOAD") && maker == LIBC;
    int64_t start = now_ms();
    for (int i = 0, n; i < 50 || moves && !is_away(); i++) {
        CHECK(now_ms() - start < 20000);
        tell('s', 10);
        while ((n = epoll_wait(set, &got, 1, 10000)) < 0 && errno == EINTR) {}
        CHECK(n == 1 && got.data.u64 == 99 && read(s, bytes, 10) == 10);
        long done;
        CHECK(read(answers[0], &done, sizeof done) == sizeof done);
        CHECK(write(s, bytes, 10) == 10 && ask('r', 10) == 10);
    }
    event.events = EPOLLOUT, event.data.u64 = 98;
    entry(IORING_OP_EPOLL_CTL, set, &event, EPOLL_CTL_MOD, s);
    SAY(run());
    while (epoll_wait(set, &got, 1, 10000) < 0) CHECK(errno == EINTR);
    SAY(got.data.u64);
    entry(IORING_OP_EPOLL_CTL, set, 0, EPOLL_CTL_DEL, s);
    SAY(run());
    SAY(epoll_wait(set, &got, 1, 0));
    close(set);
}

/* A chain: the second entry begins when the first is done. */
static void op_chain(void) {
    entry(IORING_OP_RECV, s, bytes, 64, 0)->flags = IOSQE_IO_LINK;
    publish();
    entry(IORING_OP_SEND, s, bytes, 64, 0);
    publish();
    enter(2, 0);
    tell('w', 64);
    SAY(completion()), SAY(completion());
    SAY(ask('r', 64));
}

/* The number of a closed ring is used again; the library must not keep the first ring alive. */
static void op_again(void) {
    int p[2];
    CHECK(!pipe(p));
    for (int i = 0; i < 50; i++) {
        unmake(&ring);
        make(&ring, 4);
        use_files();
    }
    entry(IORING_OP_READ, p[0], bytes, 1, 0);
    submit();
    close(p[0]);
    unmake(&ring);
    /* The pending read ends with the ring, after a short time: then the pipe has no reader. */
    signal(SIGPIPE, SIG_IGN);
    for (int64_t until = now_ms() + 10000; write(p[1], "x", 1) == 1;) CHECK(now_ms() < until), usleep(1000);
    close(p[1]);
    make(&ring, size);
    op_recv();
}

static void (*const ops[])(void) = {op_recv, op_read, op_message, op_send, op_poll, op_registered, op_splice, op_shutdown, op_close, op_set, op_chain, op_again};

int main(int argc, char **argv) {
    int must = getenv("LD_PRELOAD") != 0;
    maker = !strcmp(argv[1], "inline") ? INLINE : !strcmp(argv[1], "polled") ? POLLED : LIBC;
    early = !strcmp(argv[2], "early");
    int count = sizeof ops / sizeof *ops, is_libuv = !strcmp(argv[1], "libuv");
    /* Operations that libuv never submits are noticed late, but they are noticed. */
    if (is_libuv) maker = POLLED, size = 64, count = 3;
    alarm(55);
    for (int i = 0; i < count; i++) {
        int is_unseen = early && maker != LIBC && !is_libuv;
        if (early) make(&ring, size), use_files();
        stays = is_unseen;
        /* The peer closes its copy of the ring. */
        inherited = maker == LIBC ? -1 : ring.fd;
        begin(argc > 3 && !strcmp(argv[3], "tcp"));
        CHECK(!must || !is_unseen || !is_away());
        if (!early) make(&ring, size);
        if (maker == LIBC || is_libuv) {
            /* Submissions that do not name the session do not concern it: it is away, or moves
               now. */
            use_files();
            /* The streams that had moved so far may have been pipes, which come home. */
            warm();
        }
        fprintf(stderr, "op %d\n", i);
        ops[i]();
        unmake(&ring);
        end();
    }
    return 0;
}

/* Two processes talk in place: `talk tcp`, `talk unix` or `talk pipe`. One sends numbered blocks
 * and the other checks each byte; over a socket a sum goes back. With a second word one of them
 * kills itself: `sender` with the last block filled and not committed, `receiver` with bytes that
 * are lent. Prints how many blocks were made in shared memory, about; goes on until these are
 * $TALK_SHARED. Runs with and without Sojourn. */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <sojourn/buffers.h>
#include <unistd.h>

#define BLOCKS 4000u
#define BLOCKS_MAX 2000000u
#define BLOCK 1460u
#define LAST 255 /* the byte of the last block */
#define SECOND 1000000000ll

static void put(struct iovec pieces[2], size_t at, const void *from, size_t len)
{
    for (size_t done = 0; done < len; done++, at++) {
        struct iovec *piece = at < pieces[0].iov_len ? &pieces[0] : &pieces[1];
        size_t skip = piece == &pieces[1] ? pieces[0].iov_len : 0;
        ((char *)piece->iov_base)[at - skip] = ((const char *)from)[done];
    }
}

/* The end of the stream, once the last block has been seen. */
static uint64_t all = UINT64_MAX;

/* Checks the bytes of the stream from `at` on, and returns their sum. */
static uint64_t check(const struct iovec *piece, uint64_t at)
{
    uint64_t sum = 0;
    for (size_t done = 0; done < piece->iov_len; done++) {
        unsigned char byte = ((const unsigned char *)piece->iov_base)[done];
        uint64_t block = (at + done) / BLOCK;
        if (byte == LAST)
            all = (block + 1) * BLOCK;
        assert(byte == block % 251 || (byte == LAST && at + done < all));
        sum += byte;
    }
    return sum;
}

/* Returns 1 if the address is in memory that may be shared. */
static int is_shared(const void *address)
{
    unsigned long from, to;
    char line[512];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert(maps != NULL);
    while (!found && fgets(line, sizeof line, maps) != NULL)
        found = sscanf(line, "%lx-%lx", &from, &to) == 2 && strstr(line, "memfd:") != NULL
                && (unsigned long)address >= from && (unsigned long)address < to;
    fclose(maps);
    return found;
}

static unsigned shared_blocks;

static int send_blocks(int fd, int has_answer, const char *dies)
{
    sj_sender *sender = sj_sender_open(fd);
    assert(sender != NULL);
    uint64_t sum = 0;
    const char *wanted = getenv("TALK_SHARED");
    unsigned shared = wanted == NULL ? 0 : (unsigned)atoi(wanted);
    int is_last = 0;
    for (unsigned block = 0; !is_last; block++) {
        struct iovec pieces[2];
        unsigned char bytes[BLOCK];
        is_last = block >= BLOCKS && (shared_blocks >= shared || block >= BLOCKS_MAX);
        int byte = is_last ? LAST : (int)(block % 251);
        memset(bytes, byte, sizeof bytes);
        sum += (uint64_t)BLOCK * (unsigned)byte;
        ssize_t room = sj_sender_reserve(sender, BLOCK, BLOCK, 10 * SECOND, pieces);
        assert(room == BLOCK && pieces[0].iov_len + pieces[1].iov_len == BLOCK);
        put(pieces, 0, bytes, BLOCK);
        if (block % 100 == 99)
            shared_blocks += 100 * (unsigned)is_shared(pieces[0].iov_base);
        if (is_last && strcmp(dies, "sender") == 0)
            raise(SIGKILL);
        if (sj_sender_commit(sender, BLOCK, 10 * SECOND) != 0) {
            assert(strcmp(dies, "receiver") == 0 && (errno == EPIPE || errno == ECONNRESET));
            sj_sender_close(sender);
            return close(fd);
        }
        assert(sj_sender_pending(sender) == 0);
    }
    sj_sender_close(sender);
    if (!has_answer || *dies != '\0')
        return close(fd);
    sj_receiver *receiver = sj_receiver_open(fd);
    const void *answer;
    assert(sj_receiver_loan_copied(receiver, sizeof sum, sizeof sum, 10 * SECOND, &answer) == sizeof sum);
    assert(memcmp(answer, &sum, sizeof sum) == 0);
    sj_receiver_give_back(receiver, sizeof sum);
    sj_receiver_close(receiver);
    return close(fd);
}

static void receive_blocks(int fd, int has_answer, const char *dies)
{
    sj_receiver *receiver = sj_receiver_open(fd);
    assert(receiver != NULL);
    uint64_t sum = 0, at = 0;
    for (size_t loans = 1; at < all; loans++) {
        struct iovec pieces[2];
        size_t in_block = BLOCK - at % BLOCK, wanted = loans % 7 < in_block ? loans % 7 : in_block;
        ssize_t got = sj_receiver_loan(receiver, wanted, 16384, 10 * SECOND, pieces);
        if (strcmp(dies, "sender") == 0 && (got == 0 || (got < 0 && errno == ECONNRESET))) {
            assert(at > 0 && at % BLOCK == 0);
            sj_receiver_close(receiver);
            return;
        }
        assert(got > 0 && pieces[0].iov_len + pieces[1].iov_len == (size_t)got);
        if (loans % 5 == 0 && at > BLOCKS / 2 * BLOCK && strcmp(dies, "receiver") == 0
            && (getenv("TALK_SHARED") == NULL || is_shared(pieces[0].iov_base)))
            raise(SIGKILL);
        /* Now and then some bytes are given back unused. */
        size_t used = loans % 5 == 0 && got > 3 ? (size_t)got - 3 : (size_t)got;
        (void)check(&pieces[1], at + pieces[0].iov_len);
        pieces[1].iov_len = used > pieces[0].iov_len ? used - pieces[0].iov_len : 0;
        pieces[0].iov_len = used - pieces[1].iov_len;
        sum += check(&pieces[0], at) + check(&pieces[1], at + pieces[0].iov_len);
        at += used;
        sj_receiver_give_back(receiver, used);
    }
    has_answer &= *dies == '\0';
    struct iovec pieces[2];
    if (has_answer) {
        errno = 0;
        assert(sj_receiver_loan(receiver, 1, 1, 0, pieces) == -1 && errno == EAGAIN);
        sj_sender *sender = sj_sender_open(fd);
        assert(sj_sender_reserve(sender, sizeof sum, sizeof sum, 0, pieces) == sizeof sum);
        put(pieces, 0, &sum, sizeof sum);
        assert(sj_sender_commit(sender, sizeof sum, SECOND) == 0);
        sj_sender_close(sender);
    }
    ssize_t end = sj_receiver_loan(receiver, 1, 1, 10 * SECOND, pieces);
    assert(end == 0 || (*dies != '\0' && errno == ECONNRESET));
    sj_receiver_close(receiver);
}

static void tcp(int ends[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert(bind(listener, (struct sockaddr *)&at, len) == 0 && listen(listener, 1) == 0);
    assert(getsockname(listener, (struct sockaddr *)&at, &len) == 0);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    assert(connect(ends[0], (struct sockaddr *)&at, len) == 0);
    ends[1] = accept(listener, NULL, NULL);
    assert(ends[1] >= 0);
    close(listener);
}

int main(int count, char **words)
{
    int ends[2], status = 0, is_pipe;
    assert(count == 2 || count == 3);
    const char *dies = count == 3 ? words[2] : "";
    signal(SIGPIPE, SIG_IGN);
    is_pipe = strcmp(words[1], "pipe") == 0;
    if (is_pipe) {
        int pipes[2];
        assert(pipe(pipes) == 0);
        ends[0] = pipes[1];
        ends[1] = pipes[0];
    } else if (strcmp(words[1], "unix") == 0) {
        assert(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    } else {
        tcp(ends);
    }
    /* The one that dies is the child. */
    int own = strcmp(dies, "sender") == 0;
    pid_t child = fork();
    if (child == 0) {
        close(ends[own]);
        if (own)
            send_blocks(ends[0], !is_pipe, dies);
        else
            receive_blocks(ends[1], !is_pipe, dies);
        _exit(0);
    }
    close(ends[1 - own]);
    if (own)
        receive_blocks(ends[1], !is_pipe, dies);
    else
        assert(send_blocks(ends[0], !is_pipe, dies) == 0);
    assert(waitpid(child, &status, 0) == child);
    assert(*dies == '\0' ? status == 0 : WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    printf("passed %u\n", shared_blocks);
    return 0;
}

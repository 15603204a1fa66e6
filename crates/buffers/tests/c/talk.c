/* Two processes talk in place: `talk tcp`, `talk unix` or `talk pipe`. One sends numbered blocks
 * and the other checks and sums them; over a socket the sum goes back. Runs with and without
 * Sojourn. */
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <sojourn/buffers.h>
#include <unistd.h>

#define BLOCKS 4000u
#define BLOCK 1460u
#define SECOND 1000000000ll

static void put(struct iovec pieces[2], size_t at, const void *from, size_t len)
{
    for (size_t done = 0; done < len; done++, at++) {
        struct iovec *piece = at < pieces[0].iov_len ? &pieces[0] : &pieces[1];
        size_t skip = piece == &pieces[1] ? pieces[0].iov_len : 0;
        ((char *)piece->iov_base)[at - skip] = ((const char *)from)[done];
    }
}

static uint64_t sum_of(const struct iovec *piece)
{
    uint64_t sum = 0;
    for (size_t at = 0; at < piece->iov_len; at++)
        sum += ((const unsigned char *)piece->iov_base)[at];
    return sum;
}

static int send_blocks(int fd, int has_answer)
{
    sj_sender *sender = sj_sender_open(fd);
    assert(sender != NULL);
    uint64_t sum = 0;
    for (unsigned block = 0; block < BLOCKS; block++) {
        struct iovec pieces[2];
        unsigned char bytes[BLOCK];
        memset(bytes, (int)(block % 251), sizeof bytes);
        sum += (uint64_t)BLOCK * (block % 251);
        ssize_t room = sj_sender_reserve(sender, BLOCK, BLOCK, 10 * SECOND, pieces);
        assert(room == BLOCK && pieces[0].iov_len + pieces[1].iov_len == BLOCK);
        put(pieces, 0, bytes, BLOCK);
        assert(sj_sender_commit(sender, BLOCK, 10 * SECOND) == 0);
        assert(sj_sender_pending(sender) == 0);
    }
    sj_sender_close(sender);
    if (!has_answer)
        return close(fd);
    sj_receiver *receiver = sj_receiver_open(fd);
    const void *answer;
    assert(sj_receiver_loan_copied(receiver, sizeof sum, sizeof sum, 10 * SECOND, &answer) == sizeof sum);
    assert(memcmp(answer, &sum, sizeof sum) == 0);
    sj_receiver_give_back(receiver, sizeof sum);
    sj_receiver_close(receiver);
    return close(fd);
}

static void receive_blocks(int fd, int has_answer)
{
    sj_receiver *receiver = sj_receiver_open(fd);
    assert(receiver != NULL);
    uint64_t sum = 0, left = (uint64_t)BLOCKS * BLOCK;
    while (left > 0) {
        struct iovec pieces[2];
        ssize_t got = sj_receiver_loan(receiver, 1, 16384, 10 * SECOND, pieces);
        assert(got > 0 && pieces[0].iov_len + pieces[1].iov_len == (size_t)got);
        sum += sum_of(&pieces[0]) + sum_of(&pieces[1]);
        left -= (uint64_t)got;
        sj_receiver_give_back(receiver, (size_t)got);
    }
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
    assert(sj_receiver_loan(receiver, 1, 1, 10 * SECOND, pieces) == 0);
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
    assert(count == 2);
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
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        receive_blocks(ends[1], !is_pipe);
        _exit(0);
    }
    close(ends[1]);
    assert(send_blocks(ends[0], !is_pipe) == 0);
    assert(waitpid(child, &status, 0) == child && status == 0);
    puts("passed");
    return 0;
}

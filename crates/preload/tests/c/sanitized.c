/* Exchanges some thousand messages with a child over a socket pair, so that the session would move.
   Uses memory of its own and a thread, which sanitizers watch. Prints "ok". */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEN = 100, ROUNDS = 3000 };

static void *asks(void *socket)
{
    int fd = *(int *)socket;
    char *block = malloc(LEN);
    for (int i = 0; i < ROUNDS; i++) {
        memset(block, i, LEN);
        if (write(fd, block, LEN) != LEN)
            exit(2);
        for (int got = 0; got < LEN;) {
            ssize_t n = read(fd, block + got, LEN - got);
            if (n <= 0)
                exit(3);
            got += n;
        }
    }
    free(block);
    return NULL;
}

int main(void)
{
    int ends[2], status = -1;
    pthread_t thread;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        return 4;
    pid_t child = fork();
    if (child == 0) {
        char block[LEN];
        ssize_t n;
        close(ends[0]);
        while ((n = read(ends[1], block, sizeof block)) > 0)
            if (write(ends[1], block, n) != n)
                _exit(1);
        _exit(0);
    }
    close(ends[1]);
    if (pthread_create(&thread, NULL, asks, &ends[0]) || pthread_join(thread, NULL))
        return 5;
    close(ends[0]);
    if (waitpid(child, &status, 0) != child || status != 0)
        return 6;
    puts("ok");
    return 0;
}

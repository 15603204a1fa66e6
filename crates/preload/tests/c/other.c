/* Built for another C library: calls some of each kind of function that the preload library
   replaces. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int caught;
static void on(int number) { caught = number; }

static void *echo(void *fd) {
    char byte;
    while (read(*(int *)fd, &byte, 1) == 1) write(*(int *)fd, &byte, 1);
    return NULL;
}

int main(void) {
    int pair[2], status;
    char text[100];
    pthread_t thread;
    struct sigaction action = { .sa_handler = on };
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 1;
    pthread_create(&thread, NULL, echo, &pair[1]);
    for (int i = 0; i < 2000; i++) {
        struct pollfd one = { pair[0], POLLIN, 0 };
        if (send(pair[0], "x", 1, 0) != 1 || poll(&one, 1, 5000) != 1 || recv(pair[0], text, 1, 0) != 1) return 2;
    }
    shutdown(pair[0], SHUT_WR);
    pthread_join(thread, NULL);
    write(pair[1], "y", 1);
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    signal(SIGUSR2, on);
    printf("caught %d\n", caught);
    int set = epoll_create1(0);
    struct epoll_event event = { EPOLLIN, { 0 } };
    printf("%d %d\n", epoll_ctl(set, EPOLL_CTL_ADD, pair[0], &event), epoll_wait(set, &event, 1, 0));
    fd_set in;
    FD_ZERO(&in);
    FD_SET(pair[0], &in);
    printf("%d\n", select(pair[0] + 1, &in, NULL, NULL, NULL));
    FILE *from = popen("echo child; exit 3", "r");
    printf("%s", fgets(text, sizeof text, from));
    printf("%d\n", WEXITSTATUS(pclose(from)));
    if (fork() == 0) execl("/bin/sh", "sh", "-c", "exit 4", (char *)NULL);
    wait(&status);
    printf("%d %d\n", WEXITSTATUS(status), system("exit 5") >> 8);
    snprintf(text, sizeof text, "/proc/self/fd/%d", dup(1));
    printf("%d\n", open(text, O_WRONLY) >= 0);
    puts("end");
    return 0;
}

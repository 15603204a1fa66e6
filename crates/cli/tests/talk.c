/* Two programs that talk until they are told to stop. See whole.rs.
 *
 * talk listen: says its port, then answers each byte. talk PORT [option | stdio | sets]: says
 * "ready" after a thousand bytes there and back, and goes on, with a socket that has something
 * about it which binds it to the kernel. A minute at most. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static void need(int is_fine, const char *what)
{
    if (!is_fine) {
        perror(what);
        exit(1);
    }
}

static void serve(struct sockaddr_in name)
{
    socklen_t len = sizeof name;
    char byte;
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd;
    need(bind(listener, (struct sockaddr *)&name, len) == 0, "bind");
    need(listen(listener, 1) == 0, "listen");
    need(getsockname(listener, (struct sockaddr *)&name, &len) == 0, "getsockname");
    printf("%d\n", ntohs(name.sin_port));
    fflush(stdout);
    need((fd = accept(listener, NULL, NULL)) >= 0, "accept");
    while (read(fd, &byte, 1) == 1)
        need(write(fd, &byte, 1) == 1, "write");
}

static void bind_to_kernel(int fd, const char *how)
{
    int mark = 1;
    struct epoll_event event = { .events = EPOLLERR };
    if (strcmp(how, "option") == 0) {
        need(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof mark) == 0, "SO_RCVLOWAT");
    } else if (strcmp(how, "stdio") == 0) {
        need(dprintf(fd, "%s", "") == 0, "dprintf");
    } else {
        need(epoll_ctl(epoll_create1(0), EPOLL_CTL_ADD, fd, &event) == 0, "the first set");
        need(epoll_ctl(epoll_create1(0), EPOLL_CTL_ADD, fd, &event) == 0, "the second set");
    }
}

static void ask(struct sockaddr_in name, const char *how)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    need(connect(fd, (struct sockaddr *)&name, sizeof name) == 0, "connect");
    if (how)
        bind_to_kernel(fd, how);
    for (unsigned i = 0;; i++) {
        char sent = (char)i, got;
        need(write(fd, &sent, 1) == 1, "write");
        need(read(fd, &got, 1) == 1, "read");
        need(sent == got, "the right byte");
        if (i == 1000) {
            puts("ready");
            fflush(stdout);
        }
        if (i > 1000)
            usleep(200);
    }
}

int main(int count, char **words)
{
    struct sockaddr_in name = { .sin_family = AF_INET };
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    alarm(60);
    need(count == 2 || count == 3, "arguments");
    if (strcmp(words[1], "listen") == 0) {
        serve(name);
    } else {
        name.sin_port = htons((unsigned short)atoi(words[1]));
        ask(name, words[2]);
    }
    return 0;
}

/* A process that has sessions open, for tests of `sojourn ss`. See src/sessions/tests.rs.
 *
 * holder FILE|- listen | connect PORT | pairs | datagrams
 *
 * Maps FILE, opens what it is told, says "ready" (and the port) and sleeps until it is killed, a
 * minute at most. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static void need(int is_fine, const char *what)
{
    if (!is_fine) {
        perror(what);
        exit(1);
    }
}

static struct sockaddr_in loopback(int port)
{
    struct sockaddr_in name = { .sin_family = AF_INET, .sin_port = htons(port) };
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return name;
}

static void say(int port)
{
    printf("ready %d\n", port);
    fflush(stdout);
}

static void listen_and_accept(void)
{
    struct sockaddr_in name = loopback(0);
    socklen_t len = sizeof name;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    need(bind(listener, (struct sockaddr *)&name, len) == 0, "bind");
    need(listen(listener, 8) == 0, "listen");
    need(getsockname(listener, (struct sockaddr *)&name, &len) == 0, "getsockname");
    say(ntohs(name.sin_port));
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        need(fd >= 0, "accept");
        /* The client says that it is ready when it has this byte. */
        need(write(fd, "", 1) == 1, "write");
    }
}

int main(int count, char **words)
{
    alarm(60);
    need(count >= 3, "arguments");
    if (strcmp(words[1], "-") != 0) {
        int fd = open(words[1], O_RDONLY);
        need(fd >= 0, words[1]);
        need(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) != MAP_FAILED, "mmap");
        close(fd);
    }
    if (strcmp(words[2], "listen") == 0) {
        listen_and_accept();
    } else if (strcmp(words[2], "connect") == 0) {
        struct sockaddr_in name = loopback(count > 3 ? atoi(words[3]) : 0);
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        char byte;
        need(connect(fd, (struct sockaddr *)&name, sizeof name) == 0, "connect");
        need(read(fd, &byte, 1) == 1, "read");
    } else if (strcmp(words[2], "datagrams") == 0) {
        struct sockaddr_in name = loopback(0);
        socklen_t len = sizeof name;
        int own = socket(AF_INET, SOCK_DGRAM, 0), all = socket(AF_INET, SOCK_DGRAM, 0);
        need(socket(AF_INET6, SOCK_DGRAM, 0) >= 0, "socket");
        need(bind(own, (struct sockaddr *)&name, len) == 0, "bind");
        name.sin_addr.s_addr = htonl(INADDR_ANY);
        need(bind(all, (struct sockaddr *)&name, len) == 0, "bind");
        need(getsockname(all, (struct sockaddr *)&name, &len) == 0, "getsockname");
        say(ntohs(name.sin_port));
        for (;;)
            pause();
    } else {
        int ends[2];
        need(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
        need(pipe(ends) == 0, "pipe");
    }
    say(0);
    for (;;)
        pause();
}

/* C client for a test. `echo SERVER serve` prints its port and sends datagrams back; `echo SERVER
 * ask PORT` sends datagrams of many lengths to that port, and makes calls that must be refused.
 * Both print `passed` at the end. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <sojourn/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECOND 1000000000LL
#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, strerror(errno)); exit(1); } } while (0)

static unsigned char sent[SJ_UDP_DATA_MAX + 1], got[SJ_UDP_DATA_MAX];

static struct sockaddr_in at(uint16_t port)
{
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
}

static void serve(sj_udp *s)
{
    struct sockaddr_in from;
    ssize_t len;
    do {
        len = sj_udp_recvfrom(s, got, sizeof got, &from, 20 * SECOND);
        CHECK(len >= 0);
        CHECK(sj_udp_sendto(s, got, (size_t)len, &from) == len);
    } while (len != 4 || memcmp(got, "stop", 4) != 0);
}

static void ask(sj_udp *s, uint16_t port)
{
    static const size_t lens[] = {0, 1, 100, 1472, 9000, SJ_UDP_DATA_MAX, 4};
    struct sockaddr_in to = at(port), from;
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        memset(sent, (int)i + 1, lens[i]);
        if (lens[i] == 4)
            memcpy(sent, "stop", 4);
        CHECK(sj_udp_sendto(s, sent, lens[i], &to) == (ssize_t)lens[i]);
        CHECK(sj_udp_recvfrom(s, got, sizeof got, &from, 20 * SECOND) == (ssize_t)lens[i]);
        CHECK(memcmp(sent, got, lens[i]) == 0 && from.sin_port == to.sin_port);
    }
    CHECK(sj_udp_recvfrom(s, got, sizeof got, NULL, 0) == -1 && errno == EAGAIN);
    CHECK(sj_udp_sendto(s, sent, sizeof sent, &to) == -1 && errno == EMSGSIZE);
    CHECK(sj_udp_sendto(NULL, sent, 1, &to) == -1 && errno == EINVAL);
    CHECK(sj_udp_sendto(s, NULL, 1, &to) == -1 && errno == EINVAL);
    CHECK(sj_udp_sendto(s, sent, 1, NULL) == -1 && errno == EINVAL);
    to.sin_family = AF_UNIX;
    CHECK(sj_udp_sendto(s, sent, 1, &to) == -1 && errno == EAFNOSUPPORT);
}

int main(int argc, char **argv)
{
    struct sockaddr_in any = at(0), local;
    alarm(60);
    CHECK(argc >= 3);
    sj_udp *s = sj_udp_bind(argv[1], &any, SJ_UDP_ADAPTIVE);
    CHECK(s != NULL && sj_udp_local(s, &local) == 0);
    CHECK(sj_udp_bind(argv[1], &local, SJ_UDP_PARK) == NULL && errno == EADDRINUSE);
    CHECK(sj_udp_bind(argv[1], &any, 99) == NULL && errno == EINVAL);
    CHECK(sj_udp_bind("@nobody-serves-this", &any, 0) == NULL && errno == ENOENT);
    printf("%u\n", ntohs(local.sin_port));
    fflush(stdout);
    if (strcmp(argv[2], "serve") == 0)
        serve(s);
    else
        ask(s, (uint16_t)atoi(argv[3]));
    sj_udp_close(s);
    sj_udp_close(NULL);
    puts("passed");
    return 0;
}

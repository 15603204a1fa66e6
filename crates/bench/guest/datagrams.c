// An ordinary program of plain calls, which `sojourn-bench papers` runs in the kernel's way and
// emulated: one end of a ping-pong of UDP datagrams with another host. It knows nothing of who
// answers its calls, and prints its samples (nanoseconds a round trip) as JSON.
//
// Not here: anything of Sojourn.
#define _GNU_SOURCE
#include "measure.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

struct end {
    int socket;
    struct sockaddr_in peer;
    size_t size;
    unsigned char *bytes;
    unsigned char number;
};

static struct sockaddr_in address_of(const char *ip, const char *port)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)) };
    if (inet_pton(AF_INET, ip, &address.sin_addr) != 1)
        fail(ip);
    return address;
}

static void put(struct end *end)
{
    ssize_t sent = sendto(end->socket, end->bytes, end->size, 0, (struct sockaddr *)&end->peer,
                          sizeof end->peer);
    if (sent != (ssize_t)end->size)
        fail("sendto");
}

static void take(struct end *end)
{
    struct sockaddr_in from;
    socklen_t len = sizeof from;
    ssize_t got =
        recvfrom(end->socket, end->bytes, end->size, 0, (struct sockaddr *)&from, &len);
    if (got != (ssize_t)end->size || from.sin_port != end->peer.sin_port ||
        from.sin_addr.s_addr != end->peer.sin_addr.s_addr)
        fail("recvfrom");
}

static void ping(void *of)
{
    struct end *end = of;
    end->number++;
    end->bytes[0] = end->bytes[end->size - 1] = end->number;
    put(end);
    take(end);
    if (end->bytes[0] != end->number || end->bytes[end->size - 1] != end->number) {
        errno = EBADMSG;
        fail("what came back");
    }
}

// datagrams ask|answer CPU SIZE MS OWN PORT PEER PORT
int main(int count, char **words)
{
    if (count != 9) {
        fprintf(stderr, "usage: datagrams ask|answer CPU SIZE MS ADDRESS PORT ADDRESS PORT\n");
        return 2;
    }
    pin(atoi(words[2]));
    size_t size = (size_t)atol(words[3]);
    struct end end = { socket(AF_INET, SOCK_DGRAM, 0),
                       address_of(words[7], words[8]), size, calloc(1, size), 0 };
    struct sockaddr_in own = address_of(words[5], words[6]);
    if (end.socket < 0 || bind(end.socket, (struct sockaddr *)&own, sizeof own) != 0)
        fail("bind");
    if (strcmp(words[1], "ask") == 0) {
        measure(ping, &end, atof(words[4]));
        return 0;
    }
    // Whoever started this waits for the line.
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        take(&end);
        put(&end);
    }
}

/* sojourn/udp.h - sockets of UDP that the server sojourn-udpd serves.
 *
 * The C face of the crate sojourn-udp; docs/understand/udp-server.md says what happens behind it. A socket is used by one
 * thread at a time. No function raises a signal or prints. What fails answers -1 (or NULL) and sets errno.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef SOJOURN_UDP_H
#define SOJOURN_UDP_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SJ_UDP_DATA_MAX 65507  /* longest payload of a datagram */
#define SJ_UDP_FOREVER INT64_MAX

/* How a socket waits. */
#define SJ_UDP_ADAPTIVE 0u /* spin while that pays, then sleep */
#define SJ_UDP_SPIN 1u     /* never sleep */
#define SJ_UDP_PARK 2u     /* sleep at once */
#define SJ_UDP_YIELD 3u    /* never sleep, but let others have the processor */

typedef struct sj_udp sj_udp;

/* A socket of the server at `server` (a path or @NAME; NULL: the system's), bound to `local`: INADDR_ANY is all addresses of the
 * host, port 0 a free one. ENOENT: no server there. ECONNREFUSED: it does not take us. EADDRINUSE, EADDRNOTAVAIL, EACCES as bind(2). */
sj_udp *sj_udp_bind(const char *server, const struct sockaddr_in *local, uint32_t wait);

/* Where it is bound. */
int sj_udp_local(const sj_udp *socket, struct sockaddr_in *local);

/* Sends a datagram; answers `len`. What it runs into on this host the next sj_udp_recvfrom() tells. EMSGSIZE; EPIPE: the server is gone. */
ssize_t sj_udp_sendto(sj_udp *socket, const void *data, size_t len, const struct sockaddr_in *to);

/* Waits for a datagram, at most `timeout_ns`, and answers its length; what `size` bytes have no room for is lost. `from` may be
 * NULL. EAGAIN: nothing came in time. EPIPE: the server is gone. Others: what an earlier sj_udp_sendto() ran into. */
ssize_t sj_udp_recvfrom(sj_udp *socket, void *data, size_t size, struct sockaddr_in *from, int64_t timeout_ns);

/* Gives the port back. NULL is nothing. */
void sj_udp_close(sj_udp *socket);

#ifdef __cplusplus
}
#endif
#endif

/* sojourn/udp.h - UDP sockets that the server sojourn-udpd serves.
 *
 * C interface of the crate sojourn-udp; docs/understand/udp-server.md describes the implementation.
 * A socket may be used by one thread at a time. No function raises a signal or prints. A function
 * that fails returns -1 (or NULL) and sets errno.
 *
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

#define SJ_UDP_DATA_MAX 65507  /* greatest length of a datagram's payload */
#define SJ_UDP_FOREVER INT64_MAX

/* Ways in which a socket waits. */
#define SJ_UDP_ADAPTIVE 0u /* spin while that is cheaper, then sleep */
#define SJ_UDP_SPIN 1u     /* never sleep */
#define SJ_UDP_PARK 2u     /* sleep at once */
#define SJ_UDP_YIELD 3u    /* never sleep, but call sched_yield(2) while spinning */

typedef struct sj_udp sj_udp;

/* Makes a socket at the server `server` (a path or @NAME; NULL for the system's server), bound to
 * `local`: INADDR_ANY for all addresses of the host, port 0 for a free port. Errors: ENOENT if
 * there is no server, ECONNREFUSED if the server refuses this client, and EADDRINUSE, EADDRNOTAVAIL
 * and EACCES as for bind(2). */
sj_udp *sj_udp_bind(const char *server, const struct sockaddr_in *local, uint32_t wait);

/* Stores the address to which the socket is bound. */
int sj_udp_local(const sj_udp *socket, struct sockaddr_in *local);

/* Sends a datagram and returns `len`. An error that the datagram meets later on this host is
 * returned by the next sj_udp_recvfrom(). Errors: EMSGSIZE; EPIPE if the server has ended. */
ssize_t sj_udp_sendto(sj_udp *socket, const void *data, size_t len, const struct sockaddr_in *to);

/* Waits for a datagram for at most `timeout_ns`, stores it and returns its length. Bytes beyond
 * `size` are lost. `from` may be NULL. Errors: EAGAIN if none came in time, EPIPE if the server has
 * ended, and those of earlier calls of sj_udp_sendto(). */
ssize_t sj_udp_recvfrom(sj_udp *socket, void *data, size_t size, struct sockaddr_in *from, int64_t timeout_ns);

/* Closes the socket and frees its port. NULL is ignored. */
void sj_udp_close(sj_udp *socket);

#ifdef __cplusplus
}
#endif
#endif

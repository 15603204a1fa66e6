/* sojourn/buffers.h - sending and receiving in place, over any stream.
 *
 * C interface of the crate sojourn-buffers; docs/understand/buffers.md describes it. A stream is a
 * TCP or Unix socket, or a pipe. An object may be used by one thread at a time. No function raises
 * a signal for a socket, or prints. A function that fails returns -1 (or NULL) and sets errno:
 * EAGAIN if the time is over, EINTR if a signal handler has run, else as for recv(2) and send(2).
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef SOJOURN_BUFFERS_H
#define SOJOURN_BUFFERS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Time limits are nanoseconds; 0 does not wait. */
#define SJ_BUFFERS_FOREVER INT64_MAX

typedef struct sj_receiver sj_receiver;
typedef struct sj_sender sj_sender;

/* Receives from the descriptor, which stays the caller's. Everything that is received comes
 * through one receiver. A program waits for the descriptor (epoll) only after a loan has failed
 * with EAGAIN. Errors: EPROTOTYPE for a socket that is no stream. */
sj_receiver *sj_receiver_open(int fd);

/* Waits for at least `at_least` bytes, lends `max` of those that have arrived at most, and returns
 * their number. It is less than `at_least` only if no more will come, and 0 at the end. Ends the
 * loan before, like sj_receiver_give_back(receiver, 0).
 *
 * The bytes are in pieces[0] and then in pieces[1], which may be empty. They are to be read only. A
 * hostile peer on this host can change them while they are lent: what is checked must be copied
 * first, or come from sj_receiver_loan_copied(). */
ssize_t sj_receiver_loan(sj_receiver *receiver, size_t at_least, size_t max, int64_t timeout_ns, struct iovec pieces[2]);

/* The same, with all bytes in one piece of private memory, which nobody changes. */
ssize_t sj_receiver_loan_copied(sj_receiver *receiver, size_t at_least, size_t max, int64_t timeout_ns, const void **bytes);

/* Gives all lent bytes back, of which the first `len` are used up. The next loan begins behind
 * these. */
void sj_receiver_give_back(sj_receiver *receiver, size_t len);

/* Ends the receiver. Bytes that it holds are lost. NULL is ignored. */
void sj_receiver_close(sj_receiver *receiver);

/* Sends to the descriptor, which stays the caller's. Everything that is sent goes through one
 * sender: while space is reserved, nothing else can be sent to the stream. */
sj_sender *sj_sender_open(int fd);

/* Waits until there is space for at least `at_least` bytes, lends space for `max` at most, and
 * returns their number. The space is pieces[0] and then pieces[1], which may be empty. The peer
 * does not look at it before the commit. Pending bytes are sent first, and a reservation before
 * this one is cancelled. */
ssize_t sj_sender_reserve(sj_sender *sender, size_t at_least, size_t max, int64_t timeout_ns, struct iovec pieces[2]);

/* Sends the first `len` bytes of the reserved space and gives up the rest. After EAGAIN and EINTR
 * the bytes are committed, and some are pending. */
int sj_sender_commit(sj_sender *sender, size_t len, int64_t timeout_ns);

/* Sends pending bytes. */
int sj_sender_flush(sj_sender *sender, int64_t timeout_ns);

/* Returns the number of pending bytes. */
size_t sj_sender_pending(const sj_sender *sender);

/* Ends the sender. A reservation and pending bytes are lost. NULL is ignored. */
void sj_sender_close(sj_sender *sender);

#ifdef __cplusplus
}
#endif
#endif

/* What the readiness cases share: calls of poll and epoll whose results are printed.
 *
 * Cases: poll and select (readiness.c), epoll by level (readiness_sets.c), by edge
 * (readiness_edges.c), and sets with several users (readiness_shared.c). */
#ifndef READINESS_H
#define READINESS_H
#include "conform.h"

/* Waits once and prints the events, ordered by their data. */
int wait_for(int set, int ms);

/* Checks that no edge is left. A move and a recall may each add one edge that the kernel would not
 * give (docs/use/linux-differences.md). In phase m the move is over, so one extra edge is allowed
 * for the whole case. */
void no_edge(int set);

int add(int set, int fd, unsigned events, uint64_t data);

/* Adds the session to a set. Adding recalls the session, so in the phases in which it should be
 * moved it is made to move again. */
int add_away(int set, unsigned events, uint64_t data);

int mod(int set, int fd, unsigned events, uint64_t data);

/* Adds the session for one event, as add_away does otherwise. A session registered for one event
 * moves only if the registration is changed after the session is hot. */
int add_once_away(int set, uint64_t data);

int del(int set, int fd);

int new_set(void);

void poll_once(int fd, short events, int ms);

/* Writes until the session is full; returns the number of bytes. */
long fill_up(void);

#endif

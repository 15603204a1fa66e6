/* waits ADDRESS: a connection that spins, and operations that wait in their own way. The server
 * watches this process. */
#define _GNU_SOURCE 1
#include "waits.h"

#include <stdio.h>
#include <unistd.h>

#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%s:%d: not %s\n", __FILE__, __LINE__, #condition); \
            return 1;                                                           \
        }                                                                       \
    } while (0)

static bool is_as_before(waits_client *c)
{
    sj_wait now;
    bool asleep = true;
    if (sj_set_wait(c->stub.connection, NULL, &now) != SJ_OK || now.wait != 1 || now.spin_us != 0)
        return false;
    return waits_as_connected(c, &asleep) == SJ_OK && !asleep;
}

int main(int argc, char **argv)
{
    sj_options options;
    sj_connection *connection;
    static waits_client c;
    bool asleep = false;
    alarm(60);
    if (argc != 2)
        return 2;
    waits_options(&options);
    CHECK(options.wait == 1 && options.spin_us == 0);
    CHECK(sj_connect(argv[1], &options, &connection) == SJ_OK);
    CHECK(waits_bind(&c, connection) == SJ_OK);
    CHECK(is_as_before(&c));
    CHECK(waits_parked(&c, &asleep) == SJ_OK && asleep);
    CHECK(is_as_before(&c));
    CHECK(waits_bounded(&c, &asleep) == SJ_OK && asleep);
    CHECK(is_as_before(&c));
    CHECK(waits_refused(&c, &asleep) == SJ_FAULT && c.stub.fault == SJ_FAULT_USER);
    CHECK(is_as_before(&c));
    CHECK(waits_unanswered(&c, &asleep) == SJ_TIMEOUT);
    CHECK(is_as_before(&c));
    /* The other way round: the connection sleeps, and one operation does not. */
    const sj_wait park = {2, 0};
    sj_wait after = {0, 0};
    CHECK(sj_set_wait(connection, &park, NULL) == SJ_OK);
    CHECK(waits_spun(&c, &asleep) == SJ_OK && !asleep);
    CHECK(sj_set_wait(connection, NULL, &after) == SJ_OK && after.wait == 2);
    waits_unbind(&c);
    sj_disconnect(connection);
    return 0;
}

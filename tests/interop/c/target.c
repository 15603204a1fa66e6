/* The generated server of tests as a target of attacks: it serves until it is killed, by the loop
 * that users' servers run. Compiled with GENERATED naming the generated file, whose main() does the
 * rest. */
#define _GNU_SOURCE 1
#include <sojourn/idl/random.h>

#define LIFE_NS INT64_C(60000000000)

static int serve_on(const char *address, const sj_options *options, const sj_router *router)
{
    sj_endpoint *endpoint = NULL;
    sj_server *server = NULL;
    sj_status status = sj_listen(address, options, &endpoint);
    if (status == SJ_OK)
        status = sj_server_new(endpoint, &server);
    if (status == SJ_OK)
        status = sj_serve(router, server, sj_now_ns() + LIFE_NS);
    fprintf(stderr, "%s: %s\n", address, sj_status_text(status));
    return 1;
}

/* random.h is read by now: this meets the call in main() only. */
#define sj_test_serve(address, options, router) serve_on(address, options, router)
#include GENERATED

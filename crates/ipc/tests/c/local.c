/* Client and server in one address space: ADDRESS. */
#include "checks.h"

#include <pthread.h>

static sj_endpoint *endpoint;

static void *run(void *server)
{
    serve(endpoint, server);
    return NULL;
}

int main(int argc, char **argv)
{
    sj_server *server;
    sj_connection *c;
    pthread_t thread;
    char name[32];
    int object, fd;
    CHECK(argc == 2);
    alarm(60);
    CHECK_STATUS(SJ_OK, sj_listen(argv[1], NULL, &endpoint));
    sj_endpoint_set_local(endpoint, &object);
    CHECK_STATUS(SJ_OK, sj_server_new(endpoint, &server));
    CHECK(pthread_create(&thread, NULL, run, server) == 0);
    CHECK_STATUS(SJ_OK, sj_connect(argv[1], NULL, &c));
    CHECK(sj_is_local(c) && sj_local(c) == &object);
    check_all(c, argv[1]);
    sj_disconnect(c);
    /* An offered socket is a connection as any other. */
    CHECK_STATUS(SJ_OK, sj_offer(endpoint, &fd));
    snprintf(name, sizeof name, "fd:%d", fd);
    CHECK_STATUS(SJ_OK, sj_connect(name, NULL, &c));
    check_stop(c);
    pthread_join(thread, NULL);
    sj_disconnect(c);
    sj_server_free(server);
    sj_close(endpoint);
    printf("passed\n");
    return 0;
}

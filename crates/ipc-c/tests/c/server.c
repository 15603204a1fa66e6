/* A server process: ADDRESS. Says that it is ready. */
#include "checks.h"

int main(int argc, char **argv)
{
    sj_endpoint *endpoint;
    sj_server *server;
    CHECK(argc == 2);
    alarm(60);
    CHECK_STATUS(SJ_OK, sj_listen(argv[1], NULL, &endpoint));
    CHECK_STATUS(SJ_OK, sj_server_new(endpoint, &server));
    printf("ready\n");
    fflush(stdout);
    serve(endpoint, server);
    sj_server_free(server);
    sj_close(endpoint);
    return 0;
}

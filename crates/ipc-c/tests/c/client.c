/* A client process: ADDRESS, and how it ends: "stop" the server or make it "die". */
#include "checks.h"

int main(int argc, char **argv)
{
    sj_connection *c;
    CHECK(argc == 3);
    alarm(60);
    CHECK_STATUS(SJ_OK, sj_connect(argv[1], NULL, &c));
    CHECK(!sj_is_local(c) && sj_local(c) == NULL);
    if (strcmp(argv[2], "die") == 0) {
        sj_out out;
        sj_in in;
        sj_start(c, OP_DIE, 0, &out);
        CHECK_STATUS(SJ_DISCONNECTED, sj_call(c, &out, SJ_FOREVER, &in));
        CHECK(sj_reason(c) == SJ_REASON_PEER_DIED);
    } else {
        check_all(c, argv[1]);
        check_stop(c);
    }
    sj_disconnect(c);
    printf("passed\n");
    return 0;
}

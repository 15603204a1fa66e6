// A program that has used up all the memory that it may have before its first session is hot. Its
// calls need none, and go on.
#include "check.h"
#include <sys/resource.h>

enum { MORE = 64 << 20, ROUNDS = 3000 };

static void use_up(void) {
    struct rlimit limit = {MORE, MORE};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    for (size_t len = MORE; len >= 4096; len /= 2)
        while (mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED) {}
    for (size_t len = 4096; len >= 16; len /= 2)
        while (malloc(len) != NULL) {}
}

static void serve(int end) {
    char bytes[16];
    ssize_t len;
    while ((len = read(end, bytes, sizeof bytes)) > 0) CHECK(write(end, bytes, (size_t)len) == len);
    _exit(0);
}

int main(void) {
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        serve(ends[1]);
    }
    close(ends[1]);
    use_up();
    char bytes[16] = "";
    for (int round = 0; round < ROUNDS; round++) {
        CHECK(write(ends[0], bytes, 9) == 9);
        CHECK(recv(ends[0], bytes, 9, MSG_WAITALL) == 9);
    }
    close(ends[0]);
    CHECK(waitpid(child, NULL, 0) == child);
    CHECK(write(1, "done\n", 5) == 5);
    return 0;
}

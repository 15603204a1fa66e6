/* A program with a plug-in. The plug-in waits for the program's session, reads from it and writes
   to it, itself (OUTER) and through a library that it brings along (INNER). It is loaded with its
   own names first (RTLD_DEEPBIND), without that, or in a namespace of its own. */
#include "check.h"
#include <dlfcn.h>

#ifdef INNER
ssize_t inner_read(int fd, void *at, size_t len) { return read(fd, at, len); }
/* A name of the C library's that the plug-in defines itself, and that must stay its own. */
int sockatmark(int fd) { return 4711; }
int pipe2(int ends[2], int flags) { return 4712; }
#endif

#ifdef OUTER
ssize_t inner_read(int fd, void *at, size_t len);
static ssize_t (*const table[])(int, const void *, size_t) = {write};
int outer_wait(int fd) {
    struct pollfd one = {fd, POLLIN, 0};
    return poll(&one, 1, 5000);
}
ssize_t outer_read(int fd, void *at, size_t len) { return inner_read(fd, at, len); }
ssize_t outer_write(int fd, const void *at, size_t len) { return table[0](fd, at, len); }
int outer_own(void) {
    int ends[2];
    return pipe2(ends, 0);
}
#endif

#ifdef HOST
#include "away.h"

int main(int argc, char **argv) {
    int pair[2], is_space = argv[2][0] == 'n';
    char b[16] = "hello";
    alarm(50);
    void *plug = is_space ? dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW) : dlopen(argv[1], argv[2][0] == 'p' ? RTLD_NOW : RTLD_LAZY | RTLD_DEEPBIND);
    if (!plug) fprintf(stderr, "%s\n", dlerror()), exit(1);
    int (*wait_for)(int) = dlsym(plug, "outer_wait"), (*own)(void) = dlsym(plug, "outer_own");
    ssize_t (*get)(int, void *, size_t) = dlsym(plug, "outer_read"), (*put)(int, const void *, size_t) = dlsym(plug, "outer_write");
    CHECK(wait_for && get && put && own);
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    pid_t child = fork();
    if (!child) {
        ssize_t n;
        close(pair[0]);
        while ((n = read(pair[1], b, sizeof b)) > 0) CHECK(write(pair[1], b, n) == n);
        _exit(0);
    }
    close(pair[1]);
    int64_t start = now_ms();
    int must = getenv("LD_PRELOAD") && !is_space, away = 0;
    for (int i = 0; i < 3000 || (must && !away); i++) {
        CHECK(now_ms() - start < 30000);
        CHECK((i % 3 ? put : write)(pair[0], b, 5) == 5);
        CHECK(wait_for(pair[0]) == 1);
        CHECK((i % 2 ? get : read)(pair[0], b, 5) == 5);
        if (i % 100 == 0) away = is_away();
    }
    SAY(own());
    close(pair[0]);
    int status;
    CHECK(waitpid(child, &status, 0) == child && !status);
    return 0;
}
#endif

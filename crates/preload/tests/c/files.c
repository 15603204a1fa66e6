/* Streams of the C library (FILE) on a pipe or socket that is away: `files WRITER | files READER`.
   Numbered lines go through until both sides are away; then come the lines of the test itself. The
   reader's output must be the same in both runs. */
#include "check.h"
#include "away.h"
#include <wchar.h>

static int must_move(void) { return getenv("LD_PRELOAD") != 0; }

/* Writes lines until the stream is away, and as many again, which go through the ring. */
static void warm_out(FILE *out) {
    int64_t start = now_ms();
    int until = 1000;
    for (int i = 0; i < until; i++) {
        CHECK(fprintf(out, "n %d ................................................................................\n", i) > 0);
        if (must_move() && i == until - 1 && !is_away()) until += 1000;
        CHECK(now_ms() - start < 20000);
    }
    CHECK(fprintf(out, "go\n") > 0 && !fflush(out));
}

static void *line_writer(void *from) {
    for (int i = 0; i < 500; i++) fprintf(stdout, "t %ld %d\n", (long)from, i);
    return 0;
}

static void write_lines(const char *how) {
    char *cookie_at = 0;
    size_t cookie_len = 0;
    FILE *out = stdout;
    if (!strcmp(how, "fdopen")) out = fdopen(dup(1), "w"), close(1);
    if (!strcmp(how, "unbuffered")) setvbuf(out, 0, _IONBF, 0);
    if (!strcmp(how, "lines")) setvbuf(out, 0, _IOLBF, 0);
    warm_out(out);
    if (must_move()) CHECK(is_away());
    if (!strcmp(how, "exit")) fprintf(out, "at the end\n"), exit(0);
    if (!strcmp(how, "_exit")) fprintf(out, "lost\n"), _exit(0);
    if (!strcmp(how, "abort")) fprintf(out, "lost, too\n"), signal(SIGABRT, SIG_IGN), raise(SIGKILL);
    if (!strcmp(how, "fclose")) fprintf(out, "before the close\n"), CHECK(!fclose(out)), _exit(0);
    if (!strcmp(how, "mixed"))
        for (int i = 0; i < 100; i++) {
            fprintf(out, "stream %d\n", i), fflush(out);
            dprintf(1, "straight %d\n", i);
            CHECK(write(1, "plain\n", 6) == 6);
        }
    if (!strcmp(how, "unflushed")) fprintf(out, "later\n"), CHECK(write(1, "sooner\n", 7) == 7);
    if (!strcmp(how, "threads")) {
        pthread_t t[4];
        for (long i = 0; i < 4; i++) CHECK(!pthread_create(&t[i], 0, line_writer, (void *)i));
        for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
    }
    if (!strcmp(how, "fork")) {
        fprintf(out, "twice\n");
        if (fork() == 0) fprintf(out, "the child\n"), exit(0);
        wait(0), fprintf(out, "the parent\n");
    }
    if (!strcmp(how, "reopen")) {
        fprintf(out, "to the first\n");
        CHECK(freopen("/dev/null", "w", out) == out), fprintf(out, "nowhere\n");
    }
    if (!strcmp(how, "wide")) {
        FILE *wide = fdopen(dup(1), "w");
        for (int i = 0; i < 100; i++) fwprintf(wide, L"wide %d\n", i);
        fclose(wide);
    }
    if (!strcmp(how, "stderr")) dup2(1, 2), fprintf(stderr, "by descriptor 2\n"), fprintf(out, "by 1\n");
    if (!strcmp(how, "large")) {
        static char b[3 << 20];
        memset(b, 'x', sizeof b), b[sizeof b - 1] = '\n';
        CHECK(fwrite(b, 1, sizeof b, out) == sizeof b);
    }
    if (!strcmp(how, "broken")) {
        signal(SIGPIPE, SIG_IGN);
        char b[4096] = "";
        while (fwrite(b, 1, sizeof b, out) == sizeof b) {}
        CHECK(errno == EPIPE && ferror(out));
        fprintf(stderr, "broken\n"), _exit(0);
    }
    if (!strcmp(how, "seek")) CHECK(fseek(out, 0, SEEK_SET) == -1 && errno == ESPIPE && ftell(out) == -1), fprintf(out, "no place\n");
    fprintf(out, "last\n");
}

static void warm_in(FILE *in) {
    char line[256];
    int n, expected = 0;
    while (fgets(line, sizeof line, in) && strcmp(line, "go\n"))
        CHECK(sscanf(line, "n %d ..", &n) == 1 && n == expected++);
    CHECK(expected >= 1000);
}

static FILE *shared;

static void *reader(void *unused) {
    char b[64];
    while (fgets(b, sizeof b, shared)) {}
    return 0;
}

static void read_lines(const char *how) {
    char line[256];
    long hash = 5381, lines = 0;
    int c;
    FILE *in = stdin;
    if (!strcmp(how, "fdopen")) in = fdopen(dup(0), "r"), close(0);
    if (!strcmp(how, "unbuffered") || !strcmp(how, "poll")) setvbuf(in, 0, _IONBF, 0);
    warm_in(in);
    if (!strcmp(how, "quit")) exit(0);
    if (!strcmp(how, "wide")) {
        FILE *wide = fdopen(dup(0), "r");
        while ((c = getc_unlocked(in)) != EOF) hash = hash * 33 + c;
        CHECK(getwc(wide) == WEOF);
    } else if (!strcmp(how, "back")) {
        while ((c = getc(in)) != EOF) CHECK(ungetc(c, in) == c && getc(in) == c), hash = hash * 33 + c;
        CHECK(ungetc('Z', in) == 'Z' && getc(in) == 'Z' && getc(in) == EOF);
    } else if (!strcmp(how, "cancel")) {
        pthread_t t;
        shared = in, CHECK(!pthread_create(&t, 0, reader, 0));
        usleep(20000), pthread_cancel(t), pthread_join(t, 0);
        /* The bytes that the thread has read are gone, and the stream is not locked. */
        while (getc(in) != EOF) {}
    } else if (!strcmp(how, "poll")) {
        struct pollfd p = {0, POLLIN};
        do CHECK(poll(&p, 1, 5000) == 1), c = getc(in), hash = hash * 33 + c; while (c != EOF);
    } else if (!strcmp(how, "large")) {
        static char b[64 << 10];
        size_t got;
        while ((got = fread(b, 1, sizeof b, in)) > 0)
            for (size_t i = 0; i < got; i++) hash = hash * 33 + b[i], lines += b[i] == '\n';
    } else if (!strcmp(how, "sorted")) {
        while (fgets(line, sizeof line, in)) {
            long one = 5381;
            for (char *at = line; *at; at++) one = one * 33 + *at;
            hash += one, lines++;
        }
    } else
        while (fgets(line, sizeof line, in)) printf("%s", line), lines++;
    printf("%s: %ld lines, %lx, %d %d\n", how, lines, hash, feof(in) != 0, ferror(in) != 0);
}

/* A process behind `popen`, in both directions. */
static void processes(const char *self) {
    char command[512], line[256];
    snprintf(command, sizeof command, "exec %s read lines", self);
    FILE *to = popen(command, "w");
    warm_out(to), fprintf(to, "to the process\n");
    fprintf(stderr, "status %d\n", pclose(to));
    snprintf(command, sizeof command, "exec %s write exit", self);
    FILE *from = popen(command, "r");
    warm_in(from);
    while (fgets(line, sizeof line, from)) fprintf(stderr, "from it: %s", line);
    fprintf(stderr, "status %d\n", pclose(from));
}

int main(int count, char **words) {
    CHECK(count > 1);
    if (!strcmp(words[1], "write")) write_lines(words[2]);
    if (!strcmp(words[1], "read")) read_lines(words[2]);
    if (!strcmp(words[1], "processes")) processes(words[0]);
    return 0;
}

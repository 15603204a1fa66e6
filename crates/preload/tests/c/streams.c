/* stdio: every function that the library replaces works as before, with arguments of all kinds. */
#include "check.h"
#include <stdarg.h>
#include <wchar.h>

static void by_list(FILE *f, const char *form, ...) {
    va_list l;
    va_start(l, form);
    vfprintf(f, form, l);
    va_end(l);
}

int main(void) {
    char line[64], *grown = 0;
    size_t room = 0;
    int p[2], n;
    double d;
    /* More arguments than there are registers, with floating-point numbers among them. */
    printf("%d %s %f %ld %g %c %d %d %d %f %f %f %f %f %f %f %f\n", 1, "two", 3.5, 4L, 5.25, '6', 7, 8, 9, 1.5, 2.5, 3.5, 4.5,
           5.5, 6.5, 7.5, 8.5);
    fprintf(stdout, "%Lf %d\n", (long double)1.25, 2);
    by_list(stdout, "%d %f %s\n", 3, 4.5, "five");
    puts("puts"), putchar('p'), putc('q', stdout), fputc('r', stdout), fputs("s\n", stdout), fwrite("t\n", 1, 2, stdout);
    fflush(stdout), fflush(0);
    dprintf(1, "%s %f\n", "straight", 0.5);
    CHECK(!pipe(p));
    FILE *in = fdopen(p[0], "r"), *out = fdopen(p[1], "w");
    CHECK(in && out);
    fprintf(out, "12 3.5 word\nline two\nthird;rest\nwide\n"), fflush(out);
    SAY(fscanf(in, "%d %lf %63s", &n, &d, line));
    CHECK(n == 12 && d == 3.5 && !strcmp(line, "word") && fgetc(in) == '\n');
    CHECK(fgets(line, sizeof line, in) && !strcmp(line, "line two\n"));
    SAY(getdelim(&grown, &room, ';', in));
    SAY(ungetc('R', in));
    SAY(fread(line, 1, 6, in));
    SAY(getline(&grown, &room, in));
    fclose(out);
    SAY(getc(in));
    fclose(in);
    SAY(read(p[0], line, 1));
    in = fopen("/proc/self/stat", "r");
    SAY(fscanf(in, "%d", &n));
    CHECK(n == getpid());
    in = freopen("/dev/null", "r", in);
    SAY(fgetc(in));
    fclose(in);
    SAY(fopen("/nowhere", "r") == 0);
    SAY(fdopen(99, "r") == 0);
    SAY(getchar());
    setvbuf(stdout, 0, _IONBF, 0), printf("at once\n");
    stdout = fopen("/dev/null", "w"), printf("nowhere\n");
    fwprintf(stderr, L"%ls %d\n", L"wide", 5);
    return 0;
}

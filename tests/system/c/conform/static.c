/* Statically linked program, which no library can be preloaded into: uses an inherited descriptor.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    static char bytes[1000];
    if (argc != 3) return 2;
    int fd = atoi(argv[1]);
    long n = argv[2][0] == 'r' ? read(fd, bytes, 500) : write(fd, bytes, 300);
    char line[100];
    int len = snprintf(line, sizeof line, "static: %s -> %ld\n", argv[2], n);
    return write(1, line, len) == len ? 0 : 1;
}

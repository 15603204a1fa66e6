/* Says if the loader is in this process. */
#include <stdio.h>
#include <string.h>

int main(void) {
    char line[512];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    if (maps == NULL) return 1;
    while (fgets(line, sizeof line, maps)) found |= strstr(line, "/sojourn-abi") != NULL;
    puts(found ? "loaded" : "plain");
    return 0;
}

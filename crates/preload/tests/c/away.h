/* Tells a program by stdio that its sessions are away; after check.h. Programs that measure stacks
 * have a way of their own. */

/* Counts the sessions and pipes that are away from the kernel. */
static int is_away(void) {
    char line[512];
    int found = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, f))
        if (strstr(line, "memfd:sojourn-stream")) found++;
    fclose(f);
    return found;
}

/*
 * Tests the integrity of its own code as BoringSSL does (FIPS 140): the code in memory is that of
 * the file. Makes a system call of its own, so that there is something to rewrite.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static unsigned char *file;

static long own_call(void)
{
	long result = SYS_getppid;

	__asm__ volatile("syscall" : "+a"(result) : : "rcx", "r11", "memory");
	return result;
}

/* Compares the program's executable segments, which are the first object's. */
static int compare(struct dl_phdr_info *info, size_t size, void *differs)
{
	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *one = &info->dlpi_phdr[i];
		const void *at = (const void *)(info->dlpi_addr + one->p_vaddr);

		if (one->p_type == PT_LOAD && one->p_flags & PF_X)
			*(int *)differs |= memcmp(at, file + one->p_offset, one->p_filesz) != 0;
	}
	return 1;
}

int main(void)
{
	struct stat status;
	int differs = 0;
	int fd = open("/proc/self/exe", O_RDONLY);

	if (fd < 0 || fstat(fd, &status) || own_call() != getppid())
		return 1;
	file = malloc(status.st_size);
	for (off_t done = 0; done < status.st_size;) {
		ssize_t got = read(fd, file + done, status.st_size - done);

		if (got <= 0)
			return 1;
		done += got;
	}
	dl_iterate_phdr(compare, &differs);
	if (differs) {
		puts("FIPS integrity test failed");
		abort();
	}
	puts("whole");
	return 0;
}

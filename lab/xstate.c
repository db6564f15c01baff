/*
 * Lets a guest run on a processor whose extended registers it does not know.
 *
 * User Mode Linux 6.1 keeps 2,696 bytes of a process's extended registers: up to the protection keys. A processor with
 * AMX has 11 KiB of them, and Linux takes them from PTRACE_SETREGSET whole or not at all (EFAULT): without this, the
 * guest panics at its first process. Preloaded into the guest, this reads the whole first, lays the guest's part over
 * it, and sets the whole.
 *
 * It acts from the first EFAULT on, so it changes nothing on other processors; with LAB_XSTATE=whole in the environment
 * it acts from the beginning, so that a check on any processor takes the same way. With LAB_XSTATE=refuse it refuses
 * all of them itself: a guest that starts nevertheless runs without it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

typedef long (*ptrace_call)(enum __ptrace_request, pid_t, void *, void *);

/* Far more than any processor has. A guest's kernel stack would be too small for it, and it has one thread that uses it. */
static char whole[1 << 16];
static ptrace_call next;
static int sets_whole, refuses;

__attribute__((constructor)) static void begin(void)
{
	const char *wish = getenv("LAB_XSTATE");

	next = (ptrace_call)dlsym(RTLD_NEXT, "ptrace");
	sets_whole = wish && strcmp(wish, "whole") == 0;
	refuses = wish && strcmp(wish, "refuse") == 0;
}

static long set_whole(pid_t pid, void *set, const struct iovec *part)
{
	struct iovec all = { .iov_base = whole, .iov_len = sizeof(whole) };

	if (next(PTRACE_GETREGSET, pid, set, &all) != 0)
		return -1;
	memcpy(whole, part->iov_base, part->iov_len < all.iov_len ? part->iov_len : all.iov_len);
	return next(PTRACE_SETREGSET, pid, set, &all);
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list list;
	pid_t pid;
	void *address, *data;
	long result;

	va_start(list, request);
	pid = va_arg(list, pid_t);
	address = va_arg(list, void *);
	data = va_arg(list, void *);
	va_end(list);

	if (request != PTRACE_SETREGSET || address != (void *)NT_X86_XSTATE)
		return next(request, pid, address, data);
	if (refuses) {
		errno = EFAULT;
		return -1;
	}
	if (!sets_whole) {
		result = next(request, pid, address, data);
		if (result == 0 || errno != EFAULT)
			return result;
		sets_whole = 1;
	}
	return set_whole(pid, address, data);
}

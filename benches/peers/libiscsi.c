/*
 * Sequential reads or writes through libiscsi, so many of them under way, and what they cost: one line of JSON.
 *
 *   libiscsi URL read|write IO DEPTH BYTES [none|header|both [DISKS]]
 *
 * IO and BYTES are numbers of bytes, and may end in K, M or G. The word after them is what the digests cover. Requests
 * go through the asynchronous calls, one poll(2) for all of them; a read lands in the buffer of its request, all writes
 * send the same buffer, and the library copies neither.
 *
 * With DISKS there are so many sessions, each with DEPTH requests under way: BYTES are those of all together. One
 * epoll(7) waits for all of them, and what is begun is sent at once.
 *
 * With -DDATA_DIGEST it asks for data digests too, for a libiscsi that has them.
 */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>

/* A connection that is silent for so long is out of order. */
enum { SILENCE_MS = 30000 };
/* Requests for each place in the queue before the clock starts. */
enum { WARM_UP = 4 };
/* Events that one epoll_wait(2) tells of. */
enum { EVENTS = 1024 };

struct slot;

struct load {
	struct iscsi_context *iscsi;
	/* The places in its queue. */
	struct slot *slots;
	int lun;
	int writes;
	uint32_t io;
	uint32_t block;
	/* Requests that fit between the beginning of the unit and its end. */
	uint64_t places;
	/* Requests that were begun, and may be begun, since the login. */
	uint64_t begun;
	uint64_t end;
	unsigned int under_way;
	/* What epoll(7) waits for, where there are many. */
	uint32_t events;
	/* Nanoseconds of each request, where they are wanted. */
	uint64_t *latencies;
	uint64_t ended;
};

/* A place in the queue, with one request after the other in it. */
struct slot {
	struct load *load;
	struct scsi_iovec data;
	uint64_t begun;
};

struct usage {
	uint64_t at;
	struct rusage self;
};

static void fail(const char *format, ...)
{
	va_list words;

	va_start(words, format);
	fputs("libiscsi: ", stderr);
	vfprintf(stderr, format, words);
	fputc('\n', stderr);
	va_end(words);
	exit(1);
}

static void *allocate(size_t count, size_t size)
{
	void *memory = calloc(count, size);

	if (memory == NULL)
		fail("out of memory");
	return memory;
}

static uint64_t nanoseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void begin(struct slot *slot);

static void ended(struct iscsi_context *iscsi, int status, void *command, void *private_data)
{
	struct slot *slot = private_data;
	struct load *load = slot->load;
	struct scsi_task *task = command;

	if (status != SCSI_STATUS_GOOD)
		fail("a request ended with status %d: %s", status, iscsi_get_error(iscsi));
	if (task->residual_status != SCSI_RESIDUAL_NO_RESIDUAL)
		fail("a request moved other than it should: residual %zu", task->residual);
	scsi_free_scsi_task(task);
	load->under_way--;
	if (load->latencies != NULL)
		load->latencies[load->ended++] = nanoseconds() - slot->begun;
	if (load->begun < load->end)
		begin(slot);
}

static void begin(struct slot *slot)
{
	struct load *load = slot->load;
	uint64_t lba = load->begun % load->places * (load->io / load->block);
	struct scsi_task *task;

	if (load->latencies != NULL)
		slot->begun = nanoseconds();
	if (load->writes)
		task = iscsi_write16_iov_task(load->iscsi, load->lun, lba, NULL, load->io, (int)load->block, 0, 0, 0, 0,
					      0, ended, slot, &slot->data, 1);
	else
		task = iscsi_read16_iov_task(load->iscsi, load->lun, lba, load->io, (int)load->block, 0, 0, 0, 0, 0,
					     ended, slot, &slot->data, 1);
	if (task == NULL)
		fail("a request cannot be begun: %s", iscsi_get_error(load->iscsi));
	load->begun++;
	load->under_way++;
}

/* Begins so many requests, never more than depth at once. */
static void fill(struct load *load, unsigned int depth, uint64_t count)
{
	unsigned int slot;

	load->end = load->begun + count;
	for (slot = 0; slot < depth && load->begun < load->end; slot++)
		begin(&load->slots[slot]);
}

static void serve(struct load *load, int events)
{
	if (iscsi_service(load->iscsi, events) < 0)
		fail("the session ended: %s", iscsi_get_error(load->iscsi));
}

static int events_or_silence(int ready, const char *call)
{
	if (ready == 0)
		fail("no answer within %d s", SILENCE_MS / 1000);
	if (ready < 0 && errno != EINTR)
		fail("%s: %s", call, strerror(errno));
	return ready;
}

/* Begins so many requests, never more than depth at once, and waits for their end. */
static void carry_out(struct load *load, unsigned int depth, uint64_t count)
{
	fill(load, depth, count);
	while (load->under_way > 0) {
		struct pollfd socket = { .fd = iscsi_get_fd(load->iscsi),
					 .events = (short)iscsi_which_events(load->iscsi) };

		if (events_or_silence(poll(&socket, 1, SILENCE_MS), "poll") > 0)
			serve(load, socket.revents);
	}
}

/* Waits for what the session waits for. */
static void wait_for(int epoll, struct load *load)
{
	uint32_t wanted = (uint32_t)iscsi_which_events(load->iscsi);
	struct epoll_event event = { .events = wanted, .data = { .ptr = load } };
	int operation = load->events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;

	if (wanted == load->events)
		return;
	if (epoll_ctl(epoll, operation, iscsi_get_fd(load->iscsi), &event) != 0)
		fail("epoll_ctl: %s", strerror(errno));
	load->events = wanted;
}

/* The same with many disks, for each so many requests. The events of poll(2) and epoll(7) are the same numbers. */
static void carry_out_many(int epoll, struct load *loads, unsigned int disks, unsigned int depth, uint64_t count)
{
	static struct epoll_event events[EVENTS];
	unsigned int disk, busy = disks;

	for (disk = 0; disk < disks; disk++) {
		fill(&loads[disk], depth, count);
		serve(&loads[disk], POLLOUT);
		wait_for(epoll, &loads[disk]);
	}
	while (busy > 0) {
		int at, ready = events_or_silence(epoll_wait(epoll, events, EVENTS, SILENCE_MS), "epoll_wait");

		for (at = 0; at < ready; at++) {
			struct load *load = events[at].data.ptr;
			unsigned int before = load->under_way;

			serve(load, (int)events[at].events);
			if (iscsi_which_events(load->iscsi) & POLLOUT)
				serve(load, POLLOUT);
			wait_for(epoll, load);
			if (before > 0 && load->under_way == 0)
				busy--;
		}
	}
}

static struct usage usage_now(void)
{
	struct usage usage = { .at = nanoseconds() };

	getrusage(RUSAGE_SELF, &usage.self);
	return usage;
}

static double seconds_between(struct timeval from, struct timeval to)
{
	return (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_usec - from.tv_usec) / 1e6;
}

static int compare(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

static void print(const struct usage *from, const struct usage *to, struct load *load)
{
	const struct rusage *a = &from->self, *b = &to->self;
	double user = seconds_between(a->ru_utime, b->ru_utime);
	double system = seconds_between(a->ru_stime, b->ru_stime);

	printf("{\"seconds\":%.6f,\"cpu_seconds\":%.6f,\"user_seconds\":%.6f,\"system_seconds\":%.6f,",
	       (double)(to->at - from->at) / 1e9, user + system, user, system);
	printf("\"minor_faults\":%ld,\"voluntary_switches\":%ld,\"involuntary_switches\":%ld",
	       b->ru_minflt - a->ru_minflt, b->ru_nvcsw - a->ru_nvcsw, b->ru_nivcsw - a->ru_nivcsw);
	if (load->latencies != NULL) {
		qsort(load->latencies, load->ended, sizeof(*load->latencies), compare);
		printf(",\"latency_us\":%.3f", (double)load->latencies[load->ended / 2] / 1e3);
	}
	puts("}");
}

static uint64_t size(const char *word)
{
	static const char units[] = "KMG";
	char *rest;
	const char *unit;
	uint64_t number;

	errno = 0;
	number = strtoull(word, &rest, 10);
	unit = *rest == '\0' ? NULL : strchr(units, *rest);
	if (errno != 0 || rest == word || number == 0 || (*rest != '\0' && (unit == NULL || rest[1] != '\0')))
		fail("`%s` is no size", word);
	return unit == NULL ? number : number << (10 * (unit - units + 1));
}

static void set_digests(struct iscsi_context *iscsi, const char *word)
{
	if (strcmp(word, "none") == 0)
		return;
	if (strcmp(word, "header") != 0 && strcmp(word, "both") != 0)
		fail("digests are `none`, `header` or `both`, not `%s`", word);
	iscsi_set_header_digest(iscsi, ISCSI_HEADER_DIGEST_CRC32C);
	if (strcmp(word, "both") == 0) {
#ifdef DATA_DIGEST
		iscsi_set_data_digest(iscsi, ISCSI_DATA_DIGEST_CRC32C);
#else
		puts("{\"unsupported\":\"this libiscsi has no data digests\"}");
		exit(0);
#endif
	}
}

/* Logs in, and learns what the unit is like. The number tells the sessions apart for the target. */
static void open_unit(struct load *load, const char *url, const char *digests, uint32_t number)
{
	struct iscsi_context *iscsi = iscsi_create_context("iqn.2026-01.org.example:libiscsi");
	struct iscsi_url *parsed;
	struct scsi_task *task;
	struct scsi_readcapacity16 *capacity;

	if (iscsi == NULL)
		fail("no context");
	parsed = iscsi_parse_full_url(iscsi, url);
	if (parsed == NULL)
		fail("%s", iscsi_get_error(iscsi));
	iscsi_set_targetname(iscsi, parsed->target);
	iscsi_set_session_type(iscsi, ISCSI_SESSION_NORMAL);
	iscsi_set_isid_random(iscsi, (uint32_t)getpid(), number);
	set_digests(iscsi, digests);
	if (iscsi_full_connect_sync(iscsi, parsed->portal, parsed->lun) != 0)
		fail("%s", iscsi_get_error(iscsi));
	task = iscsi_readcapacity16_sync(iscsi, parsed->lun);
	if (task == NULL || task->status != SCSI_STATUS_GOOD)
		fail("READ CAPACITY(16): %s", iscsi_get_error(iscsi));
	capacity = scsi_datain_unmarshall(task);
	if (capacity == NULL || capacity->block_length == 0)
		fail("READ CAPACITY(16): not understood");
	if (load->io % capacity->block_length != 0)
		fail("requests are of whole blocks of %u bytes", capacity->block_length);
	load->iscsi = iscsi;
	load->lun = parsed->lun;
	load->block = capacity->block_length;
	load->places = (capacity->returned_lba + 1) / (load->io / capacity->block_length);
	if (load->places == 0)
		fail("the unit is smaller than a request");
	scsi_free_scsi_task(task);
	iscsi_destroy_url(parsed);
}

static void close_unit(struct load *load)
{
	if (iscsi_logout_sync(load->iscsi) != 0)
		fail("the logout failed: %s", iscsi_get_error(load->iscsi));
	iscsi_destroy_context(load->iscsi);
}

/* A buffer for each read, one for all writes. Each byte is touched, so that no page of it is new to the requests. */
static void make_slots(struct load *load, unsigned int depth)
{
	struct slot *slots = allocate(depth, sizeof(*slots));
	unsigned char *buffer = NULL;
	unsigned int slot;

	for (slot = 0; slot < depth; slot++) {
		if (buffer == NULL || !load->writes) {
			buffer = allocate(1, load->io);
			memset(buffer, 0x5a, load->io);
		}
		slots[slot].load = load;
		slots[slot].data.iov_base = buffer;
		slots[slot].data.iov_len = load->io;
	}
	load->slots = slots;
}

/* Each disk is a descriptor. */
static void allow_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/* The same with so many disks, each with a session of its own. */
static void run_many(char **words, const struct load *like, unsigned int disks, unsigned int depth, uint64_t count)
{
	struct load *loads = allocate(disks, sizeof(*loads));
	struct usage from, to;
	int epoll = epoll_create1(0);
	unsigned int disk;

	if (epoll < 0)
		fail("epoll_create1: %s", strerror(errno));
	allow_descriptors();
	for (disk = 0; disk < disks; disk++) {
		loads[disk] = *like;
		open_unit(&loads[disk], words[1], words[6], disk);
		make_slots(&loads[disk], depth);
	}
	carry_out_many(epoll, loads, disks, depth, (uint64_t)WARM_UP * depth);
	from = usage_now();
	carry_out_many(epoll, loads, disks, depth, count);
	to = usage_now();
	print(&from, &to, &loads[0]);
	for (disk = 0; disk < disks; disk++)
		close_unit(&loads[disk]);
}

int main(int argc, char **argv)
{
	struct load load = { 0 };
	struct usage from, to;
	unsigned int depth, disks;
	uint64_t count;

	if (argc < 6 || argc > 8)
		fail("usage: libiscsi URL read|write IO DEPTH BYTES [none|header|both [DISKS]]");
	load.writes = strcmp(argv[2], "write") == 0;
	if (!load.writes && strcmp(argv[2], "read") != 0)
		fail("`%s` is neither `read` nor `write`", argv[2]);
	load.io = (uint32_t)size(argv[3]);
	depth = (unsigned int)size(argv[4]);
	disks = argc > 7 ? (unsigned int)size(argv[7]) : 1;
	count = size(argv[5]) / load.io / disks;
	if (count == 0)
		fail("that is less than one request of each disk");
	if (argc > 7) {
		run_many(argv, &load, disks, depth, count);
		return 0;
	}
	open_unit(&load, argv[1], argc > 6 ? argv[6] : "none", 0);
	make_slots(&load, depth);
	carry_out(&load, depth, (uint64_t)WARM_UP * depth);
	if (depth == 1) {
		load.latencies = allocate(count, sizeof(*load.latencies));
		memset(load.latencies, 1, count * sizeof(*load.latencies));
	}
	from = usage_now();
	carry_out(&load, depth, count);
	to = usage_now();
	print(&from, &to, &load);
	close_unit(&load);
	return 0;
}

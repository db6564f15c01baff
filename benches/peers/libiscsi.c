/*
 * Sequential reads or writes through libiscsi, so many of them under way, and what they cost: one line of JSON.
 *
 *   libiscsi URL read|write IO DEPTH BYTES [none|header|both]
 *
 * IO and BYTES are numbers of bytes, and may end in K, M or G. The last word is what the digests cover. Requests go
 * through the asynchronous calls, one poll(2) for all of them; a read lands in the buffer of its request, all writes
 * send the same buffer, and the library copies neither.
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
#include <sys/resource.h>
#include <time.h>

#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>

/* A connection that is silent for so long is out of order. */
enum { SILENCE_MS = 30000 };
/* Requests for each place in the queue before the clock starts. */
enum { WARM_UP = 4 };

struct load {
	struct iscsi_context *iscsi;
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

/* Begins so many requests, never more than depth at once, and waits for their end. */
static void carry_out(struct load *load, struct slot *slots, unsigned int depth, uint64_t count)
{
	unsigned int slot;

	load->end = load->begun + count;
	for (slot = 0; slot < depth && load->begun < load->end; slot++)
		begin(&slots[slot]);
	while (load->under_way > 0) {
		struct pollfd socket = { .fd = iscsi_get_fd(load->iscsi),
					 .events = (short)iscsi_which_events(load->iscsi) };
		int ready = poll(&socket, 1, SILENCE_MS);

		if (ready == 0)
			fail("no answer within %d s", SILENCE_MS / 1000);
		if (ready < 0 && errno != EINTR)
			fail("poll: %s", strerror(errno));
		if (ready > 0 && iscsi_service(load->iscsi, socket.revents) < 0)
			fail("the session ended: %s", iscsi_get_error(load->iscsi));
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

/* Logs in, and learns what the unit is like. */
static void open_unit(struct load *load, const char *url, const char *digests)
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

/* A buffer for each read, one for all writes. Each byte is touched, so that no page of it is new to the requests. */
static struct slot *make_slots(struct load *load, unsigned int depth)
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
	return slots;
}

int main(int argc, char **argv)
{
	struct load load = { 0 };
	struct slot *slots;
	struct usage from, to;
	unsigned int depth;
	uint64_t count;

	if (argc < 6 || argc > 7)
		fail("usage: libiscsi URL read|write IO DEPTH BYTES [none|header|both]");
	load.writes = strcmp(argv[2], "write") == 0;
	if (!load.writes && strcmp(argv[2], "read") != 0)
		fail("`%s` is neither `read` nor `write`", argv[2]);
	load.io = (uint32_t)size(argv[3]);
	depth = (unsigned int)size(argv[4]);
	count = size(argv[5]) / load.io;
	if (count == 0)
		fail("that is less than one request");
	open_unit(&load, argv[1], argc > 6 ? argv[6] : "none");
	slots = make_slots(&load, depth);
	carry_out(&load, slots, depth, (uint64_t)WARM_UP * depth);
	if (depth == 1) {
		load.latencies = allocate(count, sizeof(*load.latencies));
		memset(load.latencies, 1, count * sizeof(*load.latencies));
	}
	from = usage_now();
	carry_out(&load, slots, depth, count);
	to = usage_now();
	print(&from, &to, &load);
	if (iscsi_logout_sync(load.iscsi) != 0)
		fail("the logout failed: %s", iscsi_get_error(load.iscsi));
	iscsi_destroy_context(load.iscsi);
	return 0;
}

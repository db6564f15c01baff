/*
 * Short requests with long answers over the loopback interface, by epoll(7) or by io_uring(7), and what an answer costs the
 * thread that asks:
 *
 *   io_uring epoll|ring DEPTH ANSWERS
 *
 * A request has 48 bytes, as a SCSI Command PDU; an answer 4,144, as a Data-In PDU with 4 KiB. A thread answers at once. All
 * requests that may be asked are sent together, and all answers that are there are taken together.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <liburing.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>

enum { REQUEST = 48, ANSWER = REQUEST + 4096, MOST = 64, ROOM = 1 << 18 };
enum { SENT = 1, RECEIVED };

static char requests[REQUEST * MOST], answers[ANSWER * MOST], room[ROOM];

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static int without_delay(int socket)
{
	int one = 1;

	if (socket < 0 || setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0)
		fail("socket");
	return socket;
}

static void send_all(int socket, const char *from, size_t len)
{
	while (len > 0) {
		ssize_t count = send(socket, from, len, 0);

		if (count < 0)
			fail("send");
		from += count;
		len -= (size_t)count;
	}
}

static void *serve(void *listener)
{
	int socket = without_delay(accept(*(int *)listener, NULL, NULL));
	static char asked[REQUEST * MOST];
	size_t have = 0;
	ssize_t count;

	while ((count = recv(socket, asked, sizeof(asked), 0)) > 0) {
		have += (size_t)count;
		send_all(socket, answers, have / REQUEST * ANSWER);
		have %= REQUEST;
	}
	return NULL;
}

static double seconds_of(struct timeval time)
{
	return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

static double processor(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

/* Sends so many requests, and waits for bytes: how many. One system call more each time is counted. */
static size_t ask_by_epoll(int epoll, int socket, long count, long *calls)
{
	struct epoll_event event;
	ssize_t got;

	if (count > 0) {
		send_all(socket, requests, (size_t)(REQUEST * count));
		++*calls;
	}
	if (epoll_wait(epoll, &event, 1, -1) < 0)
		fail("epoll_wait");
	got = recv(socket, room, ROOM, MSG_DONTWAIT);
	*calls += 2;
	if (got == 0 || (got < 0 && errno != EAGAIN))
		fail("recv");
	return got < 0 ? 0 : (size_t)got;
}

static size_t ask_by_ring(struct io_uring *ring, int socket, long count, long *calls)
{
	static int is_waiting;
	struct io_uring_sqe *entry;
	struct io_uring_cqe *end;
	size_t got = 0;

	if (count > 0) {
		entry = io_uring_get_sqe(ring);
		io_uring_prep_send(entry, socket, requests, (size_t)(REQUEST * count), 0);
		io_uring_sqe_set_data64(entry, SENT);
		entry->flags |= IOSQE_CQE_SKIP_SUCCESS;
	}
	if (!is_waiting) {
		entry = io_uring_get_sqe(ring);
		io_uring_prep_recv(entry, socket, room, ROOM, 0);
		io_uring_sqe_set_data64(entry, RECEIVED);
		entry->ioprio |= IORING_RECVSEND_POLL_FIRST;
		is_waiting = 1;
	}
	if (io_uring_submit_and_wait(ring, 1) < 0)
		fail("io_uring_enter");
	++*calls;
	while (io_uring_peek_cqe(ring, &end) == 0) {
		if (end->user_data != RECEIVED || end->res <= 0)
			fail("recv");
		got += (size_t)end->res;
		is_waiting = 0;
		io_uring_cqe_seen(ring, end);
	}
	return got;
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	socklen_t len = sizeof(address);
	struct io_uring ring;
	pthread_t thread;
	int listener = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(0), connection, rings;
	long depth, most, warm_up, sent = 0, calls = 0;
	size_t bytes = 0;
	double begun = 0;

	rings = argc == 4 && strcmp(argv[1], "ring") == 0;
	depth = argc == 4 ? atol(argv[2]) : 0;
	most = argc == 4 ? atol(argv[3]) : 0;
	if ((!rings && (argc != 4 || strcmp(argv[1], "epoll") != 0)) || depth < 1 || depth > MOST || most < 1) {
		fprintf(stderr, "usage: io_uring epoll|ring DEPTH ANSWERS, with a depth of 1 to %d\n", MOST);
		return 1;
	}
	if (bind(listener, (void *)&address, len) < 0 || listen(listener, 1) < 0 ||
	    getsockname(listener, (void *)&address, &len) < 0 || pthread_create(&thread, NULL, serve, &listener) != 0)
		fail("listen");
	connection = without_delay(socket(AF_INET, SOCK_STREAM, 0));
	if (connect(connection, (void *)&address, len) < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, connection, &event) < 0)
		fail("connect");
	if (rings && io_uring_queue_init(MOST, &ring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN) < 0)
		fail("io_uring_setup");
	warm_up = most / 10;
	while ((long)(bytes / ANSWER) < warm_up + most) {
		long answered = (long)(bytes / ANSWER), count = depth - (sent - answered);

		if (begun == 0 && answered >= warm_up) {
			begun = processor();
			calls = 0;
		}
		bytes += rings ? ask_by_ring(&ring, connection, count, &calls) : ask_by_epoll(epoll, connection, count, &calls);
		sent += count;
	}
	printf("{\"processor_us\":%.2f,\"system_calls\":%.2f}\n", (processor() - begun) * 1e6 / (double)most, (double)calls / (double)most);
	return 0;
}

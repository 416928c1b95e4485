/* Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0 */

/*
 * peer: one end of SCTP associations by usrsctp, for tests and experiments.
 *
 *   peer listen|connect NAME=VALUE...
 *
 * The names are those of the table `settings` and local=ADDRESS and
 * remote=ADDRESS, which may come several times. It says on standard output, one
 * line each, what happens: "ready" when it listens, "up" with the streams when
 * an association is set up, then its events, and what was sent and received. On
 * standard input it takes orders: see order(); or with messages=1 it is a socket
 * of type SOCK_SEQPACKET, by which messages come to be sent, and those go that
 * have come: each behind its stream, in two octets.
 *
 * The library is one stack per process, so each namespace has its own peer.
 */

#include <arpa/inet.h>
#include <dirent.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <usrsctp.h>

/* The header has the first two not at all, the third without the fields in their order. */
#define INTERLEAVING_SUPPORTED 0x1206
#define PEER_ADDR_THLDS 0x23
struct thresholds {
	struct sockaddr_storage address;
	sctp_assoc_t association;
	uint16_t inactive;
	uint16_t failed;
	uint16_t primary;
};

enum { MAX_ADDRESSES = 8, MAX_STREAMS = 64, MAX_MESSAGE = 1 << 20 };

/* Times are in milliseconds; -1 leaves the library's own value. */
static struct {
	long port, peer_port, udp, peer_udp;
	long rto_initial, rto_min, rto_max, heartbeat, sack_delay;
	long path_max_retrans, potentially_failed, association_max_retrans, max_init_retrans;
	long streams, interleaving, no_delay, send_buffer, receive_buffer, burst, mtu;
	long source, echo, messages, hash, size, largest, count, seconds, gap;
} set = {
	.port = 5000, .peer_port = 5000,
	.rto_initial = -1, .rto_min = -1, .rto_max = -1, .heartbeat = -1, .sack_delay = -1,
	.path_max_retrans = -1, .potentially_failed = -1, .association_max_retrans = -1,
	.max_init_retrans = -1,
	.streams = 4, .no_delay = 1, .send_buffer = -1, .receive_buffer = -1, .burst = -1,
	.size = 1000,
};

static const struct {
	const char *name;
	long *value;
} settings[] = {
	{ "port", &set.port },
	{ "peer-port", &set.peer_port },
	{ "udp", &set.udp },           /* our port of UDP encapsulation; 0: raw IP */
	{ "peer-udp", &set.peer_udp }, /* the peer's */
	{ "rto-initial", &set.rto_initial },
	{ "rto-min", &set.rto_min },
	{ "rto-max", &set.rto_max },
	{ "heartbeat", &set.heartbeat }, /* interval; 0: no heartbeats */
	{ "sack-delay", &set.sack_delay },
	{ "path-max-retrans", &set.path_max_retrans },
	{ "potentially-failed", &set.potentially_failed }, /* errors borne; -1: off */
	{ "association-max-retrans", &set.association_max_retrans },
	{ "max-init-retrans", &set.max_init_retrans },
	{ "streams", &set.streams },
	{ "interleaving", &set.interleaving },
	{ "no-delay", &set.no_delay },
	{ "send-buffer", &set.send_buffer },
	{ "receive-buffer", &set.receive_buffer },
	{ "burst", &set.burst },
	{ "mtu", &set.mtu }, /* of all paths, without looking for another; 0: the library's */
	{ "source", &set.source },   /* send as soon as an association is up */
	{ "echo", &set.echo },       /* send back what comes */
	{ "messages", &set.messages }, /* from standard input, and to it */
	{ "hash", &set.hash },       /* of what is sent and what comes, per stream */
	{ "size", &set.size },       /* of messages, */
	{ "largest", &set.largest }, /* or from size to this, nine in ten to a thirtieth of it */
	{ "count", &set.count },     /* of messages to send; 0: until the seconds are over */
	{ "seconds", &set.seconds },
	{ "gap", &set.gap }, /* microseconds between two messages */
};

/* What has gone or come by a stream: the hash is FNV-1a of each message and its length. */
struct stream {
	uint64_t messages, octets, hash;
	uint32_t begun; /* octets of a message that is not yet whole */
	unsigned char *whole;
};

static struct socket *sock;
static struct sockaddr_storage local[MAX_ADDRESSES], remote[MAX_ADDRESSES];
static int locals, remotes;
static struct stream sent[MAX_STREAMS], got[MAX_STREAMS];
static sctp_assoc_t association; /* the last that was set up */
static pthread_mutex_t printing = PTHREAD_MUTEX_INITIALIZER;

static void say(const char *format, ...)
{
	va_list list;

	pthread_mutex_lock(&printing);
	va_start(list, format);
	vprintf(format, list);
	va_end(list);
	putchar('\n');
	fflush(stdout);
	pthread_mutex_unlock(&printing);
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* address reads one, and returns its size; 0 if it is none. */
static socklen_t address(const char *text, uint16_t port, struct sockaddr_storage *a)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)a;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)a;

	memset(a, 0, sizeof(*a));
	if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons(port);
		return sizeof(*v6);
	}
	if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		return sizeof(*v4);
	}
	return 0;
}

static const char *text(const struct sockaddr_storage *a, char *buffer, socklen_t size)
{
	if (a->ss_family == AF_INET6)
		return inet_ntop(AF_INET6, &((struct sockaddr_in6 *)a)->sin6_addr, buffer, size);
	return inet_ntop(AF_INET, &((struct sockaddr_in *)a)->sin_addr, buffer, size);
}

static void option(int name, const void *value, socklen_t size, const char *what)
{
	if (usrsctp_setsockopt(sock, IPPROTO_SCTP, name, value, size) < 0)
		fail(what);
}

static void value_option(int name, uint32_t value, const char *what)
{
	struct sctp_assoc_value v = { SCTP_FUTURE_ASSOC, value };

	option(name, &v, sizeof(v), what);
}

static void set_timers(void)
{
	struct sctp_rtoinfo rto = { 0 };
	struct sctp_assocparams assoc = { 0 };
	struct sctp_paddrparams path = { 0 };
	struct sctp_sack_info sack = { 0 };
	struct thresholds thresholds = { 0 };

	rto.srto_initial = set.rto_initial > 0 ? set.rto_initial : 0;
	rto.srto_min = set.rto_min > 0 ? set.rto_min : 0;
	rto.srto_max = set.rto_max > 0 ? set.rto_max : 0;
	option(SCTP_RTOINFO, &rto, sizeof(rto), "RTO");
	if (set.association_max_retrans >= 0) {
		assoc.sasoc_asocmaxrxt = set.association_max_retrans;
		option(SCTP_ASSOCINFO, &assoc, sizeof(assoc), "Association.Max.Retrans");
	}
	path.spp_pathmaxrxt = set.path_max_retrans > 0 ? set.path_max_retrans : 0;
	if (set.heartbeat > 0) {
		path.spp_hbinterval = set.heartbeat;
		path.spp_flags = SPP_HB_ENABLE;
	} else if (set.heartbeat == 0) {
		path.spp_flags = SPP_HB_DISABLE;
	}
	if (set.mtu > 0) {
		path.spp_pathmtu = set.mtu;
		path.spp_flags |= SPP_PMTUD_DISABLE;
	}
	path.spp_address.ss_family = AF_INET6;
	option(SCTP_PEER_ADDR_PARAMS, &path, sizeof(path), "path parameters");
	if (set.potentially_failed >= 0 || set.path_max_retrans == 0) {
		thresholds.address.ss_family = AF_INET6;
		thresholds.inactive = set.path_max_retrans >= 0 ? set.path_max_retrans : 5;
		thresholds.failed = set.potentially_failed >= 0 ? set.potentially_failed : 0xffff;
		thresholds.primary = 0xffff;
		option(PEER_ADDR_THLDS, &thresholds, sizeof(thresholds), "thresholds");
	}
	if (set.sack_delay >= 0) {
		sack.sack_delay = set.sack_delay;
		sack.sack_freq = set.sack_delay == 0 ? 1 : 2;
		option(SCTP_DELAYED_SACK, &sack, sizeof(sack), "SACK delay");
	}
}

static void set_sizes(void)
{
	struct sctp_initmsg init = { 0 };
	int on = 1, buffer, interleave = 2;

	init.sinit_num_ostreams = init.sinit_max_instreams = set.streams;
	init.sinit_max_attempts = set.max_init_retrans > 0 ? set.max_init_retrans : 0;
	option(SCTP_INITMSG, &init, sizeof(init), "streams");
	if (set.no_delay)
		option(SCTP_NODELAY, &on, sizeof(on), "no delay");
	if (set.burst >= 0)
		value_option(SCTP_MAX_BURST, set.burst, "burst");
	if (set.interleaving) {
		option(SCTP_FRAGMENT_INTERLEAVE, &interleave, sizeof(interleave), "fragment interleave");
		value_option(INTERLEAVING_SUPPORTED, 1, "interleaving");
	}
	buffer = set.send_buffer;
	if (buffer > 0 && usrsctp_setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer)) < 0)
		fail("send buffer");
	buffer = set.receive_buffer;
	if (buffer > 0 && usrsctp_setsockopt(sock, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer)) < 0)
		fail("receive buffer");
}

static void set_events(void)
{
	static const uint16_t types[] = { SCTP_ASSOC_CHANGE, SCTP_PEER_ADDR_CHANGE, SCTP_SHUTDOWN_EVENT };
	struct sctp_event event = { SCTP_FUTURE_ASSOC, 0, 1 };
	int i, on = 1;

	for (i = 0; i < (int)(sizeof(types) / sizeof(types[0])); i++) {
		event.se_type = types[i];
		option(SCTP_EVENT, &event, sizeof(event), "events");
	}
	option(SCTP_RECVRCVINFO, &on, sizeof(on), "information");
}

/* waits reports whether a thread of this process waits for something. */
static int waits(const char *id, const char *name)
{
	char path[64], line[64], wanted[32];
	FILE *f;
	int yes;

	snprintf(path, sizeof(path), "/proc/self/task/%.16s/stat", id);
	snprintf(wanted, sizeof(wanted), "(%s) S ", name);
	if (!(f = fopen(path, "r")))
		return 0;
	yes = fgets(line, sizeof(line), f) && strstr(line, wanted);
	fclose(f);
	return yes;
}

/*
 * await_thread waits until a thread of the library waits for work. That which
 * changes addresses does not look for any before: what came while it started, on
 * a busy machine, would never be done.
 */
static void await_thread(const char *name)
{
	struct dirent *task;
	DIR *tasks;
	int yes;

	for (yes = 0; !yes; usleep(1000)) {
		if (!(tasks = opendir("/proc/self/task")))
			fail("threads");
		while (!yes && (task = readdir(tasks)))
			yes = waits(task->d_name, name);
		closedir(tasks);
	}
}

/* set_up makes the socket, with its addresses. */
static void set_up(void)
{
	struct sctp_udpencaps encaps = { 0 };
	int i;

	usrsctp_init(set.udp, NULL, NULL);
	await_thread("SCTP iterator");
	usrsctp_sysctl_set_sctp_ecn_enable(0);
	sock = usrsctp_socket(AF_INET6, SOCK_SEQPACKET, IPPROTO_SCTP, NULL, NULL, 0, NULL);
	if (!sock)
		fail("socket");
	set_timers();
	set_sizes();
	set_events();
	if (set.peer_udp) {
		encaps.sue_address.ss_family = AF_INET6;
		encaps.sue_port = htons(set.peer_udp);
		option(SCTP_REMOTE_UDP_ENCAPS_PORT, &encaps, sizeof(encaps), "encapsulation");
	}
	for (i = 0; i < locals; i++)
		if (usrsctp_bindx(sock, (struct sockaddr *)&local[i], 1, SCTP_BINDX_ADD_ADDR) < 0)
			fail("bind");
	if (usrsctp_listen(sock, 1) < 0)
		fail("listen");
}

static void join(void)
{
	char list[MAX_ADDRESSES * sizeof(struct sockaddr_in6)];
	sctp_assoc_t id;
	size_t at = 0, size;
	int i;

	for (i = 0; i < remotes; i++) {
		size = remote[i].ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
		memcpy(list + at, &remote[i], size);
		at += size;
	}
	if (usrsctp_connectx(sock, (struct sockaddr *)list, remotes, &id) < 0)
		fail("connect");
}

static void count(struct stream *s, const unsigned char *octets, size_t size, int last)
{
	uint64_t h = s->hash;
	size_t i;

	s->octets += size;
	s->begun += size;
	if (set.hash) {
		for (i = 0; i < size; i++)
			h = (h ^ octets[i]) * 0x100000001b3;
		for (i = 0; last && i < 4; i++)
			h = (h ^ (s->begun >> (24 - 8 * i) & 0xff)) * 0x100000001b3;
		s->hash = h;
	}
	if (last) {
		s->messages++;
		s->begun = 0;
	}
}

static void clear_counts(struct stream *list)
{
	int i;

	for (i = 0; i < MAX_STREAMS; i++) {
		list[i].messages = list[i].octets = list[i].begun = 0;
		list[i].hash = 0xcbf29ce484222325;
	}
}

/* summary says what has gone or come in all, and by each stream. */
static void summary(const char *what, const struct stream *list)
{
	static pthread_mutex_t whole = PTHREAD_MUTEX_INITIALIZER; /* several threads have something to sum up */
	uint64_t messages = 0, octets = 0;
	int i;

	pthread_mutex_lock(&whole);
	for (i = 0; i < MAX_STREAMS; i++) {
		messages += list[i].messages;
		octets += list[i].octets;
		if (set.hash && list[i].messages)
			say("stream %s %d %llu %llu %016llx", what, i, (unsigned long long)list[i].messages,
			    (unsigned long long)list[i].octets, (unsigned long long)list[i].hash);
	}
	say("%s %llu %llu", what, (unsigned long long)messages, (unsigned long long)octets);
	pthread_mutex_unlock(&whole);
}

static void traffic(void)
{
	struct sctpstat s;

	summary("sent", sent);
	summary("received", got);
	usrsctp_get_stat(&s);
	say("data out %u twice %u", s.sctps_senddata, s.sctps_recvdupdata);
	say("packets out %u in %u retransmitted %u fast %u timeouts %u", s.sctps_sendpackets, s.sctps_recvpackets,
	    s.sctps_sendretransdata, s.sctps_sendfastretrans, s.sctps_timodata);
}

/* transmit sends a message, or with flags what ends the association. */
static int transmit(uint16_t stream, uint32_t protocol, uint16_t flags, const void *octets, size_t size)
{
	struct sctp_sndinfo info = { stream, flags, protocol, 0, association };

	return usrsctp_sendv(sock, octets, size, NULL, 0, &info, sizeof(info), SCTP_SENDV_SNDINFO, 0) < 0 ? -1 : 0;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* source sends messages that begin with their number, as many or as long as is set. */
static void *source(void *nothing)
{
	static unsigned char message[MAX_MESSAGE];
	double end = now() + set.seconds;
	size_t i, size, spread = set.largest > set.size ? set.largest - set.size + 1 : 1;
	uint32_t n;
	int stream;

	(void)nothing;
	for (i = 0; i < sizeof(message); i++)
		message[i] = i * 31 >> 3;
	for (n = 0; set.count ? n < set.count : now() < end; n++) {
		size = set.size + (size_t)n * 7919 % (n % 10 ? spread / 30 + 1 : spread);
		stream = n % set.streams;
		for (i = 0; i < 4 && i < size; i++)
			message[i] = n >> (24 - 8 * i);
		if (transmit(stream, htonl(1 << 24 | n), 0, message, size) < 0) {
			say("cannot send message %u", n);
			return NULL;
		}
		count(&sent[stream], message, size, 1);
		if (set.gap)
			usleep(set.gap);
	}
	summary("sent", sent);
	say("done");
	return NULL;
}

static void start_source(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, source, NULL) != 0)
		fail("thread");
	pthread_detach(thread);
}

static void note_association(const struct sctp_assoc_change *c)
{
	switch (c->sac_state) {
	case SCTP_COMM_UP:
		association = c->sac_assoc_id;
		clear_counts(sent);
		clear_counts(got);
		say("up %u %u", c->sac_outbound_streams, c->sac_inbound_streams);
		if (set.source)
			start_source();
		break;
	case SCTP_RESTART:
		association = c->sac_assoc_id;
		clear_counts(sent);
		clear_counts(got);
		say("restart");
		break;
	case SCTP_COMM_LOST:
		traffic();
		say("lost %u", c->sac_error);
		break;
	case SCTP_SHUTDOWN_COMP:
		traffic();
		say("closed");
		break;
	case SCTP_CANT_STR_ASSOC:
		say("failed %u", c->sac_error);
	}
}

static void note(const union sctp_notification *n)
{
	static const char *states[] = { "?", "available", "unreachable", "removed", "added", "primary", "confirmed" };
	char buffer[INET6_ADDRSTRLEN];

	switch (n->sn_header.sn_type) {
	case SCTP_ASSOC_CHANGE:
		note_association(&n->sn_assoc_change);
		break;
	case SCTP_PEER_ADDR_CHANGE:
		say("path %s %s", text(&n->sn_paddr_change.spc_aaddr, buffer, sizeof(buffer)),
		    states[n->sn_paddr_change.spc_state <= SCTP_ADDR_CONFIRMED ? n->sn_paddr_change.spc_state : 0]);
		break;
	case SCTP_SHUTDOWN_EVENT:
		say("peer shutdown");
	}
}

/* whole collects a message, and returns its size once it is whole, else 0. */
static size_t whole(struct stream *s, const unsigned char *octets, size_t size, int last)
{
	if (!s->whole && !(s->whole = malloc(MAX_MESSAGE)))
		fail("memory");
	if (s->begun + size > MAX_MESSAGE) {
		fprintf(stderr, "a message is too large\n");
		exit(1);
	}
	memcpy(s->whole + s->begun, octets, size);
	return last ? s->begun + size : 0;
}

/* give_back sends a message back once it is whole. */
static void give_back(struct stream *s, const struct sctp_rcvinfo *info, const unsigned char *octets, size_t size, int last)
{
	if (!(size = whole(s, octets, size, last)))
		return;
	if (transmit(info->rcv_sid, info->rcv_ppid, info->rcv_flags & SCTP_UNORDERED, s->whole, size) < 0)
		fail("echo");
	count(&sent[info->rcv_sid], s->whole, size, 1);
}

/* hand_on gives a message to who has started us once it is whole. */
static void hand_on(struct stream *s, uint16_t stream, const unsigned char *octets, size_t size, int last)
{
	unsigned char head[2] = { stream >> 8, stream };
	struct iovec parts[2] = { { head, sizeof(head) } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };

	if (!(parts[1].iov_len = whole(s, octets, size, last)))
		return;
	parts[1].iov_base = s->whole;
	(void)sendmsg(STDIN_FILENO, &message, MSG_NOSIGNAL); /* who has closed it wants no more */
}

/* receive takes what comes until the socket is closed. */
static void receive(void)
{
	static unsigned char octets[1 << 18];
	struct sctp_rcvinfo info;
	socklen_t info_size, from_size;
	struct sockaddr_storage from;
	unsigned int kind;
	struct stream *s;
	ssize_t n;
	int flags;

	for (;;) {
		flags = 0;
		info_size = sizeof(info);
		from_size = sizeof(from);
		n = usrsctp_recvv(sock, octets, sizeof(octets), (struct sockaddr *)&from, &from_size, &info, &info_size, &kind, &flags);
		if (n < 0)
			fail("receive");
		if (flags & MSG_NOTIFICATION) {
			note((union sctp_notification *)octets);
			continue;
		}
		if (kind != SCTP_RECVV_RCVINFO || info.rcv_sid >= MAX_STREAMS)
			continue;
		s = &got[info.rcv_sid];
		if (set.echo)
			give_back(s, &info, octets, n, flags & MSG_EOR);
		if (set.messages)
			hand_on(s, info.rcv_sid, octets, n, flags & MSG_EOR);
		count(s, octets, n, flags & MSG_EOR);
	}
}

static void set_primary(const struct sockaddr_storage *a)
{
	struct sctp_setprim primary = { .ssp_addr = *a, .ssp_assoc_id = association };

	if (usrsctp_setsockopt(sock, IPPROTO_SCTP, SCTP_PRIMARY_ADDR, &primary, sizeof(primary)) < 0)
		perror("primary");
}

static void set_peer_primary(const struct sockaddr_storage *a)
{
	struct sctp_setpeerprim primary = { .sspp_addr = *a, .sspp_assoc_id = association };

	if (usrsctp_setsockopt(sock, IPPROTO_SCTP, SCTP_SET_PEER_PRIMARY_ADDR, &primary, sizeof(primary)) < 0)
		perror("peer primary");
}

/* probe sends a heartbeat to an address of the peer. */
static void probe(const struct sockaddr_storage *a)
{
	struct sctp_paddrparams path = { .spp_address = *a, .spp_assoc_id = association, .spp_flags = SPP_HB_DEMAND };

	if (usrsctp_setsockopt(sock, IPPROTO_SCTP, SCTP_PEER_ADDR_PARAMS, &path, sizeof(path)) < 0)
		perror("probe");
}

static void bind_more(const struct sockaddr_storage *a, int how)
{
	if (usrsctp_bindx(sock, (struct sockaddr *)a, 1, how) < 0)
		perror("bindx");
}

/* leave ends the association by a flag. */
static void leave(uint16_t flag)
{
	if (transmit(0, 0, flag, "", 0) < 0)
		perror("end");
}

/* order does what a line of standard input says. */
static void order(const char *line)
{
	char word[32], argument[64];
	struct sockaddr_storage a;
	int n = sscanf(line, "%31s %63s", word, argument);
	int of_peer = n == 2 && (!strcmp(word, "primary") || !strcmp(word, "probe"));

	if (n == 1 && !strcmp(word, "summary"))
		traffic();
	else if (n == 1 && !strcmp(word, "send"))
		start_source();
	else if (n == 1 && !strcmp(word, "shutdown"))
		leave(SCTP_EOF);
	else if (n == 1 && !strcmp(word, "abort"))
		leave(SCTP_ABORT);
	else if (n < 2 || !address(argument, of_peer ? set.peer_port : set.port, &a))
		fprintf(stderr, "unknown order: %s", line);
	else if (!strcmp(word, "primary")) /* of the peer, to send to */
		set_primary(&a);
	else if (!strcmp(word, "probe"))
		probe(&a);
	else if (!strcmp(word, "peer-primary")) /* of ours, for the peer to send to */
		set_peer_primary(&a);
	else if (!strcmp(word, "add"))
		bind_more(&a, SCTP_BINDX_ADD_ADDR);
	else if (!strcmp(word, "delete"))
		bind_more(&a, SCTP_BINDX_REM_ADDR);
}

static void *orders(void *nothing)
{
	char line[256];

	(void)nothing;
	while (fgets(line, sizeof(line), stdin))
		order(line);
	return NULL;
}

/* messages sends what comes, and sums up when nothing more does. */
static void *messages(void *nothing)
{
	static unsigned char message[MAX_MESSAGE + 2];
	ssize_t n;

	(void)nothing;
	while ((n = read(STDIN_FILENO, message, sizeof(message))) > 2) {
		if (transmit(message[0] << 8 | message[1], 0, 0, message + 2, n - 2) < 0)
			perror("send");
		count(&sent[message[1] % MAX_STREAMS], message + 2, n - 2, 1);
	}
	traffic();
	return NULL;
}

/* take reads an argument. It returns 0 if that is none. */
static int take(const char *argument)
{
	const char *value = strchr(argument, '=');
	size_t i, length;

	if (!value)
		return 0;
	length = value++ - argument;
	if (!strncmp(argument, "local=", 6))
		return locals < MAX_ADDRESSES && address(value, set.port, &local[locals++]);
	if (!strncmp(argument, "remote=", 7))
		return remotes < MAX_ADDRESSES && address(value, set.peer_port, &remote[remotes++]);
	for (i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
		if (strlen(settings[i].name) == length && !strncmp(argument, settings[i].name, length)) {
			*settings[i].value = strtol(value, NULL, 10);
			return 1;
		}
	return 0;
}

int main(int argc, char **argv)
{
	int i, listening = argc > 1 && !strcmp(argv[1], "listen");
	pthread_t thread;

	if (!listening && (argc < 2 || strcmp(argv[1], "connect"))) {
		fprintf(stderr, "say listen or connect\n");
		return 2;
	}
	for (i = 2; i < argc; i++)
		if (!take(argv[i])) {
			fprintf(stderr, "cannot use the argument %s\n", argv[i]);
			return 2;
		}
	if (set.streams < 1 || set.streams > MAX_STREAMS || set.size < 1 || set.size > MAX_MESSAGE || set.largest > MAX_MESSAGE) {
		fprintf(stderr, "too many streams, or too large messages\n");
		return 2;
	}
	clear_counts(sent);
	clear_counts(got);
	set_up();
	say("ready");
	if (!listening)
		join();
	if (pthread_create(&thread, NULL, set.messages ? messages : orders, NULL) != 0)
		fail("thread");
	receive();
	return 0;
}

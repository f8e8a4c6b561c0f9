/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Every TCP segment that is really sent or received, with its socket's state: one record each into the log of the
 * processor, so that the reader can bring them into true order (docs/decisions/0012-order-without-a-lock.md).
 * Programs only read. Rebuild with `make bpf`.
 */
#include "kernel.h"
#include "record.h"

/* The fields of a socket that are read: a new one stands here, in fill_socket() and in record.h. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 rcv_ssthresh, reordering, snd_wnd, mss_cache, snd_cwnd, lost_out, sacked_out, copied_seq, rttvar_us, retrans_out;
	__u16 advmss;
	__u32 snd_ssthresh;
	struct minmax rtt_min;
	__u32 segs_out, snd_sml, chrono_start, chrono_stat[3], write_seq, rcv_nxt, snd_nxt, snd_una, srtt_us, packets_out;
	__u64 bytes_sent, bytes_received, bytes_acked, bytes_retrans;
	__u8 chrono_type : 2, nonagle : 4, is_cwnd_limited : 1;
	__u32 delivered, delivered_ce, app_limited, rcv_wnd, segs_in, rcv_wup, dsack_dups, reord_seen, total_retrans;
	struct tcp_options_received rx_opt;
	struct { __u32 rtt_us; } rcv_rtt_est;
	struct { int space; } rcvq_space;
};
#pragma clang attribute pop

enum { AF_INET6 = 10, IPPROTO_TCP = 6 };
enum { ETH_P_IP = 0x0008, ETH_P_IPV6 = 0xdd86 }; /* in network order */
enum { TCP_SYN_SENT = 2, TCP_SYN_RECV = 3, TCP_TIME_WAIT = 6, TCP_LISTEN = 10, TCP_NEW_SYN_RECV = 12 };
enum { SOCK_NOSPACE = 2, MSG_PEEK = 2 };
enum { NEWS_AFTER = 1000000 }; /* ns */

/* Set by the loader before the program is checked: what is zero costs nothing. */
const volatile __u32 only_netns, only_pid, only_port;
const volatile __u64 only_cookie;
const volatile __u32 only_host, only_host_0, only_host_1, only_host_2, only_host_3;
const volatile __u32 with_headers;
/* Every call of an application, also those without new information. */
const volatile __u32 every_call;
/* Of the running kernel: the first of enum skb_drop_reason that is one, and whether kfree_skb reports who was to receive. */
const volatile __u32 first_reason, drop_has_receiver;
/* How many tcp_recvmsg takes there. */
const volatile __u32 recvmsg_arguments;
/* Events in the log of a processor: powers of two. */
const volatile __u32 near_places = 1, places = 1;
/* A processor whose plain stores come out in their order (x86). */
const volatile __u32 ordered_stores;
/* For tests of the order: rounds of idling between clock and writing, and reading the clock before there is a place. */
const volatile __u32 test_delay, test_clock_first;

/* Set once every program is attached: all begin to report in the same moment, or segments would seem to be missing. */
volatile __u32 running;

/*
 * A log of each processor, one behind the other: `near_places` that are used again and again, and so stay in the
 * caches, and behind them `places` for when the reader is late.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* the loader: places of all processors, as below */
	__type(key, __u32);
	__type(value, struct place);
} logs SEC(".maps");

/* Headers of the event in the same place of its log. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct headers);
} headers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* the loader: one a processor */
	__type(key, __u32);
	__type(value, struct producer);
} producers SEC(".maps");

struct owner {
	__u8 comm[16];
	__u32 pid;
	/* The last event reported: when, the end of what was written, and of it what was still to be sent; whether a call was
	 * under way, so that these need not be what it left. */
	__u32 write_seq, unsent, in_call;
	__u64 ts;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct owner);
} owners SEC(".maps");

/* What a program found out, before it is known whether anyone wants it. */
struct story {
	__u64 cookie;
	__u32 netns, drop_reason;
	__u32 local[4], remote[4];
	__u16 local_port, remote_port;
	__u8 what, flags, tos, ttl;
	__u32 seq, ack, payload, length, ts_value, ts_echo;
	__u16 window, segments, segment_size;
	__u8 state, ca_state, arrived;
};

struct claim {
	struct place *place;
	__u64 number, ts;
	__u32 cpu, index;
};

/* A plain loop, which the verifier follows once: bpf_loop() is there since Linux 5.17 only. */
INLINE void idle(void)
{
	for (__u32 i = 0; i < test_delay; i++)
		bpf_ktime_get_ns();
}

/*
 * Before the event is written: a place in this processor's log, then the clock. What interrupts this takes a place
 * behind it, and may have an older clock: the reader sorts. Returns 0, and counts, where the log is full.
 */
INLINE int begin(struct claim *claim)
{
	claim->cpu = bpf_get_smp_processor_id();
	struct producer *producer = bpf_map_lookup_elem(&producers, &claim->cpu);
	if (!producer)
		return 0;
	if (test_clock_first) {
		claim->ts = bpf_ktime_get_ns();
		if (claim->ts % 7 == 0)
			idle();
	}
	/* Again only where an interruption took the place between the two. */
#pragma unroll
	for (int i = 0; i < 4; i++) {
		__u64 taken = *(volatile __u64 *)&producer->taken;
		__u64 waiting = taken - *(volatile __u64 *)&producer->given_back;
		if (waiting >= places)
			break;
		if (__sync_val_compare_and_swap(&producer->taken, taken, taken + 1) != taken)
			continue;
		claim->number = taken + 1;
		claim->index = claim->cpu * (near_places + places);
		if (waiting < near_places)
			claim->index += (__u32)taken & (near_places - 1);
		else
			claim->index += near_places + ((__u32)taken & (places - 1));
		claim->place = bpf_map_lookup_elem(&logs, &claim->index);
		if (!claim->place)
			return 0;
		if (!test_clock_first) {
			claim->ts = bpf_ktime_get_ns();
			if (test_delay && claim->ts % 7 == 0)
				idle();
		}
		return 1;
	}
	__sync_fetch_and_add(&producer->lost, 1);
	return 0;
}

/* After it is written: nobody sees the number before what was written. */
INLINE void end(struct claim *claim)
{
	asm volatile("" : : : "memory");
	if (ordered_stores)
		*(volatile __u64 *)&claim->place->number = claim->number;
	else
		__sync_lock_test_and_set(&claim->place->number, claim->number);
}

INLINE void map_v4(__u32 *to, __u32 from)
{
	to[0] = 0;
	to[1] = 0;
	to[2] = 0xffff0000;
	to[3] = from;
}

INLINE void copy_v6(__u32 *to, const __u32 *from)
{
#pragma unroll
	for (int i = 0; i < 4; i++)
		to[i] = from[i];
}

INLINE int is_host(const __u32 *a)
{
	return a[0] == only_host_0 && a[1] == only_host_1 && a[2] == only_host_2 && a[3] == only_host_3;
}

/* The owner of a socket, and whoever runs now as its owner where the socket is used by a call of his. */
INLINE struct owner *owner_of(struct tcp_sock *tp, int by_owner, struct task_struct *task)
{
	struct owner *owner = bpf_sk_storage_get(&owners, tp, 0, by_owner ? BPF_SK_STORAGE_GET_F_CREATE : 0);
	if (!by_owner)
		return owner;
	if (owner && owner->pid != task->tgid) {
		owner->pid = task->tgid;
		*(__u64 *)owner->comm = *(__u64 *)task->comm;
		*(__u64 *)(owner->comm + 8) = *(__u64 *)(task->comm + 8);
	}
	return owner;
}

/* A figure of the socket: read without a check where the program may see it so. */
#define SEEN(field) (seen ? seen->field : tp->field)

INLINE void fill_socket(struct record *r, struct tcp_sock *tp, const struct bpf_tcp_sock *seen)
{
	struct inet_connection_sock *icsk = &tp->inet_conn;
	struct sock *sk = (struct sock *)tp;

	r->bits = (sk->sk_lock.owned ? BIT_OWNED : 0) | (BITS(tp, is_cwnd_limited) ? BIT_CWND_LIMITED : 0);
	struct socket *socket = sk->sk_socket;
	if (socket && socket->flags & (1UL << SOCK_NOSPACE))
		r->bits |= BIT_NO_SPACE;
	r->nonagle = BITS(tp, nonagle);
	r->snd_wscale = BITS(tp, rx_opt.snd_wscale);
	r->rcv_wscale = BITS(tp, rx_opt.rcv_wscale);
	r->timer = icsk->icsk_pending;
	r->retransmits = seen ? seen->icsk_retransmits : icsk->icsk_retransmits;
	r->backoff = icsk->icsk_backoff;
	r->probes_out = icsk->icsk_probes_out;
	r->pacing_status = sk->sk_pacing_status;
	r->pingpong = icsk->icsk_ack.pingpong;
	r->quick = icsk->icsk_ack.quick;
	r->advmss = tp->advmss;
	r->snd_una = SEEN(snd_una);
	r->snd_nxt = SEEN(snd_nxt);
	r->write_seq = tp->write_seq;
	r->snd_sml = tp->snd_sml;
	r->rcv_nxt = SEEN(rcv_nxt);
	r->rcv_wup = tp->rcv_wup;
	r->copied_seq = tp->copied_seq;
	r->snd_wnd = tp->snd_wnd;
	r->rcv_wnd = tp->rcv_wnd;
	r->rcv_ssthresh = tp->rcv_ssthresh;
	r->rcv_space = tp->rcvq_space.space;
	r->cwnd = SEEN(snd_cwnd);
	r->ssthresh = SEEN(snd_ssthresh);
	r->srtt_us8 = SEEN(srtt_us);
	r->rttvar_us4 = tp->rttvar_us;
	r->min_rtt_us = seen ? seen->rtt_min : tp->rtt_min.s[0].v;
	r->rcv_rtt_us8 = tp->rcv_rtt_est.rtt_us;
	r->rto_ticks = icsk->icsk_rto;
	r->ato_ticks = BITS(icsk, icsk_ack.ato);
	r->mss = SEEN(mss_cache);
	r->rcv_mss = icsk->icsk_ack.rcv_mss;
	r->packets_out = SEEN(packets_out);
	r->sacked_out = SEEN(sacked_out);
	r->lost_out = SEEN(lost_out);
	r->retrans_out = SEEN(retrans_out);
	r->reordering = tp->reordering;
	r->segs_out = SEEN(segs_out);
	r->total_retrans = SEEN(total_retrans);
	r->delivered = SEEN(delivered);
	r->delivered_ce = SEEN(delivered_ce);
	r->reord_seen = tp->reord_seen;
	r->dsack_dups = SEEN(dsack_dups);
	r->sndbuf = sk->sk_sndbuf;
	r->sndbuf_used = sk->sk_wmem_queued;
	r->rcvbuf = sk->sk_rcvbuf;
	r->rcvbuf_used = sk->sk_backlog.rmem_alloc.counter;
	r->wmem_alloc = sk->sk_wmem_alloc.refs.counter;
	r->app_limited = tp->app_limited;
	r->bytes_acked = SEEN(bytes_acked);
	r->bytes_received = SEEN(bytes_received);
	r->bytes_sent = tp->bytes_sent;
	r->bytes_retrans = tp->bytes_retrans;
	r->pacing_rate = sk->sk_pacing_rate;

	/* As tcp_get_info_chrono_stats(): the running stretch belongs to the kind that runs. */
	__u32 kind = BITS(tp, chrono_type);
	__u32 running = (__u32)bpf_jiffies64() - tp->chrono_start;
	__u32 busy = tp->chrono_stat[0], rwnd = tp->chrono_stat[1], sndbuf = tp->chrono_stat[2];
	busy += kind == 1 ? running : 0;
	rwnd += kind == 2 ? running : 0;
	sndbuf += kind == 3 ? running : 0;
	r->chrono = kind;
	r->busy_ticks = busy + rwnd + sndbuf;
	r->rwnd_limited_ticks = rwnd;
	r->sndbuf_limited_ticks = sndbuf;
}

/* What the event leaves unsent: the socket's state is that before a segment is sent. */
INLINE __u32 left_unsent(const struct record *r)
{
	__u32 next = r->snd_nxt;
	__u32 end = r->seq + r->payload;
	if (r->what == SENT && (__s32)(end - next) > 0)
		next = end;
	return r->write_seq - next;
}

/*
 * Whether an application's call reports what no event beside it does. What was written is seen in the segment that
 * takes it along, and in those after it while more waits than a segment holds; what was read, in all that comes soon.
 */
INLINE int is_news(const struct owner *owner, const struct tcp_sock *tp, __u8 what)
{
	if (what == WROTE)
		return owner->in_call || (tp->write_seq != owner->write_seq && owner->unsent < tp->mss_cache);
	return bpf_ktime_get_ns() - owner->ts > NEWS_AFTER;
}

/*
 * Writes the event, if anyone wants it. `tp`: its socket, or 0; `seen`: the same as some programs may see it, or 0.
 * `skb`: where its headers can be read from, or 0. `device`: of a drop, the name of its device.
 */
INLINE void emit(struct tcp_sock *tp, const struct bpf_tcp_sock *seen, const struct story *story, const struct __sk_buff *skb,
		 int by_owner, int drop, const char *device)
{
	if (only_netns && story->netns != only_netns)
		return;
	if (only_cookie && story->cookie != only_cookie)
		return;
	if (only_port && story->local_port != only_port && story->remote_port != only_port)
		return;
	if (only_host && !is_host(story->local) && !is_host(story->remote))
		return;
	struct task_struct *task = bpf_get_current_task_btf();
	struct owner *owner = tp ? owner_of(tp, by_owner, task) : 0;
	if (only_pid && (!owner || owner->pid != only_pid))
		return;

	/*
	 * A segment is received without the socket's lock, and counted after this. Read before the clock, the count can
	 * lack a segment that is older, but never has one that is younger: so a count ahead means a missing event.
	 */
	__u32 segs_in = tp ? SEEN(segs_in) : 0;
	struct claim claim;
	if (!begin(&claim))
		return;
	struct record *r = &claim.place->record;
	if (tp) {
		fill_socket(r, tp, seen);
		r->segs_in = segs_in;
	} else {
		__builtin_memset(r, 0, sizeof(*r));
	}
	if (story->what == DROPPED && story->arrived)
		r->bits |= BIT_ARRIVED;
	r->ts = claim.ts;
	r->cpu = claim.cpu;
	r->cookie = story->cookie;
	r->netns = story->netns;
	r->current_pid = task->tgid;
	*(__u64 *)r->current_comm = *(__u64 *)task->comm;
	*(__u64 *)(r->current_comm + 8) = *(__u64 *)(task->comm + 8);
	__builtin_memcpy(r->local, story->local, 16);
	__builtin_memcpy(r->remote, story->remote, 16);
	r->local_port = story->local_port;
	r->remote_port = story->remote_port;
	r->what = story->what;
	r->flags = story->flags;
	r->tos = story->tos;
	r->ttl = story->ttl;
	r->seq = story->seq;
	r->ack = story->ack;
	r->payload = story->payload;
	r->length = story->length;
	r->ts_value = story->ts_value;
	r->ts_echo = story->ts_echo;
	r->window = story->window;
	r->segments = story->segments;
	r->segment_size = story->segment_size;
	r->drop_reason = story->drop_reason;
	r->state = story->state;
	r->ca_state = story->ca_state;
	r->pid = owner ? owner->pid : 0;
	*(__u64 *)r->comm = owner ? *(__u64 *)owner->comm : 0;
	*(__u64 *)(r->comm + 8) = owner ? *(__u64 *)(owner->comm + 8) : 0;
	if (owner) {
		owner->write_seq = r->write_seq;
		owner->unsent = left_unsent(r);
		owner->in_call = story->what == RECEIVED || story->what == DROPPED ? r->bits & BIT_OWNED : 0;
		owner->ts = r->ts;
	}
	if (drop) {
		bpf_probe_read_kernel_str(claim.place->device, DEVICE, device);
	} else if (with_headers && skb) {
		struct headers *to = bpf_map_lookup_elem(&headers, &claim.index);
		__u32 length = story->length - story->payload;
		if (length > HEADERS)
			length = HEADERS;
		if (to && length)
			bpf_skb_load_bytes(skb, 0, to, length);
	}
	end(&claim);
}

/* Where bytes are of a packet that is the program's own context, or that lies at `ip`: there, or copied into `room`. */
INLINE long look(const struct __sk_buff *skb, const void *ip, __u32 at, void *room, __u32 length, const __u8 **bytes)
{
	*bytes = room;
	if (!skb)
		return bpf_probe_read_kernel(room, length, ip + at);
	/* In the packet's first piece, as headers nearly always are, without a call. */
	const __u8 *there = (const __u8 *)(long)skb->data + at;
	if (there + length > (const __u8 *)(long)skb->data_end)
		return bpf_skb_load_bytes(skb, at, room, length);
	*bytes = there;
	return 0;
}

/* Room for headers that have to be copied. */
struct room {
	__u64 ip[5], tcp[3], extension, stamps[2];
};

/*
 * The headers of a packet that begins with IP, of `length` bytes and this protocol, as look() finds them; as the end
 * sees it that is local to whoever sent it, or that receives it. Returns 0 where there is no whole TCP header.
 */
INLINE int read_headers(const struct __sk_buff *skb, const void *packet, __u16 protocol, __u32 length, struct room *room,
			struct story *story)
{
	__u32 *from = story->arrived ? story->remote : story->local;
	__u32 *to = story->arrived ? story->local : story->remote;
	const __u8 *ip, *tcp;
	__u32 at;

	if (protocol == ETH_P_IP) {
		if (look(skb, packet, 0, room->ip, 20, &ip) || ip[9] != IPPROTO_TCP)
			return 0;
		at = (ip[0] & 15) * 4;
		story->tos = ip[1];
		story->ttl = ip[8];
		map_v4(from, *(const __u32 *)(ip + 12));
		map_v4(to, *(const __u32 *)(ip + 16));
	} else if (protocol == ETH_P_IPV6) {
		if (look(skb, packet, 0, room->ip, 40, &ip))
			return 0;
		__u8 next = ip[6];
		at = 40;
		/* Extension headers that can stand before TCP (RFC 8200): as many as anyone sends. */
#pragma unroll
		for (int i = 0; i < 3; i++) {
			if (next != 0 && next != 43 && next != 60)
				break;
			const __u8 *extension;
			if (look(skb, packet, at, &room->extension, 2, &extension))
				return 0;
			next = extension[0];
			at += (extension[1] + 1) * 8;
		}
		if (next != IPPROTO_TCP)
			return 0;
		story->tos = (ip[0] << 4) | (ip[1] >> 4);
		story->ttl = ip[7];
		copy_v6(from, (const __u32 *)(ip + 8));
		copy_v6(to, (const __u32 *)(ip + 24));
	} else {
		return 0;
	}
	if (look(skb, packet, at, room->tcp, 20, &tcp))
		return 0;
	story->length = length;
	story->payload = length - at - (tcp[12] >> 4) * 4;
	story->seq = bswap32(*(const __u32 *)(tcp + 4));
	story->ack = bswap32(*(const __u32 *)(tcp + 8));
	story->flags = tcp[13];
	story->window = bswap16(*(const __u16 *)(tcp + 14));
	__u16 port = bswap16(*(const __u16 *)tcp), other = bswap16(*(const __u16 *)(tcp + 2));
	story->local_port = story->arrived ? other : port;
	story->remote_port = story->arrived ? port : other;
	/* As they lie in nearly every segment (RFC 7323, appendix A): before all else, behind two bytes without meaning. */
	const __u8 *stamps;
	if ((tcp[12] >> 4) * 4 >= 32 && !look(skb, packet, at + 20, room->stamps, 12, &stamps) &&
	    *(const __u32 *)stamps == 0x0a080101) {
		story->ts_value = bswap32(*(const __u32 *)(stamps + 4));
		story->ts_echo = bswap32(*(const __u32 *)(stamps + 8));
	}
	return 1;
}

/* Seen from the peer. */
INLINE void turn(struct story *story)
{
	__u32 address[4];
	__builtin_memcpy(address, story->local, 16);
	__builtin_memcpy(story->local, story->remote, 16);
	__builtin_memcpy(story->remote, address, 16);
	__u16 port = story->local_port;
	story->local_port = story->remote_port;
	story->remote_port = port;
}

INLINE void segment(struct __sk_buff *skb, __u8 what)
{
	struct bpf_sock *any = skb->sk;
	if (!running || !any)
		return;
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(any);
	const struct bpf_tcp_sock *seen = bpf_tcp_sock(any);
	if (!tp || !seen)
		return;
	struct sock *sk = (struct sock *)tp;
	struct story story = { .what = what, .arrived = what == RECEIVED, .netns = sk->__sk_common.skc_net.net->ns.inum };
	if (only_netns && story.netns != only_netns)
		return;
	struct room room;
	if (!read_headers(skb, 0, skb->protocol, skb->len, &room, &story))
		return;
	story.cookie = sk->__sk_common.skc_cookie.counter;
	if (!story.cookie)
		story.cookie = bpf_get_socket_cookie(skb);
	story.segments = skb->gso_segs ? skb->gso_segs : 1;
	story.segment_size = skb->gso_segs > 1 ? skb->gso_size : 0;
	story.state = sk->__sk_common.skc_state;
	story.ca_state = BITS(&tp->inet_conn, icsk_ca_state);
	/* TCP sends under the lock: while a process holds it, by that process. A listener answers by itself. */
	int by_owner = what == SENT && story.state != TCP_LISTEN && sk->sk_lock.owned;
	emit(tp, seen, &story, skb, by_owner, 0, 0);
}

SEC("cgroup_skb/egress") int linerate_sent(struct __sk_buff *skb)
{
	segment(skb, SENT);
	return 1;
}

SEC("cgroup_skb/ingress") int linerate_received(struct __sk_buff *skb)
{
	segment(skb, RECEIVED);
	return 1;
}

static __attribute__((noinline)) void emit_step(struct tcp_sock *tp, const struct story *story, int by_owner)
{
	emit(tp, 0, story, 0, by_owner, 0, 0);
}

/* An event that is no segment: the addresses are the socket's own. */
INLINE void step(struct sock *any, struct story *story, int new_state, int new_ca_state, int by_owner)
{
	struct tcp_sock *tp = running ? bpf_skc_to_tcp_sock(any) : 0;
	if (!tp)
		return;
	/* Most calls: at once, before anything is asked that only an event needs. */
	struct task_struct *task = bpf_get_current_task_btf();
	if (story->what == WROTE || story->what == READ) {
		struct owner *owner = every_call ? 0 : owner_of(tp, 0, task);
		if (owner && owner->pid == task->tgid && !is_news(owner, tp, story->what))
			return;
	}
	/* The SYN identifies the connection; before it the port is not known. */
	if (new_state == TCP_LISTEN || new_state == TCP_SYN_SENT) {
		owner_of(tp, 1, task);
		return;
	}
	struct sock *sk = (struct sock *)tp;
	story->netns = sk->__sk_common.skc_net.net->ns.inum;
	story->cookie = bpf_get_socket_cookie(tp);
	if (sk->__sk_common.skc_family == AF_INET6) {
		copy_v6(story->local, sk->__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32);
		copy_v6(story->remote, sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32);
	} else {
		map_v4(story->local, sk->__sk_common.skc_rcv_saddr);
		map_v4(story->remote, sk->__sk_common.skc_daddr);
	}
	/* Not skc_num: that is given back before the last event. */
	story->local_port = bswap16(((struct inet_sock *)tp)->inet_sport);
	story->remote_port = bswap16(sk->__sk_common.skc_dport);
	if (!story->local_port || !story->remote_port)
		return;
	story->state = new_state >= 0 ? new_state : sk->__sk_common.skc_state;
	story->ca_state = new_ca_state >= 0 ? new_ca_state : BITS(&tp->inet_conn, icsk_ca_state);
	emit_step(tp, story, by_owner);
}

INLINE int wrote(struct sock *sk, int moved)
{
	struct story story = { .what = WROTE, .payload = moved > 0 ? moved : 0 };
	step(sk, &story, -1, -1, 1);
	return 0;
}

INLINE int has_read(struct sock *sk, int moved, int flags)
{
	struct story story = { .what = READ, .payload = moved > 0 && !(flags & MSG_PEEK) ? moved : 0 };
	step(sk, &story, -1, -1, 1);
	return 0;
}

SEC("tp_btf/sock_send_length") int linerate_wrote(__u64 *context)
{
	return wrote((struct sock *)context[0], context[1]);
}

SEC("tp_btf/sock_recv_length") int linerate_read(__u64 *context)
{
	return has_read((struct sock *)context[0], context[1], context[2]);
}

/* The same before Linux 6.3, which lacks these tracepoints: where the call returns. */
SEC("fexit/tcp_sendmsg") int linerate_wrote_before(__u64 *context)
{
	return wrote((struct sock *)context[0], context[3]);
}

SEC("fexit/tcp_recvmsg") int linerate_read_before(__u64 *context)
{
	/* Before Linux 5.19 there is one argument more. */
	if (recvmsg_arguments == 6)
		return has_read((struct sock *)context[0], context[6], context[4]);
	return has_read((struct sock *)context[0], context[5], context[3]);
}

SEC("tp_btf/inet_sock_set_state") int linerate_state(__u64 *context)
{
	int before = context[1], after = context[2];
	/* The child of a listener has neither its addresses nor its number yet. */
	if (before == TCP_LISTEN && after == TCP_SYN_RECV)
		return 0;
	struct story story = { .what = STATE };
	step((struct sock *)context[0], &story, after, -1, 0);
	return 0;
}

SEC("tp_btf/tcp_cong_state_set") int linerate_congestion(__u64 *context)
{
	struct sock *sk = (struct sock *)context[0];
	if (sk->__sk_common.skc_state == TCP_SYN_RECV)
		return 0; /* as above */
	struct story story = { .what = CONGESTION };
	step(sk, &story, -1, (__u8)context[1], 0);
	return 0;
}

/* After the segment left: that it was retransmitted, by the kernel's own account. */
SEC("tp_btf/tcp_retransmit_skb") int linerate_retransmitted(__u64 *context)
{
	struct sk_buff *skb = (struct sk_buff *)context[1];
	struct tcp_skb_cb cb;
	if (bpf_probe_read_kernel(&cb, sizeof(cb), __builtin_preserve_access_index(&skb->cb)))
		return 0;
	struct story story = { .what = RETRANSMITTED, .seq = cb.seq, .payload = skb->len };
	step((struct sock *)context[0], &story, -1, -1, 0);
	return 0;
}

/* Whose the packet is, and which way it goes. */
INLINE void place_drop(struct story *story, struct sock *sk)
{
	story->netns = sk->__sk_common.skc_net.net->ns.inum;
	story->state = sk->__sk_common.skc_state;
	/* A listener has no peer. */
	__u16 peer = bswap16(sk->__sk_common.skc_dport);
	story->arrived = sk->__sk_common.skc_num != story->local_port || (peer && peer != story->remote_port);
}

/* A packet is thrown away: by a queue, a filter, a device, a socket. Most calls are of other protocols: out at once. */
SEC("tp_btf/kfree_skb") int linerate_dropped(__u64 *context)
{
	__u32 reason = context[2];
	if (!running || reason < first_reason)
		return 0;
	struct sk_buff *skb = (struct sk_buff *)context[0];
	__u16 protocol = skb->protocol;
	if (protocol != ETH_P_IP && protocol != ETH_P_IPV6)
		return 0;
	const unsigned char *head = skb->head;
	const unsigned char *packet = head + skb->network_header;
	struct story story = { .what = DROPPED, .drop_reason = reason };
	/* Layers of the kernel have moved the packet's begin before or behind its IP header. */
	__u32 length = skb->len + (__u32)(skb->data - packet);
	struct room room;
	if (!read_headers(0, packet, protocol, length, &room, &story))
		return 0;
	struct skb_shared_info *shared = (struct skb_shared_info *)(head + skb->end);
	bpf_probe_read_kernel(&story.segments, 2, __builtin_preserve_access_index(&shared->gso_segs));
	bpf_probe_read_kernel(&story.segment_size, 2, __builtin_preserve_access_index(&shared->gso_size));

	struct sock *holder = skb->sk;
	struct tcp_sock *tp = 0;
	if (holder) {
		place_drop(&story, holder);
		/* The verifier does not let bpf_skc_to_tcp_sock() take the packet's pointer. What has no whole socket: */
		if (story.state == TCP_TIME_WAIT || story.state == TCP_NEW_SYN_RECV)
			return 0;
		struct socket *socket = holder->sk_socket;
		struct sock *sk = socket ? socket->sk : 0;
		tp = sk ? bpf_skc_to_tcp_sock(sk) : 0;
	} else if (drop_has_receiver) {
		struct sock *receiver = (struct sock *)context[3];
		if (receiver) {
			place_drop(&story, receiver);
			tp = bpf_skc_to_tcp_sock(receiver);
		}
	}
	if (tp) {
		story.cookie = bpf_get_socket_cookie(tp);
		story.ca_state = BITS(&tp->inet_conn, icsk_ca_state);
	}
	/* A socket that says no reason is only done with it: a FIN that TIME-WAIT answers. */
	if (story.netns && story.arrived && reason == first_reason)
		return 0;
	/* Where a socket drops what it received, the packet's field of the device serves another purpose. */
	struct net_device *dev = story.netns && story.arrived ? 0 : skb->dev;
	if (!story.netns) {
		/* Which end this is about follows from the known connections: trace/connections.rs. */
		if (!dev)
			return 0;
		story.netns = dev->nd_net.net->ns.inum;
		story.arrived = 1;
	}
	if (story.arrived)
		turn(&story);
	if (story.segments <= 1) {
		story.segments = 1;
		story.segment_size = 0;
	}
	/* No device: an address that cannot be read leaves its name empty. */
	emit(tp, 0, &story, 0, 0, 1, dev ? dev->name : (const char *)1);
	return 0;
}

char terms[] SEC("license") = "Dual MIT/GPL";

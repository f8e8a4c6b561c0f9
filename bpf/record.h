/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * One event as it lies in the ring. host/observe/src/trace/record.rs reads it by the same table; a test there
 * compares the two. Numbers are the host's own byte order; addresses are IPv6, or IPv4 mapped into it.
 */
struct record {
	__u64 ts; /* CLOCK_MONOTONIC, ns */
	__u64 cookie; /* 0: a dropped segment whose socket is not known; then all of the socket is 0 */
	__u32 cpu;
	__u32 netns;
	__u32 pid;
	__u32 current_pid;
	__u8 comm[16];
	__u8 current_comm[16];
	__u8 local[16];
	__u8 remote[16];
	__u16 local_port;
	__u16 remote_port;

	/* the packet */
	__u8 what;
	__u8 flags;
	__u8 tos;
	__u8 ttl;
	__u32 seq;
	__u32 ack;
	__u32 payload;
	__u32 length;
	__u32 ts_value; /* timestamps (RFC 7323), where they are the first option; else 0 */
	__u32 ts_echo;
	__u16 window;
	__u16 segments;
	__u16 segment_size;

	/* the socket */
	__u8 state;
	__u8 ca_state;
	__u32 drop_reason;
	__u8 bits; /* BIT_* */
	__u8 nonagle;
	__u8 snd_wscale;
	__u8 rcv_wscale;
	__u8 timer;
	__u8 retransmits;
	__u8 backoff;
	__u8 probes_out;
	__u8 chrono;
	__u8 pacing_status;
	__u8 pingpong;
	__u8 quick;
	__u16 advmss;
	__u16 rcv_mss;
	__u32 mss;
	/* What often changes stands beside its like, for the sake of the file (trace/file.rs). */
	__u32 snd_una;
	__u32 snd_nxt;
	__u32 write_seq;
	__u32 snd_wnd;
	__u32 rcv_nxt;
	__u32 rcv_wup;
	__u32 copied_seq;
	__u32 rcv_wnd;
	__u32 packets_out;
	__u32 cwnd;
	__u32 srtt_us8; /* eighths of a microsecond */
	__u32 rttvar_us4; /* quarters */
	__u32 segs_out;
	__u32 segs_in;
	__u32 delivered;
	__u32 app_limited;
	__u32 sndbuf_used;
	__u32 wmem_alloc;
	__u32 rcvbuf_used;
	__u32 busy_ticks;
	__u32 sacked_out;
	__u32 lost_out;
	__u32 retrans_out;
	__u32 total_retrans;
	__u32 rwnd_limited_ticks;
	__u32 sndbuf_limited_ticks;
	__u32 snd_sml;
	__u32 rcv_ssthresh;
	__u32 rcv_space;
	__u32 ssthresh;
	__u32 min_rtt_us;
	__u32 rcv_rtt_us8;
	__u32 rto_ticks;
	__u32 ato_ticks;
	__u32 reordering;
	__u32 delivered_ce;
	__u32 reord_seen;
	__u32 dsack_dups;
	__u32 sndbuf;
	__u32 rcvbuf;
	__u64 bytes_acked;
	__u64 bytes_received;
	__u64 bytes_sent;
	__u64 bytes_retrans;
	__u64 pacing_rate; /* bytes/s; all ones: not limited */
};

#define BIT_OWNED 1
#define BIT_NO_SPACE 2
#define BIT_CWND_LIMITED 4
#define BIT_ARRIVED 8 /* a dropped segment that was received; else it was sent */

/* Headers of IP and TCP of a segment, where they were asked for. */
#define HEADERS 128
struct headers {
	__u8 bytes[HEADERS];
};

enum what { SENT, RECEIVED, WROTE, READ, STATE, CONGESTION, DROPPED, RETRANSMITTED };

/* Of a log: whole lines of the cache. */
#define DEVICE 16
struct place {
	__u64 number; /* of the event here, from 1 on; written last */
	struct record record;
	__u8 device[DEVICE]; /* of a dropped segment; empty where the socket dropped it */
};

/* One processor's log; see docs/decisions/0012. */
struct producer {
	__u64 taken; /* places, since the start */
	__u64 lost; /* events for which there was none */
	__u64 pad[6];
	__u64 given_back; /* places, by the reader */
	__u64 pad_reader[7];
};

/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The few kernel structures that are read, with the few fields of each. Where a field really lies is filled in from
 * the running kernel's BTF when the program is loaded (CO-RE), so neither order nor size matters here.
 */
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef int __s32;
typedef long long __s64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name
#define bswap16 __builtin_bswap16
#define bswap32 __builtin_bswap32

/* The context of a socket-buffer program, and what it may see of a socket: an interface of its own, the same in every kernel. */
struct bpf_sock;
struct bpf_tcp_sock {
	__u32 snd_cwnd, srtt_us, rtt_min, snd_ssthresh, rcv_nxt, snd_nxt, snd_una, mss_cache, ecn_flags, rate_delivered;
	__u32 rate_interval_us, packets_out, retrans_out, total_retrans, segs_in, data_segs_in, segs_out, data_segs_out;
	__u32 lost_out, sacked_out;
	__u64 bytes_received, bytes_acked;
	__u32 dsack_dups, delivered, delivered_ce, icsk_retransmits;
};
struct __sk_buff {
	__u32 len, pkt_type, mark, queue_mapping, protocol, vlan[3], priority, ingress_ifindex, ifindex, tc_index, cb[5];
	__u32 hash, tc_classid, data, data_end, napi_id, family, remote_ip4, local_ip4, remote_ip6[4], local_ip6[4];
	__u32 remote_port, local_port, data_meta;
	__u64 flow_keys, tstamp;
	__u32 wire_len, gso_segs;
	__attribute__((aligned(8))) struct bpf_sock *sk;
	__u32 gso_size;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common { __u32 inum; };
struct net { struct ns_common ns; };
struct in6_addr { union { __u8 u6_addr8[16]; __u32 u6_addr32[4]; } in6_u; };
typedef struct { int counter; } atomic_t;
typedef struct { atomic_t refs; } refcount_t;
typedef struct { __s64 counter; } atomic64_t;
typedef struct { struct net *net; } possible_net_t;
struct sock_common {
	__u32 skc_daddr, skc_rcv_saddr;
	__u16 skc_dport, skc_num, skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr, skc_v6_rcv_saddr;
	atomic64_t skc_cookie;
};
typedef struct { int owned; } socket_lock_t;
struct sock;
struct socket {
	unsigned long flags;
	struct sock *sk;
};
struct sock {
	struct sock_common __sk_common;
	struct { atomic_t rmem_alloc; } sk_backlog;
	int sk_rcvbuf, sk_sndbuf, sk_wmem_queued;
	refcount_t sk_wmem_alloc;
	struct socket *sk_socket;
	socket_lock_t sk_lock;
	__u32 sk_pacing_status;
	unsigned long sk_pacing_rate;
};
struct inet_sock { struct sock sk; __u16 inet_sport; };
struct inet_connection_sock {
	struct inet_sock icsk_inet;
	__u32 icsk_rto;
	__u8 icsk_ca_state : 5;
	__u8 icsk_retransmits, icsk_pending, icsk_backoff, icsk_probes_out;
	struct {
		__u8 quick, pingpong;
		__u32 ato : 8;
		__u16 rcv_mss;
	} icsk_ack;
};
struct minmax_sample { __u32 v; };
struct minmax { struct minmax_sample s[3]; };
struct tcp_options_received { __u16 wscale_ok : 1, snd_wscale : 4, rcv_wscale : 4; };
struct task_struct { int tgid; char comm[16]; };
struct net_device {
	possible_net_t nd_net;
	char name[16];
};
struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	unsigned int len, end;
	unsigned char *head, *data;
	__u16 protocol, network_header;
	char cb[48];
};
struct skb_shared_info { __u16 gso_size, gso_segs; };
struct tcp_skb_cb { __u32 seq; };

#pragma clang attribute pop

/* A bit field wherever the running kernel has it; also right where it is none. */
#define BITS(pointer, field) ({ \
	const void *at = (const void *)(pointer) + __builtin_preserve_field_info((pointer)->field, 0); \
	__u64 bits = 0; \
	asm volatile("" : "+r"(at)); /* keeps offset and load apart: only the offset may be moved */ \
	switch (__builtin_preserve_field_info((pointer)->field, 1)) { \
	case 1: bits = *(const __u8 *)at; break; \
	case 2: bits = *(const __u16 *)at; break; \
	case 4: bits = *(const __u32 *)at; break; \
	case 8: bits = *(const __u64 *)at; break; \
	} \
	bits <<= __builtin_preserve_field_info((pointer)->field, 4); \
	bits >>= __builtin_preserve_field_info((pointer)->field, 5); \
	bits; \
})

/* Helpers of the kernel, by their numbers in include/uapi/linux/bpf.h. */
static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static __u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static __u32 (*bpf_get_smp_processor_id)(void) = (void *)8;
static long (*bpf_skb_load_bytes)(const void *skb, __u32 offset, void *to, __u32 len) = (void *)26;
static __u64 (*bpf_get_socket_cookie)(void *context) = (void *)46;
static struct bpf_tcp_sock *(*bpf_tcp_sock)(struct bpf_sock *sk) = (void *)96;
static void *(*bpf_sk_storage_get)(void *map, void *sk, void *value, __u64 flags) = (void *)107;
static long (*bpf_probe_read_kernel)(void *to, __u32 len, const void *from) = (void *)113;
static __u64 (*bpf_jiffies64)(void) = (void *)118;
static struct tcp_sock *(*bpf_skc_to_tcp_sock)(void *sk) = (void *)137;
static long (*bpf_probe_read_kernel_str)(void *to, __u32 len, const void *from) = (void *)115;
static struct task_struct *(*bpf_get_current_task_btf)(void) = (void *)158;

enum { BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_SK_STORAGE = 24 };
enum { BPF_F_NO_PREALLOC = 1, BPF_F_CLONE = 512, BPF_F_MMAPABLE = 1024 };
enum { BPF_SK_STORAGE_GET_F_CREATE = 1 };

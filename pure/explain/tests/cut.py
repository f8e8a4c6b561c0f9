#!/usr/bin/env python3
"""Makes a case of the first part of a trace: cut.py TRACE.jsonl EVENTS ABOUT NAME

Writes NAME.toml, whose 'expect' is for the author to fill in, and NAME.gz with an event a line: time, kind, of a sent segment its
sequence number, bytes, segments, bytes each and flags; then what changed of the socket.

TRACE.jsonl is what 'linerate trace --port PORT -w TRACE.jsonl' wrote in the sender's host. Kept is the connection that
sent most, its first EVENTS events, and of its socket what the explanation looks at: what changed since the event before,
as a letter for the field and the difference. Times are in us, rates in kbit/s.
"""
import collections
import gzip
import json
import sys

# The order is that of tests/trace.rs.
FIELDS = """state ca_state snd_una snd_nxt write_seq snd_sml snd_wnd cwnd ssthresh srtt_ns min_rtt_ns mss packets_out
sacked_out lost_out retrans_out retransmits timer segs_out segs_in delivered delivered_ce reord_seen dsack_dups
bytes_acked bytes_received sndbuf wmem_alloc no_space chrono app_limited pacing_rate_bit_s pacing_status nonagle""".split()
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
KINDS = {"sent": "S", "received": "R", "wrote": "W", "read": "D", "state": "T", "congestion": "C"}

path, most, about, name = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
sent = collections.Counter()
events = collections.defaultdict(list)
for line in open(path):
    event = json.loads(line)
    if event["kind"] == "segment" and event.get("socket", {}).get("probed") and event.get("what", "sent") in KINDS:
        connection = event.get("connection", 0)
        events[connection].append(event)
        if event.get("what", "sent") == "sent":
            sent[connection] += event.get("payload", 0)
events = events[sent.most_common(1)[0][0]][:most]
begun = events[0].get("at_ns", 0) // 1000
base = events[0]["socket"].get("snd_una", 0) - 1
with open(f"{name}.toml", "w") as case:
    case.write(f'about = "{about}"\nexpect = {{ is = "limited", by = [] }}\n')
lines = []
was, at = dict.fromkeys(FIELDS, 0), begun
for event in events:
    now = {field: event["socket"].get(field) or 0 for field in FIELDS}
    for field in ("snd_una", "snd_nxt", "write_seq", "snd_sml"):
        now[field] = (now[field] - base) % 2**32
    for field in ("srtt_ns", "min_rtt_ns", "pacing_rate_bit_s"):
        now[field] = now[field] // 1000
    time = event.get("at_ns", 0) // 1000
    parts = [str(time - at), KINDS[event.get("what", "sent")]]
    if parts[1] == "S":
        parts += [(event.get("seq", 0) - base) % 2**32, event.get("payload", 0), event.get("segments", 0)]
        parts += [event.get("segment_size", 0), event.get("flags", 0)]
    changes = [f"{LETTERS[n]}{now[f] - was[f]}" for n, f in enumerate(FIELDS) if now[f] != was[f]]
    lines.append(" ".join(map(str, [*parts, "".join(changes)])))
    was, at = now, time
with gzip.GzipFile(f"{name}.gz", "wb", mtime=0) as packed:
    packed.write("".join(line + "\n" for line in lines).encode())

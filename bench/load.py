#!/usr/bin/env python3
"""Loads that neither linerate nor iperf3 makes, for drawn truth (cli/tests/common/drawn).

load.py serve SIZE [quick]         answers each SIZE bytes at port 7001 with one byte; quick: acknowledges at once
load.py talk HOST SECONDS PART...  writes PARTs (bytes) one after the other, waits for the answer, again and again
load.py send HOST PORT SECONDS     sends all it can
load.py ask BYTES                  asks whom connects to port 7004 with so many bytes, and reads what comes
load.py reply HOST SECONDS         waits there for that, and sends all it can
load.py clamp HOST SEGMENTS        lets each connection to HOST have no more in flight; 'serve' is there. In a lab's host
load.py late SECONDS               listens at port 7003, with a full queue until so long after the first SYN
load.py take                       listens there, and takes at once what comes
load.py bring HOST BYTES           sends so much there
load.py stutter SECONDS SECONDS    takes what comes to port 7002 into a buffer of 256 KiB: reads for so long, then
                                   does not for so long
"""

import socket
import subprocess
import sys
import time

TCP_QUICKACK = 12


def listen(port, buffer=None):
    listener = socket.create_server(("0.0.0.0", port))
    if buffer:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    print("listening", flush=True)
    return listener.accept()[0]


def serve(size, quick=None):
    with listen(7001) as peer:
        while True:
            left = int(size)
            while left:
                if quick:
                    peer.setsockopt(socket.IPPROTO_TCP, TCP_QUICKACK, 1)
                got = len(peer.recv(left))
                if not got:
                    return
                left -= got
            peer.sendall(b"!")


def talk(host, seconds, *parts):
    with socket.create_connection((host, 7001)) as peer:
        ends = time.monotonic() + float(seconds)
        while time.monotonic() < ends:
            for part in parts:
                peer.sendall(bytes(int(part)))
            peer.recv(1)


def pour(peer, seconds):
    ends = time.monotonic() + float(seconds)
    peer.settimeout(0.2)
    while time.monotonic() < ends:
        try:
            peer.send(bytes(65536))
        except TimeoutError:
            pass


def send(host, port, seconds):
    with socket.create_connection((host, int(port))) as peer:
        pour(peer, seconds)


def drain(peer):
    while peer.recv(1 << 20):
        pass


def ask(size):
    with listen(7004) as peer:
        peer.sendall(bytes(int(size)))
        drain(peer)


def reply(host, seconds):
    with socket.create_connection((host, 7004)) as peer:
        peer.recv(1 << 20)
        pour(peer, seconds)


def clamp(host, segments):
    route = subprocess.check_output(["ip", "-4", "route", "show", "dev", "eth0", "scope", "link"], text=True)
    change = ["ip", "route", "change", *route.split(), "dev", "eth0", "cwnd", "lock", segments]
    subprocess.run(change, check=True)
    # The kernel takes the clamp from what it remembers of a peer, not from the route (tcp_init_metrics).
    with open("/proc/sys/net/ipv4/tcp_no_metrics_save", "w", buffering=1) as forgets:
        forgets.write("0\n")
        with socket.create_connection((host, 7001)) as peer:
            peer.sendall(b"?")
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(1):
                pass
        forgets.write("1\n")


def refused():
    with open("/proc/net/netstat") as file:
        names, values = [line.split() for line in file if line.startswith("TcpExt:")]
    return values[names.index("ListenDrops")]


def late(seconds):
    listener = socket.create_server(("0.0.0.0", 7003), backlog=0)
    # One fits into the queue all the same.
    socket.create_connection(("127.0.0.1", 7003))
    print("listening", flush=True)
    before = refused()
    while refused() == before:
        time.sleep(0.01)
    time.sleep(float(seconds))
    listener.accept()
    with listener.accept()[0] as peer:
        drain(peer)


def take():
    with listen(7003) as peer:
        drain(peer)


def bring(host, size):
    with socket.create_connection((host, 7003)) as peer:
        peer.sendall(bytes(int(size)))
        peer.shutdown(socket.SHUT_WR)
        peer.recv(1)


def stutter(reads, pauses):
    with listen(7002, 128 << 10) as peer:  # the kernel doubles it
        while True:
            until = time.monotonic() + float(reads)
            while time.monotonic() < until:
                if not peer.recv(1 << 20):
                    return
            time.sleep(float(pauses))


loads = [serve, talk, send, ask, reply, clamp, late, take, bring, stutter]
{load.__name__: load for load in loads}[sys.argv[1]](*sys.argv[2:])

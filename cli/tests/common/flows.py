#!/usr/bin/env python3
"""Transfers of known limits: flows.py serve, and elsewhere flows.py send HOST SLOW_HOST SECONDS

A port has one limit: 7101 a small receive window, 7102 a slow reader, 7103 a small send buffer, 7104 pacing, 7105 (SLOW_HOST) the
line, 7106 the sending application, 7107 is idle.
"""

import socket
import sys
import threading
import time

SO_MAX_PACING_RATE = 47


def listen(port, buffer=None, bytes_per_s=None):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if buffer:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    listener.bind(("0.0.0.0", port))
    listener.listen()

    def read():
        peer, _ = listener.accept()
        while data := peer.recv(1 << 18):
            if bytes_per_s:
                time.sleep(len(data) / bytes_per_s)

    threading.Thread(target=read, daemon=True).start()


def serve():
    listen(7101, buffer=32768)
    listen(7102, bytes_per_s=3e5)
    for port in range(7103, 7108):
        listen(port)
    print("listening", flush=True)
    sys.stdin.read()


def connect(host, port, option=None):
    peer = socket.socket()
    if option:
        peer.setsockopt(socket.SOL_SOCKET, *option)
    peer.connect((host, port))
    return peer


def pour(peer, size=1 << 16, pause=0):
    def write():
        while True:
            peer.send(bytes(size))
            time.sleep(pause)

    threading.Thread(target=write, daemon=True).start()


def send(host, slow_host, seconds):
    pour(connect(host, 7101))
    pour(connect(host, 7102))
    pour(connect(host, 7103, option=(socket.SO_SNDBUF, 32768)))
    pour(connect(host, 7104, option=(SO_MAX_PACING_RATE, 2_500_000)))
    pour(connect(slow_host, 7105))
    pour(connect(host, 7106), size=20_000, pause=0.1)
    idle = connect(host, 7107)
    idle.send(b"hello")
    print("connected", flush=True)
    time.sleep(float(seconds))


if __name__ == "__main__":
    {"serve": serve, "send": send}[sys.argv[1]](*sys.argv[2:])

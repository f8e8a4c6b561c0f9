# Requests whose causes are known. usage: peer.py serve | peer.py HOST
# The client asks with a head: bytes of the call behind it, of the reply, think time and pause in the reply in us.
import socket, struct, sys, threading, time

HEAD = struct.Struct(">IIII")
NODELAY = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def take(peer, count):
    while count:
        got = len(peer.recv(min(count, 65536)))
        if not got:
            raise SystemExit
        count -= got


def answer(peer):
    peer.setsockopt(*NODELAY)
    while True:
        head = b""
        while len(head) < HEAD.size:
            got = peer.recv(HEAD.size - len(head))
            if not got:
                return peer.close()
            head += got
        call, reply, think, pause = HEAD.unpack(head)
        take(peer, call)
        time.sleep(think / 1e6)
        if pause:
            peer.sendall(bytes(reply // 2))
            time.sleep(pause / 1e6)
            reply -= reply // 2
        peer.sendall(bytes(reply))


def ask(peer, call, reply, think=0, pause=0, wait=None):
    head = HEAD.pack(call, reply, think, pause)
    if wait is None:
        peer.sendall(head + bytes(call))
    else:
        peer.sendall(head + bytes(call // 2))
        time.sleep(wait)
        peer.sendall(bytes(call - call // 2))
    take(peer, reply)
    time.sleep(0.02)


def connect(host, port=9000, nodelay=True, room=None):
    peer = socket.socket()
    if room:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    if nodelay:
        peer.setsockopt(*NODELAY)
    peer.connect((host, port))
    return peer


def serve(port):
    listener = socket.create_server(("", port))
    while True:
        threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()


if sys.argv[1] == "serve":
    threading.Thread(target=serve, args=(9001,), daemon=True).start()
    print("ready", flush=True)
    serve(9000)
host = sys.argv[1]
# In this order: the test knows each by its connection.
peer = connect(host)
for n in range(5):
    ask(peer, 0, 100, think=10000)
peer = connect(host, nodelay=False)
for n in range(6):
    ask(peer, 100, 100, wait=0)
peer = connect(host)
ask(peer, 0, 65536)
peer = connect(host, room=8192)
for n in range(3):
    ask(peer, 0, 65536)
peer = connect(host)
for n in range(5):
    # The first of these ends when the acknowledgement comes.
    ask(peer, 4000, 100, wait=0.010 + 0.002 * n)
peer = connect(host)
for n in range(5):
    ask(peer, 0, 4000, pause=15000)
# Of this port every third large segment is lost.
peer = connect(host, port=9001)
for n in range(9):
    ask(peer, 1200, 100)

# A client of NFSv4, since Debian has none that writes without a mount. usage: nfs4.py HOST EXPORT MINOR
# It writes, reads and uses the rest of what its version has, and prints for each call the status that came back.
import os, socket, struct, sys

host, export, minor = sys.argv[1], sys.argv[2], int(sys.argv[3])
peer = socket.create_connection((host, 2049))
peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def w(*words):
    return struct.pack(">%dI" % len(words), *words)


def d(value):
    return struct.pack(">Q", value)


def o(data):
    return w(len(data)) + data + bytes(-len(data) % 4)


def take(count):
    data = bytearray()
    while len(data) < count:
        data += peer.recv(count - len(data)) or sys.exit("the server hung up")
    return bytes(data)


def rpc(procedure, arguments):
    rpc.number += 1
    user = o(w(0) + o(b"test") + w(0, 0, 0))
    body = w(rpc.number, 0, 2, 100003, 4, procedure, 1) + user + w(0, 0) + arguments
    peer.sendall(w(len(body) | 1 << 31) + body)
    reply = b""
    while True:
        (mark,) = struct.unpack(">I", take(4))
        reply += take(mark & 0x7FFFFFFF)
        if mark >> 31:
            return reply[24:]


# Of what stands in front of the results that are asked for: bytes behind the status.
SIZE = {15: 0, 22: 0, 24: 0, 32: 0, 53: 36}


def ask(*operations, fails=False):
    """Calls a compound; the results from the first one on that returns data."""
    if ask.session:
        ask.sequence += 1
        operations = (w(53) + ask.session + w(ask.sequence, 0, 0, 0),) + operations
    compound = o(b"") + w(minor, len(operations)) + b"".join(operations)
    reply = rpc(1, compound)
    status, tag, count = struct.unpack(">III", reply[:12])
    names = [struct.unpack(">I", one[:4])[0] for one in operations]
    print(",".join(map(str, names)), status, flush=True)
    if status and not fails:
        sys.exit("%s: status %d" % (names, status))
    reply = reply[12:]
    for name in names:
        if name not in SIZE:
            return reply[8:]
        reply = reply[8 + SIZE[name]:]


rpc.number, ask.session, ask.sequence = 7, None, 0
here = d(os.getpid())
root, getfh, getattr = w(24), w(10), w(9, 1, 1 << 4)
save = w(32)
putfh = lambda handle: w(22) + o(handle)
lookup = lambda name: w(15) + o(name)
handle_of = lambda reply: reply[4:4 + struct.unpack(">I", reply[:4])[0]]

rpc(0, b"")
if minor == 0:
    answer = ask(w(35) + here + o(b"test") + w(0x40000000) + o(b"tcp") + o(b"0.0.0.0.0.0") + w(1))
    client = answer[:8]
    ask(w(36) + answer[:16])
else:
    answer = ask(w(42) + here + o(b"test") + w(0, 0, 0))
    client, sequence = answer[:8], answer[8:12]
    channel = w(0, 2 << 20, 2 << 20, 4096, 16, 4, 0)
    answer = ask(w(43) + client + sequence + w(0) + channel + channel + w(0x40000000, 1, 0))
    ask.session = answer[:16]
    ask(w(58, 0))

folder = handle_of(ask(root, lookup(export.encode()), getfh))
access = 3 if minor == 0 else 0x403
seed = lambda n: w(n if minor == 0 else 0)
owner = (client if minor == 0 else d(0)) + o(b"owner")
ask(putfh(folder), w(6, 2) + o(b"inside") + w(2, 0, 2) + o(w(0o755)))


def opened(name, n):
    how = w(1, 0, 2, 0, 2) + o(w(0o600))
    answer = ask(putfh(folder), w(18) + seed(n) + w(access, 0) + owner + how + w(0) + o(name))
    state = answer[:16]
    if struct.unpack(">I", answer[36:40])[0] & 2:
        state = ask(putfh(handle_of(ask(putfh(folder), lookup(name), getfh))), w(20) + state + w(n + 1))[:16]
    return handle_of(ask(putfh(folder), lookup(name), getfh)), state


file, state = opened(b"file", 1)
block = os.urandom(8192)
write = lambda at, how, data: w(38) + state + d(at) + w(how) + o(data)
read = lambda at, count: w(25) + state + d(at) + w(count)
ask(putfh(file), write(0, 0, block), getattr)
ask(putfh(file), write(8192, 2, block * 128))
ask(putfh(file), w(5) + d(0) + w(0))
answer = ask(putfh(file), read(4096, 8192))
assert answer[8:] == (block * 2)[4096:12288], "what was written is read"
assert len(ask(putfh(file), read(8192, 1 << 20))) == 8 + (1 << 20)
ask(putfh(file), w(3, 0x3F), getattr)
ask(putfh(file), w(34) + state + w(1, 1 << 4) + o(d(4096)))
ask(putfh(folder), w(26) + d(0) + d(0) + w(4096, 4096, 1, 1 << 4))
answer = ask(putfh(file), w(12, 2, 0) + d(0) + d(100) + w(1) + seed(3) + state + w(0) + owner)
ask(putfh(file), w(14, 2) + seed(1) + answer[:16] + d(0) + d(100))
if minor == 2:
    other, target = opened(b"other", 1)
    ask(putfh(file), w(59) + state + d(0) + d(1 << 20), fails=True)
    ask(putfh(file), w(62) + state + d(4096) + d(8192), fails=True)
    ask(putfh(file), w(69) + state + d(0) + w(1), fails=True)
    ask(putfh(file), w(68) + state + d(0) + w(65536), fails=True)
    ask(putfh(file), save, putfh(other), w(60) + state + target + d(0) + d(4096) + d(4096) + w(1, 1, 0), fails=True)
    ask(putfh(file), save, putfh(other), w(71) + state + target + d(0) + d(0) + d(4096), fails=True)
    ask(putfh(file), w(70) + state + w(2) + d(0) + d(4096) + d(4) + d(0) + w(0) + d(0) + o(b"pattern"), fails=True)
    ask(putfh(file), w(73, 0) + o(b"user.colour") + o(b"blue"), fails=True)
    ask(putfh(file), w(72) + o(b"user.colour"), fails=True)
    ask(putfh(file), w(74) + d(0) + w(4096), fails=True)
    ask(putfh(file), w(75) + o(b"user.colour"), fails=True)
    ask(putfh(other), w(4) + w(0) + target)
    ask(putfh(folder), w(28) + o(b"other"))
ask(putfh(folder), save, putfh(folder), w(29) + o(b"file") + o(b"renamed"))
ask(putfh(file), w(4) + seed(4) + state)
ask(putfh(folder), w(28) + o(b"renamed"))
ask(putfh(folder), w(28) + o(b"inside"))
if minor == 0:
    ask(w(30) + client)
else:
    session, ask.session = ask.session, None
    ask(w(44) + session)
    ask(w(57) + client)

"""What a program can ask of a connection, and set on it: before it may move, while it is away, and when it is home again.

Both parts end with status 0 if every byte was right. The caller prints what it was answered, line by line; what depends on time or on
the machine is printed as whether it is as it should be. Files in the working folder say when to go on: `away`, `home`."""
import array
import fcntl
import os
import select
import socket
import struct
import sys
import time

SIOCOUTQNSD = 0x894B
LIMIT = 40.0
TCP, SOL, IP = socket.IPPROTO_TCP, socket.SOL_SOCKET, socket.IPPROTO_IP
OPTIONS = {
    "nodelay": (TCP, socket.TCP_NODELAY),
    "cork": (TCP, socket.TCP_CORK),
    "maxseg": (TCP, socket.TCP_MAXSEG),
    "keepalive": (SOL, socket.SO_KEEPALIVE),
    "keepidle": (TCP, socket.TCP_KEEPIDLE),
    "keepintvl": (TCP, socket.TCP_KEEPINTVL),
    "keepcnt": (TCP, socket.TCP_KEEPCNT),
    "user_timeout": (TCP, socket.TCP_USER_TIMEOUT),
    "notsent_lowat": (TCP, socket.TCP_NOTSENT_LOWAT),
    "linger2": (TCP, socket.TCP_LINGER2),
    "sndbuf": (SOL, socket.SO_SNDBUF),
    "rcvbuf": (SOL, socket.SO_RCVBUF),
    "priority": (SOL, socket.SO_PRIORITY),
    "mark": (SOL, socket.SO_MARK),
    "error": (SOL, socket.SO_ERROR),
    "reuseaddr": (SOL, socket.SO_REUSEADDR),
    "tos": (IP, socket.IP_TOS),
    "ttl": (IP, socket.IP_TTL),
}


def whole(peer, count):
    data = bytearray()
    while len(data) < count:
        piece = peer.recv(count - len(data))
        if not piece:
            sys.exit(f"the end after {len(data)} of {count} bytes")
        data += piece
    return bytes(data)


def say(text):
    print(text, flush=True)


def serve():
    listener = socket.create_server((os.environ["ADDRESS"], int(os.environ["PORT"])))
    while True:
        peer, _ = listener.accept()
        peer.setsockopt(TCP, socket.TCP_NODELAY, 1)
        answer(peer)


def answer(peer):
    while command := peer.recv(1):
        word, count = command, struct.unpack("!I", whole(peer, 4))[0]
        if word == b"e":
            peer.sendall(whole(peer, count))
        elif word == b"g":
            peer.sendall(bytes(i & 0xFF for i in range(count)))
        elif word == b"w":
            # Receives nothing until the file `read` exists, then everything.
            await_file("read")
            data = whole(peer, count)
            peer.sendall(struct.pack("!I", sum(data) & 0xFFFFFFFF))


def await_file(name, meanwhile=lambda: time.sleep(0.002)):
    begun = time.monotonic()
    while not os.path.exists(name):
        if time.monotonic() - begun > LIMIT:
            sys.exit(f"no file {name}")
        meanwhile()


def tell(name):
    open(name, "w").close()


def echo(peer, data=b"x" * 100):
    peer.sendall(b"e" + struct.pack("!I", len(data)) + data)
    if whole(peer, len(data)) != data:
        sys.exit("echoed something else")


def get(peer, option):
    return peer.getsockopt(*OPTIONS[option])


# The kernel tunes these sizes itself, from metrics of earlier connections to the host, until a
# program has set them (tcp(7)).
TUNED = {"sndbuf", "rcvbuf"}


def show(peer, when):
    for name in OPTIONS:
        value = get(peer, name)
        say(f"{when} {name} {value > 0 if name in TUNED else value}")
    say(f"{when} congestion {peer.getsockopt(TCP, socket.TCP_CONGESTION, 16)}")
    say(f"{when} linger {struct.unpack('ii', peer.getsockopt(SOL, socket.SO_LINGER, 8))}")


def put(peer, when, name, value):
    try:
        peer.setsockopt(*OPTIONS[name], value)
        said = get(peer, name)
    except OSError as error:
        said = error.errno
    say(f"{when} set {name} {value}: {said}")


def queue(peer, request):
    count = array.array("i", [0])
    fcntl.ioctl(peer, request, count)
    return count[0]


FIONREAD, SIOCOUTQ = 0x541B, 0x5411
FIELDS = {
    "state": ("B", 0), "options": ("B", 5), "rto": ("I", 8), "snd_mss": ("I", 16), "unacked": ("I", 24), "sacked": ("I", 28),
    "lost": ("I", 32), "retrans": ("I", 36), "pmtu": ("I", 60), "rtt": ("I", 68), "rttvar": ("I", 72), "snd_cwnd": ("I", 80),
    "advmss": ("I", 84), "total_retrans": ("I", 100), "bytes_acked": ("Q", 120), "bytes_received": ("Q", 128),
    "segs_out": ("I", 136), "segs_in": ("I", 140), "notsent": ("I", 144), "min_rtt": ("I", 148), "data_segs_out": ("I", 156),
    "delivered": ("I", 192), "bytes_sent": ("Q", 200), "snd_wnd": ("I", 228), "rcv_wnd": ("I", 232),
}


def info(peer, length=256):
    data = peer.getsockopt(TCP, socket.TCP_INFO, length)
    read = lambda kind, at: struct.unpack_from("=" + kind, data, at)[0] if at + struct.calcsize(kind) <= len(data) else None
    return {name: read(*place) for name, place in FIELDS.items()}, len(data)


def settle(peer, done):
    begun = time.monotonic()
    while not done():
        if time.monotonic() - begun > LIMIT:
            return False
        time.sleep(0.001)
    return True


def show_info(peer, when):
    lengths = [info(peer, length)[1] for length in (1, 8, 100, 104, 150, 256)]
    say(f"{when} info lengths {lengths}")
    say(f"{when} all acknowledged {settle(peer, lambda: info(peer)[0]['unacked'] == 0)}")
    before, _ = info(peer)
    payload = b"y" * 5000
    echo(peer, payload)
    say(f"{when} acknowledged again {settle(peer, lambda: info(peer)[0]['unacked'] == 0)}")
    after, _ = info(peer)
    same = ["state", "options", "snd_mss", "pmtu", "unacked", "sacked", "lost", "retrans", "notsent"]
    if when == "away":
        # No interface sets this value in a kernel that has the session back.
        same.append("advmss")
    say(f"{when} info {[(name, after[name]) for name in same]}")
    grown = {name: after[name] - before[name] for name in ("bytes_acked", "bytes_received", "bytes_sent")}
    say(f"{when} info grows {grown}")
    say(f"{when} counts segments {[after[name] > before[name] for name in ('segs_out', 'segs_in', 'data_segs_out', 'delivered')]}")
    # The link delays by a millisecond and a half each way.
    sound = [
        2_000 < after["rtt"] < 60_000, 2_000 < after["min_rtt"] <= after["rtt"] * 2, after["rttvar"] < 60_000,
        200_000 <= after["rto"] < 400_000, after["snd_cwnd"] >= 2, after["snd_wnd"] > 10_000, after["rcv_wnd"] > 10_000,
    ]
    say(f"{when} info is sound {sound}" + ("" if all(sound) else f" {after}"))


def show_queues(peer, when):
    say(f"{when} nothing waits {[queue(peer, request) for request in (FIONREAD, SIOCOUTQ, SIOCOUTQNSD)]}")
    peer.sendall(b"g" + struct.pack("!I", 3000))
    say(f"{when} 3000 come {settle(peer, lambda: queue(peer, FIONREAD) == 3000)}")
    whole(peer, 1000)
    say(f"{when} a third is read: {queue(peer, FIONREAD)} left")
    whole(peer, 2000)
    # More bytes than the peer's buffers take before the peer reads.
    count = 12_000_000
    peer.sendall(b"w" + struct.pack("!I", count))
    data = bytes(i * 7 & 0xFF for i in range(65536)) * (count // 65536 + 1)
    data = data[:count]
    peer.setblocking(False)
    done, quiet = 0, 0
    while quiet < 300 and done < count:
        try:
            done += peer.send(data[done:done + 65536])
            quiet = 0
        except BlockingIOError:
            quiet += 1
            time.sleep(0.001)
    unacknowledged, unsent = queue(peer, SIOCOUTQ), queue(peer, SIOCOUTQNSD)
    told, _ = info(peer)
    say(f"{when} full {done < count} {0 < unsent <= unacknowledged <= done} {told['notsent'] > 0}")
    tell("read")
    peer.setblocking(True)
    peer.sendall(data[done:])
    answer = struct.unpack("!I", whole(peer, 4))[0]
    say(f"{when} sum {answer == sum(data) & 0xFFFFFFFF}")
    os.unlink("read")
    say(f"{when} all of it gone {settle(peer, lambda: queue(peer, SIOCOUTQ) == 0 == queue(peer, SIOCOUTQNSD))}")


def call():
    peer = socket.create_connection((os.environ["ADDRESS"], int(os.environ["PORT"])))
    for name, value in (("nodelay", 1), ("keepalive", 1), ("keepidle", 71), ("user_timeout", 9000), ("tos", 0x10), ("ttl", 33)):
        put(peer, "before", name, value)
    peer.setsockopt(SOL, socket.SO_LINGER, struct.pack("ii", 1, 7))
    show(peer, "before")
    await_file("away", lambda: echo(peer))
    show(peer, "away")
    show_info(peer, "away")
    show_queues(peer, "away")
    echo(peer)
    changes = (
        ("nodelay", 0), ("nodelay", 1), ("cork", 1), ("cork", 0), ("keepalive", 0), ("keepidle", 33), ("keepintvl", 5),
        ("keepalive", 1), ("keepcnt", 4), ("keepcnt", 9999), ("user_timeout", 7000), ("tos", 0x08), ("ttl", 44), ("ttl", 700),
        ("sndbuf", 300_000), ("rcvbuf", 400_000), ("linger2", 9), ("maxseg", 900),
    )
    for name, value in changes:
        put(peer, "away", name, value)
        TUNED.discard(name)
        echo(peer)
    peer.setsockopt(SOL, socket.SO_LINGER, struct.pack("ii", 1, 3))
    show(peer, "changed")
    tell("asked-away")
    await_file("home")
    show(peer, "home")
    show_info(peer, "home")
    tell("asked-home")
    # A second time, and then the settings that recall the session.
    await_file("again", lambda: echo(peer))
    show(peer, "again")
    for name, value in (("priority", 3), ("notsent_lowat", 70_000)):
        put(peer, "again", name, value)
        echo(peer)
    show(peer, "last")
    peer.close()


def bulk():
    """Pieces there and back, until a file says that it is enough."""
    peer = socket.create_connection((os.environ["ADDRESS"], int(os.environ["PORT"])))
    peer.setsockopt(TCP, socket.TCP_NODELAY, 1)
    data = bytes(i * 11 & 0xFF for i in range(100_000))
    await_file("end", lambda: echo(peer, data))
    known, _ = info(peer)
    say(f"retransmitted {known['total_retrans'] > 0}, round-trip time {2_000 < known['rtt'] < 400_000}")


def hand():
    """Makes its program known by one connection; then pieces there and back on another, too few of them to be worth a move."""
    first = socket.create_connection((os.environ["ADDRESS"], int(os.environ["PORT"])))
    await_file("known", lambda: echo(first))
    first.close()
    peer = socket.create_connection((os.environ["ADDRESS"], int(os.environ["PORT"])))
    data = bytes(i * 11 & 0xFF for i in range(60_000))

    def piece():
        echo(peer, data)
        time.sleep(0.004)

    piece()
    tell("second")
    await_file("end", piece)


{"serve": serve, "call": call, "bulk": bulk, "hand": hand}[sys.argv[1]]()

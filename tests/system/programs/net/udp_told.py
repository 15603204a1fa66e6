"""What is told with datagrams: printed, to be compared with what the kernel alone tells. And who gets them, where several could.

`serve` is the peer, which sends what it is asked for. The others are the programs under test. Before what counts they wait until the test says
that their socket is where it is to be (`settled`); meanwhile they use it.
"""

import array
import ctypes
import os
import select
import socket
import struct
import sys
import threading
import time

PATIENCE = 40.0
UDP_SEGMENT, UDP_GRO = 103, 104
# SO_TIMESTAMP and SO_TIMESTAMPNS, then their variants with 64-bit times on all architectures.
TIMES = (29, 35, 63, 64)
IP_RECVTTL, IP_PKTINFO = 12, 8
V4 = [(socket.IPPROTO_IP, socket.IP_RECVTOS), (socket.IPPROTO_IP, IP_RECVTTL), (socket.IPPROTO_IP, IP_PKTINFO)]
V6 = [
    (socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS),
    (socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT),
    (socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO),
]


def serve(*ports):
    """Sends back what comes; or, asked to `send CLASS HOPS COUNT SIZE SEGMENT`, that; or, asked for the `class`, the traffic class it came with."""
    sockets = []
    for port in ports:
        for family, place in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
            udp = socket.socket(family, socket.SOCK_DGRAM)
            if family == socket.AF_INET6:
                udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            udp.setsockopt(*(V4 if family == socket.AF_INET else V6)[0], 1)
            udp.bind((place, int(port)))
            sockets.append(udp)
    print("ready", flush=True)
    while not os.path.exists(os.environ["END"]):
        for udp in select.select(sockets, [], [], 0.2)[0]:
            data, control, _, source = udp.recvmsg(65536, 128)
            if data.startswith(b"send "):
                send(udp, source, *map(int, data.split()[1:]))
            elif data == b"class":
                udp.sendto(b"class %d" % control[0][2][0], source)
            else:
                udp.sendto(data, source)


def send(udp, target, traffic_class, hops, count, size, segment):
    if udp.family == socket.AF_INET:
        udp.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, traffic_class)
        udp.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, hops)
    else:
        udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, traffic_class)
        udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, hops)
    for number in range(count):
        text = (b"%06d" % number).ljust(size, b".")[:size]
        control = [(socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("H", segment))]
        udp.sendmsg([text], control if segment else [], 0, target)


# --- the programs under test

ADDRESS, ADDRESS6, PORT = (os.environ.get(name) for name in ("ADDRESS", "ADDRESS6", "PORT"))
PORT = int(PORT or 0)
asked = 0


def say(name, *what):
    print(name, *what, flush=True)


def settled(what="away", use=lambda: time.sleep(0.005)):
    """Waits until the test says that it is so; meanwhile `use`s the socket."""
    global asked
    asked += 1
    name = f"{asked}.{what}"
    with open(name + ".new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(name + ".new", name)
    ends = time.monotonic() + PATIENCE
    while not os.path.exists(name + ".yes"):
        assert time.monotonic() < ends, f"nobody said {name}"
        use()


def limited(udp):
    udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 20, 0))
    return udp


def fresh(options=(), family=socket.AF_INET, target=None, connected=True):
    """A socket with these options that has moved, and whom it talks with."""
    target = target or (ADDRESS, PORT)
    udp = limited(socket.socket(family, socket.SOCK_DGRAM))
    for level, name in options:
        udp.setsockopt(level, name, 1)
    if connected:
        udp.connect(target)

    def warm():
        udp.send(b"warm") if connected else udp.sendto(b"warm", target)
        assert udp.recv(100) == b"warm"

    settled("away", warm)
    return udp, target


def ask(udp, target, *numbers):
    udp.sendto(b"send %d %d %d %d %d" % numbers, target)


def shown(control):
    """Control messages as text; of times only that they are of now."""
    shown = []
    for level, kind, data in control:
        if level == socket.SOL_SOCKET and kind in TIMES:
            seconds, rest = struct.unpack("qq", data)
            is_fine = kind in (35, 64)
            is_now = abs(time.time() - seconds) < 60 and rest < (10**9 if is_fine else 10**6)
            shown.append((level, kind, is_now))
        else:
            shown.append((level, kind, data.hex()))
    return shown


def tell(name, udp, room=512, flags=0, size=65536):
    data, control, got, source = udp.recvmsg(size, room, flags)
    say(name, len(data), data[:6], shown(control), got, source[1] == PORT)
    return data


def messages():
    v6, mapped = (ADDRESS6, PORT), ("::ffff:" + ADDRESS, PORT)
    cases = [
        ("nothing", [], socket.AF_INET, None),
        ("all of IPv4", V4, socket.AF_INET, None),
        ("class", V4[:1], socket.AF_INET, None),
        ("all of IPv6", V6, socket.AF_INET6, v6),
        ("IPv4 in IPv6", V4 + V6, socket.AF_INET6, mapped),
    ]
    for name, options, family, target in cases:
        for connected in (True, False):
            udp, whom = fresh(options, family, target, connected)
            for traffic_class, hops in ((0, 64), (0xB8, 17), (0x01, 255)):
                ask(udp, whom, traffic_class, hops, 1, 10, 0)
                tell(f"{name} {connected}", udp)
            udp.close()
    for kind in TIMES:
        udp, whom = fresh([(socket.SOL_SOCKET, kind)] + V4[:2])
        ask(udp, whom, 3, 9, 1, 10, 0)
        tell(f"time {kind}", udp)
        udp.close()


def rooms():
    udp, whom = fresh(V4)
    ask(udp, whom, 0xB8, 17, 1, 100, 0)
    select.select([udp], [], [], 20)
    for room in (0, 8, 15, 16, 20, 28, 31, 32, 40, 52, 56, 72, 79, 80, 81, 200):
        control = (ctypes.c_char * 256)(*([0xA5] * 256))
        length, flags, raw = plain_recvmsg(udp, control, room, socket.MSG_PEEK)
        say("room", room, length, flags, raw)
    tell("cut", udp, size=5)
    # The error queue is the kernel's and is empty.
    udp.setblocking(False)
    try:
        udp.recvmsg(10, 100, socket.MSG_ERRQUEUE)
    except BlockingIOError:
        say("no error")
    udp.close()


class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


class Message(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_void_p),
        ("namelen", ctypes.c_uint),
        ("iov", ctypes.POINTER(Vector)),
        ("iovlen", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("controllen", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    ]


class Many(ctypes.Structure):
    _fields_ = [("message", Message), ("len", ctypes.c_uint)]


C = ctypes.CDLL(None, use_errno=True)


def plain_recvmsg(udp, control, room, flags):
    data = ctypes.create_string_buffer(200)
    vector = Vector(ctypes.addressof(data), 200)
    message = Message(None, 0, ctypes.pointer(vector), 1, ctypes.addressof(control), room, 0)
    got = C.recvmsg(udp.fileno(), ctypes.byref(message), flags)
    assert got == 100, (got, ctypes.get_errno())
    return message.controllen, message.flags, bytes(control)[: room + 8].hex()


def several():
    """With recvmmsg, as many as there are."""
    udp, whom = fresh(V4)
    ask(udp, whom, 0x40, 3, 3, 20, 0)
    count, got, many = 4, 0, (Many * 4)()
    rooms = [(ctypes.create_string_buffer(100), ctypes.create_string_buffer(256)) for _ in range(count)]
    vectors = [Vector(ctypes.addressof(data), 100) for data, _ in rooms]
    for each, vector, (_, control) in zip(many, vectors, rooms):
        each.message = Message(None, 0, ctypes.pointer(vector), 1, ctypes.addressof(control), 256, 0)
    while got < 3:
        left = (Many * (count - got)).from_buffer(many, got * ctypes.sizeof(Many))
        more = C.recvmmsg(udp.fileno(), left, 3 - got, 0, None)
        assert more > 0, ctypes.get_errno()
        got += more
    for each, (data, control) in list(zip(many, rooms))[:got]:
        text = control.raw[: each.message.controllen].hex()
        say("of several", each.len, data.raw[:6], each.message.flags, text)
    udp.close()


def merged():
    udp, whom = fresh([(socket.IPPROTO_UDP, UDP_GRO)] + V4[:1])
    for size, segment in ((3000, 1000), (2500, 1000), (1000, 1000), (12000, 1200)):
        ask(udp, whom, 0, 64, 1, size, segment)
        tell(f"merged {size} {segment}", udp)
    ask(udp, whom, 0, 64, 1, 3000, 1000)
    tell("merged, no room", udp, room=0)
    ask(udp, whom, 0, 64, 1, 3000, 1000)
    say("merged, plainly", len(udp.recv(65536)))
    udp.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 0)
    ask(udp, whom, 0, 64, 1, 2500, 1000)
    for _ in range(3):
        tell("taken apart", udp)
    udp.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
    ask(udp, whom, 0, 64, 1, 2500, 1000)
    tell("merged again", udp)
    settled("same")
    udp.close()


def late():
    """Options that are set while the socket is away: it stays there."""
    udp, whom = fresh()
    for value in (1, 0):
        for level, name in V4 + [(socket.SOL_SOCKET, TIMES[0])]:
            udp.setsockopt(level, name, value)
            ask(udp, whom, 0x20, 5, 1, 10, 0)
            tell(f"late {name} {value}", udp)
    # The effect on datagrams of this end shows only at the peer, which is not under test. Here the
    # option is only set, and the socket used on.
    udp.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x10)
    ask(udp, whom, 0, 64, 1, 10, 0)
    tell("late class", udp)
    settled("same")
    udp.close()


def classes():
    """A control message goes with its datagram, and with no other one, while the socket is away."""
    udp, whom = fresh()
    for control in ([(socket.IPPROTO_IP, socket.IP_TOS, struct.pack("i", 0x28))], []):
        for target in ([], [whom]):
            udp.sendmsg([b"class"], control, 0, *target)
            say("class", udp.recv(100))
    settled("same")
    udp.close()


def home():
    """What was not read goes home, with what came with it but the way by which it came."""
    udp, whom = fresh(V4)
    ask(udp, whom, 0xB9, 17, 2, 10, 0)
    # At least one datagram is here; the other may arrive before or after the recall.
    select.select([udp], [], [], 20)
    udp.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    found = []
    for _ in range(2):
        data, control, flags, source = udp.recvmsg(100, 512)
        control = [(level, kind, text[4:] if kind == IP_PKTINFO else text) for level, kind, text in control]
        found.append((data, shown(control), flags, source == whom))
    for each in sorted(found):
        say("home", *each)
    udp.close()


def passed():
    """A socket that is away is given to another process, with a datagram that nobody has read."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    child = os.fork()
    if child == 0:
        here.close()
        _, control, _, _ = there.recvmsg(1, socket.CMSG_SPACE(4))
        fds = array.array("i", control[0][2])
        udp = socket.socket(fileno=fds[0])
        limited(udp)
        say("passed", udp.recv(100), udp.getpeername()[1] == PORT)
        udp.send(b"of another")
        say("passed, asked", udp.recv(100))
        os._exit(0)
    there.close()
    udp, _ = fresh()
    udp.send(b"unread")
    select.select([udp], [], [], 20)
    here.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [udp.fileno()]))])
    assert os.waitpid(child, 0)[1] == 0
    udp.send(b"of both")
    say("kept", udp.recv(100))
    udp.close()


def threads():
    """Several threads receive from one socket: each datagram comes to one of them, and none is lost."""
    count, each, rounds = 4, 32, 40
    udp, whom = fresh()
    got, done, lock = [], threading.Event(), threading.Condition()

    def receive():
        while True:
            data = udp.recv(100)
            with lock:
                got.append(data)
                lock.notify_all()
            if data == b"over":
                return

    workers = [threading.Thread(target=receive, daemon=True) for _ in range(count)]
    for worker in workers:
        worker.start()
    for number in range(1, rounds + 1):
        ask(udp, whom, 0, 64, each, 10, 0)
        with lock:
            assert lock.wait_for(lambda: len(got) >= number * each, 30), len(got)
    for _ in workers:
        udp.sendto(b"over", whom)
    for worker in workers:
        worker.join(30)
        assert not worker.is_alive()
    expected = [(b"%06d" % number).ljust(10, b".") for number in range(each)] * rounds + [b"over"] * count
    say("threads", sorted(got) == sorted(expected), len(got))
    settled("same")
    udp.close()


def call():
    for case in (messages, rooms, several, merged, late, classes, home, passed, threads):
        case()


def shares():
    """Two sockets of one port: one that hears everybody, one that has its own peer."""
    everybody, own = (limited(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(2))
    for udp in (everybody, own):
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    everybody.bind(("0.0.0.0", 0))
    own.bind(everybody.getsockname())
    own.connect((ADDRESS, PORT))

    def use():
        own.send(b"own")
        assert own.recv(100) == b"own"
        everybody.sendto(b"all", (ADDRESS, PORT + 1))
        assert everybody.recv(100) == b"all"

    settled("shares", use)
    # Each socket still receives the datagrams for its own port.
    for _ in range(20):
        use()
    say("shared")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])

"""A program that has a session carried through a port, and tries with the port's packet socket what it should not.

try: answers its peer for ever, and meanwhile tries to see and to send what is not its own; prints as JSON what came of it. Whatever must
not get through says FORBIDDEN; last it sends a frame that may, which says ALLOWED. ask: its peer. tap: on the peer's host, waits for
that last frame and prints all frames with either word; those of real sessions are left out by the kernel. through PID: sends ALLOWED as
the victim, again and again, through the port of that process, which need not take part; count: on the peer's host, writes a byte for each
into END.seen.

In the environment: ADDRESS and PORT of its session; VICTIM_LOCAL and VICTIM_REMOTE, ends of somebody else's; OWN_MAC, NEXT_MAC; INTERFACE;
END, a file that is there when it is to end.
"""
import ctypes, json, mmap, os, socket, struct, sys, threading, time

ETH, VNET, NEEDS_CSUM = 14, 10, 1
SYS_PIDFD_OPEN, SYS_PIDFD_GETFD = 434, 438
libc = ctypes.CDLL(None, use_errno=True)


def end(name):
    host, port = os.environ[name].rsplit(":", 1)
    return host, int(port)


def await_end():
    while not os.path.exists(os.environ["END"]):
        time.sleep(0.01)


def ask(place):
    with socket.create_connection(place) as peer:
        while not os.path.exists(os.environ["END"]):
            peer.sendall(b"question" * 100)
            got = 0
            while got < 800:
                text = peer.recv(800 - got)
                if not text:
                    return  # It has seen END first.
                got += len(text)


def answer(listener):
    while True:
        peer, _ = listener.accept()
        peers.append(peer)
        threading.Thread(target=echo, args=[peer], daemon=True).start()


def echo(peer):
    try:
        while text := peer.recv(65536):
            peer.sendall(text)
    except OSError:
        pass


def packet_socket(pid):
    """A copy of the packet socket that the library of a process has, once there is one."""
    process = libc.syscall(SYS_PIDFD_OPEN, pid, 0)
    link = lambda name: os.readlink(f"/proc/{pid}/fd/{name}")
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                # A duplicate of the session's own descriptor would keep the session from moving.
                if not link(name).startswith("socket:") or link(name) in [link(peer.fileno()) for peer in peers]:
                    continue
            except OSError:
                continue
            copy = libc.syscall(SYS_PIDFD_GETFD, process, int(name), 0)
            if copy < 0:
                continue
            found = socket.socket(fileno=copy)
            if found.family == socket.AF_PACKET:
                return found
            found.close()
        time.sleep(0.005)
    raise TimeoutError("no packet socket")


def mac(name):
    return bytes.fromhex(os.environ[name].replace(":", ""))


def folded(data, first=0):
    data += b"\0" * (len(data) % 2)
    total = first + sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def ip(local, remote, protocol, payload):
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 7, 0, 64, protocol, 0)
    head += socket.inet_aton(local) + socket.inet_aton(remote)
    return head[:10] + struct.pack("!H", folded(head) ^ 0xFFFF) + head[12:] + payload


def segment(local, remote, text, flags=0x18, is_whole=False):
    head = struct.pack("!HHIIBBHHH", local[1], remote[1], 1, 1, 0x50, flags, 64, 0, 0)
    pseudo = socket.inet_aton(local[0]) + socket.inet_aton(remote[0])
    pseudo += struct.pack("!HH", 6, len(head) + len(text))
    sum_ = folded(head + text, folded(pseudo)) ^ 0xFFFF if is_whole else folded(pseudo)
    return ip(local[0], remote[0], 6, head[:16] + struct.pack("!H", sum_) + head[18:] + text)


def datagram(local, remote, text):
    size = 8 + len(text)
    pseudo = socket.inet_aton(local[0]) + socket.inet_aton(remote[0]) + struct.pack("!HH", 17, size)
    return ip(local[0], remote[0], 17, struct.pack("!HHHH", local[1], remote[1], size, folded(pseudo)) + text)


def frame(packet, kind=0x0800, source=None, target=None):
    return (target or mac("NEXT_MAC")) + (source or mac("OWN_MAC")) + struct.pack("!H", kind) + packet


def offload(offset=16, start=ETH + 20, gso=0):
    return struct.pack("=BBHHHH", NEEDS_CSUM, 1 if gso else 0, start + 20 if gso else 0, gso, start, offset)


def attempts():
    bad, (own, far), (its, whose) = b"FORBIDDEN", session(), (end("VICTIM_LOCAL"), end("VICTIM_REMOTE"))
    none, arp = bytes(VNET), struct.pack("!HHBBH", 1, 0x0800, 6, 4, 2)
    arp += mac("OWN_MAC") + socket.inet_aton(its[0]) + mac("NEXT_MAC") + socket.inet_aton(far[0]) + bad
    good = frame(segment(own, far, bad))
    return {
        "data of another's session": offload() + frame(segment(its, whose, bad)),
        "reset of another's session": offload() + frame(segment(its, whose, bad, 0x14)),
        "another port": offload() + frame(segment((own[0], 81), far, bad)),
        "another address": offload() + frame(segment(("10.9.9.9", own[1]), far, bad)),
        "another peer": offload() + frame(segment(own, (far[0], 81), bad)),
        "a datagram": offload(6) + frame(datagram(own, far, bad)),
        "another link address": offload() + frame(segment(own, far, bad), source=bytes([2, 0, 0, 0, 0, 99])),
        "to all": offload() + frame(segment(own, far, bad), target=b"\xff" * 6),
        "ARP": none + frame(arp, 0x0806),
        "ARP to all": none + frame(arp, 0x0806, target=b"\xff" * 6),
        "IPv6": none + frame(b"\x60" + bytes(5) + b"\x3b\x40" + bytes(32) + bad, 0x86DD),
        "VLAN": offload(start=ETH + 24) + good[:12] + b"\x81\0\0\5" + good[12:],
        "a checksum of its own": none + frame(segment(own, far, bad, is_whole=True)),
        "a checksum over the source": offload(6, 20) + good,
        "long segments": offload(gso=4000) + frame(segment(own, far, bad * 1000)),
    }


def session():
    return peers[-1].getsockname(), peers[-1].getpeername()


def send():
    sent = []
    for what, text in attempts().items():
        try:
            packets.send(text)
            sent.append(what)
        except OSError as error:
            print(f"{what}: {error}", file=sys.stderr)
    # Other interfaces, which the address selects.
    text = attempts()["data of another's session"]
    address = lambda index: struct.pack("=HHiHBB8s", socket.AF_PACKET, socket.htons(0x0800), index, 0, 0, 6, bytes(8))
    reached = [index for index in range(1, 65) if libc.sendto(packets.fileno(), text, len(text), 0, address(index), 20) > 0]
    own, far = session()
    packets.send(offload() + frame(segment(own, far, b"ALLOWED")))
    SIOCGSKNS = 0x894C
    return {"sent": sent, "reached": reached, "entered": libc.ioctl(packets.fileno(), SIOCGSKNS)}


def see():
    """What it sees of the network, and what of that is not its own session's."""
    for index in range(1, 9):
        try:
            packets.setsockopt(SOL_PACKET, 1, struct.pack("=iHH8s", index, 1, 0, bytes(8)))  # PACKET_ADD_MEMBERSHIP, PACKET_MR_PROMISC
        except OSError:
            pass
    own, far = session()
    mine = socket.inet_aton(far[0]) + socket.inet_aton(own[0]) + struct.pack("!HH", far[1], own[1])
    name = os.readlink(f"/proc/self/fd/{packets.fileno()}")
    ranges, deadline = [], time.monotonic() + 10
    while not ranges and time.monotonic() < deadline:
        with open("/proc/self/maps") as maps:
            ranges = [line.split()[0].split("-") for line in maps if line.rstrip().endswith(name)]
    rings = [mmap.mmap(packets.fileno(), int(end, 16) - int(start, 16), prot=mmap.PROT_READ) for start, end in ranges]
    seen, foreign, deadline = set(), [], time.monotonic() + 3
    while time.monotonic() < deadline:
        for ring in rings:
            for at in range(0, len(ring), SLOT):
                header = struct.unpack_from("=IIIHH", ring, at)  # struct tpacket2_hdr
                found = ring[at + header[4] :][:24]
                if header[4] and found not in seen:
                    seen.add(found)
                    if found[12:24] != mine:
                        foreign.append(found.hex())
        try:
            found = packets.recv(70000, socket.MSG_DONTWAIT | socket.MSG_PEEK)[VNET + ETH :][:24]
            if found[12:24] != mine:
                foreign.append(found.hex())
        except BlockingIOError:
            pass
    return {"seen": len(seen), "foreign": foreign}


def through(pid):
    packets = packet_socket(pid)
    text = offload() + frame(segment(end("VICTIM_LOCAL"), end("VICTIM_REMOTE"), b"ALLOWED"))
    print("ready", flush=True)
    while not os.path.exists(os.environ["END"]):
        try:
            packets.send(text)
        except OSError as error:
            print(error, file=sys.stderr)
        time.sleep(0.02)


def tap(is_once):
    """IPv4 TCP but with the identification that is used here is of no interest."""
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    code = [(0x28, 0, 0, 12), (0x15, 0, 5, 0x0800), (0x30, 0, 0, 23), (0x15, 0, 3, 6), (0x28, 0, 0, 18), (0x15, 1, 0, 7), (6, 0, 0, 0), (6, 0, 0, 0xFFFF)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in code))
    tap.setsockopt(socket.SOL_SOCKET, 26, struct.pack("@HL", len(code), ctypes.addressof(program)))  # SO_ATTACH_FILTER
    tap.bind((os.environ["INTERFACE"], 3))
    tap.settimeout(0.2)
    print("ready", flush=True)
    while is_once or not os.path.exists(os.environ["END"]):
        try:
            text = tap.recv(70000)
        except TimeoutError:
            continue
        for word in (b"FORBIDDEN", b"ALLOWED"):
            if word not in text:
                continue
            if not is_once:
                with open(os.environ["END"] + ".seen", "ab") as seen:
                    seen.write(b".")
                continue
            print(word.decode(), flush=True)
            if word == b"ALLOWED":
                return


SOL_PACKET, SLOT = 263, 2048
peers = []
place = (os.environ["ADDRESS"], int(os.environ["PORT"]))
if sys.argv[1] in ("tap", "count"):
    tap(sys.argv[1] == "tap")
elif sys.argv[1] == "through":
    through(int(sys.argv[2]))
elif sys.argv[1] == "ask":
    ask(place)
else:
    threading.Thread(target=answer, args=[socket.create_server(place)], daemon=True).start()
    packets = packet_socket(os.getpid())
    print(json.dumps({**see(), **send()}), flush=True)
    await_end()

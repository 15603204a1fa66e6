"""read|write tcp|unix serve|call ADDRESS: one end of a transfer that ends with the other's death; says how that looked."""
import socket, sys, time

way, kind, side, address = sys.argv[1:]
family, name = (socket.AF_UNIX, address) if kind == "unix" else (socket.AF_INET, ("127.0.0.1", int(address)))
sock = socket.socket(family)
if side == "serve":
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(name)
    sock.listen()
    sock, _ = sock.accept()
else:
    for _ in range(400):
        try:
            sock.connect(name)
            break
        except (ConnectionRefusedError, FileNotFoundError):
            time.sleep(0.02)
    open("busy", "w").close()
sock.settimeout(None)
position = 0
pattern = bytes(range(251)) * 64
try:
    while True:
        if way == "write":
            sock.sendall(pattern)
        else:
            got = sock.recv(16000)
            if not got:
                print("end of file")
                break
            assert got == (pattern * 2)[position : position + len(got)], "wrong bytes"
            position = (position + len(got)) % len(pattern)
except (ConnectionResetError, BrokenPipeError) as error:
    print("peer gone")

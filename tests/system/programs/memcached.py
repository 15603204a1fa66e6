"""Sets and gets values of many sizes, one by one and many at once."""
import hashlib, socket, sys
for where in sys.argv[1:]:
    if where.isdigit():
        sock = socket.create_connection(("127.0.0.1", int(where)), 20)
    else:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(20)
        sock.connect(where)
    file = sock.makefile("rb")
    digest = hashlib.sha256()
    values = [bytes((n * i) & 255 for i in range(n * 7)) + b"\r\nEND\r\n" for n in range(300)]
    # Often enough that the session moves meanwhile, on a busy machine, too.
    for n, value in list(enumerate(values)) * 20:
        sock.sendall(b"set k%d 0 0 %d\r\n" % (n, len(value)) + value + b"\r\n")
        assert file.readline() == b"STORED\r\n"
    big = bytes(range(256)) * 3900
    sock.sendall(b"set big 0 0 %d\r\n" % len(big) + big + b"\r\n")
    print(file.readline())
    for n in range(20):
        sock.sendall(b"get " + b" ".join(b"k%d" % i for i in range(300)) + b" big\r\n")
        while (line := file.readline()) != b"END\r\n":
            assert line.startswith(b"VALUE"), line
            digest.update(line + file.read(int(line.split()[3]) + 2))
    sock.sendall(b"nonsense\r\nquit\r\n")
    print(digest.hexdigest(), file.read())

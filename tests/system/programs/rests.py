"""KIND END HOW: a writer that ends before all that it has sent is read, and a reader that lets somebody else read the rest. Prints how
many bytes each of the two has read, and whether they were the right ones."""
import os, signal, socket, subprocess, sys, time

PIECE, SENT, FIRST = 4000, 100, 90
# The first pieces are sent slowly, so that the session has moved before the last ones.
SLOW = 40
NUMBERS = range(SENT)


def piece(number):
    return b"%0*d\n" % (PIECE - 1, number)


def ends(kind):
    """The reader's, the writer's."""
    if kind == "pipe":
        return os.pipe()
    if kind == "unix":
        pair = socket.socketpair()
    else:
        listener = socket.create_server(("127.0.0.1", 0))
        pair = socket.create_connection(listener.getsockname()), listener.accept()[0]
    return tuple(sock.detach() for sock in pair)


def read_all(fd, most):
    got = b""
    while len(got) < most:
        new = os.read(fd, min(PIECE, most - len(got)))
        if not new:
            break
        got += new
    return got


def write(fd, end, told):
    for number in NUMBERS:
        time.sleep(0.01 if number < SLOW else 0)
        at = 0
        while at < PIECE:
            at += os.write(fd, piece(number)[at:])
    if end == "closes":
        os.close(fd)
    if end == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if end == "exits":
        sys.exit(0)
    os.write(told, b"x")
    # Ends by a signal, once the reader has read everything and closed its end.
    signal.pause()


def rest(fd, how):
    """As another program, or another process, reads it."""
    if how == "exec":
        os.dup2(fd, 0)
        os.execvp("md5sum", ["md5sum"])
    if how == "spawn":
        print(subprocess.run(["md5sum"], stdin=fd, capture_output=True, check=True).stdout, flush=True)
        return
    pid = os.fork()
    if pid == 0:
        got = read_all(fd, SENT * PIECE)
        print(got == b"".join(piece(number) for number in NUMBERS[FIRST:]), len(got), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)


def main(kind, end, how):
    ours, theirs = ends(kind)
    hears, tells = os.pipe()
    writer = os.fork()
    if writer == 0:
        os.close(ours)
        os.close(hears)
        write(theirs, end, tells)
    os.close(theirs)
    os.close(tells)
    first = read_all(ours, FIRST * PIECE)
    print(kind, end, how, first == b"".join(piece(number) for number in NUMBERS[:FIRST]), flush=True)
    # A byte or the end of file: either means that the writer has sent everything.
    os.read(hears, 1)
    if end == "closes":
        os.kill(writer, signal.SIGTERM)
    rest(ours, how)


main(*sys.argv[1:])

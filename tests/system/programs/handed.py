"""KIND HOW: a reader hands a descriptor that `exec` closes to another program, as its standard input, while the writer goes on."""
import os, socket, subprocess, sys, time

PIECE, SENT, FIRST = 4000, 300, 50
# The first pieces are sent slowly, so that the session has moved before it is handed over.
SLOW = 60


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


def write(fd):
    for number in range(SENT):
        time.sleep(0.004 if number < SLOW else 0)
        at = 0
        while at < PIECE:
            at += os.write(fd, piece(number)[at:])
    os._exit(0)


def the_rest(fd, how):
    if how == "vfork":
        return subprocess.run(["cat"], stdin=fd, stdout=subprocess.PIPE, check=True).stdout
    into, out = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, fd, 0), (os.POSIX_SPAWN_DUP2, out, 1)]
    pid = os.posix_spawnp("cat", ["cat"], os.environ, file_actions=actions)
    os.close(out)
    with open(into, "rb") as file:
        got = file.read()
    assert os.waitpid(pid, 0)[1] == 0
    return got


def main(kind, how):
    ours, theirs = ends(kind)
    assert not os.get_inheritable(ours)
    if os.fork() == 0:
        os.close(ours)
        write(theirs)
    os.close(theirs)
    got = b""
    while len(got) < FIRST * PIECE:
        got += os.read(ours, FIRST * PIECE - len(got))
    got += the_rest(ours, how)
    print(kind, how, len(got), got == b"".join(map(piece, range(SENT))), flush=True)


main(*sys.argv[1:])

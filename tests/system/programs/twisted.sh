# Twisted: its echo protocols over TCP and Unix sockets, and a child process by pipes.
#: deb=python3-venv pip=twisted
cat >s.py <<'END'
import sys
from twisted.internet import protocol, reactor
class Echo(protocol.Protocol):
    def dataReceived(self, data): self.transport.write(data.swapcase())
f = protocol.Factory(); f.protocol = Echo
reactor.listenTCP(int(sys.argv[1]), f, interface="127.0.0.1"); reactor.listenUNIX("u", f); reactor.run()
END
cat >c.py <<'END'
import sys, zlib
from twisted.internet import protocol, reactor, defer
from twisted.internet.endpoints import TCP4ClientEndpoint, UNIXClientEndpoint, connectProtocol
class Ask(protocol.Protocol):
    def __init__(self): self.i = self.got = self.crc = 0; self.done = defer.Deferred()
    def connectionMade(self): self.ask()
    def ask(self):
        self.i += 1; self.want = len(str(self.i)) * 40 + 120; self.got = 0; self.transport.write(b"abc" * 40 + str(self.i).encode() * 40)
    def dataReceived(self, data):
        self.got += len(data); self.crc = zlib.crc32(data, self.crc)
        if self.got == self.want:
            if self.i == 500: self.done.callback(self.crc); self.transport.loseConnection()
            else: self.ask()
@defer.inlineCallbacks
def main():
    for end in (TCP4ClientEndpoint(reactor, "127.0.0.1", int(sys.argv[1])), UNIXClientEndpoint(reactor, "u")):
        p = yield connectProtocol(end, Ask()); crc = yield p.done; print(crc)
    from twisted.internet.utils import getProcessOutput
    out = yield getProcessOutput("/usr/bin/seq", ["1", "50000"]); print(len(out)); reactor.stop()
reactor.callWhenRunning(main); reactor.run()
END
"$py" s.py "$PORT" &
await connects "$PORT"
timeout 40 "$py" c.py "$PORT"
echo "client $?"

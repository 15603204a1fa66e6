"""ADDRESS PORT: a name server over UDP and TCP: hostN.example is 192.0.2.N, TXT records are long."""
import socketserver, struct, sys, threading


def answer(question, is_tcp):
    number, flags = struct.unpack("!HH", question[:4])
    at, labels = 12, []
    while question[at]:
        labels.append(question[at + 1 : at + 1 + question[at]].decode())
        at += 1 + question[at]
    kind = struct.unpack("!H", question[at + 1 : at + 3])[0]
    asked = question[12 : at + 5]
    if kind == 16:
        texts = [bytes([200]) + bytes([97 + i % 26]) * 200 for i in range(60)]
    else:
        texts = [bytes([192, 0, 2, int("".join(c for c in labels[0] if c.isdigit()) or 0)])]
    records = b"".join(b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 60, len(text)) + text for text in texts)
    is_short = not is_tcp and len(records) > 400
    head = struct.pack("!HHHHHH", number, 0x8400 | flags & 0x100 | is_short * 0x200, 1, 0 if is_short else len(texts), 0, 0)
    return head + asked + (b"" if is_short else records)


class Datagrams(socketserver.BaseRequestHandler):
    def handle(self):
        self.request[1].sendto(answer(self.request[0], False), self.client_address)


class Streams(socketserver.StreamRequestHandler):
    def handle(self):
        while len(head := self.rfile.read(2)) == 2:
            said = answer(self.rfile.read(struct.unpack("!H", head)[0]), True)
            self.wfile.write(struct.pack("!H", len(said)))
            self.wfile.write(said)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True


place = (sys.argv[1], int(sys.argv[2]))
threading.Thread(target=socketserver.ThreadingUDPServer(place, Datagrams).serve_forever, daemon=True).start()
Server(place, Streams).serve_forever()

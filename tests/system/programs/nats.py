"""Clients of a NATS server: one publishes, several subscribe, one answers requests."""
import hashlib, socket, sys, threading


class Client:
    def __init__(self):
        self.sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 30)
        self.file = self.sock.makefile("rb")
        assert self.file.readline().startswith(b"INFO")
        self.say(b'CONNECT {"verbose":false}\r\nPING\r\n')
        while self.file.readline() != b"PONG\r\n":
            pass

    def say(self, words):
        self.sock.sendall(words)

    def subscribe(self, subject, number):
        self.say(b"SUB %s %d\r\nPING\r\n" % (subject, number))
        while self.file.readline() != b"PONG\r\n":
            pass

    def message(self):
        while True:
            line = self.file.readline()
            if line == b"PING\r\n":
                self.say(b"PONG\r\n")
            elif line.startswith(b"MSG"):
                words = line.split()
                reply = words[3] if len(words) == 5 else None
                return self.file.read(int(words[-1]) + 2)[:-2], reply


def listen(client, count, results, place):
    digest = hashlib.sha256()
    for _ in range(count):
        digest.update(client.message()[0])
    results[place] = digest.hexdigest()


def answer(client, count):
    for _ in range(count):
        body, reply = client.message()
        client.say(b"PUB %s %d\r\n%s\r\n" % (reply, len(body) + 1, b"a" + body))


results = {}
threads = []
for place in range(4):
    client = Client()
    client.subscribe(b"news.*", 1)
    threads.append(threading.Thread(target=listen, args=(client, 2500, results, place)))
service = Client()
service.subscribe(b"service", 1)
threads.append(threading.Thread(target=answer, args=(service, 2500)))
for thread in threads:
    thread.start()
publisher = Client()
for i in range(2500):
    body = b"%d" % i * (1 + i % 50)
    publisher.say(b"PUB news.%d %d\r\n%s\r\n" % (i % 7, len(body), body))
asker = Client()
asker.subscribe(b"inbox", 1)
total = 0
for i in range(2500):
    asker.say(b"PUB service inbox %d\r\n%s\r\n" % (len(b"%d" % i), b"%d" % i))
    body = asker.message()[0]
    assert body == b"a%d" % i, body
    total += len(body)
for thread in threads:
    thread.join()
print(total, *sorted(set(results.values())))

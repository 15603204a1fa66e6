# RabbitMQ: one node, clients in Python with confirms, a queue that is read while it is written.
#: deb=rabbitmq-server pip=pika limit=180
export RABBITMQ_NODENAME=r$PORT@localhost RABBITMQ_NODE_PORT=$PORT RABBITMQ_DIST_PORT=$PORT2 RABBITMQ_NODE_IP_ADDRESS=127.0.0.1
export RABBITMQ_MNESIA_BASE=$D/data RABBITMQ_LOG_BASE=$D/log RABBITMQ_ENABLED_PLUGINS_FILE=$D/plugins RABBITMQ_CONF_ENV_FILE=/dev/null RABBITMQ_PID_FILE=$D/pid
export ERL_EPMD_PORT=$((PORT + 2000)) ERL_EPMD_ADDRESS=127.0.0.1 ERL_CRASH_DUMP=/dev/null
echo '[].' >plugins
mkdir data log
/usr/lib/rabbitmq/bin/rabbitmq-server >server.log 2>&1 &
S=$!
# RabbitMQ takes longer to start than one `await` allows.
for _ in 1 2 3 4 5; do (await connects "$PORT") 2>/dev/null && break; done
cat >c.py <<'END'
import hashlib, os, sys, threading, pika
where = pika.ConnectionParameters("127.0.0.1", int(sys.argv[1]), blocked_connection_timeout=60)
N = 600
def write():
    with pika.BlockingConnection(where) as c:
        ch = c.channel()
        ch.queue_declare("q")
        ch.confirm_delivery()
        for i in range(N):
            ch.basic_publish("", "q", bytes([i % 256]) * (i * 97 % 30000))
t = threading.Thread(target=write)
with pika.BlockingConnection(where) as c:
    ch = c.channel()
    ch.queue_declare("q")
    t.start()
    ch.basic_qos(prefetch_count=20)
    got, sums = 0, hashlib.sha256()
    for method, _, body in ch.consume("q", inactivity_timeout=60):
        sums.update(body)
        ch.basic_ack(method.delivery_tag)
        got += 1
        if got == N:
            break
    ch.cancel()
    t.join()
    print(got, sums.hexdigest())
END
timeout 100 "$py" c.py "$PORT"
echo "client $?"
kill $S
wait $S
echo "server ended"
epmd -port "$ERL_EPMD_PORT" -kill >/dev/null 2>&1

# Celery: a worker with two processes and a broker, Redis.
#: deb=python3-venv,redis-server pip=celery,redis limit=120
redis-server --port "$PORT" --bind 127.0.0.1 --save '' --dir "$D" --logfile "$D/log" &
await connects "$PORT"
cat >tasks.py <<'END'
import os
from celery import Celery
u = "redis://127.0.0.1:%s/0" % os.environ["PORT"]
app = Celery("tasks", broker=u, backend=u)
@app.task
def add(x, y): return x + y
@app.task
def text(n): return "t" * n
END
"$py" -m celery -A tasks worker -c 2 -l error --without-gossip --without-mingle >worker.log 2>&1 &
W=$!
cat >c.py <<'END'
from tasks import add, text
from celery import group
print(add.delay(1, 2).get(timeout=60))
print(sum(group(add.s(i, i) for i in range(150))().get(timeout=60)))
print(sum(len(text.delay(i * 500).get(timeout=30)) for i in range(40)))
END
timeout 90 "$py" c.py
echo "client $?"
kill $W
wait $W
echo "worker $?"

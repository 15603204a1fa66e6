# A message bus of its own: a service and a client of jeepney's, large messages, signals; gdbus and dbus-send.
#: deb=dbus,libglib2.0-bin,python3-venv pip=jeepney
dbus-daemon --session --nofork --nopidfile --address="unix:path=$D/bus" 2>log &
await test -S "$D/bus"
export DBUS_SESSION_BUS_ADDRESS="unix:path=$D/bus"
cat >service.py <<'END'
from jeepney import MessageType, new_method_return, new_signal, DBusAddress
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import open_dbus_connection
c = open_dbus_connection(bus="SESSION")
c.send_and_get_reply(message_bus.RequestName("org.example.Echo"))
open("ready", "w").close()
count = 0
while True:
    m = c.receive()
    if m.header.message_type != MessageType.method_call: continue
    count += 1
    c.send(new_method_return(m, m.header.fields.get(8, ""), m.body))
    if count % 100 == 0: c.send(new_signal(DBusAddress("/e", interface="org.example.Echo"), "Hundred", "u", (count,)))
    if m.body and m.body[0] == "stop": break
END
cat >client.py <<'END'
import zlib
from jeepney import DBusAddress, new_method_call
from jeepney.io.blocking import open_dbus_connection
c = open_dbus_connection(bus="SESSION")
at = DBusAddress("/e", bus_name="org.example.Echo", interface="org.example.Echo")
crc = 0
for i in range(500):
    text = chr(97 + i % 26) * (i * 7 % 3000)
    crc = zlib.crc32(c.send_and_get_reply(new_method_call(at, "Echo", "s", (text,))).body[0].encode(), crc)
for i in range(3):
    data = bytes([i]) * 2000000
    crc = zlib.crc32(bytes(c.send_and_get_reply(new_method_call(at, "Echo", "ay", (data,))).body[0]), crc)
print(crc, c.send_and_get_reply(new_method_call(at, "Echo", "s", ("stop",))).body)
END
"$py" service.py &
S=$!
await test -e ready
for i in $(seq 15); do
    gdbus call --session -d org.freedesktop.DBus -o /org/freedesktop/DBus -m org.freedesktop.DBus.GetId >/dev/null || echo "gdbus $?"
done
dbus-send --session --print-reply=literal --dest=org.freedesktop.DBus /org/freedesktop/DBus org.freedesktop.DBus.NameHasOwner string:org.example.Echo
timeout 40 "$py" client.py
echo "client $?"
wait $S
echo "service $?"

# Exim takes mail by SMTP from several clients at once, refuses what it does not know, and delivers its queue to files.
#: deb=exim4-daemon-light limit=90
mkdir spool mail
chmod 777 "$D" spool mail
chmod 755 "$D/.."
cat >exim.conf <<END
exim_user = mail
exim_group = mail
never_users =
spool_directory = $D/spool
log_file_path = $D/%slog
pid_file_path = $D/pid
primary_hostname = localhost
domainlist local_domains = here
daemon_smtp_ports = $PORT
local_interfaces = 127.0.0.1
host_lookup =
rfc1413_query_timeout = 0s
acl_smtp_rcpt = check
keep_environment =
queue_only
smtp_accept_max = 0
begin acl
check:
  accept domains = here
  deny message = not here
begin routers
all:
  driver = accept
  transport = files
begin transports
files:
  driver = appendfile
  file = $D/mail/all
  user = mail
END
exim4 -C "$D/exim.conf" -bdf >exim.log 2>&1 &
S=$!
await connects "$PORT"
cat >c.py <<'END'
import smtplib, sys, threading
def one(n):
    with smtplib.SMTP("127.0.0.1", int(sys.argv[1]), timeout=40) as s:
        for i in range(15):
            s.sendmail("a@here", [f"u{n}@here"], f"Subject: {i}\n\n" + "line of text\n" * (i * 40))
        try:
            s.sendmail("a@here", ["b@there"], "x")
        except smtplib.SMTPRecipientsRefused as e:
            refused.append(e.recipients["b@there"])
refused = []
all = [threading.Thread(target=one, args=(n,)) for n in range(4)]
for t in all: t.start()
for t in all: t.join()
print(refused)
END
/usr/bin/python3 c.py "$PORT"
exim4 -C "$D/exim.conf" -qf
delivered() { [ "$(cat mail/* | grep -c '^Subject:')" = 60 ]; }
await delivered # One file, which its deliveries lock in turn.
grep -h '^Subject:\|^line' mail/* | sort | sum
kill $S
wait $S
echo "server ended"

# dnsmasq asked by dig, over UDP and TCP.
#: deb=dnsmasq-base,bind9-dnsutils
for i in $(seq 50); do echo "10.1.2.$i name$i.example"; done >hosts
dnsmasq -k -C /dev/null -p "$PORT" -a 127.0.0.1 --bind-interfaces -R -h -H "$D/hosts" -u root -x '' >log 2>&1 &
d="dig @127.0.0.1 -p $PORT +short +tries=3 +time=3"
await $d name1.example
(for i in $(seq 50); do echo "name$i.example"; done) >names
$d -f names | sum
$d +tcp -f names | sum
$d +tcp +keepopen -f names | sum
$d -x 10.1.2.7

# Perl: a forking server, sysread and buffered lines, socketpair, open2, IO::Select.
#: deb=perl
cat >p.pl <<'END'
use strict; use IO::Socket::INET; use IO::Select; use IPC::Open2; use Socket; use Digest::MD5 qw(md5_hex);
my $port = $ENV{PORT};
my $l = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => $port, Listen => 5, ReuseAddr => 1) or die;
my $server = fork // die;
if (!$server) { for (1 .. 3) { my $c = $l->accept; if (!fork) { close $l; while (my $line = <$c>) { print $c scalar reverse(substr($line, 0, -1)), "\n"; } exit 0; } close $c; } wait for 1 .. 3; exit 0; }
for my $n (1 .. 3) { my $s = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $port) or die; my $all = "";
  for my $i (1 .. 400) { my $line = ("$i," x ($i % 50)) . "\n"; syswrite $s, $line; my $got = ""; while ($got !~ /\n/) { sysread $s, $got, 4096, length $got or die "end"; } $all .= $got; }
  print "client $n ", md5_hex($all), "\n"; close $s; }
waitpid $server, 0; print "server $?\n";
socketpair(my $a, my $b, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die;
if (!fork) { close $a; my $x; while (sysread $b, $x, 65536) { syswrite $b, uc $x; } exit 0; } close $b;
my $select = IO::Select->new($a); my ($sent, $back) = (0, "");
for my $i (1 .. 500) { syswrite $a, "abc$i" x 30; $sent += length("abc$i") * 30; while (length $back < $sent) { $select->can_read(10) or die "late"; sysread $a, $back, 65536, length $back or die; } }
print md5_hex($back), "\n"; close $a; wait;
my $pid = open2(my $out, my $in, "sort", "-rn"); print $in "$_\n" for 1 .. 20000; close $in; my @lines = <$out>; waitpid $pid, 0; print scalar @lines, " $lines[0]";
END
timeout 40 perl p.pl
echo "perl $?"

# An exchange over a Unix stream that compares every byte: `echo.pl serve PATH`, `echo.pl ask PATH N [SECONDS]`.
# The asking end says at last whether a stream is mapped: then the session is away. Until it is, more than N questions are asked for SECONDS at most.
use strict;
use warnings;
use Socket;

my ($role, $path, $count, $patience) = (@ARGV, 0, 0);
my $piece = 64;
socket(my $socket, AF_UNIX, SOCK_STREAM, 0) or die "socket: $!";

sub answer {
    bind($socket, pack_sockaddr_un($path)) or die "bind: $!";
    listen($socket, 1) or die "listen: $!";
    syswrite(STDOUT, "ready\n");
    accept(my $peer, $socket) or die "accept: $!";
    while (my $got = sysread($peer, my $bytes, $piece)) {
        for (my $done = 0; $done < $got;) {
            $done += syswrite($peer, $bytes, $got - $done, $done) // die "write: $!";
        }
    }
}

sub is_away {
    open(my $maps, '<', '/proc/self/maps') or die "maps: $!";
    return scalar grep(/sojourn-stream/, <$maps>);
}

sub ask {
    connect($socket, pack_sockaddr_un($path)) or die "connect: $!";
    my $limit = time() + $patience;
    for (my $number = 1; $number <= $count || (!is_away() && time() < $limit); $number++) {
        my $sent = sprintf("%0${piece}d", $number);
        syswrite($socket, $sent) == $piece or die "write: $!";
        my $received = '';
        while (length($received) < $piece) {
            sysread($socket, my $more, $piece - length($received)) or die "read: $!";
            $received .= $more;
        }
        $received eq $sent or die "question $number: $received";
    }
    print is_away() ? "away\n" : "kernel\n";
}

$role eq 'serve' ? answer() : ask();

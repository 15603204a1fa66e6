# Ruby: threads on TCP and Unix sockets, pipes with a child, popen, IO.select.
#: deb=ruby
cat >r.rb <<'END'
require "socket"; require "digest"
port = ENV["PORT"].to_i
pid = fork { s = TCPServer.new("127.0.0.1", port); u = UNIXServer.new("u"); File.write("ready", "")
  [s, u].map { |l| Thread.new { 2.times.map { c = l.accept; Thread.new { while (line = c.gets); c.write(line.reverse.strip, "\n"); end; c.close } }.each(&:join) } }.each(&:join) }
sleep 0.01 until File.exist?("ready")
[-> { TCPSocket.new("127.0.0.1", port) }, -> { UNIXSocket.new("u") }].each { |make|
  2.times.map { |n| Thread.new { c = make.call; d = Digest::MD5.new; 500.times { |i| c.write("#{i}-" * (i % 60), "\n"); d << c.gets }; c.close; d.hexdigest } }.each { |t| puts t.value } }
Process.wait pid; puts $?.exitstatus
r, w = IO.pipe; x, y = IO.pipe
pid = fork { w.close; x.close; while (b = r.readpartial(65536) rescue nil); y.write b.upcase; end; y.close }
r.close; y.close; got = +""; n = 0
400.times { |i| t = "abc#{i}" * 20; n += t.size; w.write t; w.flush; while got.size < n; IO.select([x], nil, nil, 10) or abort "late"; got << x.readpartial(65536); end }
w.close; Process.wait pid; puts Digest::MD5.hexdigest(got)
puts IO.popen(["sort", "-rn"], "r+") { |p| (1..20000).each { |i| p.puts i }; p.close_write; p.readlines.size }
END
timeout 40 ruby r.rb
echo "ruby $?"

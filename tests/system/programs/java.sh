# Single-file launch; com.sun.net.httpserver and java.net.http.
#: deb=openjdk-17-jdk-headless limit=90
cat >Server.java <<'END'
import com.sun.net.httpserver.*; import java.net.*; import java.util.concurrent.*;
public class Server { public static void main(String[] a) throws Exception {
  HttpServer s = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(a[0])), 0);
  s.setExecutor(Executors.newFixedThreadPool(4));
  s.createContext("/", x -> { byte[] b = x.getRequestBody().readAllBytes(); x.sendResponseHeaders(200, b.length == 0 ? -1 : b.length);
    if (b.length > 0) x.getResponseBody().write(b); x.close(); });
  s.start(); } }
END
cat >Client.java <<'END'
import java.net.*; import java.net.http.*; import java.util.*;
public class Client { public static void main(String[] a) throws Exception {
  HttpClient c = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build(); long n = 0; var crc = new java.util.zip.CRC32();
  for (int i = 0; i < 120; i++) { byte[] b = new byte[i * 37 % 9000 + i % 7]; Arrays.fill(b, (byte) i);
    byte[] got = c.send(HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + a[0] + "/")).POST(HttpRequest.BodyPublishers.ofByteArray(b)).build(),
      HttpResponse.BodyHandlers.ofByteArray()).body();
    if (!Arrays.equals(b, got)) System.out.println("wrong " + i); n += got.length; crc.update(got); }
  System.out.println(n + " " + crc.getValue()); System.exit(0); } }
END
java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 Server.java "$PORT" &
await connects "$PORT"
timeout 40 java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 Client.java "$PORT"
echo "client $?"

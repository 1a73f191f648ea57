import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import org.apache.hadoop.net.StandardSocketFactory;

/**
 * Sockets that come from the address of the host that the process stands for. HDFS knows its DataNodes and clients by
 * the address that they come from; on loopback this would be 127.0.0.1 for all, and nothing would be local to
 * anything. Hadoop is told of it by {@code hadoop.rpc.socket.factory.class.default}.
 */
public final class HostSockets extends StandardSocketFactory {
    private static final String HOST = System.getenv("NM_HOST");

    @Override
    public Socket createSocket() throws IOException {
        Socket socket = super.createSocket();
        if (HOST != null) {
            socket.bind(new InetSocketAddress(InetAddress.getByName(HOST), 0));
        }
        return socket;
    }
}

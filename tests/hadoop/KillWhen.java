import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Kills processes with SIGKILL at a moment that a file system shows: {@code KillWhen GLOB SECONDS TEXT...}. As soon as
 * a path matches the glob, each process whose command line has all the texts is killed. Ends with 1 if the path does
 * not appear in time, or if there is no such process.
 */
public final class KillWhen {
    /** Looking for processes takes longer than looking for a path, and would make the kill late. */
    private static final int LOOKS_FOR_PATH_PER_LOOK_FOR_PROCESSES = 50;

    private KillWhen() {}

    public static void main(String[] args) throws IOException, InterruptedException {
        Path glob = new Path(args[0]);
        List<String> texts = Arrays.asList(args).subList(2, args.length);
        FileSystem system = glob.getFileSystem(new Configuration());
        long end = System.nanoTime() + Long.parseLong(args[1]) * 1_000_000_000L;
        List<ProcessHandle> victims = findProcesses(texts);
        FileStatus[] found = system.globStatus(glob);
        for (int looks = 1; found == null || found.length == 0; looks++) {
            if (System.nanoTime() > end) {
                System.out.println(glob + " did not appear");
                System.exit(1);
            }
            if (looks % LOOKS_FOR_PATH_PER_LOOK_FOR_PROCESSES == 0) {
                victims = findProcesses(texts);
            }
            Thread.sleep(2);
            found = system.globStatus(glob);
        }
        long killed = victims.stream().filter(ProcessHandle::destroyForcibly).count();
        System.out.println("killed at the sight of " + found[0].getPath() + (killed == 0 ? ": nothing" : ""));
        System.out.flush();
        // Without Hadoop's hooks: they would wait for a server that was killed here.
        Runtime.getRuntime().halt(killed == 0 ? 1 : 0);
    }

    private static List<ProcessHandle> findProcesses(List<String> texts) throws IOException {
        List<ProcessHandle> result = new ArrayList<>();
        try (DirectoryStream<java.nio.file.Path> processes = Files.newDirectoryStream(Paths.get("/proc"), "[0-9]*")) {
            for (java.nio.file.Path process : processes) {
                long pid = Long.parseLong(process.getFileName().toString());
                if (pid != ProcessHandle.current().pid() && hasAll(process, texts)) {
                    ProcessHandle.of(pid).ifPresent(result::add);
                }
            }
        }
        return result;
    }

    private static boolean hasAll(java.nio.file.Path process, List<String> texts) {
        try {
            String command = new String(Files.readAllBytes(process.resolve("cmdline")));
            return texts.stream().allMatch(command::contains);
        } catch (IOException e) {
            // It has ended.
            return false;
        }
    }
}

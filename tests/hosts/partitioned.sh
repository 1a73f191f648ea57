# Wires are pulled: of a node, of a client, of the master.
need usual usual || return 0

check "a program on c writes, each block with fsync" begin_writing partitioned
cut_off h3
check "h3 is cut off: the program goes on" proceeds 40
check "h3 counts as late, or dead" soon 60 fails live 3
check "the program goes on" proceeds 30
plug_in h3
check "h3 is back" soon 60 live 3
check "the program goes on" proceeds 30
cut_off m
# So long is it away; nobody waits for anything.
sleep 3
plug_in m
check "the master was cut off for a moment: the program goes on" proceeds 40
check "it saw no error" end_writing
check "every block is read on c" has_written c partitioned
check "and on h1" has_written h1 partitioned

check "a program writes again" begin_writing client
proceeds 20
sessions() { on m ebb cluster status | grep -o '[0-9]* sessions*' | grep -o '[0-9]*'; }
before=$(sessions)
cut_off c
check "c is cut off: its session ends" soon 60 eval '[ "$(sessions)" -lt "$before" ]'
check "h1 reads what was acknowledged" has_written h1 client
check "and writes the file" soon 30 on h1 sh -c 'echo more >>/mnt/ebb/client'
plug_in c
check "c is back: new files are written" soon 60 on c sh -c 'cp /srv/hosts/random /mnt/ebb/random && sync /mnt/ebb/random'
end_writing >/mnt/said 2>&1 || true
check "no block that was acknowledged is lost" has_written c client
check "everything is healthy" soon 60 is_healthy
reads() { equal "$sum" "$("$@" | sha256sum)"; }
check "data are the same on h1" reads on h1 cat /mnt/ebb/random

# Processes are killed (kill -9) while a program writes with fsync. What was acknowledged is there, on every host.
need usual usual || return 0

check "a program on c writes, each block with fsync" begin_writing killed
check "the block server of h2 is killed" end KILL h2 block
check "the program goes on" proceeds 30
check "the master is killed" end KILL m master
check "it starts again" start m master
check "the program goes on" proceeds 60
check "the block server of h2 starts again" start h2 block
check "there are three nodes" soon 30 live 3
check "the program goes on" proceeds 30
check "it saw no error" end_writing
check "every block is read on c" has_written c killed
check "and on h1" has_written h1 killed
check "everything is healthy" soon 60 is_healthy

check "a program writes again" begin_writing mount-killed
proceeds 20
check "its mount is killed" on c sh -c 'kill -9 $(getfattr --only-values --absolute-names -n system.ebb.mount.pid /mnt/ebb)'
check "the program gets an error" soon 30 writes_no_more
check "what was acknowledged is read on h1" has_written h1 mount-killed
check "it can be written to there" soon 30 on h1 sh -c 'echo more >>/mnt/ebb/mount-killed'
check "umount takes the dead mount away" on c umount /mnt/ebb
check "mount mounts again" on c mount /mnt/ebb
check "all is read on c" has_written c mount-killed

check "words are written" on c sh -c 'yes a b c | head -n 100000 >/mnt/ebb/more-words'
check "a worker is killed" end KILL h1 worker
check "others count for it" prints "300000 words" on m ebb job count /more-words
check "it starts again" start h1 worker
check "all processes are killed, as when the power fails" eval 'for host in h1 h2 h3; do end KILL $host worker; end KILL $host block; done; end KILL m master'
starts() { local host; for host in m h1 h2 h3; do [ "$host" = m ] && start m master || serve "$host" || return; done; }
check "and start again" starts
check "all is read on c" has_written c mount-killed
check "everything is healthy" soon 60 is_healthy

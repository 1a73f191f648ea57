# Somebody on the network, somebody with a stolen key, and a user against another one. The table at the end has what they got.
need usual usual || return 0
pattern=0123456789-this-pattern-is-in-no-other-file-of-the-cluster-abcdef
name=a-name-that-is-nowhere-else
: >/mnt/rows

# attack WHO SENTENCE COMMAND...: a check, and a row of the table.
attack() {
    local before=$failed
    check "$2" "${@:3}"
    row "$1" "$2" "$([ "$failed" = "$before" ] && echo held || echo BROKEN)"
}
row() { printf '%s\t%s\t%s\n' "$@" >>/mnt/rows; }
# peer HOST ADDRESS ...: a program that speaks the protocol by hand; on m, its master.
peer() { on "$1" /usr/bin/python3 /srv/hosts/peer.py "${@:2}"; }
master=10.99.0.1:7000
block=10.99.0.3:7001

# --- who listens at the wire ---
sniffer=/mnt/tools/root/usr/bin/tcpdump
works() {
    on c sh -c 'yes "$1" | tr -d "\n" | head -c 2000000 >"/mnt/ebb/$2" && sync "/mnt/ebb/$2"' - "$pattern" "$name"
    on h1 sh -c 'ls -l /mnt/ebb >/dev/null && cat "/mnt/ebb/$1" >/dev/null' - "$name"
    on m sh -c 'ebb fs ls / >/dev/null && ebb fs cat "/$1" >/dev/null && ebb job grep pattern "/$1" >/dev/null' - "$name"
}
# captured: all that passes the wire while files are written, listed, read and searched is in /mnt/capture.
captured() {
    local sniffing
    rm -f /mnt/capture
    LD_LIBRARY_PATH=${libraries//\/srv\/hosts/\/mnt\/tools} "$sniffer" -Z root -i wire -U -B 65536 -w /mnt/capture 2>/mnt/sniffer.log &
    sniffing=$!
    soon 10 grep -q 'listening on' /mnt/sniffer.log || { cat /mnt/sniffer.log; return 1; }
    works || { kill "$sniffing"; return 1; }
    kill -INT "$sniffing"
    wait "$sniffing" || true
    is_recorded || { cat /mnt/sniffer.log; ls -l /mnt/capture; return 1; }
}
# At least one copy to each of three nodes, and no packet lost.
is_recorded() { grep -q '^0 packets dropped' /mnt/sniffer.log && [ "$(stat -c %s /mnt/capture)" -gt 6000000 ]; }
seen() { grep -a -q -F "$1" /mnt/capture; }
is_not_seen() { is_recorded && ! seen "$1"; }
if [ -x "$sniffer" ]; then
    check "the wire is recorded while files are written, listed, read and searched" captured
    attack "listener" "no byte of the contents is on the wire" is_not_seen "${pattern:0:20}"
    attack "listener" "nor the name of the file" is_not_seen "${name:0:12}"
else
    leave_out "who listens at the wire" "there is no tcpdump"
fi

# --- strangers: no certificate, or one that the cluster did not give ---
on m cat /var/lib/ebb/identities/operator.pem | on c sh -c 'umask 077; cat >/tmp/stolen.pem'
id=$(on m ebb --json cluster status | jq -r .cluster_id)
check "an operator's certificate is answered: the attacks below can succeed" prints "serving: true" peer c $master --identity /tmp/stolen.pem
check "by block servers, too" prints "" peer c $block --identity /tmp/stolen.pem Counters
for address in $master 10.99.0.1:7003 $block 10.99.0.3:7002; do
    attack "stranger" "no certificate, at $address" refused 3 "" peer c "$address" --cluster "$id"
    attack "stranger" "no TLS, at $address" refused 3 "" peer c "$address" --bare --cluster "$id"
done
tls() { on c sh -c "printf 'EBB1 are you there?' | timeout 10 openssl s_client -quiet -connect $master $1 2>/dev/null | wc -c"; }
attack "stranger" "openssl without a certificate reads no byte" equal 0 "$(tls '')"
self_made() {   # self_made NAME: a certificate of an authority that says that it is the cluster's
    on c sh -c 'cd /tmp && umask 077
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -days 9 -subj "/CN=ebb $1" &&
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout self.key -out self.csr -subj /CN=ebb &&
        printf "subjectAltName=URI:ebb://%s/operator,DNS:%s.ebb\nextendedKeyUsage=clientAuth,serverAuth\n" "$1" "$1" >ext &&
        openssl x509 -req -in self.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 9 -extfile ext -out self.crt &&
        cat self.crt ca.pem self.key >self.pem' - "$id" >/dev/null 2>&1
}
self_made
for address in $master $block; do
    attack "stranger" "a certificate of an own authority, at $address" refused 3 "" peer c $address --identity /tmp/self.pem --cluster "$id"
done
on c sh -c 'rm -rf /tmp/other; ebb --dir /tmp/other cluster init --master 10.99.0.1:7000' >/dev/null
attack "stranger" "an operator of another cluster" refused 3 "" peer c $master --identity /tmp/other/identities/operator.pem --cluster "$id"
crowd() {
    on c rm -f /tmp/crowd
    on c /usr/bin/python3 - >/dev/null 2>&1 <<'CROWD' &
import os, socket, time
crowd = [socket.create_connection(("10.99.0.1", 7000)) for _ in range(900)]
open("/tmp/crowd", "w").close()
while os.path.exists("/tmp/crowd"):
    time.sleep(0.1)
CROWD
    soon 10 on c test -e /tmp/crowd && prints serves on m ebb cluster status --timeout 10s &&
        on c dd if=/dev/zero of=/mnt/ebb/crowd bs=64k count=8 conv=fsync
    local code=$?
    on c rm -f /tmp/crowd
    return $code
}
attack "stranger" "900 connections that say nothing keep nobody away" crowd

# --- a stolen key of one role, used for another one's calls ---
mount=/var/lib/ebb/identities/mount-c.pem
own() { on c sh -c 'cp -p $1 /var/lib/ebb/identities/operator.pem; ebb node drain h1; code=$?; rm /var/lib/ebb/identities/operator.pem; exit $code' - "$mount"; }
attack "mount's key" "as identities/operator.pem" refused any "is of the mount" own
attack "mount's key" "drains a node" refused 3 "" peer c $master --identity $mount DrainNode 'node: 1'
attack "mount's key" "revokes certificates" refused 3 "" peer c $master --identity $mount RevokeIdentities 'revocation { role: "block" }'
attack "mount's key" "makes a token" refused 3 "" peer c $master --identity $mount InviteHost 'roles: "operator" lifetime_s: 3600'
attack "mount's key" "deletes replicas" refused 3 "" peer c $block --identity $mount DeleteReplicas 'volume: 1'
attack "mount's key" "says that it is an operator" refused 3 "" peer c $master --identity $mount --role operator DrainNode 'node: 1'
attack "mount's key" "says that it is on another host" refused 3 "" peer c $master --identity $mount --host h1
attack "mount's key" "opens a session of another host" refused 3 "is on" peer c $master --identity $mount OpenSession 'host: "h1" role: "mount"'
node=/var/lib/ebb/identities/block-h1.pem
attack "node's key" "reads names" refused 3 "" peer h1 $master --identity $node MetaRequest 'op { stat_fs { inode: 1 } }'
attack "node's key" "deletes another node's replicas" refused 3 "" peer h1 $block --identity $node DeleteReplicas 'volume: 1'
attack "node's key" "speaks for another node" refused 3 "" peer h1 $master --identity $node Heartbeat 'node: 2'
attack "node's key" "takes part as a master" refused 3 "" peer h1 $master --identity $node RaftMessage
attack "worker's key" "sends work to a worker" refused 3 "" peer h1 10.99.0.3:7002 --identity /var/lib/ebb/identities/worker-h1.pem CountWords
unpack() { on c /usr/bin/python3 -c 'import base64,sys; t=sys.stdin.read().strip()[5:]; b=base64.urlsafe_b64decode(t+"="*(-len(t)%4)); i=b.index(b"-----BEGIN"); print(b[i:-4].decode())' >/mnt/token.pem && on c sh -c 'umask 077; cat >/tmp/token.pem' </mnt/token.pem; }
token --role mount --host c9 | unpack
attack "token" "asks for the state" refused 3 "" peer c $master --identity /tmp/token.pem --host c9
request() {
    on c sh -c 'cd /tmp && openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout x.key -subj / -outform DER -out x.der 2>/dev/null
        printf "host: \"%s\" requests { role: \"%s\" request: \"%s\" }" "$1" "$2" "$(od -An -v -tx1 x.der | tr -d "\n" | sed "s/ /\\\\x/g")"' - "$1" "$2"
}
attack "token" "for a mount, asks to be an operator" refused 3 "" peer c $master --identity /tmp/token.pem --host c9 JoinCluster "$(request c9 operator)"
attack "token" "of one host, asks to be another" refused 3 "" peer c $master --identity /tmp/token.pem --host c9 JoinCluster "$(request h1 mount)"
check "the same request for what the token is for is answered" prints "certificates" peer c $master --identity /tmp/token.pem --host c9 JoinCluster "$(request c9 mount)"

# --- what was withdrawn ---
on m sh -c 'rm -f /tmp/lent.pem; ebb identity issue --role operator --out /tmp/lent.pem >/dev/null; cat /tmp/lent.pem' | on c sh -c 'umask 077; cat >/tmp/lent.pem'
check "an operator's certificate is lent" prints "serving: true" peer c $master --identity /tmp/lent.pem
check "and revoked" on m sh -c 'ebb identity revoke --serial "$(ebb --json identity show /tmp/lent.pem | jq -r .serial)"'
attack "revoked key" "at the master, at once" refused 3 "revoked" peer c $master --identity /tmp/lent.pem
attack "revoked key" "at a block server, within its ten seconds" soon 15 refused 3 "revoked" peer c $block --identity /tmp/lent.pem Counters

# --- a user against another one ---
on c sh -c 'echo the secret of user5 >/mnt/ebb/secret && chown user5: /mnt/ebb/secret && chmod 0600 /mnt/ebb/secret && sync /mnt/ebb/secret'
on m sh -c 'rm -f /tmp/program.pem; ebb identity issue --role program --user user1 --out /tmp/program.pem >/dev/null; cat /tmp/program.pem' | on c sh -c 'umask 077; cat >/tmp/program.pem'
program() { peer c $master --identity /tmp/program.pem --host c --first OpenSession 'host: "c" role: "program"' "$@"; }
resolve() { program MetaRequest "session: {session} credentials { uid: $1 gid: $1 } op { resolve { path: \"/$2\" follow_last: true access: 4 } }"; }
check "user1's program finds what all may read" prints "inode" resolve 3001 "$name"
attack "user's program" "reads another user's file" refused 3 "" resolve 3001 secret
attack "user's program" "says that it is another user's" refused 3 "acts for user" resolve 3005 secret
attack "user's program" "says that it is root's" refused 3 "acts for user" resolve 0 secret
attack "user's program" "renews its certificate" refused 3 "" peer c $master --identity /tmp/program.pem --host c RenewIdentity
# from_block KEY: reads the first bytes of that file from a block server, past the master.
from_block() {
    local place node address
    read -r node place < <(on m ebb --json fs locations /secret |
        jq -r '.metablocks[0] | "\(.replicas[0].node) metablock: \(.id) volume: \(.replicas[0].volume)" | gsub("[mv](?=[0-9])"; "")')
    address=$(on m ebb --json node list | jq -r ".[] | select(.id == \"$node\").address")
    peer c "$address" --identity "$1" --host c ReadReplica "$place length: 16384"
}
check "an operator reads them there: the attack can succeed" prints "the secret of user5" from_block /tmp/stolen.pem
# Block servers believe every client: docs/identities.md says so.
if prints "the secret of user5" from_block /tmp/program.pem >/dev/null; then
    row "user's program" "reads another user's bytes from a block server" "possible: rights at the data are planned"
else
    row "user's program" "reads another user's bytes from a block server" "held"
fi

# --- the same wire without encryption: what is listened for is there ---
if [ -x "$sniffer" ]; then
    plain() { found_cluster --wire plain && add_nodes "${nodes[@]}" && add_client && on h1 mount -t ebb ebb /mnt/ebb; }
    need plain plain || return 0
    check "a cluster with --wire plain is recorded" captured
    check "there the contents are on the wire" seen "${pattern:0:20}"
    check "and the name" seen "${name:0:12}"
    attack "stranger" "no certificate, where bytes are plain" refused 3 "" peer c $master
fi
awk -F '\t' 'BEGIN { print "ATTACKS" } { printf "%-16s %-56s %s\n", $1, $2, $3 }' /mnt/rows >/mnt/attacks

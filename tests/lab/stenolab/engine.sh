#!/bin/bash
# A Docker engine for the tests, without systemd and without an image registry: engine.sh up|down FOLDER [FROM]
# Needs root and Debian's docker.io, tini, g++, python3. The image has the files of those two packages and
# of all that they need, as they are on this machine: to install them again takes half a minute. What is there
# already is used again: the image stays in FOLDER; with FROM, the address of another engine, it is copied from there.
# Outside of FOLDER there are only the control groups /steno-tests, which `down` removes.
set -euo pipefail
folder=${2:?folder}; socket=$folder/docker.sock; pidfile=$folder/dockerd.pid; image=steno-lab/kernel:1
client() { docker -H "unix://$socket" "$@"; }
alive() { [ -s "$pidfile" ] && [ "$(readlink "/proc/$(cat "$pidfile")/exe")" = "$(readlink -f "$(command -v dockerd)")" ]; }
files_of_this_machine() {
  local packages=(g++ python3 base-files bash coreutils dash findutils grep libc-bin procps sed tar util-linux)
  { printf '/%s\n' bin sbin lib lib64 etc/passwd etc/group
    # Of alternatives it names those too that are not installed.
    apt-cache depends --recurse --installed --important "${packages[@]}" | sed -n 's/^\([a-z0-9][^:]*\).*/\1/p' | sort -u |
      { xargs dpkg -L 2>/dev/null || true; } | sed -nE 's#^/(bin|sbin|lib|lib64)/#/usr/\1/#; /^\/[^.]/p'
  } | sort -u | grep -vE '^/usr/share/(doc|man|locale)/' | while read -r path; do
    [ ! -e "$path" ] || echo "$path"
  done
}
case $1 in
up)
  mkdir -p "$folder"
  if ! alive; then
    rm -f "$pidfile"
    echo '{}' >"$folder/daemon.json"
    setsid dockerd --data-root "$folder/data" --exec-root "$folder/exec" --pidfile "$pidfile" \
      -H "unix://$socket" --config-file "$folder/daemon.json" --iptables=false --ip6tables=false --ip-forward=false \
      --bridge=none --userland-proxy=false --log-driver=none --exec-opt native.cgroupdriver=cgroupfs \
      --cgroup-parent=/steno-tests >"$folder/dockerd.log" 2>&1 </dev/null &
    for _ in $(seq 300); do
      client version >/dev/null 2>&1 && break
      kill -0 $! 2>/dev/null || { tail -5 "$folder/dockerd.log" >&2; exit 1; }
      sleep 0.1
    done
  fi
  if [ -n "${3:-}" ] && ! client image inspect $image >/dev/null 2>&1; then
    docker -H "$3" save $image | client load >/dev/null
  elif ! client image inspect $image >/dev/null 2>&1; then
    mkdir -p "$folder/own/etc" # passwords of nobody
    echo 'root:*:20000:0:99999:7:::' | install -m 640 -g shadow /dev/stdin "$folder/own/etc/shadow"
    files_of_this_machine | tar -c --no-recursion -T - -C "$folder/own" etc/shadow 2>/dev/null |
      client import --change 'ENV PATH=/usr/bin:/bin' - $image >/dev/null
  fi
  ;;
down)
  if alive; then
    pid=$(cat "$pidfile")
    for _ in $(seq 150); do # the engine refuses what it is removing already
      left=$(client ps -aq)
      [ -z "$left" ] && break
      client rm -fv $left >/dev/null 2>&1 || sleep 0.2
    done
    kill -TERM "$pid"
    for _ in $(seq 150); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
  fi
  awk -v folder="$folder/" 'index($2, folder) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r umount -l
  find /sys/fs/cgroup -depth -type d -path '*/steno-tests*' -exec rmdir {} + 2>/dev/null || true
  ;;
*) exit 64 ;;
esac

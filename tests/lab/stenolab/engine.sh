#!/bin/bash
# A Docker engine for the tests, without systemd and without an image registry: engine.sh up|down FOLDER [FROM]
# Needs root and Debian's docker.io, tini, mmdebstrap. What is there already is used again: the image
# stays in FOLDER; with FROM, the address of another engine, it is copied from there. Outside of FOLDER
# there are only the control groups /steno-tests, which `down` removes.
set -euo pipefail
folder=${2:?folder}; socket=$folder/docker.sock; pidfile=$folder/dockerd.pid; image=steno-lab/kernel:1
client() { docker -H "unix://$socket" "$@"; }
alive() { [ -s "$pidfile" ] && [ "$(readlink "/proc/$(cat "$pidfile")/exe")" = "$(readlink -f "$(command -v dockerd)")" ]; }
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
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v security | head -1)
    mmdebstrap --quiet --variant=apt --include=g++,python3 --dpkgopt='path-exclude=/usr/share/doc/*' \
      --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' bookworm - "$mirror" \
      2>"$folder/mmdebstrap.log" | client import --change 'ENV PATH=/usr/bin:/bin' - $image >/dev/null
  fi
  ;;
down)
  if alive; then
    pid=$(cat "$pidfile")
    client ps -aq | xargs -r docker -H "unix://$socket" rm -fv >/dev/null
    kill -TERM "$pid"
    for _ in $(seq 150); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
  fi
  awk -v folder="$folder/" 'index($2, folder) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r umount -l
  find /sys/fs/cgroup -depth -type d -path '*/steno-tests*' -exec rmdir {} + 2>/dev/null || true
  ;;
*) exit 64 ;;
esac

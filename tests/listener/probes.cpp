// What a hostile program tries. `probes all` tries every entry of the table in a process of its own and prints its name
// and "through", the error, or the signal. Every other word is an attack on what a machine has: memory, disk, output, time.
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <netdb.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

using Probe = std::function<long()>;  // a negative number: refused, as errno says

static long writes(const char* path) { return open(path, O_WRONLY | O_CREAT | O_APPEND, 0666); }
static long reads(const char* path) {
  char byte;
  const int file = open(path, O_RDONLY | O_NONBLOCK);
  return file < 0 ? -1 : read(file, &byte, 1);
}
static long reaches(int kind, const char* address, int port) {
  const int made = socket(AF_INET, kind, 0);
  if (made < 0) return -1;
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, address, &to.sin_addr);
  if (kind == SOCK_DGRAM) return sendto(made, "x", 1, 0, reinterpret_cast<sockaddr*>(&to), sizeof to);
  alarm(5);
  return connect(made, reinterpret_cast<sockaddr*>(&to), sizeof to);
}
static long resolves() {
  addrinfo* found;
  const int failed = getaddrinfo("debian.org", "80", nullptr, &found);
  errno = EAI_SYSTEM == failed ? errno : EHOSTUNREACH;
  return -failed * failed;
}
static long old_socketcall() {  // the 32-bit door, whose arguments seccomp cannot see
#ifdef __x86_64__
  auto* words = static_cast<unsigned*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0));
  words[0] = AF_NETLINK, words[1] = SOCK_RAW, words[2] = 0;
  long result;
  __asm__ volatile("int $0x80" : "=a"(result) : "a"(102), "b"(1), "c"(words) : "memory");
  if (result >= 0) return result;
  errno = static_cast<int>(-result);
#else
  errno = ENOSYS;
#endif
  return -1;
}
static long setuid_program() {
  int input[2];
  if (pipe(input) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    dup2(input[0], 0);
    dup2(open("/dev/null", O_WRONLY), 2);
    execl("/bin/su", "su", static_cast<char*>(nullptr));
    _exit(1);
  }
  usleep(300000);
  struct stat about{};
  const bool seen = stat(("/proc/" + std::to_string(child)).c_str(), &about) == 0;
  kill(child, SIGKILL);
  errno = EPERM;
  return seen && about.st_uid == 0 ? 0 : -1;
}
static long clone_with(unsigned long flags) {
  const long child = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
  if (child == 0) _exit(0);
  return child;
}
static long ptraces() {
  const pid_t child = fork();
  if (child == 0) { pause(); _exit(0); }
  const long done = ptrace(PTRACE_ATTACH, child, 0, 0);
  const int error = errno;
  kill(child, SIGKILL);
  errno = error;
  return done;
}
static long reads_memory() {
  char from = 1, to = 0;
  iovec here{&to, 1}, there{&from, 1};
  return syscall(SYS_process_vm_readv, getpid(), &here, 1, &there, 1, 0);
}
static long perf() {
  perf_event_attr about{};
  about.size = sizeof about, about.type = PERF_TYPE_SOFTWARE, about.exclude_kernel = 1;
  return syscall(SYS_perf_event_open, &about, 0, -1, -1, 0);
}
static long clone3_namespace() {
  unsigned long words[11] = {CLONE_NEWUSER, 0, 0, 0, SIGCHLD};
  const long child = syscall(SYS_clone3, words, sizeof words);
  if (child == 0) _exit(0);
  return child;
}
static long finds(const char* text) {  // in the environment of any process that is seen
  std::string environment;
  for (char** one = environ; *one; ++one) environment += *one;
  if (DIR* all = opendir("/proc")) {
    while (const dirent* one = readdir(all)) {
      const int file = open(("/proc/" + std::string(one->d_name) + "/environ").c_str(), O_RDONLY);
      char piece[4096];
      for (ssize_t got; file >= 0 && (got = read(file, piece, sizeof piece)) > 0;) environment.append(piece, got);
    }
  }
  errno = ENOENT;
  return environment.find(text) == std::string::npos ? -1 : 0;
}
static long handle() {
  char room[256] = {static_cast<char>(128)};
  int mount;
  return syscall(SYS_name_to_handle_at, AT_FDCWD, "/tmp", room, &mount, 0);
}

static std::vector<std::pair<std::string, Probe>> table(int port) {
  static char ring[256];
  return {
      {"tcp", [=] { return reaches(SOCK_STREAM, "127.0.0.1", port); }},
      {"udp", [] { return reaches(SOCK_DGRAM, "192.0.2.1", 53); }},
      {"dns", resolves},
      {"inet6", [] { return socket(AF_INET6, SOCK_STREAM, 0); }},
      {"raw", [] { return socket(AF_INET, SOCK_RAW, IPPROTO_ICMP); }},
      {"ping", [] { return socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP); }},
      {"packet", [] { return socket(AF_PACKET, SOCK_RAW, 0); }},
      {"netlink", [] { return socket(AF_NETLINK, SOCK_RAW, 0); }},
      {"vsock", [] { return socket(AF_VSOCK, SOCK_STREAM, 0); }},
      {"alg", [] { return socket(AF_ALG, SOCK_SEQPACKET, 0); }},
      {"socketcall", old_socketcall},
      {"write_root", [] { return writes("/written"); }},
      {"write_etc", [] { return writes("/etc/passwd"); }},
      {"write_usr", [] { return writes("/usr/bin/g++"); }},
      {"write_sysrq", [] { return writes("/proc/sysrq-trigger"); }},
      {"write_core_pattern", [] { return writes("/proc/sys/kernel/core_pattern"); }},
      {"write_cgroup", [] { return writes("/sys/fs/cgroup/memory/memory.limit_in_bytes"); }},
      {"write_oom", [] { return write(static_cast<int>(writes("/proc/self/oom_score_adj")), "-1000", 5); }},
      {"read_kcore", [] { return reads("/proc/kcore"); }},
      {"read_kmsg", [] { return reads("/dev/kmsg"); }},
      {"read_mem", [] { return reads("/dev/mem"); }},
      {"read_shadow", [] { return reads("/etc/shadow"); }},
      {"docker_socket", [] { return access("/var/run/docker.sock", F_OK) & access("/run/docker.sock", F_OK); }},
      {"host_environment", [] { return finds("STENO_PROBE_MARK"); }},
      {"device", [] { return mknod("/tmp/disk", S_IFBLK | 0666, makedev(8, 0)); }},
      {"kfd", [] { return open("/dev/kfd", O_RDWR); }},
      {"mount", [] { return mount("none", "/tmp", "tmpfs", 0, ""); }},
      {"umount", [] { return umount2("/tmp", MNT_DETACH); }},
      {"pivot_root", [] { return syscall(SYS_pivot_root, "/tmp", "/tmp"); }},
      {"chroot", [] { return chroot("/tmp"); }},
      {"fsopen", [] { return syscall(430, "tmpfs", 0); }},
      {"open_tree", [] { return syscall(428, AT_FDCWD, "/", 1); }},
      {"unshare", [] { return unshare(CLONE_NEWUSER); }},
      {"unshare_net", [] { return unshare(CLONE_NEWUSER | CLONE_NEWNET); }},
      {"setns", [] { return setns(open("/proc/self/ns/user", O_RDONLY), 0); }},
      {"clone_namespace", [] { return clone_with(CLONE_NEWUSER); }},
      {"clone3_namespace", clone3_namespace},
      {"bpf", [] { char attributes[128] = {1, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 1}; return syscall(SYS_bpf, 0, attributes, 72); }},
      {"io_setup", [] { return syscall(206, 1, ring); }},
      {"io_submit", [] { return syscall(209, 0, 0, nullptr); }},
      {"io_uring", [] { memset(ring, 0, sizeof ring); return syscall(425, 4, ring); }},
      {"add_key", [] { return syscall(SYS_add_key, "user", "name", "x", 1, -2); }},
      {"keyctl", [] { return syscall(SYS_keyctl, 0, -3, 1); }},
      {"request_key", [] { return syscall(SYS_request_key, "user", "name", nullptr, 0); }},
      {"ptrace", ptraces},
      {"process_vm", reads_memory},
      {"kcmp", [] { return syscall(SYS_kcmp, getpid(), getpid(), 0, 0, 0); }},
      {"pidfd_getfd", [] { return syscall(438, syscall(434, getppid(), 0), 1, 0); }},
      {"userfaultfd", [] { return syscall(SYS_userfaultfd, 1); }},
      {"perf", perf},
      {"name_to_handle", handle},
      {"open_by_handle", [] { char room[64] = {8}; return syscall(SYS_open_by_handle_at, AT_FDCWD, room, 0); }},
      {"init_module", [] { return syscall(SYS_init_module, "", 0, ""); }},
      {"kexec", [] { return syscall(SYS_kexec_load, 0, 0, nullptr, 0); }},
      {"reboot", [] { return syscall(SYS_reboot, 0xfee1dead, 672274793, 0, 0); }},  // lets Ctrl-Alt-Del signal init: harmless
      {"swapon", [] { return syscall(SYS_swapon, "/tmp/none", 0); }},
      {"acct", [] { return syscall(SYS_acct, nullptr); }},
      {"quotactl", [] { return syscall(SYS_quotactl, 0x800001 << 8, nullptr, 0, nullptr); }},
      {"personality", [] { return syscall(SYS_personality, 0x0400000); }},
      {"settime", [] { timespec now{}; clock_gettime(CLOCK_REALTIME, &now); return static_cast<long>(clock_settime(CLOCK_REALTIME, &now)); }},
      {"setuid", [] { return setuid(0); }},
      {"setuid_program", setuid_program},
      {"new_privileges", [] { errno = EPERM; return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? -1L : 0L; }},
      {"tmp_setuid", [] { struct statvfs about{}; statvfs("/tmp", &about); errno = EPERM; return about.f_flag & ST_NOSUID ? -1L : 0L; }},
      {"raise_limit", [] { unsigned long now[2] = {1 << 20, 1 << 20}; return syscall(SYS_prlimit64, 0, 7, now, nullptr); }},
      {"kill_init", [] { kill(1, SIGKILL); usleep(50000); errno = EPERM; return -1L; }},
      {"clone_thread", [] { std::thread([] {}).join(); return 0L; }},  // this and the next two are to work
      {"unix_socket", [] { int pair[2]; return socketpair(AF_UNIX, SOCK_STREAM, 0, pair); }},
      {"mempolicy", [] { return syscall(SYS_set_mempolicy, 0, nullptr, 0); }},
  };
}

static int all(int port) {
  for (const auto& [name, probe] : table(port)) {
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      errno = 0;
      const bool through = probe() >= 0;
      printf("%s %s\n", name.c_str(), through ? "through" : strerrorname_np(errno));
      fflush(stdout);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) printf("%s signal %d\n", name.c_str(), WTERMSIG(status));
  }
  return 0;
}

static int touch(size_t megabytes) {
  for (size_t done = 0; done < megabytes; ++done) memset(malloc(1 << 20), 1, 1 << 20);
  return 0;
}
static int fill(const char* path, size_t megabytes) {
  std::vector<char> piece(1 << 20, 'x');
  const int file = open(path, O_WRONLY | O_CREAT, 0666);
  size_t done = 0;
  for (; done < megabytes; ++done)
    if (write(file, piece.data(), piece.size()) != static_cast<ssize_t>(piece.size())) break;
  printf("%zu\n", done);
  return 0;
}
static int print(size_t megabytes) {
  std::vector<char> piece(1 << 20, 'x');
  for (size_t done = 0; done < megabytes; ++done) fwrite(piece.data(), 1, piece.size(), stdout);
  puts("END");
  return 0;
}
static int count(const std::function<bool(int)>& more) {
  int done = 0;
  while (done < 20000 && more(done)) ++done;
  printf("%d\n", done);
  return 0;
}
static int daemonise() {
  if (fork() == 0) {
    setsid();
    if (fork() == 0)
      for (;;) pause();  // holds the streams open too
    _exit(0);
  }
  usleep(50000);
  return 0;
}
static int echo() {
  char word[24];
  for (;;) {
    for (size_t done = 0; done < sizeof word;) {
      const ssize_t got = read(3, word + done, sizeof word - done);
      if (got <= 0) return 0;
      done += static_cast<size_t>(got);
    }
    if (write(4, word, sizeof word) != sizeof word) return 1;
  }
}

int main(int, char** given) {
  if (std::string(given[1]) == "/steno") ++given;  // it runs with a channel
  const std::string word = given[1];
  const char* second = given[2] ? given[2] : "0";
  const int number = atoi(second);
  if (word == "all") return all(number);
  if (word == "exit") return number;
  if (word == "spin") for (volatile int i = 0;; i = i) {}
  if (word == "signal") return raise(number);
  if (word == "abort") abort();
  if (word == "memory") return touch(number);
  if (word == "fill") return fill("/tmp/full", number);
  if (word == "shm") return fill("/dev/shm/full", number);
  if (word == "print") return print(number);
  if (word == "forks") return count([](int) { const pid_t one = fork(); if (one == 0) { pause(); } return one > 0; });
  if (word == "bomb") for (;;) fork();
  if (word == "files") return count([](int done) { return open("/dev/null", O_RDONLY) >= 0 || done < 0; });
  if (word == "inodes") return count([](int done) { return mkdir(("/tmp/" + std::to_string(done)).c_str(), 0777) == 0; });
  if (word == "binary") { for (int value = 0; value < 256; ++value) putchar(value); return 0; }
  if (word == "child_memory") { if (fork() == 0) touch(number); int status; wait(&status); return 0; }
  if (word == "stubborn") { signal(SIGTERM, SIG_IGN); for (;;) pause(); }
  if (word == "closed") { for (int one = 0; one < 5; ++one) close(one); for (;;) pause(); }
  if (word == "daemon") return daemonise();
  if (word == "kill_all") { kill(-1, SIGKILL); for (;;) pause(); }
  if (word == "fifo") return mkfifo("out", 0666);
  if (word == "fifo_swap") { mkfifo("out", 0666); if (fork() == 0) { for (;;) { open("out", O_RDWR); pause(); } } usleep(50000); return 0; }
  if (word == "link") return symlink(second, "out");
  if (word == "folder") return mkdir("out", 0777);
  if (word == "large") { const int file = open("out", O_WRONLY | O_CREAT, 0666); return ftruncate(file, number); }
  if (word == "endless") { if (fork() == 0) { const int file = open("out", O_WRONLY | O_CREAT, 0666); for (;;) pwrite(file, "x", 1, 4000000); } usleep(50000); return 0; }
  if (word == "echo") return echo();
  if (word == "noisy") { for (size_t done = 0; done < 4 << 20; done += 64) fwrite("................................................................", 1, 64, stderr); return echo(); }
  if (word == "flood") for (std::vector<char> piece(1 << 16, 'x');;) if (write(4, piece.data(), piece.size()) < 0) return 1;
  if (word == "threads") { for (int one = 0; one < number; ++one) std::thread([] { for (;;) pause(); }).detach(); write(4, "x", 1); return echo(); }
  if (word == "channel") { printf("%d %d\n", isatty(0), static_cast<int>(read(0, given[0], 1))); fflush(stdout); fprintf(stderr, "err\n"); return echo(); }
  if (word == "stuck") { char byte; write(4, "x", 1); for (;;) { pause(); read(3, &byte, 0); } }
  return 64;
}

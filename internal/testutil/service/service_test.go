// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package service

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// probeEnv makes the test binary try what a service may and may not.
const probeEnv = "ISTHMUS_TEST_PROBE"

func TestMain(m *testing.M) {
	Enter()
	if os.Getenv(probeEnv) != "" {
		probe()
	}
	os.Exit(testutil.PrivateMounts(m))
}

const (
	unitFile     = "../../../dist/systemd/isthmus.service"
	tmpfilesFile = "../../../dist/tmpfiles.d/isthmus.conf"
)

// attempts are what a process tries; each gives the kernel's answer.
var attempts = map[string]func() error{
	"socket of IPv4":          socket(unix.AF_INET, unix.SOCK_DGRAM),
	"socket of packets":       socket(unix.AF_PACKET, unix.SOCK_RAW),
	"socket of Bluetooth":     socket(unix.AF_BLUETOOTH, unix.SOCK_RAW),
	"memory to write and run": func() error { return mapped(unix.PROT_READ | unix.PROT_WRITE | unix.PROT_EXEC) },
	"memory to write":         func() error { return mapped(unix.PROT_READ | unix.PROT_WRITE) },
	"other network":           func() error { return unix.Unshare(unix.CLONE_NEWNET) },
	"process of its own network": func() error {
		cmd := exec.Command("/usr/bin/isthmus", "-test.run", "^$")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
		return cmd.Run()
	},
	"mount":        func() error { return unix.Mount("tmpfs", "/tmp", "tmpfs", 0, "") },
	"trace":        func() error { return unix.PtraceAttach(1) },
	"clock":        func() error { return unix.ClockSettime(unix.CLOCK_REALTIME, &unix.Timespec{}) },
	"name of host": func() error { return unix.Sethostname([]byte("other")) },
	"kernel's log": func() error { _, err := unix.Klogctl(10, nil); return err },
	"real time": func() error {
		priority := int32(1)
		_, _, errno := unix.Syscall(unix.SYS_SCHED_SETSCHEDULER, 0, 1, uintptr(unsafe.Pointer(&priority)))
		return answer(errno)
	},
	"real time by attributes": func() error {
		return unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0)
	},
	"short slices": func() error { // those of loop.Hurry
		return unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Runtime: 100_000}, 0)
	},
	"personality": func() error {
		_, _, errno := unix.Syscall(unix.SYS_PERSONALITY, 0x0040000, 0, 0) // ADDR_NO_RANDOMIZE
		return answer(errno)
	},
	"other user": func() error {
		_, _, errno := unix.RawSyscall(unix.SYS_SETUID, 0, 0, 0)
		return answer(errno)
	},
	"BPF": func() error {
		_, _, errno := unix.Syscall(unix.SYS_BPF, ^uintptr(0)>>1, 0, 0)
		return answer(errno)
	},
	"program for another user":   func() error { return unix.Fchmodat(unix.AT_FDCWD, "/run/isthmus", 0o4755, 0) },
	"write /usr":                 write("/usr/file"),
	"write /etc":                 write("/etc/file"),
	"write the configuration":    write("/etc/isthmus/file"),
	"write /run":                 write("/run/file"),
	"write /proc/sys":            write("/proc/sys/net/ipv4/ip_forward"),
	"write /tmp":                 write("/tmp/file"),
	"write the folder to run":    write("/run/isthmus/file"),
	"write the folder of state":  write("/var/lib/isthmus/file"),
	"folder of the BPF programs": func() error { return os.Mkdir("/run/isthmus/bpf/folder", 0o700) },
	"see /proc/1":                func() error { _, err := os.Stat("/proc/1"); return err },
	"read of /proc/1":            func() error { _, err := os.Readlink("/proc/1/ns/net"); return err },
	"see addresses of kernel":    look("/proc/kallsyms"),
	"see home":                   look("/root/file"),
	"see itself":                 look("/proc/self/status"),
	"device of tunnels":          open("/dev/net/tun"),
	"device of memory":           open("/dev/mem"),
	"device of nothing":          open("/dev/null"),
}

func answer(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

func socket(family, kind int) func() error {
	return func() error {
		fd, err := unix.Socket(family, kind, 0)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
}

func mapped(protection int) error {
	memory, err := unix.Mmap(-1, 0, 4096, protection, unix.MAP_PRIVATE|unix.MAP_ANON)
	return errors.Join(err, func() error {
		if err != nil {
			return nil
		}
		return unix.Munmap(memory)
	}())
}

func write(path string) func() error {
	return func() error {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
		if err == nil {
			f.Close()
		}
		return err
	}
}

func look(path string) func() error {
	return func() error { _, err := os.ReadFile(path); return err }
}

func open(path string) func() error {
	return func() error {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err == nil {
			f.Close()
		}
		return err
	}
}

// probe tries everything, and writes what came of it.
func probe() {
	results := map[string]string{}
	for name, attempt := range attempts {
		results[name] = ""
		if err := attempt(); err != nil {
			results[name] = err.Error()
		}
	}
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		results[key] = strings.Join(strings.Fields(value), " ")
	}
	if err := json.NewEncoder(os.Stdout).Encode(results); err != nil {
		panic(err)
	}
	os.Exit(0)
}

// TestService tries as a process of the unit what it allows and what it forbids.
func TestService(t *testing.T) {
	testutil.NeedRoot(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m := NewMachine(t, self, unitFile, tmpfilesFile)
	cmd := exec.Command(self)
	m.Start(cmd, probeEnv+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	const (
		refused  = "operation not permitted"
		denied   = "permission denied"
		readOnly = "read-only file system"
		missing  = "no such file or directory"
	)
	want := map[string]string{
		"socket of IPv4": "", "socket of packets": "", "socket of Bluetooth": "address family not supported by protocol",
		"memory to write and run": refused, "memory to write": "",
		"other network": refused, "process of its own network": refused,
		"mount": refused, "trace": refused, "clock": refused, "name of host": refused, "kernel's log": refused,
		"real time": refused, "real time by attributes": refused, "short slices": "", "personality": refused, "other user": refused,
		"BPF":                      "invalid argument", // as the kernel itself says
		"program for another user": refused,
		"write /usr":               readOnly, "write /etc": readOnly, "write the configuration": denied, "write /run": readOnly,
		"write /proc/sys": readOnly, "write /tmp": "", "write the folder to run": "", "write the folder of state": "",
		"folder of the BPF programs": "",
		// The kernel lets the group root see processes whatever a mount says.
		"see /proc/1": "", "read of /proc/1": denied, "see addresses of kernel": denied, "see home": denied, "see itself": "",
		"device of tunnels": "", "device of memory": missing, "device of nothing": "",
		// Of /proc/self/status: NET_BIND_SERVICE, NET_ADMIN, NET_RAW, PERFMON, BPF.
		"Uid": "990 990 990 990", "Gid": "990 990 990 990", "Groups": "0 990",
		"CapEff": "000000c000003400", "CapPrm": "000000c000003400", "CapBnd": "000000c000003400", "CapAmb": "000000c000003400",
		"NoNewPrivs": "1", "Seccomp": "2", "Umask": "0077",
	}
	for name, said := range want {
		if heard := got[name]; heard != said && !strings.HasSuffix(heard, ": "+said) || heard != "" && said == "" {
			t.Errorf("%s: %q, want %q", name, heard, said)
		}
	}
	for name := range attempts {
		if _, ok := want[name]; !ok {
			t.Errorf("nothing is known of %q", name)
		}
	}
}

// TestDirectives refuses what it could not apply.
func TestDirectives(t *testing.T) {
	for text, want := range map[string]string{
		"[Service]\nUser=isthmus\nProtectEverything=yes": "ProtectEverything is a directive that no test applies",
		"[Unit]\nUser=isthmus":                           "[Unit] User is a directive that no test applies",
		"[Service]\nProtectSystem=full":                  "known of \"strict\" alone",
		"[Service]\nPrivateTmp=no":                       "known of \"yes\" alone",
		"[Service]\nAmbientCapabilities=CAP_SYS_ADMIN":   "unknown capability",
		"[Service]\nSystemCallFilter=@all":               "unknown set",
		"[Service]\nSystemCallFilter=reed":               "unknown system call",
		"[Service]\nSystemCallFilter=~@resources":        "lists of allowed calls alone",
		"[Service]\nRuntimeDirectory=a b":                "more than a name",
		"User=isthmus":                                   "no directive of a section",
		"[Service]\nExecStart=a \\":                      "in one line",
	} {
		unit, err := parse("unit", text)
		if err == nil {
			_, err = New(unit)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestCalls reads the filter of the unit as systemd would.
func TestCalls(t *testing.T) {
	unit, err := Read(unitFile)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(unit)
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string]bool{}
	for _, call := range s.Calls {
		allowed[call] = true
	}
	for call, want := range map[string]bool{
		"read": true, "execve": true, "socket": true, "fchownat": true, "bpf": true, "prlimit64": true,
		"setuid": false, "sched_setattr": true, "sched_setscheduler": false, "mount": false, "ptrace": false, "reboot": false, "init_module": false,
	} {
		if allowed[call] != want {
			t.Errorf("%s: allowed %t, want %t", call, allowed[call], want)
		}
	}
}

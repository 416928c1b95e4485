// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Sandbox is what a unit makes of a process.
type Sandbox struct {
	Exec        []string
	User, Group string
	Groups      []string // beside
	// Ambient capabilities, and all that can ever be had.
	Ambient, Bounding []uintptr
	NoNewPrivileges   bool
	Umask             int
	MemoryLock        uint64

	Runtime, State, Configuration Folder
	Binds                         []Bind
	Devices                       []string // beside those that everybody has
	// Parts of the system that cannot be written, or not be seen.
	ReadOnly, Tunables, ControlGroups, Home, Modules, KernelLogs, Processes bool
	OwnTmp, OwnName                                                         bool

	Families []string // of addresses, that sockets may have
	Calls    []string // system calls that are allowed
	Refusal  int      // the error of others
	Refused  []rule   // by their arguments
}

// Folder is one that a unit has made in /run, /var/lib or /etc.
type Folder struct {
	Name string
	Mode os.FileMode
}

// Bind shows a folder of the machine in another place.
type Bind struct {
	From, To string
	Optional bool
}

// directives says for each that is known what it makes of a process.
var directives = map[Directive]func(*Sandbox, string) error{
	// These are for the manager and for people: a process is not bound by them.
	{"Unit", "Description", ""}:                 elsewhere,
	{"Unit", "Documentation", ""}:               elsewhere,
	{"Unit", "Wants", ""}:                       elsewhere,
	{"Unit", "After", ""}:                       elsewhere,
	{"Unit", "StartLimitIntervalSec", ""}:       elsewhere,
	{"Unit", "StartLimitBurst", ""}:             elsewhere,
	{"Service", "Type", ""}:                     one("notify"),
	{"Service", "NotifyAccess", ""}:             one("main"),
	{"Service", "ExecReload", ""}:               one("/bin/kill -HUP $MAINPID"),
	{"Service", "Restart", ""}:                  elsewhere,
	{"Service", "RestartSec", ""}:               elsewhere,
	{"Service", "RestartKillSignal", ""}:        one("SIGUSR2"),
	{"Service", "TimeoutStopSec", ""}:           elsewhere,
	{"Service", "RuntimeDirectoryPreserve", ""}: one("restart"),
	{"Service", "RemoveIPC", ""}:                elsewhere,
	{"Install", "WantedBy", ""}:                 elsewhere,

	{"Service", "ExecStart", ""}: func(s *Sandbox, v string) error { s.Exec = strings.Fields(v); return nil },
	{"Service", "User", ""}:      func(s *Sandbox, v string) error { s.User = v; return nil },
	{"Service", "Group", ""}:     func(s *Sandbox, v string) error { s.Group = v; return nil },
	{"Service", "SupplementaryGroups", ""}: func(s *Sandbox, v string) error {
		s.Groups = append(s.Groups, strings.Fields(v)...)
		return nil
	},
	{"Service", "AmbientCapabilities", ""}: func(s *Sandbox, v string) (err error) {
		s.Ambient, err = capabilities(v)
		return err
	},
	{"Service", "CapabilityBoundingSet", ""}: func(s *Sandbox, v string) (err error) {
		s.Bounding, err = capabilities(v)
		return err
	},
	{"Service", "NoNewPrivileges", ""}: yes(func(s *Sandbox) { s.NoNewPrivileges = true }),
	{"Service", "UMask", ""}: func(s *Sandbox, v string) error {
		mask, err := strconv.ParseUint(v, 8, 9)
		s.Umask = int(mask)
		return err
	},
	{"Service", "LimitMEMLOCK", ""}: func(s *Sandbox, v string) error {
		s.MemoryLock = math.MaxUint64
		return one("infinity")(s, v)
	},

	{"Service", "RuntimeDirectory", ""}:       func(s *Sandbox, v string) error { return s.Runtime.name(v) },
	{"Service", "RuntimeDirectoryMode", ""}:   func(s *Sandbox, v string) error { return s.Runtime.mode(v) },
	{"Service", "StateDirectory", ""}:         func(s *Sandbox, v string) error { return s.State.name(v) },
	{"Service", "StateDirectoryMode", ""}:     func(s *Sandbox, v string) error { return s.State.mode(v) },
	{"Service", "ConfigurationDirectory", ""}: func(s *Sandbox, v string) error { return s.Configuration.name(v) },
	{"Service", "BindPaths", ""}:              (*Sandbox).bind,
	{"Service", "DevicePolicy", ""}:           one("closed"),
	{"Service", "DeviceAllow", ""}: func(s *Sandbox, v string) error {
		path, rights, _ := strings.Cut(v, " ")
		if rights != "rw" {
			return fmt.Errorf("device %q with rights %q", path, rights)
		}
		s.Devices = append(s.Devices, path)
		return nil
	},
	{"Service", "PrivateTmp", ""}:            yes(func(s *Sandbox) { s.OwnTmp = true }),
	{"Service", "ProtectSystem", ""}:         func(s *Sandbox, v string) error { s.ReadOnly = true; return one("strict")(s, v) },
	{"Service", "ProtectHome", ""}:           yes(func(s *Sandbox) { s.Home = true }),
	{"Service", "ProtectKernelTunables", ""}: yes(func(s *Sandbox) { s.Tunables = true }),
	{"Service", "ProtectControlGroups", ""}:  yes(func(s *Sandbox) { s.ControlGroups = true }),
	{"Service", "ProtectProc", ""}:           func(s *Sandbox, v string) error { s.Processes = true; return one("invisible")(s, v) },

	{"Service", "ProtectClock", ""}: yes(func(s *Sandbox) {
		s.lose(unix.CAP_SYS_TIME, unix.CAP_WAKE_ALARM)
		s.refuse("@clock")
	}),
	{"Service", "ProtectHostname", ""}: yes(func(s *Sandbox) { s.OwnName = true; s.refuse("sethostname", "setdomainname") }),
	{"Service", "ProtectKernelLogs", ""}: yes(func(s *Sandbox) {
		s.KernelLogs = true
		s.lose(unix.CAP_SYSLOG)
		s.refuse("syslog")
	}),
	{"Service", "ProtectKernelModules", ""}: yes(func(s *Sandbox) {
		s.Modules = true
		s.lose(unix.CAP_SYS_MODULE)
		s.refuse("@module")
	}),
	{"Service", "LockPersonality", ""}:         yes(func(s *Sandbox) { s.Refused = append(s.Refused, personality...) }),
	{"Service", "MemoryDenyWriteExecute", ""}:  yes(func(s *Sandbox) { s.Refused = append(s.Refused, writeExecute...) }),
	{"Service", "RestrictNamespaces", ""}:      yes(func(s *Sandbox) { s.Refused = append(s.Refused, namespaces...) }),
	{"Service", "RestrictRealtime", ""}:        yes(func(s *Sandbox) { s.Refused = append(s.Refused, realtime...) }),
	{"Service", "RestrictSUIDSGID", ""}:        yes(func(s *Sandbox) { s.Refused = append(s.Refused, setID...) }),
	{"Service", "RestrictAddressFamilies", ""}: func(s *Sandbox, v string) error { s.Families = append(s.Families, strings.Fields(v)...); return nil },
	{"Service", "SystemCallArchitectures", ""}: one("native"), // a filter refuses all others anyway
	{"Service", "SystemCallFilter", ""}:        (*Sandbox).filter,
	{"Service", "SystemCallErrorNumber", ""}:   func(s *Sandbox, v string) error { s.Refusal = int(unix.EPERM); return one("EPERM")(s, v) },
}

// New reads what a unit makes of a process.
func New(unit []Directive) (*Sandbox, error) {
	s := &Sandbox{Runtime: Folder{Mode: 0o755}, State: Folder{Mode: 0o755}, Configuration: Folder{Mode: 0o755}}
	// What a directive takes away is taken from what another grants.
	last := func(d Directive) bool { return strings.HasPrefix(d.Key, "Protect") }
	for _, protects := range []bool{false, true} {
		for _, d := range unit {
			if last(d) != protects {
				continue
			}
			apply, known := directives[Directive{Section: d.Section, Key: d.Key}]
			if !known {
				return nil, fmt.Errorf("[%s] %s is a directive that no test applies: say in internal/testutil/service what it makes of the process", d.Section, d.Key)
			}
			if err := apply(s, d.Value); err != nil {
				return nil, fmt.Errorf("[%s] %s=%s: %w", d.Section, d.Key, d.Value, err)
			}
		}
	}
	return s, nil
}

func elsewhere(*Sandbox, string) error { return nil }

// one takes a single value, the only one whose effect is known here.
func one(known string) func(*Sandbox, string) error {
	return func(_ *Sandbox, v string) error {
		if v != known {
			return fmt.Errorf("what this does is known of %q alone", known)
		}
		return nil
	}
}

// yes takes a switch that is on.
func yes(on func(*Sandbox)) func(*Sandbox, string) error {
	return func(s *Sandbox, v string) error {
		on(s)
		return one("yes")(s, v)
	}
}

func (f *Folder) name(v string) error {
	f.Name = v
	if strings.ContainsAny(v, " :/") {
		return fmt.Errorf("more than a name")
	}
	return nil
}

func (f *Folder) mode(v string) error {
	mode, err := strconv.ParseUint(v, 8, 9)
	f.Mode = os.FileMode(mode)
	return err
}

func (s *Sandbox) bind(v string) error {
	v, optional := strings.CutPrefix(v, "-")
	from, to, ok := strings.Cut(v, ":")
	if !ok || strings.ContainsAny(to, ": ") {
		return fmt.Errorf("not one place and another")
	}
	s.Binds = append(s.Binds, Bind{from, to, optional})
	return nil
}

// lose takes capabilities away.
func (s *Sandbox) lose(lost ...uintptr) {
	without := func(c uintptr) bool { return slices.Contains(lost, c) }
	s.Ambient, s.Bounding = slices.DeleteFunc(s.Ambient, without), slices.DeleteFunc(s.Bounding, without)
}

// capabilities are those that some directive has named so far.
func capabilities(v string) (list []uintptr, err error) {
	known := map[string]uintptr{
		"CAP_NET_ADMIN": unix.CAP_NET_ADMIN, "CAP_NET_RAW": unix.CAP_NET_RAW, "CAP_NET_BIND_SERVICE": unix.CAP_NET_BIND_SERVICE,
		"CAP_BPF": unix.CAP_BPF, "CAP_PERFMON": unix.CAP_PERFMON,
	}
	for _, name := range strings.Fields(v) {
		c, ok := known[name]
		if !ok {
			return nil, fmt.Errorf("unknown capability %s", name)
		}
		list = append(list, c)
	}
	return list, nil
}

// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// capability is one of the process's rights (capabilities(7)).
type capability uint

const (
	capNetAdmin capability = unix.CAP_NET_ADMIN
	capSysAdmin capability = unix.CAP_SYS_ADMIN
	capPerfmon  capability = unix.CAP_PERFMON
	capBPF      capability = unix.CAP_BPF
)

func (c capability) String() string {
	switch c {
	case capNetAdmin:
		return "CAP_NET_ADMIN"
	case capSysAdmin:
		return "CAP_SYS_ADMIN"
	case capPerfmon:
		return "CAP_PERFMON"
	case capBPF:
		return "CAP_BPF"
	default:
		return fmt.Sprintf("capability %d", uint(c))
	}
}

// capabilities is a set of them, by bits.
type capabilities uint64

// effective returns what the process has in force.
func effective() capabilities {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil {
		return 0
	}
	return capabilities(data[1].Effective)<<32 | capabilities(data[0].Effective)
}

func (s capabilities) has(c capability) bool { return s&(1<<c) != 0 }

func (s capabilities) names() []string {
	var names []string
	for _, c := range []capability{capNetAdmin, capSysAdmin, capPerfmon, capBPF} {
		if s.has(c) {
			names = append(names, c.String())
		}
	}
	return names
}

// missing names the capability if it is not there.
func (s capabilities) missing(c capability) string {
	if s.has(c) {
		return ""
	}
	return c.String()
}

// whyNoPrograms puts into words why no program can be loaded.
func whyNoPrograms(s capabilities, err error) string {
	switch {
	case errors.Is(err, unix.ENOSYS):
		return "The kernel has no eBPF, so there is no fast path: take one with CONFIG_BPF_SYSCALL."
	case !errors.Is(err, unix.EPERM):
		return fmt.Sprintf("The kernel loads no programs (%v), so there is no fast path: see its log.", err)
	case !s.has(capSysAdmin) && !(s.has(capBPF) && s.has(capNetAdmin)):
		return "The process may not load programs: give it CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, or CAP_SYS_ADMIN on kernels before 5.8."
	default:
		return "The process is kept from loading programs although it has the capabilities: allow the bpf system call in its sandbox, " +
			"run it outside of a user namespace, or raise its limit of locked memory (LimitMEMLOCK=infinity) on kernels before 5.11."
	}
}
